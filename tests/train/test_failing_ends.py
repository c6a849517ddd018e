"""A hook whose `end` raises: the other hooks end too, the last checkpoint is saved, and the first error is raised."""

from __future__ import annotations

import contextlib
import signal
from typing import Any

import pytest
import tensorflow as tf

from fastsup import train

v1 = tf.compat.v1


def fail(error: BaseException) -> Any:
    def action(*args: Any) -> None:
        raise error

    return action


def newest(folder: Any) -> str | None:
    path = v1.train.latest_checkpoint(str(folder))
    return None if path is None else str(path).rpartition("-")[2]


@pytest.mark.parametrize("way", ["run", "run_loop"])
@pytest.mark.parametrize("options", [{}, {"async_save": True}], ids=["sync", "async"])
def test_logging_at_the_end_of_the_input(graph: Any, impl: Any, tmp_path: Any, way: str, options: Any) -> None:
    """A hook that fetches at the end, when the dataset has no more elements."""
    if impl.name == "tensorflow" and (options or way == "run_loop"):
        pytest.skip("TensorFlow has no such option")
    element = v1.data.make_one_shot_iterator(tf.data.Dataset.range(10)).get_next()
    loss = tf.cast(element, tf.float32) * 2.0
    with tf.control_dependencies([loss]):
        train_op = v1.assign_add(v1.train.get_or_create_global_step(), 1)
    hooks = [impl.train.LoggingTensorHook({"loss": loss}, every_n_iter=5, at_end=True)]
    with pytest.raises(tf.errors.OutOfRangeError):
        with impl.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks, **options) as session:
            if way == "run_loop":
                session.run_loop(train_op)
            while not session.should_stop():
                session.run(train_op)
    assert newest(tmp_path) == "10"


def test_all_hooks_end_and_the_first_error_is_raised(train_op: Any, trace: Any, tmp_path: Any, tf_log: Any) -> None:
    hooks = [
        trace.hook("first"),
        trace.hook("second", end=fail(ValueError("of the second"))),
        trace.hook("third", end=fail(KeyError("of the third"))),
        trace.hook("fourth"),
    ]
    session = train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks, save_checkpoint_steps=100)
    session.run(train_op)
    session.run(train_op)
    with pytest.raises(ValueError, match="of the second"):
        session.close()
    assert [text for text in trace if text.endswith(".end")] == [
        f"{name}.end" for name in ["first", "second", "third", "fourth"]
    ]
    assert newest(tmp_path) == "2"
    logged = [record for record in tf_log.records if "end() of the hook" in record.getMessage()]
    assert [str(record.exc_info[1]) for record in logged] == ["'of the third'"]
    assert session._is_closed()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_goes_before_an_error(
    train_op: Any, trace: Any, tmp_path: Any, error: type[BaseException]
) -> None:
    hooks = [trace.hook("first", end=fail(ValueError("of the first"))), trace.hook("second", end=fail(error()))]
    session = train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks, save_checkpoint_steps=100)
    session.run(train_op)
    with pytest.raises(error):
        session.close()
    assert newest(tmp_path) == "1"


@pytest.mark.parametrize(("number", "leaves"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
@pytest.mark.parametrize("way", ["run", "run_loop"])
def test_after_a_signal(
    train_op: Any, trace: Any, tmp_path: Any, tf_log: Any, number: int, leaves: type[BaseException], way: str
) -> None:
    hooks = [trace.hook("first", end=fail(ValueError("of the first")))]
    with pytest.raises(leaves) as raised:
        with train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks) as session:
            session.run(train_op)
            signal.raise_signal(number)
            session.run(train_op)
    if leaves is SystemExit:
        assert raised.value.code == 143
    assert newest(tmp_path) == "1"
    assert any("of the first" in str(record.exc_info) for record in tf_log.records if record.exc_info)


def test_after_a_signal_that_ended_the_loop(train_op: Any, trace: Any, tmp_path: Any, tf_log: Any) -> None:
    """The signal comes in a hook, so that the loop ends on its own."""

    def send(call: int, *args: Any) -> None:
        signal.raise_signal(signal.SIGTERM)

    hooks = [trace.hook("first", after_run=send, end=fail(ValueError("of the first")))]
    with pytest.raises(SystemExit) as raised:
        with train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks) as session:
            while not session.should_stop():
                session.run(train_op)
    assert raised.value.code == 143
    assert newest(tmp_path) == "1"


