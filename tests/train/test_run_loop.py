"""run_loop, and what else is public on fastsup's sessions alone: request_stop, raw_session, run_without_hooks."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import fastsup
from fastsup import train
from fastsup.train.schedule import ScheduledHook

v1 = tf.compat.v1


@pytest.fixture(params=["MonitoredSession", "SingularMonitoredSession"])
def open_session(request: pytest.FixtureRequest) -> Any:
    return getattr(train, request.param)


def by_hand(session: Any, fetches: Any, steps: int | None = None, feed_fn: Callable[[], Any] | None = None) -> Any:
    """The loop that run_loop is."""
    result, ran = None, 0
    while not session.should_stop() and (steps is None or ran < steps):
        result = session.run(fetches, feed_fn() if feed_fn else None)
        ran += 1
    return result


LOOPS = {"run_loop": lambda session, *args, **kwargs: session.run_loop(*args, **kwargs), "by hand": by_hand}


@pytest.fixture(params=list(LOOPS))
def loop(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """run_loop, and the same written by hand: what holds for one holds for the other."""
    return LOOPS[request.param]


# run_loop.


@pytest.mark.parametrize("with_loss", [False, True], ids=["op alone", "op and loss"])
@pytest.mark.parametrize("fails", [False, True], ids=["stops", "fails"])
def test_the_loss_is_watched(open_session: Any, step: Any, loop: Any, trace: Any, fails: bool, with_loss: bool) -> None:
    loss = tf.where(step.read < 5, 1.0, float("nan"))
    nan_hook = train.NanTensorHook(loss, fail_on_nan_loss=fails)
    hooks = [nan_hook, train.LoggingTensorHook([loss], every_n_iter=3), trace.hook("python")][: 2 if with_loss else 3]
    with open_session(hooks=hooks) as session:
        if fails:
            with pytest.raises(train.NanLossDuringTrainingError):
                loop(session, step.op)
        elif with_loss:
            assert np.isnan(loop(session, [step.op, loss])[1])
        else:
            assert loop(session, step.op) is None
        # The step at which the loss isn't a number is the sixth: before it, the variable is 5.
        assert session.raw_session().run(step.global_step) == 6


def test_a_watched_loss_costs_no_result(open_session: Any, step: Any, loop: Any) -> None:
    hooks = [train.NanTensorHook(tf.constant(1.0)), train.StopAtStepHook(last_step=7)]
    with open_session(hooks=hooks) as session:
        assert loop(session, {"step": step.read, "op": step.op}) == {"step": 6, "op": None}


@pytest.mark.parametrize("every", [1, 3, 100])
def test_the_last_result_outlives_the_end_of_the_input(open_session: Any, step: Any, every: int) -> None:
    element = v1.data.make_one_shot_iterator(tf.data.Dataset.range(7)).get_next()
    with tf.control_dependencies([element]):
        counted = tf.identity(step.read)
    hooks = [train.LoggingTensorHook([element], every_n_iter=every)]
    with open_session(hooks=hooks) as session:
        assert session.last_result is None
        session.run_loop({"element": element, "step": counted, "op": step.op})
        raise AssertionError("the input has no end")
    assert session.last_result == {"element": 6, "step": 6, "op": None}


def test_the_last_result(open_session: Any, step: Any) -> None:
    with open_session() as session:
        assert session.run_loop(step.read, 0) is None
        assert session.last_result is None
        result = session.run_loop([step.read, step.op], 4)
        assert session.last_result is result
        with pytest.raises(TypeError):
            session.run_loop(step.read, 1, lambda: 1)
        assert session.last_result is None


def test_runs_until_a_hook_stops_it(open_session: Any, step: Any, loop: Any) -> None:
    with open_session(hooks=[train.StopAtStepHook(last_step=7)]) as session:
        assert loop(session, [step.read, step.op]) == [6, None]
        assert session.should_stop()
        assert loop(session, step.op) is None
        assert session.raw_session().run(step.global_step) == 7


def test_runs_a_number_of_steps(open_session: Any, step: Any, loop: Any) -> None:
    with open_session() as session:
        assert loop(session, step.read, steps=0) is None
        assert loop(session, {"step": [step.read, step.op]}, steps=3) == {"step": [2, None]}
        assert loop(session, step.op, steps=2) is None
        assert loop(session, step.read, 1) == 5
        assert not session.should_stop()
        assert loop(session, step.op, steps=np.int64(2)) is None
        assert session.run(step.global_step) == 7


def test_a_stop_comes_before_the_number_of_steps(open_session: Any, step: Any, loop: Any) -> None:
    with open_session(hooks=[train.StopAtStepHook(last_step=3)]) as session:
        assert loop(session, [step.read, step.op], steps=100) == [2, None]


def test_feed_fn_is_called_once_a_step(open_session: Any, graph: Any, loop: Any) -> None:
    x = v1.placeholder_with_default(-1.0, [])
    calls = []

    def feed_fn() -> Any:
        calls.append(len(calls))
        return {x: float(calls[-1])} if len(calls) < 4 else None

    with open_session() as session:
        assert loop(session, x, 3, feed_fn) == 2.0
        assert calls == [0, 1, 2]
        assert loop(session, x, steps=1, feed_fn=feed_fn) == -1.0


def test_feeds_of_hooks_are_joined(open_session: Any, graph: Any, loop: Any) -> None:
    x, y = v1.placeholder(tf.float32, []), v1.placeholder(tf.float32, [])
    with open_session(hooks=[train.FeedFnHook(lambda: {y: 10.0})]) as session:
        assert loop(session, [x, y], 2, lambda: {x: 1.0}) == [1.0, 10.0]
        with pytest.raises(RuntimeError, match="Same tensor is fed by a SessionRunHook and user"):
            loop(session, x, 1, lambda: {x: 1.0, y: 1.0})


def test_hooks_fire_as_in_a_loop_by_hand(step: Any, tmp_path: Any, events: Any, files: Any, trace: Any) -> None:
    seen = []
    v1.summary.scalar("loss", 1.0)
    for name, run in LOOPS.items():
        folder, log = tmp_path / name, type(trace)()
        saver = train.CheckpointSaverHook(str(folder), save_steps=4, listeners=[log.listener("l")])
        hooks = [saver, log.hook("a"), train.StopAtStepHook(last_step=10)]
        with train.MonitoredTrainingSession(
            checkpoint_dir=str(folder), hooks=hooks, save_checkpoint_secs=None, save_summaries_steps=3,
            log_step_count_steps=2,
        ) as session:  # fmt: skip
            run(session, step.op)
        seen.append((list(log), events(folder), files(folder)))
    assert seen[0] == seen[1]
    assert "l.after_save:8" in seen[0][0]


@pytest.mark.parametrize("counts", [True, False], ids=["counts", "stands still"])
@pytest.mark.parametrize("every", [{"every_n_secs": 1e6}, {"every_n_iter": 1000}], ids=["seconds", "steps"])
def test_a_step_on_which_no_hook_is_due_asks_once(step: Any, clock: Any, every: dict[str, Any], counts: bool) -> None:
    """Each question to a hook that counts seconds reads the clock: once a step. One that counts steps never does."""
    train_op = step.op if counts else tf.no_op()
    hook = train.LoggingTensorHook([step.read], **every)
    with train.MonitoredSession(hooks=[hook]) as session:
        session.run_loop(train_op, steps=3)
        before = clock.reads
        session.run_loop(train_op, steps=100)
        assert clock.reads - before <= (103 if "every_n_secs" in every else 3)


def test_end_of_input_comes_out(open_session: Any, graph: Any, loop: Any, trace: Any) -> None:
    element = v1.data.make_one_shot_iterator(tf.data.Dataset.range(3)).get_next()
    seen = []
    hook = trace.hook("a", before_run=lambda *_: train.SessionRunArgs(element),
                      after_run=lambda _, __, values: seen.append(int(values.results)))  # fmt: skip
    with open_session(hooks=[hook]) as session:
        with pytest.raises(tf.errors.OutOfRangeError):
            loop(session, element)
        assert not session.should_stop()
    assert seen == [0, 1, 2]
    assert trace[-2:] == ["a.before_run", "a.end"]


def test_an_error_comes_out(open_session: Any, step: Any, loop: Any, trace: Any) -> None:
    def fail(number: int, *_: Any) -> None:
        if number == 2:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        with open_session(hooks=[trace.hook("a", after_run=fail)]) as session:
            loop(session, step.op)
    assert trace.count("a.after_run") == 3
    assert "a.end" not in trace


def test_recovers(step: Any, loop: Any, trace: Any) -> None:
    def fail(number: int, *_: Any) -> None:
        if number == 2:
            raise tf.errors.AbortedError(None, None, "away")

    with train.MonitoredSession(hooks=[trace.hook("a", before_run=fail)]) as session:
        loop(session, step.op, steps=4)
        assert session.run(step.global_step) == 2  # Of the new session.
    assert trace.count("a.after_create_session") == 2
    assert trace.count("a.after_run") == 5


def test_the_last_result_of_a_session_that_was_lost(step: Any, trace: Any) -> None:
    """The new session fails at once: the last step that ended well was in the one before."""

    def fail(number: int, *_: Any) -> None:
        if number == 3:
            raise tf.errors.AbortedError(None, None, "away")
        if number == 4:
            raise ValueError("for good")

    with train.MonitoredSession(hooks=[trace.hook("a", before_run=fail)]) as session:
        with pytest.raises(ValueError, match="for good"):
            session.run_loop([step.op, step.read], steps=10)
        assert session.last_result == [None, 2]


def test_more_steps_than_fit_into_64_bits(step: Any) -> None:
    with train.MonitoredSession(hooks=[train.StopAtStepHook(last_step=3)]) as session:
        session.run_loop(step.op, steps=2**70)
        assert session.raw_session().run(step.global_step) == 3


@pytest.mark.parametrize("steps", [None, 0, 3])
@pytest.mark.parametrize("feed_fn", [None, dict])
def test_a_closed_session_raises(open_session: Any, step: Any, steps: Any, feed_fn: Any) -> None:
    session = open_session()
    session.close()
    with pytest.raises(RuntimeError, match=r"^Attempted to use a closed Session\.$"):
        session.run_loop(step.op, steps, feed_fn)


# What feed_fn is called with.


class Feeds:
    """Ways to write a function that wants the last result; each appends what it gets."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def method(self, last: Any) -> None:
        self.got.append(last)

    def with_a_default(self, last_result: Any = "default") -> None:
        self.got.append(last_result)

    def with_more(self, last: Any, scale: float = 1.0) -> None:
        self.got.append(last)

    @property
    def bound(self) -> Any:
        return functools.partial(lambda got, last: got.append(last), self.got)

    @property
    def append(self) -> Any:
        return self.got.append


