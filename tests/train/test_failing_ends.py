"""A hook whose `end` raises: the other hooks end too, the last checkpoint is saved, and the first error is raised."""

from __future__ import annotations

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
    """The signal comes in a hook, so that the loop ends by itself."""

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
