"""Links in the directories of trainings: what is written or deleted there isn't what they lead to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from fastsup import estimator, train
from fastsup.cluster.job_completion import mark_task_ended, mark_task_started
from fastsup.common import file_system, files
from fastsup.estimator.export.export_folders import delete_export, temporary_export
from fastsup.loop import CheckpointHook, StepLoop

v1 = tf.compat.v1
TEXT = "mine"

pytestmark = pytest.mark.one_world


def session(classes: Any, folder: Path, value: float = 1.0) -> None:
    """Saves step 0 in a new session, which restores nothing."""
    with tf.Graph().as_default():
        v1.get_variable("weights", [4], initializer=v1.constant_initializer(value))
        v1.train.get_or_create_global_step()
        saver = classes.CheckpointSaverHook(str(folder), save_steps=1)
        with classes.MonitoredSession(hooks=[saver]):
            pass


def step_loop(folder: Path, value: float = 1.0, max_to_keep: int | None = 5, steps: int = 1) -> None:
    checkpoint = tf.train.Checkpoint(weights=tf.Variable([value] * 4))
    saver = CheckpointHook(checkpoint, every_steps=1, directory=folder, max_to_keep=max_to_keep)
    StepLoop(int, [saver], max_steps=steps).run()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory of a training. Next to it is a file that isn't its."""
    (tmp_path / "other").write_text(TEXT)
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


@pytest.mark.parametrize("name", ["checkpoint", "graph.pbtxt", "model.ckpt-0.meta"])
def test_a_link_is_replaced(impl: Any, place: Path, name: str) -> None:
    """As TensorFlow replaces it."""
    (place / name).symlink_to(place.parent / "other")
    session(impl.train, place)
    assert (place.parent / "other").read_text() == TEXT
    assert (place / name).is_file()
    assert not (place / name).is_symlink()


@pytest.mark.parametrize("way", [lambda place: session(train, place), step_loop])
@pytest.mark.parametrize("name", ["checkpoint", ".first_save_under_way"])
def test_a_link_in_the_place_of_a_mark_or_a_state_file(place: Path, name: str, way: Callable[[Path], None]) -> None:
    (place / name).symlink_to(place.parent / "other")
    way(place)
    assert (place.parent / "other").read_text() == TEXT
    assert train.latest_intact_checkpoint(place) is not None
    assert not any(path.is_symlink() for path in place.iterdir())


def test_a_pipe_is_replaced(impl: Any, place: Path) -> None:
    """As TensorFlow replaces it. To open it would wait for a reader."""
    for _ in range(2):
        (place / "checkpoint").unlink(missing_ok=True)
        os.mkfifo(place / "checkpoint")
        session(impl.train, place)
        assert (place / "checkpoint").is_file()


@pytest.mark.parametrize("target", ["a checkpoint of another run", "nothing", "an index without data"])
@pytest.mark.parametrize("way", ["session", "sharded", "step_loop"])
def test_an_index_that_is_a_link(place: Path, target: str, way: str) -> None:
    """A directory may be made of links to the checkpoint of another run. TensorFlow writes an index in place."""
    other = place.parent / "other_run"
    other.mkdir()
    name = "ckpt-1" if way == "step_loop" else "model.ckpt-0"

    def save(folder: Path, value: float) -> None:
        if way == "step_loop":
            step_loop(folder, value)
        else:
            _save_once(folder, value, sharded=way == "sharded")

    save(other, 1.0)
    before = {path.name: path.read_bytes() for path in other.glob(f"{name}.*")}
    for file in before:
        is_there = target == "a checkpoint of another run" or (target != "nothing" and file.endswith(".index"))
        (place / file).symlink_to(other / file if is_there else place.parent / "nothing")
    save(place, 2.0)
    assert {path.name: path.read_bytes() for path in other.glob(f"{name}.*")} == before
    assert not (place.parent / "nothing").exists()
    newest = train.latest_intact_checkpoint(place)
    assert newest == str(place / name)
    reader = tf.train.load_checkpoint(newest)
    (weights,) = (key for key in reader.get_variable_to_shape_map() if key.startswith("weights"))
    assert reader.get_tensor(weights).tolist() == [2.0] * 4
    assert sorted(path.name for path in place.glob(f"{name}*")) == sorted(before)


def _save_once(folder: Path, value: float, sharded: bool) -> None:
    with tf.Graph().as_default():
        v1.get_variable("weights", [4], initializer=v1.constant_initializer(value))
        v1.train.get_or_create_global_step()
        saver = train.CheckpointSaverHook(str(folder), save_steps=1, saver=v1.train.Saver(sharded=sharded))
        with train.MonitoredSession(hooks=[saver]):
            pass


def test_a_directory_may_be_a_link(place: Path) -> None:
    link = place.parent / "link"
    link.symlink_to(place)
    session(train, link)
    step_loop(link, max_to_keep=1, steps=3)
    assert link.is_symlink()
    assert sorted(path.name for path in place.glob("ckpt-*.index")) == ["ckpt-3.index"]


OUTSIDE = ("../elsewhere/{}", "{parent}/elsewhere/{}", "inside/../../elsewhere/{}", "link/{}", "*")