@pytest.mark.parametrize("kind", ["method", "with_a_default", "with_more", "bound", "append"])
def test_feed_fn_gets_the_last_result(open_session: Any, step: Any, kind: str) -> None:
    feeds = Feeds()
    with open_session() as session:
        assert session.run_loop([step.read, step.op], 3, getattr(feeds, kind)) == [2, None]
        assert feeds.got == [None, [0, None], [1, None]]
        # Of this loop, not of the one before.
        session.run_loop(step.read, 1, getattr(feeds, kind))
    assert feeds.got[3:] == [None]


def test_a_feed_fn_that_returns_no_feeds_is_named(open_session: Any, step: Any) -> None:
    with open_session() as session, pytest.raises(TypeError, match="feed_fn must return a feed_dict or None, got 3"):
        session.run_loop(step.op, 2, lambda: 3)


def test_feed_fn_is_called_without_arguments_if_it_can_be(open_session: Any, graph: Any) -> None:
    x = v1.placeholder_with_default(-1.0, [])
    ways = [
        lambda: {x: 1.0},
        lambda x=x: {x: 1.0},
        lambda *args: {x: 1.0 + len(args)},
        functools.partial(dict, {x: 1.0}),
    ]
    with open_session() as session:
        for way in ways:
            assert session.run_loop(x, 2, way) == 1.0
        assert session.run_loop(x, 2, iter([{x: 1.0}, {x: 2.0}]).__next__) == 2.0
        assert session.run_loop(x, 2, dict) == -1.0


