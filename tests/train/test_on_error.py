"""What hooks are told of errors, in which order they end, and that what they wrote is in the files."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from fastsup import train

v1 = tf.compat.v1


class Told(v1.train.SessionRunHook):
    """Notes what it is told."""

    def __init__(self, calls: list[Any], name: str = "hook", error: Exception | None = None) -> None:
        self.calls, self.name, self.error = calls, name, error

    def on_error(self, run_context: Any, exception: BaseException) -> None:
        self.calls.append((self.name, run_context, exception))
        if self.error is not None:
            raise self.error


class InEachRun(Told):
    """One that a session calls in each run, which therefore has a run context."""

    def before_run(self, run_context: Any) -> None:
        pass


class Raises(v1.train.SessionRunHook):
    """Raises in one of its callbacks."""

    def __init__(self, callback: str, error: BaseException) -> None:
        self.error = error
        setattr(self, callback, self.fail)

    def fail(self, *args: Any) -> None:
        raise self.error


@pytest.fixture
def bad(train_op: Any) -> Any:
    """An operation that fails."""
    return tf.debugging.check_numerics(tf.constant(float("nan")), "not a number")


def told_of(calls: list[Any]) -> list[str]:
    return [name for name, _, _ in calls]


# on_error.


def test_all_hooks_in_their_order(train_op: Any, bad: Any) -> None:
    calls: list[Any] = []
    hooks = [Told(calls, "first"), v1.train.SessionRunHook(), InEachRun(calls, "second"), Told(calls, "third")]
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        with train.MonitoredSession(hooks=hooks) as session:
            session.run(train_op)
            session.run(bad)
    assert told_of(calls) == ["first", "second", "third"]
    assert all(exception is raised.value for _, _, exception in calls)


@pytest.mark.parametrize("way", ["run", "run_loop", "run with options", "run_without_hooks", "run_step_fn", "raw"])
def test_once_for_each_error_whatever_way_it_comes(train_op: Any, bad: Any, way: str) -> None:
    calls: list[Any] = []
    with pytest.raises(tf.errors.InvalidArgumentError):
        with train.MonitoredSession(hooks=[InEachRun(calls)]) as session:
            {
                "run": lambda: session.run(bad),
                "run_loop": lambda: session.run_loop(bad, steps=5),
                "run with options": lambda: session.run(bad, options=v1.RunOptions()),
                "run_without_hooks": lambda: session.run_without_hooks(bad),
                "run_step_fn": lambda: session.run_step_fn(lambda step_context: step_context.run_with_hooks(bad)),
                "raw": lambda: session.raw_session().run(bad),
            }[way]()
    assert told_of(calls) == ["hook"]


def test_an_error_that_the_program_handles_is_told_too(train_op: Any, bad: Any) -> None:
    calls: list[Any] = []
    with train.MonitoredSession(hooks=[Told(calls)]) as session:
        for _ in range(2):
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(bad)
        session.run(train_op)
    assert told_of(calls) == ["hook"] * 2
    assert calls[0][2] is not calls[1][2]


def test_an_error_without_hooks_that_the_program_handles_is_told_too(train_op: Any, bad: Any) -> None:
    calls: list[Any] = []
    with train.MonitoredSession(hooks=[Told(calls)]) as session:
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run_without_hooks(bad)
        assert told_of(calls) == ["hook"]


def test_the_context_of_the_run(train_op: Any, bad: Any) -> None:
    calls: list[Any] = []
    with pytest.raises(tf.errors.InvalidArgumentError):
        with train.MonitoredSession(hooks=[InEachRun(calls)]) as session:
            raw = session.raw_session()
            session.run(bad)
    ((_, context, _),) = calls
    assert isinstance(context, v1.train.SessionRunContext)
    assert context.original_args.fetches is bad
    assert context.session is raw


def test_the_context_of_a_run_after_which_alone_a_hook_is_called(train_op: Any, tmp_path: Any) -> None:
    class Fails(v1.train.CheckpointSaverListener):
        def after_save(self, session: Any, global_step_value: Any) -> None:
            if global_step_value == 2:
                raise OSError("the disk is full")

    calls: list[Any] = []
    saver = train.CheckpointSaverHook(str(tmp_path), save_steps=2, listeners=[Fails()])
    with pytest.raises(OSError, match="the disk is full"):
        with train.MonitoredSession(hooks=[Told(calls), saver]) as session:
            for _ in range(5):
                session.run(train_op)
    ((_, context, _),) = calls
    assert isinstance(context, v1.train.SessionRunContext)


def test_no_context_outside_a_run(train_op: Any) -> None:
    calls: list[Any] = []
    with pytest.raises(KeyError):
        with train.MonitoredSession(hooks=[InEachRun(calls)]) as session:
            session.run(train_op)
            raise KeyError("between two steps")
    assert [(context, type(error)) for _, context, error in calls] == [(None, KeyError)]


def test_no_context_where_no_hook_was_called(train_op: Any, bad: Any) -> None:
    calls: list[Any] = []
    with pytest.raises(tf.errors.InvalidArgumentError):
        with train.MonitoredSession(hooks=[Told(calls)]) as session:
            session.run(bad)
    assert [context for _, context, _ in calls] == [None]


@pytest.mark.parametrize("callback", ["before_run", "after_run"])
def test_what_a_hook_raises(train_op: Any, callback: str) -> None:
    calls: list[Any] = []
    with pytest.raises(KeyError):
        with train.MonitoredSession(hooks=[Told(calls), Raises(callback, KeyError("a hook's"))]) as session:
            session.run(train_op)
    ((_, context, error),) = calls
    assert context is not None
    assert error.args == ("a hook's",)


@pytest.mark.parametrize("error", [tf.errors.OutOfRangeError(None, None, "the end"), StopIteration("the end")])
@pytest.mark.parametrize("where", ["run", "block"])
def test_the_end_of_the_input_is_no_error(train_op: Any, error: BaseException, where: str) -> None:
    calls: list[Any] = []
    with train.MonitoredSession(hooks=[Told(calls), Raises("after_run", error)]) as session:
        if where == "run":
            session.run(train_op)
        raise error
    assert calls == []


def test_nor_is_a_normal_end(train_op: Any) -> None:
    calls: list[Any] = []
    with train.MonitoredSession(hooks=[Told(calls), train.StopAtStepHook(num_steps=3)]) as session:
        while not session.should_stop():
            session.run(train_op)
    assert calls == []


def test_what_on_error_raises_is_logged(train_op: Any, bad: Any, tf_log: Any) -> None:
    calls: list[Any] = []
    hooks = [Told(calls, "first", ValueError("a second one")), Told(calls, "second")]
    with pytest.raises(tf.errors.InvalidArgumentError, match="not a number"):
        with train.MonitoredSession(hooks=hooks) as session:
            session.run(bad)
    assert told_of(calls) == ["first", "second"]
    (logged,) = [record for record in tf_log.records if "on_error" in record.getMessage()]
    assert logged.levelname == "ERROR"
    assert "a second one" in logged.getMessage()


def test_recovered_errors_are_told(train_op: Any) -> None:
    calls: list[Any] = []
    failures = [tf.errors.AbortedError(None, None, "preempted"), tf.errors.UnavailableError(None, None, "away")]

    class Preempted(v1.train.SessionRunHook):
        def before_run(self, run_context: Any) -> None:
            if failures:
                raise failures.pop(0)

    expected = list(failures)
    with train.MonitoredSession(hooks=[Told(calls), Preempted()]) as session:
        session.run(train_op)
    assert [error for _, _, error in calls] == expected


def test_keyboard_interrupt_is_told(train_op: Any) -> None:
    calls: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        with train.MonitoredSession(hooks=[Told(calls)]):
            raise KeyboardInterrupt
    assert [type(error) for _, _, error in calls] == [KeyboardInterrupt]


def test_singular_sessions_tell_too(train_op: Any, bad: Any) -> None:
    calls: list[Any] = []
    with pytest.raises(tf.errors.InvalidArgumentError):
        with train.SingularMonitoredSession(hooks=[Told(calls)]) as session:
            session.run(bad)
    assert told_of(calls) == ["hook"]


def test_a_mock_of_a_hook_is_told(train_op: Any, bad: Any) -> None:
    """Whatever has the method is; nothing asks for a class."""
    calls: list[Any] = []
    hook = v1.train.SessionRunHook()
    hook.on_error = lambda run_context, exception: calls.append(exception)  # type: ignore[attr-defined]
    with pytest.raises(tf.errors.InvalidArgumentError):
        with train.MonitoredSession(hooks=[hook]) as session:
            session.run(bad)
    assert len(calls) == 1


# The order of end.


def test_the_sessions_own_saver_ends_last(train_op: Any, trace: Any, tmp_path: Any) -> None:
    """A checkpoint of the end holds what the hooks of the user have changed in theirs."""
    weight = v1.get_variable("weight", [], initializer=v1.zeros_initializer())
    change = v1.assign(weight, 5.0).op

    def end(number: int, session: Any) -> None:
        session.run(change)

    hooks = [trace.hook("first", end=end), trace.hook("second")]
    with train.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), hooks=hooks, chief_only_hooks=[trace.hook("chief's")], save_checkpoint_steps=100
    ) as session:
        session.run(train_op)
    assert [text for text in trace if text.endswith(".end")] == ["chief's.end", "first.end", "second.end"]
    reader = v1.train.NewCheckpointReader(v1.train.latest_checkpoint(str(tmp_path)))
    assert reader.get_tensor("weight") == 5.0


def test_other_hooks_end_in_their_order(train_op: Any, trace: Any, tmp_path: Any) -> None:
    listener = trace.listener("saver's")
    saver = train.CheckpointSaverHook(str(tmp_path), save_steps=100, saver=v1.train.Saver(), listeners=[listener])
    with train.MonitoredSession(hooks=[trace.hook("first"), saver, trace.hook("second")]) as session:
        session.run(train_op)
    ends = [text for text in trace if ".end" in text]
    assert ends == ["first.end", "saver's.end:1", "second.end"]


# What was written is there.


@pytest.mark.parametrize("end", ["normally", "with an error"])
def test_events_are_in_the_files(train_op: Any, tmp_path: Any, events: Any, end: str) -> None:
    tf.compat.v1.summary.scalar("loss", tf.constant(1.5))
    try:
        with train.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), save_summaries_steps=1, log_step_count_steps=1
        ) as session:
            for _ in range(5):
                session.run(train_op)
            if end == "with an error":
                raise KeyError("an error")
    except KeyError:
        # Before anything else might flush them.
        import glob

        (path,) = glob.glob(str(tmp_path / "events.out.tfevents.*"))
        with open(path, "rb") as file:
            written = file.read()
        assert written.count(b"loss") >= 5
    found = events(tmp_path)
    assert [text for text in found if text.endswith(":loss")] == [f"{n}:loss" for n in range(1, 6)]
    assert len([text for text in found if text.endswith(":global_step/sec")]) == 4