@pytest.mark.parametrize("named", OUTSIDE)
def test_a_state_file_that_names_files_elsewhere(place: Path, named: str) -> None:
    """They aren't deleted by the rotation, neither by a session's nor by a manager's, with `resume_from` or without."""
    elsewhere = place.parent / "elsewhere"
    elsewhere.mkdir()
    (place / "inside").mkdir()
    (place / "link").symlink_to(elsewhere)
    for name, save in (("model.ckpt-0", lambda folder: session(train, folder)), ("ckpt-1", step_loop)):
        for folder in (place, elsewhere):
            save(folder)
        kept = sorted(elsewhere.iterdir())
        path = named.format(name, parent=place.parent)
        lines = [f'model_checkpoint_path: "{name}"', "last_preserved_timestamp: 1"]
        for each in (path, name):
            lines += [f'all_model_checkpoint_paths: "{each}"', "all_model_checkpoint_timestamps: 2"]
        (place / "checkpoint").write_text("\n".join(lines))
        (place / "notes.index").write_text(TEXT)
        if name == "ckpt-1":
            step_loop(place, max_to_keep=1, steps=3)
        else:
            _train_on(place)
        assert sorted(elsewhere.iterdir()) == kept
        assert (place / "notes.index").read_text() == TEXT
        assert not (place / f"{name}.index").exists()


def _train_on(folder: Path) -> None:
    with tf.Graph().as_default():
        v1.get_variable("weights", [4], initializer=v1.zeros_initializer())
        step = v1.assign_add(v1.train.get_or_create_global_step(), 1)
        scaffold = train.Scaffold(saver=v1.train.Saver(max_to_keep=1))
        with train.MonitoredTrainingSession(
            checkpoint_dir=str(folder), scaffold=scaffold, save_checkpoint_steps=1, save_summaries_steps=None
        ) as training:
            for _ in range(3):
                training.run(step)


def test_a_manager_with_checkpoints_in_a_directory_below(place: Path) -> None:
    """Those are its own, and rotate."""
    checkpoint = tf.train.Checkpoint(weights=tf.Variable(1.0))
    (place / "below").mkdir()
    for steps in (2, 4):
        manager = tf.train.CheckpointManager(checkpoint, str(place), max_to_keep=1, checkpoint_name="below/ckpt")
        loop = StepLoop(int, [CheckpointHook(manager, every_steps=1)], max_steps=steps)
        loop.run()
    assert [path.name for path in place.glob("below/*.index")] == ["ckpt-4.index"]


def test_an_export_that_is_a_link_or_has_one(place: Path) -> None:
    """The rotation deletes the link."""
    kept = place / "kept"
    kept.mkdir()
    (kept / "saved_model.pb").write_text(TEXT)
    exports = place / "exports"
    exports.mkdir()
    (exports / "1000000001").symlink_to(kept)
    (exports / "1000000002").mkdir()
    (exports / "1000000002" / "assets").symlink_to(kept)
    for name in ("1000000001", "1000000002"):
        delete_export(str(exports / name))
    assert not list(exports.iterdir())
    assert (kept / "saved_model.pb").read_text() == TEXT


def test_a_link_with_the_name_of_an_unfinished_export(place: Path, tf_log: Any) -> None:
    kept = place / "kept"
    kept.mkdir()
    (place / "temp-1000000001").symlink_to(kept)
    os.utime(kept, (1, 1))
    with pytest.raises(KeyError), temporary_export(str(place / "temp-1000000002")):
        (place / "temp-1000000002").symlink_to(kept)
        (kept / "file").write_text(TEXT)
        raise KeyError
    assert (kept / "file").read_text() == TEXT
    assert not os.path.lexists(place / "temp-1000000002")
    assert "can't be deleted" not in tf_log.text


def test_the_mark_of_a_task(place: Path) -> None:
    (place / "ended_tasks").mkdir()
    mark = place / "ended_tasks" / "chief-0.json"
    mark.symlink_to(place.parent / "other")
    mark_task_ended(str(place), "chief", 0)
    assert not mark.is_symlink()
    mark.unlink()
    mark.symlink_to(place.parent / "other")
    mark_task_started(str(place), "chief", 0)
    assert not os.path.lexists(mark)
    assert (place.parent / "other").read_text() == TEXT


def test_permissions_are_those_of_a_new_file_or_of_the_one_before(place: Path) -> None:
    before = os.umask(0o027)
    try:
        file_system.write_whole(str(place / "new"), TEXT)
    finally:
        os.umask(before)
    assert (place / "new").stat().st_mode & 0o777 == 0o640
    (place / "new").chmod(0o600)
    file_system.write_whole(str(place / "new"), TEXT)
    assert (place / "new").stat().st_mode & 0o777 == 0o600
    (place / "link").symlink_to(place / "new")
    files.write_whole(place / "link", "through the link, which the user has named")
    assert (place / "link").is_symlink()
    assert "through" in (place / "new").read_text()


def test_best_exporter_and_graph(place: Path) -> None:
    receiver = estimator.export.build_raw_serving_input_receiver_fn({"x": tf.constant([1.0])})
    exporter = estimator.BestExporter("best", receiver)
    exporter._model_dir = str(place)
    exporter._best_eval_result = {"loss": 1.0}
    (place / "best_export.best.json").symlink_to(place.parent / "other")
    exporter._save_best(None, None)
    assert not (place / "best_export.best.json").is_symlink()
    assert (place.parent / "other").read_text() == TEXT
