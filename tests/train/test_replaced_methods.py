"""Methods and attributes that a program replaces while training runs: the next step goes by what is there then."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import tensorflow as tf

v1 = tf.compat.v1


@pytest.fixture
def train(impl: Any, step: Any) -> Callable[..., int]:
    """Runs steps until a hook asks for a stop, doing something before some of them; gives how many were run."""

    def run(hooks: list[Any], count: int, before: dict[int, Callable[[], None]]) -> int:
        ran = 0
        with impl.train.MonitoredSession(hooks=hooks) as session:
            while ran < count and not session.should_stop():
                ran += 1
                if ran in before:
                    before[ran]()
                session.run(step.op)
        return ran

    return run


def saves(trace: list[str]) -> list[int]:
    return [int(entry.rpartition(":")[2]) for entry in trace if "after_save" in entry]


# Methods of the standard hooks.


@pytest.mark.parametrize("where", ["class", "instance"])
def test_after_run_of_a_stop_hook(impl: Any, train: Any, trace: Any, monkeypatch: Any, where: str) -> None:
    hook = impl.train.StopAtStepHook(last_step=100)

    def after_run(*arguments: Any) -> None:
        run_context, run_values = arguments[-2:]
        trace.append(int(run_values.results))
        if len(trace) == 3:
            run_context.request_stop()

    target = impl.train.StopAtStepHook if where == "class" else hook
    assert train([hook], 10, {4: lambda: monkeypatch.setattr(target, "after_run", after_run)}) == 6
    assert trace == [3, 4, 5]


@pytest.mark.parametrize("where", ["class", "instance"])
def test_after_run_of_a_checkpoint_hook(
    impl: Any, train: Any, trace: Any, tmp_path: Any, monkeypatch: Any, where: str
) -> None:
    hook = impl.train.CheckpointSaverHook(str(tmp_path), save_steps=4, listeners=[trace.listener("l")])
    seen = []
    patches = pytest.MonkeyPatch()
    target = impl.train.CheckpointSaverHook if where == "class" else hook
    before = {
        3: lambda: patches.setattr(target, "after_run", lambda *arguments: seen.append(int(arguments[-1].results))),
        7: patches.undo,
    }
    train([hook], 12, before)
    assert seen == [2, 3, 4, 5]
    assert saves(trace) == [0, 7, 11, 12]  # Put back, it is as late as it would have been all along.


@pytest.mark.parametrize("where", ["class", "instance"])
def test_before_run(impl: Any, train: Any, step: Any, trace: Any, monkeypatch: Any, where: str) -> None:
    hook = impl.train.StopAtStepHook(last_step=5)

    def before_run(*_: Any) -> Any:
        trace.append("before")
        return impl.train.SessionRunArgs(step.read)

    target = impl.train.StopAtStepHook if where == "class" else hook
    assert train([hook], 10, {3: lambda: monkeypatch.setattr(target, "before_run", before_run)}) == 5
    assert trace == ["before"] * 3


def test_method_of_a_base_class(impl: Any, train: Any, trace: Any, monkeypatch: Any) -> None:
    """Replaced where it is defined, it is replaced for the classes that inherit it."""

    class Mine(impl.train.StopAtStepHook):
        pass

    after_run = lambda self, context, values: trace.append(type(self).__name__)  # noqa: E731
    hooks = [Mine(last_step=100), impl.train.StopAtStepHook(last_step=100)]
    train(hooks, 3, {3: lambda: monkeypatch.setattr(impl.train.StopAtStepHook, "after_run", after_run)})
    assert trace == ["Mine", "StopAtStepHook"]


def test_method_wrapped_by_a_mock(impl: Any, train: Any) -> None:
    hook = impl.train.StopAtStepHook(last_step=4)
    with mock.patch.object(hook, "after_run", wraps=hook.after_run) as after_run:
        assert train([hook], 10, {}) == 4
    assert after_run.call_count == 4


@pytest.mark.parametrize("where", ["class", "instance"])
def test_save(impl: Any, train: Any, trace: Any, tmp_path: Any, monkeypatch: Any, where: str) -> None:
    hook = impl.train.CheckpointSaverHook(str(tmp_path), save_steps=2, listeners=[trace.listener("l")])
    target = impl.train.CheckpointSaverHook if where == "class" else hook
    saved = []
    train([hook], 6, {4: lambda: monkeypatch.setattr(target, "_save", lambda *args: saved.append(int(args[-1])))})
    assert saves(trace) == [0, 2]
    assert saved == [4, 6]


@pytest.mark.parametrize("where", ["class", "instance"])
def test_log_and_record(impl: Any, train: Any, monkeypatch: Any, clock: Any, tf_log: Any, where: str) -> None:
    hook = impl.train.StepCounterHook(every_n_steps=2)
    target = impl.train.StepCounterHook if where == "class" else hook
    recorded = []

    def before(number: int) -> None:
        clock.now += 0.5
        if number == 4:
            monkeypatch.setattr(target, "_log_and_record", lambda *args: recorded.append(args[-3:]))

    train([hook], 7, {number: lambda number=number: before(number) for number in range(1, 8)})
    assert [text for text in tf_log.messages if "sec" in text] == ["global_step/sec: 2"]
    assert recorded == [(2, 1.0, 5), (2, 1.0, 7)]


def test_log_tensors(impl: Any, train: Any, step: Any, monkeypatch: Any, trace: Any) -> None:
    hook = impl.train.LoggingTensorHook({"step": step.read}, every_n_iter=2)
    note = lambda values: trace.append(int(values["step"]))  # noqa: E731
    train([hook], 7, {4: lambda: monkeypatch.setattr(hook, "_log_tensors", note)})
    assert trace == [4, 5, 6]  # Whoever replaces it also has to tell the timer: it is due until then.


def test_timers_decision(impl: Any, train: Any, trace: Any, tmp_path: Any, monkeypatch: Any) -> None:
    hook = impl.train.CheckpointSaverHook(str(tmp_path), save_steps=100, listeners=[trace.listener("l")])
    decide = lambda self, step: step in (5, 7) or step > 1000  # noqa: E731
    timer = impl.train.SecondOrStepTimer
    train([hook], 8, {3: lambda: monkeypatch.setattr(timer, "should_trigger_for_step", decide)})
    assert saves(trace) == [0, 5, 7, 8]


# Hooks of the program's own.


@pytest.mark.parametrize("where", ["class", "instance", "base class"])
@pytest.mark.parametrize("callback", ["before_run", "after_run"])
def test_callbacks_that_a_hook_had_not(
    impl: Any, train: Any, trace: Any, monkeypatch: Any, where: str, callback: str
) -> None:
    class Mine(impl.train.SessionRunHook):
        pass

    hook = Mine()
    target = {"class": Mine, "instance": hook, "base class": impl.train.SessionRunHook}[where]
    patches = pytest.MonkeyPatch()
    note = lambda *_: trace.append(callback)  # noqa: E731
    train([hook], 6, {3: lambda: patches.setattr(target, callback, note), 5: patches.undo})
    assert trace == [callback] * 2


def test_class_of_a_hook(impl: Any, train: Any, trace: Any) -> None:
    class Quiet(impl.train.SessionRunHook):
        pass

    class Talking(Quiet):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            trace.append("after_run")

    hook = Quiet()
    train([hook], 4, {3: lambda: setattr(hook, "__class__", Talking)})
    assert trace == ["after_run"] * 2


def test_a_hook_replaces_anothers_method_within_a_step(impl: Any, train: Any, trace: Any) -> None:
    """A before_run that replaces after_run: the same step's after_run is the new one."""
    other = trace.hook("other")

    def replace(number: int, _: Any) -> None:
        if number == 1:
            other.after_run = lambda *_: trace.append("replaced")

    train([trace.hook("a", before_run=replace), other], 3, {})
    assert [entry for entry in trace if "other.after" in entry or "replaced" in entry] == [
        "other.after_create_session", "other.after_run", "replaced", "replaced",
    ]  # fmt: skip


