"""A hook of the wrong kind is refused with the name of the right one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from fastsup import estimator, experiment, loop, train
from fastsup.core import Hook, StepLoop

v1 = tf.compat.v1


@pytest.mark.parametrize(
    ("hook", "right"),
    [
        (loop.ProgressHook(), "fastsup.train.ProgressHook"),
        (loop.StopAtStepHook(5), "fastsup.train.StopAtStepHook"),
        (loop.CheckpointHook(print, 5), "fastsup.train.CheckpointSaverHook"),
        (loop.SummaryHook(print), "fastsup.train.SummarySaverHook"),
        (loop.NanGuardHook(), "fastsup.train.NanTensorHook"),
        (loop.TimeLimitHook(5), "fastsup.estimator.StopAtSecsHook"),
        (loop.StopWhenHook(bool), "fastsup.estimator.make_early_stopping_hook"),
        (Hook(), "Subclass fastsup.train.SessionRunHook"),
    ],
)
def test_hooks_of_a_loop_in_a_session(hook: Any, right: str, graph: Any) -> None:
    kind = type(hook).__name__
    for make in (
        lambda: train.MonitoredSession(hooks=[hook]),
        lambda: train.SingularMonitoredSession(hooks=[hook]),
        lambda: train.MonitoredTrainingSession(hooks=[hook]),
        lambda: estimator.TrainSpec(dict, hooks=[hook]),
        lambda: estimator.EstimatorSpec("eval", loss=tf.constant(0.0), evaluation_hooks=[hook]),
        lambda: estimator.Estimator(print_nothing).train(dict, hooks=[hook]),
    ):
        with pytest.raises(TypeError, match=rf"{kind} is a hook of fastsup\.core\.StepLoop\. .*{right}"):
            make()
    an_estimator = estimator.Estimator(print_nothing)
    with pytest.raises(ValueError, match=rf"{kind} is a hook of fastsup\.core\.StepLoop\. .*{right}"):
        experiment.Experiment(an_estimator, dict, dict, train_monitors=[hook])
    assert right.startswith("Subclass") or getattr(
        {"train": train, "estimator": estimator}[right.split(".")[1]], right.split(".")[2]
    )


def print_nothing(features: Any, labels: Any, mode: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("hook", "right"),
    [
        (train.StopAtStepHook(5), "loop.StopAtStepHook"),
        (v1.train.StopAtStepHook(5), "loop.StopAtStepHook"),
        (train.ProgressHook(), "loop.ProgressHook"),
        (train.StepCounterHook(), "loop.ProgressHook"),
        (train.LoggingTensorHook([], every_n_iter=1), "loop.ProgressHook"),
        (train.NanTensorHook(None), "loop.NanGuardHook"),
        (train.CheckpointSaverHook("/tmp", save_steps=1), "loop.CheckpointHook"),
        (estimator.StopAtSecsHook(5), "loop.TimeLimitHook"),
        (train.SessionRunHook(), None),
    ],
)
def test_hooks_of_a_session_in_a_loop(hook: Any, right: str | None) -> None:
    text = "Subclass fastsup.core.Hook for a StepLoop." if right is None else f"Use fastsup.{right} in a StepLoop."
    with pytest.raises(TypeError) as raised:
        StepLoop(int, [hook])
    assert str(raised.value) == (
        f"hooks must be fastsup.core.Hook objects, got {hook!r}. {type(hook).__name__} is a hook of sessions. {text}"
    )
    assert right is None or issubclass(getattr(loop, right.removeprefix("loop.")), Hook)


@pytest.mark.parametrize(
    "make",
    [
        lambda: train.MonitoredSession(hooks=[train.StepCounterHook]),
        lambda: StepLoop(int, [train.StepCounterHook]),  # type: ignore[list-item]
        lambda: estimator.TrainSpec(dict, hooks=[train.StepCounterHook]),
    ],
)
def test_a_class_in_place_of_a_hook(make: Callable[[], Any], graph: Any) -> None:
    with pytest.raises(TypeError, match=r"StepCounterHook is a class: pass an object, StepCounterHook\(\.\.\.\)"):
        make()


def test_a_class_that_works_as_a_hook_is_taken(impl: Any, graph: Any) -> None:
    """One whose callbacks need no object, in TensorFlow as here."""
    called = []

    class Namespace:
        @staticmethod
        def begin() -> None:
            called.append("begin")

        @staticmethod
        def after_create_session(session: Any, coord: Any) -> None:
            called.append("after_create_session")

        @staticmethod
        def before_run(run_context: Any) -> None:
            called.append("before_run")

        @staticmethod
        def after_run(run_context: Any, run_values: Any) -> None:
            called.append("after_run")

        @staticmethod
        def end(session: Any) -> None:
            called.append("end")

    value = tf.constant(1)
    with impl.train.MonitoredSession(hooks=[Namespace]) as session:
        session.run(value)
    assert called == ["begin", "after_create_session", "before_run", "after_run", "end"]


def test_a_hook_of_both_kinds_is_taken_by_both(graph: Any) -> None:
    class Both(Hook, v1.train.SessionRunHook):  # type: ignore[misc]
        calls = 0

        def begin(self, loop: Any = None) -> None:
            self.calls += 1
            self.never_due()

        def end(self, of: Any) -> None:
            self.calls += 1

    hook = Both()
    StepLoop(int, [hook], max_steps=1).run()
    with train.MonitoredSession(hooks=[hook]):
        pass
    assert hook.calls == 4


def test_a_checkpoint_in_place_of_a_manager() -> None:
    for wrong in (tf.train.Checkpoint(), v1.train.Saver([tf.Variable(1.0)])):
        with pytest.raises(
            TypeError, match=r"doesn't take checkpoint_number.* pass directory=\.\.\., or a tf\.train\.Ch"
        ):
            loop.CheckpointHook(wrong, every_steps=5)
