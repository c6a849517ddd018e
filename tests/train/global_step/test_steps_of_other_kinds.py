"""A global step that is no resource variable: a reference variable, in a collection or only named so, or any tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.training import training_util

v1 = tf.compat.v1


class Asks(v1.train.SessionRunHook):  # type: ignore[misc]
    """Asks for something in each run, and keeps what it gets."""

    def __init__(self, fetches: Any) -> None:
        self.fetches = fetches
        self.got: list[Any] = []

    def before_run(self, run_context: Any) -> Any:
        return v1.train.SessionRunArgs(self.fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.got.append(run_values.results)


def reference_variable(**options: Any) -> Any:
    return v1.get_variable(
        "global_step", [], tf.int64, v1.zeros_initializer(), trainable=False, use_resource=False, **options
    )


IN_COLLECTION = {"collections": [v1.GraphKeys.GLOBAL_STEP, v1.GraphKeys.GLOBAL_VARIABLES]}

FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "alone": lambda step, x: step,
    "name": lambda step, x: "global_step:0",
    "list": lambda step, x: [step, x],
    "dictionary": lambda step, x: {"step": step, "x": x},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [IN_COLLECTION, {}], ids=["in its collection", "by its name"])
def test_hooks_that_fetch_a_reference_variable(both: Any, form: str, options: Any) -> None:
    """What is fetched of it shows what the run has made of it."""

    def program(train: Any) -> Any:
        with tf.Graph().as_default():
            step = reference_variable(**options)
            add = v1.assign_add(step, 1).op
            hook = Asks(FORMS[form](step, tf.constant(7)))
            with train.MonitoredSession(hooks=[hook, train.StopAtStepHook(last_step=5)]) as session:
                while not session.should_stop():
                    session.run(add)
        return hook.got

    expected, got = program(both.tensorflow.train), program(both.fastsup.train)
    assert got == expected
    assert len(got) == 5
    assert str(got) == str(expected)


@pytest.mark.parametrize("options", [IN_COLLECTION, {}], ids=["in its collection", "by its name"])
def test_standard_hooks_around_a_reference_variable(impl: Any, options: Any, tmp_path: Any, tf_log: Any) -> None:
    with tf.Graph().as_default():
        step = reference_variable(**options)
        with tf.control_dependencies([training_util._get_or_create_global_step_read()]):
            add = v1.assign_add(step, 1)
        hooks = [
            impl.train.StopAtStepHook(last_step=6),
            impl.train.LoggingTensorHook(
                {"step": step}, every_n_iter=2, formatter=lambda values: f"at {values['step']}"
            ),
            impl.train.CheckpointSaverHook(str(tmp_path), save_steps=4),
        ]
        results = []
        with impl.train.MonitoredSession(hooks=hooks) as session:
            while not session.should_stop():
                results.append(session.run(add))
    assert results == [1, 2, 3, 4, 5, 6]
    assert [text for text in tf_log.messages if text.startswith("at ")] == ["at 1", "at 3", "at 5"]
    assert sorted(path.name for path in tmp_path.glob("*.index")) == [f"model.ckpt-{step}.index" for step in (0, 4, 6)]


def test_a_tensor(impl: Any) -> None:
    """Something in the collection that is no variable: it doesn't move, whatever is run."""
    with tf.Graph().as_default():
        step = tf.constant(3, tf.int64)
        v1.add_to_collection(v1.GraphKeys.GLOBAL_STEP, step)
        x = tf.constant(7)
        hook = Asks([step, x])
        stops = impl.train.StopAtStepHook(last_step=9)
        with impl.train.MonitoredSession(hooks=[hook, stops]) as session:
            assert [session.run(x) for _ in range(3)] == [7, 7, 7]
            assert not session.should_stop()
        with impl.train.SingularMonitoredSession() as session:
            assert session.run([x, step]) == [7, 3]
    assert hook.got == [[3, 7]] * 3