class FailsOnce(v1.train.Saver):
    """A saver whose save at a step raises once."""

    fails_at: int | None = None

    def save(self, sess: Any, save_path: Any, global_step: Any = None, **options: Any) -> Any:
        if global_step == self.fails_at:
            self.fails_at = None
            raise tf.errors.ResourceExhaustedError(None, None, "the disk is full")
        return super().save(sess, save_path, global_step, **options)


def test_a_failed_background_write_is_made_up_for_at_the_end(train_op: Any, tmp_path: Any) -> None:
    """The write of the last step fails. At the end the same step is saved again, and the error is still raised."""
    saver = FailsOnce()
    scaffold = train.Scaffold(saver=saver)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="the disk is full"):
        with train.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), scaffold=scaffold, save_checkpoint_steps=2, async_save=True
        ) as session:
            session.run(train_op)
            saver.fails_at = 2
            session.run(train_op)
    assert newest(tmp_path) == "2"


# Interrupts of on_error.


class InterruptsInOnError(v1.train.SessionRunHook):
    """Interrupts the program at the first error."""

    def on_error(self, run_context: Any, exception: BaseException) -> None:
        if not isinstance(exception, SystemExit):
            raise SystemExit(3)


@pytest.mark.parametrize("where", ["run", "block"])
def test_an_interrupt_of_on_error(train_op: Any, raw_session: Any, where: str) -> None:
    """Other hooks are told too, the session is closed, and the error stays in the chain."""
    told = []
    other = v1.train.SessionRunHook()
    other.on_error = lambda run_context, exception: told.append(type(exception))  # type: ignore[attr-defined]
    bad = tf.debugging.check_numerics(tf.constant(float("nan")), "not a number")
    expected = tf.errors.InvalidArgumentError if where == "run" else KeyError
    with pytest.raises(SystemExit) as raised:
        with train.MonitoredSession(hooks=[InterruptsInOnError(), other]) as session:
            session.run(train_op)
            raw = raw_session(session)
            if where == "run":
                session.run(bad)
            raise KeyError("of the block")
    assert told[0] is expected
    assert isinstance(raised.value.__context__, expected)
    assert session._is_closed()
    assert raw._closed


def test_an_error_that_an_inner_session_has_told(train_op: Any) -> None:
    """As that of an evaluation within a training."""
    told = []

    def hook(name: str) -> Any:
        made = v1.train.SessionRunHook()
        made.on_error = lambda run_context, exception: told.append(name)  # type: ignore[attr-defined]
        return made

    def evaluate(number: int) -> None:
        with tf.Graph().as_default(), train.MonitoredSession(hooks=[hook("inner")]):
            raise KeyError("of the evaluation")

    with pytest.raises(KeyError):
        with train.MonitoredSession(hooks=[hook("outer")]) as session:
            session.run(train_op)
            evaluate(1)
    assert told == ["inner", "outer"]


# A session that couldn't be got ready.


@pytest.mark.parametrize("kind", ["MonitoredSession", "SingularMonitoredSession"])
def test_a_session_whose_hook_fails_as_it_is_made(train_op: Any, trace: Any, kind: str) -> None:
    """It is closed, and the threads of its queue runners end: the test's fixture looks for threads."""
    queue = v1.FIFOQueue(1, [tf.float32])
    v1.train.add_queue_runner(v1.train.QueueRunner(queue, [queue.enqueue([0.0])]))
    hook = trace.hook("fails", after_create_session=fail(ValueError("as it is made")))
    with pytest.raises(ValueError, match="as it is made"):
        getattr(train, kind)(hooks=[hook])
    session, coordinator = hook.arguments["after_create_session"][0]
    assert session._closed
    assert coordinator.joined


