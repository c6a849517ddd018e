"""Two trainings by mistake in one directory: each says so. One after the other, they say nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from fastsup import estimator, train
from fastsup.checkpoint import directory
from fastsup.checkpoint.directory import note_state, sign, warn_of_other_writer
from fastsup.loop import CheckpointHook, StepLoop

sys.path.append(str(Path(__file__).parent))

from one_of_two import WAYS, step_in_graph

v1 = tf.compat.v1
PROGRAM = Path(__file__).with_name("one_of_two.py")


def _has_attributes() -> bool:
    """Whether the file system of temporary files has extended attributes, in which a state file is signed."""
    with tempfile.NamedTemporaryFile() as file:
        try:
            os.setxattr(file.name, "user.fastsup.test", b"1")
        except OSError:
            return False
    return True


pytestmark = [
    pytest.mark.one_world,
    pytest.mark.timeout(170),
    pytest.mark.skipif(not _has_attributes(), reason="the file system has no extended attributes"),
]


class Training:
    """A process of one_of_two.py."""

    def __init__(self, processes: Any, way: str, folder: Path, log: Path) -> None:
        self._log = log
        with log.open("w") as file:
            self.process = processes.start_python(
                PROGRAM, way, folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True
            )
        self._wait()

    def _wait(self) -> None:
        # The logger of absl may print to stdout.
        for line in self.process.stdout:
            if line == "ready\n":
                return
        raise AssertionError(self._log.read_text())

    def make_steps(self, count: int = 2) -> None:
        for _ in range(count):
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            self._wait()

    def end(self) -> list[str]:
        """Ends the training. Returns its warnings of another one."""
        self.process.communicate(timeout=60)
        assert self.process.returncode == 0, self._log.read_text()
        return self.warnings()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def warnings(self) -> list[str]:
        # A save of tf.train.Checkpoint has absl add a second handler.
        return [*{line for line in self._log.read_text().splitlines() if "by another program" in line}]


@pytest.fixture
def start(processes: Any, tmp_path: Path) -> Iterator[Any]:
    """Starts a training in the directory "model"."""
    started: list[Training] = []

    def start_one(way: str) -> Training:
        training = Training(processes, way, tmp_path / "model", tmp_path / f"log {len(started)}")
        started.append(training)
        return training

    yield start_one
    for training in started:
        if training.process.returncode is None:
            training.kill()


@pytest.mark.parametrize("way", WAYS)
def test_each_warns_of_the_other_once(start: Any, tmp_path: Path, way: str) -> None:
    first = start(way)
    first.make_steps()
    second = start(way)
    for _ in range(2):
        first.make_steps()
        second.make_steps()
    first.make_steps()
    pids = [first.process.pid, second.process.pid]
    for training, other in ((first, pids[1]), (second, pids[0])):
        (warning,) = training.end()
        replaced = f"{tmp_path / 'model' / 'checkpoint'} was replaced by another program: process {other} on "
        assert re.search(re.escape(replaced) + r"\S+, running since \S+ saved there after this program", warning)


@pytest.mark.parametrize("way", ["session", "async_step_loop"])
def test_a_restart_warns_of_nothing(start: Any, way: str) -> None:
    first = start(way)
    first.make_steps()
    first.kill()
    for _ in range(2):
        again = start(way)
        again.make_steps()
        assert again.end() == []


def _train(folder: Path, steps: int = 2) -> None:
    with tf.Graph().as_default():
        step = step_in_graph()
        with train.MonitoredTrainingSession(
            checkpoint_dir=str(folder), save_checkpoint_steps=1, save_summaries_steps=None
        ) as training:
            for _ in range(steps):
                training.run(step)


def test_trainings_in_turns_in_one_process(tmp_path: Path, tf_log: Any, start: Any) -> None:
    """Sessions, a Supervisor, evaluations; another process between two of them, and TensorFlow's own Saver."""
    folder = tmp_path / "model"

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        return estimator.EstimatorSpec(mode, loss=tf.constant(1.0), train_op=step_in_graph())

    def input_fn() -> Any:
        return tf.data.Dataset.from_tensors([1.0]).repeat()

    model = estimator.Estimator(model_fn, str(folder))
    spec = estimator.TrainSpec(input_fn, max_steps=3)
    estimator.train_and_evaluate(model, spec, estimator.EvalSpec(input_fn, steps=1, start_delay_secs=0))
    _train(folder)
    with tf.Graph().as_default():
        step_in_graph()
        sv = train.Supervisor(logdir=str(folder), summary_op=None)
        with sv.managed_session() as managed:
            sv._save(managed, sv.saver, sv.save_path, global_step=v1.train.get_global_step())
    between = start("session")
    between.make_steps()
    between.end()
    _train(folder)
    with tf.Graph().as_default(), v1.Session() as session:
        step_in_graph()
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(folder / "model.ckpt"), 99)
    _train(folder)
    assert "by another program" not in tf_log.text


def test_the_state_file_is_read_as_before(tmp_path: Path) -> None:
    """The comment is neither its first line nor its last."""
    _train(tmp_path)
    text = (tmp_path / "checkpoint").read_text().splitlines()
    assert text[0] == f'model_checkpoint_path: "{tmp_path}/model.ckpt-2"'
    assert len(text) == 4
    assert text[-1] == f'all_model_checkpoint_paths: "{tmp_path}/model.ckpt-2"'
    state = v1.train.get_checkpoint_state(str(tmp_path))
    assert [Path(path).name for path in state.all_model_checkpoint_paths] == [f"model.ckpt-{n}" for n in range(3)]
    checkpoint = tf.train.Checkpoint(weights=tf.Variable(1.0))
    StepLoop(int, [CheckpointHook(checkpoint, every_steps=1, directory=tmp_path / "loop")], max_steps=2).run()
    manager = tf.train.CheckpointManager(checkpoint, str(tmp_path / "loop"), max_to_keep=1)
    assert [Path(path).name for path in manager.checkpoints] == ["ckpt-1", "ckpt-2"]


class _Other:
    """Writes as another process does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self._process, self._path = directory._Process(), path
        self._monkeypatch = monkeypatch

    def write(self, text: str) -> None:
        with self._monkeypatch.context() as patch:
            patch.setattr(directory, "_process", self._process)
            self._path.unlink(missing_ok=True)
            self._path.write_text(text)
            sign(str(self._path))


def test_what_counts(tmp_path: Path, tf_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that this process hasn't seen, by another one that signs."""
    path = tmp_path / "checkpoint"
    name = str(path)
    other = _Other(monkeypatch, path)

    def warned() -> bool:
        tf_log.clear()
        warn_of_other_writer(name)
        return "by another program" in tf_log.text

    other.write('model_checkpoint_path: "a"\n')
    assert not warned()  # Nothing is known of the file.
    note_state(name)
    assert not warned()
    path.write_text(path.read_text())  # A copy, or a touch.
    assert not warned()
    path.write_text('model_checkpoint_path: "edited"\n')
    assert not warned()
    path.unlink()
    assert not warned()
    other.write('model_checkpoint_path: "b"\n')
    assert warned()
    assert not warned()  # Once.
    _Other(monkeypatch, path).write('model_checkpoint_path: "c"\n')
    assert warned()
    path.unlink()
    path.write_text('model_checkpoint_path: "d"\n')  # Another thread.
    sign(name)
    assert not warned()
