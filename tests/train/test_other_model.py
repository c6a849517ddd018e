"""A checkpoint of another model: one error, which begins with the checkpoint and with what doesn't fit."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import fastsup
from fastsup import train

v1 = tf.compat.v1
PACKAGE = os.path.dirname(fastsup.__file__) + os.sep


@pytest.fixture
def path(tmp_path: Any) -> str:
    """The checkpoint of a model."""
    with tf.Graph().as_default(), v1.Session() as session:
        for name, shape in {"layer/kernel": [3, 2], "layer/bias": [2], "beta": []}.items():
            v1.get_variable(name, shape)
        v1.train.create_global_step()
        session.run(v1.global_variables_initializer())
        return str(v1.train.Saver().save(session, str(tmp_path / "model.ckpt"), 7))


def monitored_training_session(path: str) -> Any:
    return train.MonitoredTrainingSession(checkpoint_dir=os.path.dirname(path))


def singular_session(path: str) -> Any:
    return train.SingularMonitoredSession(checkpoint_filename_with_path=path)


def partial_restore(path: str) -> Any:
    return train.MonitoredTrainingSession(checkpoint_dir=os.path.dirname(path), restore="partial")


def supervisor(path: str) -> Any:
    return train.Supervisor(logdir=os.path.dirname(path)).prepare_or_wait_for_session("")


WAYS = [monitored_training_session, singular_session, supervisor]


def raised_by(restore: Callable[[], Any]) -> tuple[Any, str]:
    """The error, and the text of the traceback."""
    with tf.Graph().as_default(), pytest.raises(tf.errors.OpError) as raised:
        restore()
    return raised.value, "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("way", WAYS)
def test_missing_names(path: str, way: Any) -> None:
    def restore() -> None:
        v1.get_variable("leyer/kernel", [3, 2])
        v1.get_variable("layer/bias", [2])
        v1.get_variable("quite_different", [])
        v1.train.create_global_step()
        way(path)

    error, printed = raised_by(restore)
    assert isinstance(error, tf.errors.NotFoundError)
    assert str(error).startswith(
        f"{path} is the checkpoint of another model. It lacks: leyer/kernel (the nearest is layer/kernel), "
        "quite_different. It contains: beta [], global_step [], layer/bias [2], layer/kernel [3, 2]."
    )
    assert "Restoring from checkpoint failed. This is most likely due to a Variable name" in str(error)
    assert "not found in checkpoint" in str(error)
    assert printed.count("Traceback (most recent call last)") == 1
    # The place where the operation was made is the program's.
    assert PACKAGE not in str(error)
    assert "Original stack trace" not in str(error)


@pytest.mark.parametrize("way", [*WAYS, partial_restore])
def test_another_type(path: str, way: Any) -> None:
    def restore() -> None:
        v1.get_variable("layer/bias", [2], tf.float64)
        v1.train.create_global_step()
        way(path)

    error, printed = raised_by(restore)
    assert isinstance(error, tf.errors.InvalidArgumentError)
    assert str(error).startswith(
        f"{path} is the checkpoint of another model. It differs: layer/bias is float32 in the checkpoint and "
        "float64 in the model. "
    )
    assert "Restoring from checkpoint failed. This is most likely due to a mismatch" in str(error)
    assert printed.count("Traceback (most recent call last)") == 1


@pytest.mark.parametrize("use_resource", [False, True])
def test_another_shape_in_a_partial_restore(path: str, use_resource: bool) -> None:
    def restore() -> None:
        v1.get_variable("layer/kernel", [3, 4], use_resource=use_resource)
        v1.train.create_global_step()
        partial_restore(path)

    error, _ = raised_by(restore)
    assert str(error).startswith(
        f"{path} is the checkpoint of another model. It differs: layer/kernel has shape [3, 2] in the checkpoint "
        "and [3, 4] in the "
    )


@pytest.mark.parametrize("way", WAYS)
def test_another_shape_of_a_reference_variable(path: str, way: Any) -> None:
    def restore() -> None:
        v1.get_variable("layer/kernel", [3, 4], use_resource=False)
        v1.train.create_global_step()
        way(path)

    error, _ = raised_by(restore)
    assert isinstance(error, tf.errors.InvalidArgumentError)
    assert "layer/kernel has shape [3, 2] in the checkpoint and [3, 4] in the model" in str(error).partition("\n")[0]


def test_many_names_are_cut(path: str) -> None:
    def restore() -> None:
        for number in range(50):
            v1.get_variable(f"other_{number:02}", [])
        v1.train.create_global_step()
        monitored_training_session(path)

    error, _ = raised_by(restore)
    first, _, _ = str(error).partition("\n")
    assert "other_19 and 30 more. It contains" in first
    assert "other_20" not in first


def test_an_error_that_isnt_the_models(path: str) -> None:
    """Another error of the same type stays as it is."""

    def fail() -> None:
        raise tf.errors.NotFoundError(None, None, "a file of the program's")

    def restore() -> None:
        v1.get_variable("layer/bias", [2])
        v1.train.create_global_step()
        saver = v1.train.Saver()
        saver.restore = lambda *_: fail()
        train.MonitoredTrainingSession(checkpoint_dir=os.path.dirname(path), scaffold=train.Scaffold(saver=saver))

    error, _ = raised_by(restore)
    assert error.message == "a file of the program's"


# The place where an operation was made.


@pytest.mark.parametrize("in_thread", [False, True])
def test_an_operation_that_is_made_in_a_call_of_fastsup(in_thread: bool) -> None:
    frames: list[str] = []

    class Making(train.SessionRunHook):  # type: ignore[misc]
        def begin(self) -> None:
            bad = tf.debugging.Assert(tf.constant(False), ["planned"])
            frames.extend(frame.filename for frame in bad.traceback)
            self.bad = bad

        def before_run(self, run_context: Any) -> Any:
            return train.SessionRunArgs(self.bad)

    errors: list[Any] = []

    def run() -> None:
        with tf.Graph().as_default(), pytest.raises(tf.errors.InvalidArgumentError, match="planned") as raised:
            fetch = tf.constant(1)
            with train.MonitoredSession(hooks=[Making()]) as session:
                session.run(fetch)
        errors.append(raised.value)

    if in_thread:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    else:
        run()
    assert __file__ in frames
    assert not [name for name in frames if name.startswith(PACKAGE)]
    assert PACKAGE not in str(errors[0])
    assert f'File "{__file__}"' in str(errors[0])