@pytest.mark.parametrize("feed_fn", [lambda a, b: None, lambda *, last: None])
def test_feed_fn_that_cannot_be_called(step: Any, feed_fn: Any) -> None:
    with train.MonitoredSession() as session:
        with pytest.raises(TypeError, match="feed_fn must take no argument, or one: the result of the last step"):
            session.run_loop(step.op, 1, feed_fn)
        assert session.run(step.global_step) == 0


def test_the_last_result_is_there_in_the_loop(open_session: Any, step: Any, trace: Any) -> None:
    """For feed_fn, which is called before the step, and for hooks, which are called around it."""
    seen: dict[str, list[Any]] = {"feed_fn": [], "before_run": [], "after_run": []}
    hook = trace.hook(
        "a",
        before_run=lambda *_: seen["before_run"].append(session.last_result),
        after_run=lambda *_: seen["after_run"].append(session.last_result),
    )
    with open_session(hooks=[hook]) as session:
        session.run_loop([step.read, step.op], 3, lambda: seen["feed_fn"].append(session.last_result))
        assert session.last_result == [2, None]
    assert seen == {name: [None, [0, None], [1, None]] for name in seen}


@pytest.mark.parametrize("fails_at", [0, 2])
def test_the_last_result_after_an_error_in_feed_fn(open_session: Any, step: Any, fails_at: int) -> None:
    """What an earlier loop has left is forgotten."""
    element = v1.data.make_one_shot_iterator(tf.data.Dataset.range(2)).get_next()
    count = iter(range(fails_at))

    def feed_fn() -> Any:
        for _ in count:
            return None
        raise KeyError("mine")

    with open_session() as session:
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run_loop(element)
        assert session.last_result == 1
        with pytest.raises(KeyError):
            session.run_loop(step.read, 5, feed_fn)
        assert session.last_result == (0 if fails_at else None)


