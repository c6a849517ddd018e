"""Checkpoints by a function, and by TensorFlow's manager around a tf.function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastsup.loop import CheckpointHook, StepLoop

Stepping = Callable[..., Callable[[], Any]]


def test_saves_at_intervals_and_at_the_end() -> None:
    saved: list[int] = []
    StepLoop(int, [CheckpointHook(saved.append, every_steps=4)], max_steps=30, initial_step=20).run()
    assert saved == [24, 28, 30]


def test_a_resumed_loop_saves_at_the_same_steps() -> None:
    saved: list[int] = []
    StepLoop(int, [CheckpointHook(saved.append, every_steps=5)], max_steps=12, initial_step=3).run()
    assert saved == [5, 10, 12]


def test_saves_by_time(stepping: Stepping) -> None:
    saved: list[int] = []
    StepLoop(stepping(secs=2.0), [CheckpointHook(saved.append, every_secs=5)], max_steps=7).run()
    assert saved == [3, 6, 7]


def test_saves_no_step_twice() -> None:
    saved: list[int] = []
    hook = CheckpointHook(saved.append, every_steps=5)
    StepLoop(int, [hook], max_steps=10).run()
    assert saved == [5, 10]
    assert hook.last_saved_step == 10


def test_the_last_save_can_be_left_out() -> None:
    saved: list[int] = []
    StepLoop(int, [CheckpointHook(saved.append, every_steps=4, save_at_end=False)], max_steps=10).run()
    assert saved == [4, 8]


def test_saves_nothing_after_an_error() -> None:
    saved: list[int] = []

    def step() -> None:
        if saved:
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        StepLoop(step, [CheckpointHook(saved.append, every_steps=2)]).run()
    assert saved == [2]


def test_an_error_of_the_save_ends_the_loop() -> None:
    def save(step: int) -> None:
        raise OSError(f"no room at {step}")

    with pytest.raises(OSError, match="no room at 3"):
        StepLoop(int, [CheckpointHook(save, every_steps=3)]).run()


@pytest.mark.parametrize(
    "save", [lambda: None, lambda step, path: None, lambda *, step: None], ids=["none", "two", "by name"]
)
def test_a_function_that_does_not_take_the_step_is_refused_when_the_hook_is_made(save: Callable[..., None]) -> None:
    with pytest.raises(TypeError, match=r"^save must take the global step as its one argument, got <function "):
        CheckpointHook(save, every_steps=3)


def test_takes_what_can_be_called_with_the_step() -> None:
    for save in (print, dict, [].append, lambda *steps: None, lambda step, path="x": None):
        CheckpointHook(save, every_steps=3)


def test_tensorflows_manager_around_a_tf_function(tmp_path: Path) -> None:
    import tensorflow as tf

    weights = tf.Variable([5.0, -3.0])

    @tf.function  # type: ignore[untyped-decorator, unused-ignore]
    def step() -> Any:
        weights.assign(weights * 0.5)
        return tf.reduce_sum(weights * weights)

    checkpoint = tf.train.Checkpoint(weights=weights)
    manager = tf.train.CheckpointManager(checkpoint, str(tmp_path), max_to_keep=2)
    StepLoop(step, [CheckpointHook(manager, every_steps=3)], max_steps=8).run()
    assert [Path(path).name for path in manager.checkpoints] == ["ckpt-6", "ckpt-8"]
    restored = tf.Variable([0.0, 0.0])
    tf.train.Checkpoint(weights=restored).restore(manager.latest_checkpoint).assert_consumed()
    assert restored.numpy().tolist() == [5 / 256, -3 / 256]


@pytest.mark.parametrize("problem", ["a file", "may not be written to", "a folder in the place of the state file"])
def test_a_directory_that_cannot_be_used_is_found_before_the_first_step(
    problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf

    directory = tmp_path / "model"
    if problem == "a file":
        directory.write_text("")
    elif problem.startswith("a folder"):
        (directory / "checkpoint").mkdir(parents=True)
    else:
        monkeypatch.setattr("os.access", lambda path, mode: path != str(directory))
    steps: list[int] = []
    hook = CheckpointHook(tf.train.Checkpoint(), every_steps=1000, directory=directory)
    with pytest.raises(OSError, match=r"heckpoints .*model") as raised:
        StepLoop(lambda: steps.append(1), [hook], max_steps=2000).run()
    kinds = {"a file": NotADirectoryError, "may not be written to": PermissionError}
    assert raised.type is kinds.get(problem, IsADirectoryError)
    assert not steps
    with pytest.raises(ValueError, match="directory must be the path of a folder, got ''"):
        CheckpointHook(tf.train.Checkpoint(), every_steps=1000, directory="")


def test_a_manager_saves_whatever_its_own_interval() -> None:
    calls: list[Any] = []

    class Manager:
        checkpoint_interval = 1000

        def save(self, checkpoint_number: int, check_interval: bool = True) -> None:
            calls.append((checkpoint_number, check_interval))

    StepLoop(int, [CheckpointHook(Manager(), every_steps=2)], max_steps=4).run()
    assert calls == [(2, False), (4, False)]


def test_a_manager_that_writes_its_own_state_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint is on the disk before it is named, and the state file before older checkpoints are deleted."""
    import tensorflow as tf

    from fastsup.checkpoint import durable

    done: list[str] = []

    class Manager(tf.train.CheckpointManager):  # type: ignore[misc]
        def _record_state(self) -> None:
            done.append("named")
            super()._record_state()

        def _sweep(self) -> None:
            done.append("deleted")
            super()._sweep()

    def flush(path: str) -> bool:
        done.append(f"flushed {Path(path).name}")
        return True

    monkeypatch.setattr(durable, "_flush", flush)
    manager = Manager(tf.train.Checkpoint(weights=tf.Variable(1.0)), str(tmp_path), max_to_keep=1)
    StepLoop(int, [CheckpointHook(manager, every_steps=2)], max_steps=2).run()
    record = ["flushed ckpt-2", "named", "flushed checkpoint"]
    assert done == [*record, "deleted", *record]


def test_a_save_in_a_thread_that_nobody_waits_for(tmp_path: Path) -> None:
    """The thread may still replace the files: what they are copied to must stay."""
    import tensorflow as tf

    from fastsup.checkpoint.durable import keeping_the_overwritten

    path = tf.train.Checkpoint(weights=tf.Variable(1.0)).write(str(tmp_path / "ckpt-2"))
    kept = keeping_the_overwritten(path)
    kept.__enter__()
    del kept
    assert (tmp_path / f"ckpt-{2:020d}.index").exists()


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("leaves_index", [False, True])
def test_the_mark_of_a_first_save_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_thread: bool, leaves_index: bool
) -> None:
    tf = pytest.importorskip("tensorflow")
    from tensorflow.python.checkpoint.checkpoint import TrackableSaver

    def fail(saver: Any, file_prefix: Any, *args: Any, **kwargs: Any) -> None:
        if leaves_index:
            Path(f"{file_prefix}.index").write_bytes(b"some")
        raise AttributeError("planned")

    manager = tf.train.CheckpointManager(tf.train.Checkpoint(v=tf.Variable(1.0)), str(tmp_path), 1)
    monkeypatch.setattr(TrackableSaver, "save", fail)
    with pytest.raises(AttributeError, match="planned"):
        StepLoop(int, [CheckpointHook(manager, every_steps=1, async_save=in_thread)], max_steps=1).run()
    assert (".first_save_under_way" in [path.name for path in tmp_path.iterdir()]) == leaves_index