def test_a_session_whose_hook_fails_in_a_recovery(train_op: Any, trace: Any, aborted: Any) -> None:
    """Each session that is made in vain is closed before the next one is made."""
    errors = {0: aborted(), 1: aborted()}

    def after_create_session(number: int, session: Any, coord: Any) -> None:
        if number in errors:
            raise errors[number]
        assert all(made._closed for made, _ in hook.arguments["after_create_session"][:number])

    hook = trace.hook("fails", after_create_session=after_create_session)
    with train.MonitoredSession(hooks=[hook]) as session:
        session.run(train_op)
    assert hook.calls["after_create_session"] == 3


# Savers and their listeners.


def test_a_save_that_a_listener_has_prevented_is_made_up_for(train_op: Any, trace: Any, tmp_path: Any) -> None:
    """The listener's OutOfRangeError ends the run well, at a step of which the timer believes that it is saved."""

    def before_save(number: int, session: Any, step: int) -> None:
        if number == 1:
            raise tf.errors.OutOfRangeError(None, None, "the end")

    listener = trace.listener("l", before_save=before_save)
    saver = train.CheckpointSaverHook(str(tmp_path), save_steps=2, listeners=[listener], saver=v1.train.Saver())
    with train.MonitoredSession(hooks=[saver]) as session:
        while not session.should_stop():
            session.run(train_op)
    assert newest(tmp_path) == "2"
    assert list(trace)[-4:] == ["l.before_save:2", "l.before_save:2", "l.after_save:2", "l.end:2"]


def test_a_listener_that_fails_at_the_end_of_a_background_write(train_op: Any, trace: Any, tmp_path: Any) -> None:
    """The checkpoint of the last step is written: it isn't saved again."""

    def after_save(number: int, session: Any, step: int) -> None:
        if step == 2:
            raise ValueError("of the listener")

    listener = trace.listener("l", after_save=after_save)
    saver = train.CheckpointSaverHook(
        str(tmp_path), save_steps=2, listeners=[listener], saver=v1.train.Saver(), async_save=True
    )
    with pytest.raises(ValueError, match="of the listener"):
        with train.MonitoredSession(hooks=[saver]) as session:
            session.run(train_op)
            session.run(train_op)
    assert newest(tmp_path) == "2"
    assert list(trace)[-3:] == ["l.before_save:2", "l.after_save:2", "l.end:2"]


def test_the_end_of_each_listener_is_called(train_op: Any, trace: Any, tmp_path: Any, tf_log: Any) -> None:
    listeners = [
        trace.listener("first", end=fail(ValueError("of the first"))),
        trace.listener("second", end=fail(KeyError("of the second"))),
        trace.listener("third"),
    ]
    saver = train.CheckpointSaverHook(str(tmp_path), save_steps=2, listeners=listeners, saver=v1.train.Saver())
    with pytest.raises(ValueError, match="of the first"):
        with train.MonitoredSession(hooks=[saver]) as session:
            session.run(train_op)
    assert list(trace)[-3:] == ["first.end:1", "second.end:1", "third.end:1"]
    assert [str(record.exc_info[1]) for record in tf_log.records if record.exc_info] == ["'of the second'"]


# After a signal.


@pytest.mark.parametrize("way", ["the block is left", "the loop ends"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_of_an_end_after_a_signal(
    train_op: Any, trace: Any, tmp_path: Any, tf_log: Any, way: str, error: type[BaseException]
) -> None:
    """It is logged as an error is: the program leaves with the signal's exit code."""
    hooks = [trace.hook("first", end=fail(error("of the first")))]
    with pytest.raises(SystemExit) as raised:
        with train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks) as session:
            session.run(train_op)
            if way == "the block is left":
                signal.raise_signal(signal.SIGTERM)
            with contextlib.suppress(SystemExit):
                signal.raise_signal(signal.SIGTERM)
    assert raised.value.code == 143
    assert newest(tmp_path) == "1"
    assert any("of the first" in str(record.exc_info) for record in tf_log.records if record.exc_info)