def test_the_last_result_outlives_a_preemption(step: Any, trace: Any) -> None:
    got = []

    def fail(number: int, *_: Any) -> None:
        if number == 2:
            raise tf.errors.AbortedError(None, None, "away")

    with train.MonitoredSession(hooks=[trace.hook("a", before_run=fail)]) as session:
        session.run_loop([step.read, step.op], 4, lambda last: got.append(last))
    assert got == [None, [0, None], [1, None], [0, None]]  # The new session begins at step 0.


def test_a_threads_stop_ends_it(step: Any, loop: Any, trace: Any) -> None:
    hook = trace.hook("a")
    with train.MonitoredSession(hooks=[hook]) as session:
        coord = hook.arguments["after_create_session"][0][1]
        timer = threading.Timer(0.05, coord.request_stop)
        timer.start()
        loop(session, step.op)
        timer.join()
    assert trace[-1] == "a.end"


def test_a_subclass_that_overrides_run(step: Any, trace: Any) -> None:
    class Mine(train.MonitoredSession):
        def run(self, *args: Any, **kwargs: Any) -> Any:
            trace.append("run")
            return super().run(*args, **kwargs)

        def should_stop(self) -> bool:
            return len(trace) == 3 or super().should_stop()

    with Mine() as session:
        session.run_loop(step.op)
    assert trace == ["run"] * 3


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"steps": -1}, ValueError, "steps must not be negative, got -1"),
        ({"steps": 1.5}, TypeError, "steps must be an integer or None, got 1.5"),
        ({"steps": "3"}, TypeError, "steps must be an integer or None, got '3'"),
        ({"feed_fn": {}}, TypeError, "feed_fn must be callable or None, got {}"),
    ],
)
def test_wrong_arguments(step: Any, arguments: Any, error: Any, text: str) -> None:
    with train.MonitoredSession() as session:
        with pytest.raises(error) as raised:
            session.run_loop(step.op, **arguments)
        assert text in str(raised.value)
        assert session.run(step.global_step) == 0