# Attributes.


def test_last_step(impl: Any, train: Any) -> None:
    hook = impl.train.StopAtStepHook(last_step=100)
    assert train([hook], 10, {3: lambda: setattr(hook, "_last_step", 5)}) == 5
    later = impl.train.StopAtStepHook(last_step=4)
    assert train([later], 10, {3: lambda: setattr(later, "_last_step", 7)}) == 7


def test_what_a_checkpoint_hook_keeps(impl: Any, train: Any, step: Any, tmp_path: Any) -> None:
    saver = v1.train.Saver()
    hook = impl.train.CheckpointSaverHook(str(tmp_path), save_steps=2, saver=saver, listeners=None)
    assert hook._checkpoint_dir == str(tmp_path)
    assert hook._save_path == str(tmp_path / "model.ckpt")
    assert hook._saver is saver
    assert hook._get_saver() is saver
    assert hook._listeners == []
    assert isinstance(hook._timer, impl.train.SecondOrStepTimer)
    assert hook._timer._every_steps == 2
    train([hook], 1, {})
    assert hook._global_step_tensor is step.read
    assert hook._summary_writer.get_logdir() == str(tmp_path)


def test_what_a_checkpoint_hook_keeps_can_be_replaced(
    impl: Any, train: Any, step: Any, trace: Any, tmp_path: Any
) -> None:
    first, second = v1.train.Saver(), v1.train.Saver()
    hook = impl.train.CheckpointSaverHook(str(tmp_path), save_steps=2, saver=first)
    logged: list[Any] = []

    def replace() -> None:
        hook._saver = second
        hook._save_path = str(tmp_path / "other")
        hook._listeners = [trace.listener("l")]
        hook._summary_writer = SimpleNamespace(
            add_session_log=lambda log, step: logged.append((log.checkpoint_path, int(step)))
        )

    train([hook], 5, {3: replace})
    assert [path.rpartition("/")[2] for path in first.last_checkpoints] == ["model.ckpt-0", "model.ckpt-2"]
    assert [path.rpartition("/")[2] for path in second.last_checkpoints] == ["other-4", "other-5"]
    assert trace == ["l.before_save:4", "l.after_save:4", "l.before_save:5", "l.after_save:5", "l.end:5"]
    assert logged == [(str(tmp_path / "other"), 4), (str(tmp_path / "other"), 5)]


