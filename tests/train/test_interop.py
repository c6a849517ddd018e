"""Hooks of one implementation in sessions of the other, hooks that programs extend, and methods that they replace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1


def run_steps(impl: Any, hooks: list[Any], step: Any, count: int, between: Callable[[int], None] | None = None) -> int:
    """Runs until a hook asks for a stop, at most `count` steps, and says how many it ran."""
    ran = 0
    with impl.train.MonitoredSession(hooks=hooks) as session:
        while ran < count and not session.should_stop():
            session.run(step.op)
            ran += 1
            if between is not None:
                between(ran)
    return ran


# One in the other.


def test_the_base_classes_are_the_same(both: Any) -> None:
    for name in (
        "SessionRunHook", "SessionRunArgs", "SessionRunContext", "SessionRunValues", "CheckpointSaverListener",
        "NanLossDuringTrainingError",
    ):  # fmt: skip
        assert getattr(both.fastsup.train, name) is getattr(both.tensorflow.train, name)


HOOKS = [
    "StopAtStepHook", "LoggingTensorHook", "CheckpointSaverHook", "StepCounterHook", "NanTensorHook",
    "SummarySaverHook", "GlobalStepWaiterHook", "FinalOpsHook", "FeedFnHook", "ProfilerHook",
]  # fmt: skip


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_are_instances_of_tensorflows(both: Any, name: str) -> None:
    """Programs look for a hook of a kind among hooks that others made."""
    ours, theirs = getattr(both.fastsup.train, name), getattr(both.tensorflow.train, name)
    assert issubclass(ours, theirs)
    assert issubclass(ours, both.fastsup.train.SessionRunHook)
    assert ours.__name__ == theirs.__name__


@pytest.mark.parametrize("name", ["Scaffold", "SessionCreator", "Saver", "Coordinator", "QueueRunner"])
def test_other_parts_are_instances_of_tensorflows(both: Any, name: str) -> None:
    assert issubclass(getattr(both.fastsup.train, name), getattr(both.tensorflow.train, name))


def standard_hooks(train: Any, folder: Any, trace: Any) -> list[Any]:
    return [
        train.StepCounterHook(every_n_steps=2, output_dir=str(folder)),
        train.SummarySaverHook(save_steps=2, output_dir=str(folder), summary_op=v1.summary.scalar("a", 1.0)),
        train.CheckpointSaverHook(str(folder), save_steps=3, listeners=[trace.listener("l")]),
        # The name of its value: the variable's own is that of its handle, which not every TensorFlow can fetch.
        train.LoggingTensorHook(
            {"step": v1.train.get_global_step().value().name}, every_n_iter=2, formatter=lambda _: "logged"
        ),
        train.ProfilerHook(save_steps=4, output_dir=str(folder)),
        train.StopAtStepHook(last_step=7),
    ]


def test_hooks_of_any_in_sessions_of_any(both: Any, tmp_path: Any, counting_step: Any, events: Any, files: Any,
                                         tf_log: Any) -> None:  # fmt: skip
    seen = []
    for hooks_of in (both.tensorflow, both.fastsup):
        for session_of in (both.tensorflow, both.fastsup):
            folder = tmp_path / f"{hooks_of.name}-in-{session_of.name}"
            trace: list[str] = []
            tf_log.clear()
            with tf.Graph().as_default():
                step = counting_step()
                ran = run_steps(session_of, standard_hooks(hooks_of.train, folder, _tracer(trace)), step, 10)
            seen.append((ran, list(trace), events(folder), files(folder), tf_log.messages.count("logged")))
    ran, callbacks, written, names, logged = seen[0]
    assert (ran, logged) == (7, 4)
    assert "7:global_step/sec" in written
    assert "l.after_save:6" in callbacks
    assert "timeline-4.json" in names
    assert seen[1:] == seen[:1] * 3


def _tracer(trace: list[str]) -> Any:
    class Tracer:
        @staticmethod
        def listener(name: str) -> Any:
            class Listener(v1.train.CheckpointSaverListener):
                def after_save(self, session: Any, global_step_value: Any) -> None:
                    trace.append(f"{name}.after_save:{global_step_value}")

            return Listener()

    return Tracer


def test_tensorflows_hook_of_several_steps_a_run(impl: Any, graph: Any, trace: Any) -> None:
    """The steps_per_run variable of the graph: the hook shortens the last run, so that training ends on the step."""
    from tensorflow.python.training import basic_session_run_hooks

    hook = basic_session_run_hooks._MultiStepStopAtStepHook(last_step=10, steps_per_run=4)
    global_step = v1.train.get_or_create_global_step()
    per_run = basic_session_run_hooks.get_or_create_steps_per_run_variable()
    train_op = v1.assign_add(global_step, tf.cast(per_run.read_value(), tf.int64))
    values = []
    with impl.train.MonitoredSession(hooks=[hook]) as session:
        while not session.should_stop():
            session.run(train_op.op)
            values.append(session.run(global_step) if not session.should_stop() else None)
    assert values == [4, 8, None]


# Subclasses.


def test_subclass_overrides_before_run_and_after_run(impl: Any, step: Any, trace: Any) -> None:
    class Mine(impl.train.StopAtStepHook):
        def before_run(self, run_context: Any) -> Any:
            trace.append("before")
            request = super().before_run(run_context)
            return impl.train.SessionRunArgs({"mine": request.fetches})

        def after_run(self, run_context: Any, run_values: Any) -> None:
            trace.append(int(run_values.results["mine"]))
            super().after_run(run_context, run_values._replace(results=run_values.results["mine"]))

    assert run_steps(impl, [Mine(last_step=3)], step, 10) == 3
    assert trace == ["before", 0, "before", 1, "before", 2]


def test_subclass_overrides_after_run_alone(impl: Any, step: Any, trace: Any, tmp_path: Any) -> None:
    class Mine(impl.train.CheckpointSaverHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            trace.append(int(run_values.results))
            super().after_run(run_context, run_values)

    hook = Mine(str(tmp_path), save_steps=2, listeners=[trace.listener("l")])
    run_steps(impl, [hook], step, 3)
    assert [entry for entry in trace if "before" not in str(entry)] == [
        "l.begin", "l.after_save:0", 0, 1, "l.after_save:2", 2, "l.after_save:3", "l.end:3",
    ]  # fmt: skip


def test_subclass_overrides_begin_and_end(impl: Any, step: Any, trace: Any) -> None:
    class Mine(impl.train.StepCounterHook):
        def begin(self) -> None:
            super().begin()
            trace.append(f"begin {self._global_step_tensor.dtype.name}")
            self._mine = tf.constant(5)

        def after_create_session(self, session: Any, coord: Any) -> None:
            super().after_create_session(session, coord)
            trace.append(int(session.run(self._mine)))

        def end(self, session: Any) -> None:
            super().end(session)
            trace.append("end")

    run_steps(impl, [Mine(every_n_steps=2)], step, 3)
    assert trace == ["begin int64", 5, "end"]


def test_subclass_overrides_save(impl: Any, step: Any, trace: Any, tmp_path: Any) -> None:
    class Mine(impl.train.CheckpointSaverHook):
        def _save(self, session: Any, step: Any) -> bool:
            trace.append(int(step))
            return step == 4

    assert run_steps(impl, [Mine(str(tmp_path), save_steps=2)], step, 10) == 4
    assert trace == [0, 2, 4]
    assert v1.train.latest_checkpoint(str(tmp_path)) is None


def test_subclass_overrides_get_saver(impl: Any, step: Any, tmp_path: Any) -> None:
    mine = v1.train.Saver([step.global_step], max_to_keep=1)

    class Mine(impl.train.CheckpointSaverHook):
        def _get_saver(self) -> Any:
            return mine

    run_steps(impl, [Mine(str(tmp_path), save_steps=2)], step, 3)
    assert mine.last_checkpoints == [str(tmp_path / "model.ckpt-3")]


def test_subclass_overrides_log_tensors(impl: Any, step: Any, trace: Any) -> None:
    class Mine(impl.train.LoggingTensorHook):
        def _log_tensors(self, tensor_values: Any) -> None:
            trace.append({tag: int(value) for tag, value in tensor_values.items()})
            self._timer.update_last_triggered_step(self._iter_count)

    run_steps(impl, [Mine({"step": step.read}, every_n_iter=2, at_end=True)], step, 4)
    assert trace == [{"step": 0}, {"step": 2}, {"step": 4}]


def test_subclass_overrides_get_summary_op(impl: Any, step: Any, events: Any, tmp_path: Any) -> None:
    mine = v1.summary.scalar("mine", 1.0)

    class Mine(impl.train.SummarySaverHook):
        def _get_summary_op(self) -> Any:
            return [mine]

    run_steps(impl, [Mine(2, output_dir=str(tmp_path), scaffold=impl.train.Scaffold())], step, 3)
    assert [text for text in events(tmp_path) if "mine" in text] == ["1:mine", "3:mine"]


def test_subclass_of_a_subclass_with_its_own_constructor(impl: Any, step: Any, trace: Any) -> None:
    class Base(impl.train.StopAtStepHook):
        def __init__(self, last: int) -> None:
            super().__init__(last_step=last)

    class Mine(Base):
        def after_run(self, *arguments: Any) -> None:
            trace.append("after")
            super().after_run(*arguments)

    assert run_steps(impl, [Mine(2)], step, 10) == 2
    assert trace == ["after", "after"]


def test_mixed_in(impl: Any, step: Any, trace: Any) -> None:
    class Mixin:
        def after_run(self, run_context: Any, run_values: Any) -> None:
            trace.append("mixin")
            super().after_run(run_context, run_values)  # type: ignore[misc]

    class Mine(Mixin, impl.train.StopAtStepHook):
        pass

    assert run_steps(impl, [Mine(last_step=2)], step, 10) == 2
    assert trace == ["mixin", "mixin"]


# Timers.


def test_timer_replaced_before_training(impl: Any, step: Any, trace: Any, tmp_path: Any) -> None:
    hook = impl.train.CheckpointSaverHook(str(tmp_path), save_steps=100, listeners=[trace.listener("l")])
    hook._timer = impl.train.SecondOrStepTimer(every_steps=2)
    run_steps(impl, [hook], step, 4)
    assert [entry for entry in trace if "after" in entry] == ["l.after_save:0", "l.after_save:2", "l.after_save:4"]


def test_timer_replaced_during_training(impl: Any, step: Any, trace: Any, tmp_path: Any) -> None:
    hook = impl.train.CheckpointSaverHook(str(tmp_path), save_steps=100, listeners=[trace.listener("l")])

    def between(ran: int) -> None:
        if ran == 3:
            hook._timer = impl.train.SecondOrStepTimer(every_steps=2)
        if ran == 6:
            hook._timer._every_steps = 3
        if ran == 9:
            hook._timer._every_steps = 1

    run_steps(impl, [hook], step, 11, between)
    assert [entry for entry in trace if "after" in entry] == [f"l.after_save:{n}" for n in (0, 4, 6, 9, 10, 11)]


def test_timer_of_the_programs_own(impl: Any, step: Any, trace: Any, tmp_path: Any) -> None:
    class AtSquares(impl.train.SecondOrStepTimer):
        def should_trigger_for_step(self, step: Any) -> bool:
            return int(step) in (1, 4, 9) or step > 1000

    hook = impl.train.CheckpointSaverHook(str(tmp_path), save_steps=100, listeners=[trace.listener("l")])
    hook._timer = AtSquares(every_steps=1)
    counter = impl.train.StepCounterHook(every_n_steps=1)
    counter._timer = AtSquares(every_steps=1)
    counted: list[int] = []
    counter._log_and_record = lambda steps, secs, step: counted.append(int(step))
    run_steps(impl, [hook, counter], step, 10)
    assert [entry for entry in trace if "after" in entry] == [f"l.after_save:{n}" for n in (0, 1, 4, 9, 10)]


def test_timer_that_looks_like_one(impl: Any, step: Any, trace: Any) -> None:
    class Always:
        def reset(self) -> None:
            trace.append("reset")

        def should_trigger_for_step(self, step: int) -> bool:
            return step % 2 == 0

        def update_last_triggered_step(self, step: int) -> tuple[None, None]:
            trace.append(step)
            return None, None

        def last_triggered_step(self) -> None:
            return None

    hook = impl.train.LoggingTensorHook([step.read], every_n_iter=100)
    hook._timer = Always()
    run_steps(impl, [hook], step, 5)
    assert trace == ["reset", 0, 2, 4]