def once_running(session: Any, step: Any, signal_number: int) -> threading.Thread:
    """A thread that sends this process a signal when the session has run a few steps."""

    def send() -> None:
        raw = session.raw_session()
        while raw.run(step.global_step) < 5:
            time.sleep(0.001)
        os.kill(os.getpid(), signal_number)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.parametrize("with_feeds", [False, True])
def test_interrupt_gets_through(open_session: Any, step: Any, with_feeds: bool) -> None:
    """Ctrl-C ends a loop that would run for ever, as it ends one that is written in Python."""
    session = open_session(hooks=[train.StopAtStepHook(last_step=10**9)])
    killer = once_running(session, step, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        session.run_loop(step.op, feed_fn=dict if with_feeds else None)
    killer.join()
    before = session.raw_session().run(step.global_step)
    session.run_loop(step.op, steps=5)  # And the session is still good for something.
    assert session.raw_session().run(step.global_step) == before + 5
    session.close()


def test_a_signal_handler_runs_meanwhile(step: Any) -> None:
    with train.MonitoredSession() as session:
        previous = signal.signal(signal.SIGUSR1, lambda *_: session.request_stop())
        try:
            killer = once_running(session, step, signal.SIGUSR1)
            session.run_loop(step.op)
            killer.join()
        finally:
            signal.signal(signal.SIGUSR1, previous)
        assert session.should_stop()


# request_stop and raw_session.


def test_request_stop(open_session: Any, step: Any, trace: Any) -> None:
    with open_session(hooks=[trace.hook("a")]) as session:
        session.run(step.op)
        assert not session.should_stop()
        session.request_stop()
        assert session.should_stop()
        with pytest.raises(RuntimeError, match="Run called even after should_stop requested"):
            session.run(step.op)
    assert trace[-1] == "a.end"
    session.request_stop()  # Of no consequence once it is closed.


@pytest.mark.parametrize("kind", ["WrappedSession", "HookedSession", "CoordinatedSession", "RecoverableSession"])
def test_wrapped_sessions_have_them(step: Any, kind: str) -> None:
    raw = fastsup.Session()
    raw.run(v1.global_variables_initializer())
    inner = train.HookedSession(raw, [])
    outer = {
        "WrappedSession": lambda: train.WrappedSession(inner),
        "HookedSession": lambda: inner,
        "CoordinatedSession": lambda: train.CoordinatedSession(inner, v1.train.Coordinator()),
        "RecoverableSession": lambda: train.RecoverableSession(
            type("Creator", (), {"create_session": lambda self: inner})()
        ),
    }[kind]()
    assert outer.raw_session() is raw
    assert outer.run_without_hooks(step.global_step) == 0
    outer.request_stop()
    assert outer.should_stop()
    outer.close()


def test_raw_session(open_session: Any, step: Any, trace: Any) -> None:
    hook = trace.hook("a")
    with open_session(hooks=[hook]) as session:
        raw = session.raw_session()
        assert isinstance(raw, fastsup.Session)
        assert isinstance(raw, v1.Session)
        assert raw is hook.arguments["after_create_session"][0][0]
    assert session.raw_session() is None


# run_without_hooks.


def test_no_hook_sees_it(open_session: Any, graph: Any, trace: Any) -> None:
    x = v1.placeholder_with_default(1.0, [])
    with open_session(hooks=[trace.hook("a")]) as session:
        assert session.run_without_hooks(x) == 1.0
        assert session.run_without_hooks([x], {x: 2.0}) == [2.0]
        assert session.run_without_hooks({"x": x}, feed_dict={x: 3.0}) == {"x": 3.0}
        assert trace == ["a.begin", "a.after_create_session"]


def test_hooks_know_what_happened_without_them(step: Any, trace: Any, tmp_path: Any) -> None:
    saver = train.CheckpointSaverHook(str(tmp_path), save_steps=4, listeners=[trace.listener("l")])
    with train.MonitoredSession(hooks=[saver, train.StopAtStepHook(last_step=9)]) as session:
        while not session.should_stop():
            session.run_without_hooks(step.op)
            session.run(step.op)
        assert session.raw_session().run(step.global_step) == 10
    assert [entry for entry in trace if "after_save" in entry] == [f"l.after_save:{n}" for n in (0, 4, 8, 10)]


def test_runs_after_a_stop_was_asked_for(open_session: Any, step: Any) -> None:
    """For a last look at the model: a stop is for the hooked steps."""
    with open_session() as session:
        session.request_stop()
        assert session.run_without_hooks(step.global_step) == 0


class Once:
    """A session whose first run is aborted. Of no known kind, so that nothing but its run can be used."""

    def __init__(self, session: Any) -> None:
        self._session, self.graph, self.runs = session, session.graph, 0

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.runs += 1
        if self.runs == 1:
            raise tf.errors.AbortedError(None, None, "away")
        return self._session.run(*args, **kwargs)

    def close(self) -> None:
        pass


def test_it_recovers(graph: Any, trace: Any) -> None:
    x = tf.constant(1.0)
    made = [Once(v1.Session()), v1.Session()]

    class Creator(train.SessionCreator):
        def create_session(self) -> Any:
            return made.pop(0)

    with train.MonitoredSession(Creator(), [trace.hook("a")]) as session:
        assert session.run_without_hooks(x) == 1.0
        assert made == []
    assert trace == ["a.begin", "a.after_create_session", "a.after_create_session", "a.end"]


def test_it_raises_what_run_raises(open_session: Any, graph: Any) -> None:
    x = v1.placeholder(tf.float32, [], name="x")
    with open_session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="You must feed a value for placeholder tensor 'x'"):
            session.run_without_hooks(x)
        with pytest.raises(TypeError, match="None has invalid type"):
            session.run_without_hooks([None])