def test_a_listener_added_during_training(impl: Any, train: Any, trace: Any, tmp_path: Any) -> None:
    hook = impl.train.CheckpointSaverHook(str(tmp_path), save_steps=2)
    train([hook], 4, {3: lambda: hook._listeners.append(trace.listener("l"))})
    assert trace == ["l.before_save:4", "l.after_save:4", "l.end:4"]


def test_hooks_that_count_by_another_tensor(impl: Any, graph: Any, trace: Any, tmp_path: Any) -> None:
    """A subclass may set _global_step_tensor to what it likes, and the hook's steps are those."""
    v1.train.get_or_create_global_step()
    mine = v1.get_variable("mine", initializer=tf.constant(0, tf.int64), trainable=False)
    read = mine + 0  # A copy: a mere read of a reference variable shows what is written later.
    with tf.control_dependencies([read]):
        train_op = v1.assign_add(mine, 10).op

    class Saver(impl.train.CheckpointSaverHook):
        def begin(self) -> None:
            super().begin()
            self._global_step_tensor = read

    class Stop(impl.train.StopAtStepHook):
        def begin(self) -> None:
            super().begin()
            self._global_step_tensor = read

    saver = Saver(str(tmp_path), save_steps=25, listeners=[trace.listener("l")])
    ran = 0
    with impl.train.MonitoredSession(hooks=[saver, Stop(last_step=70)]) as session:
        while not session.should_stop():
            session.run(train_op)
            ran += 1
    # It looks at the step itself once the one before the run, plus 1, is enough.
    assert ran == 8
    assert saves(trace) == [0, 30, 60, 80]