# What follows a run belongs to its step.


@pytest.mark.parametrize("failing_save", [4, 8])
def test_a_step_whose_hook_is_preempted_is_run_again(
    graph: Any, counting_step: Any, loop: Callable[..., Any], tmp_path: Any, failing_save: int
) -> None:
    """Also where that is the last step of the loop."""
    step = counting_step()
    failed = []

    class Fails(v1.train.CheckpointSaverListener):  # type: ignore[misc]
        def before_save(self, session: Any, global_step_value: int) -> None:
            if global_step_value == failing_save and not failed:
                failed.append(global_step_value)
                raise tf.errors.UnavailableError(None, None, "gone")

    saver = train.CheckpointSaverHook(str(tmp_path), save_steps=4, listeners=[Fails()])
    with train.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path),
        save_checkpoint_secs=None,
        save_summaries_steps=None,
        log_step_count_steps=None,
        chief_only_hooks=[saver],
    ) as session:
        loop(session, step.op, steps=8)
        reached = session.run_without_hooks(step.global_step)
    assert failed == [failing_save]
    # The new session begins at the checkpoint before. The step that failed is run again in it.
    assert reached == 5


@pytest.mark.parametrize("kind", ["after-run", "every-run"])
def test_the_last_result_is_that_of_the_last_step_that_ended(graph: Any, counting_step: Any, kind: str) -> None:
    step = counting_step()

    class AfterRun(ScheduledHook, train.SessionRunHook):  # type: ignore[misc]
        def after_run(self, run_context: Any, run_values: Any) -> None:
            raise ValueError("hook")

        def _schedule(self, run: int, step_read: Any) -> bool:
            self._decide_after_run()
            self.due_at_run(3)
            return True

    class EveryRun(train.SessionRunHook):  # type: ignore[misc]
        calls = 0

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.calls += 1
            if self.calls == 4:
                raise ValueError("hook")

    step_after = v1.assign_add(step.global_step, 1)
    session = train.MonitoredSession(hooks=[AfterRun() if kind == "after-run" else EveryRun()])
    with pytest.raises(ValueError, match="hook"):
        session.run_loop(step_after, steps=10)
    assert session.last_result == 3
