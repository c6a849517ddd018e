"""A save over a checkpoint of the same step: the earlier one is there until the new one is durable."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import fastsup
from fastsup import train
from fastsup.checkpoint import durable

v1 = tf.compat.v1
OTHER = "model.ckpt-00000000000000000012"


class Saves:
    """A session whose one variable is saved as of step 12."""

    def __init__(self, session: Any, value: Any, new_value: Any, assign: Any, saver: Any) -> None:
        self.value, self._session = value, session
        self._new_value, self._assign, self._saver = new_value, assign, saver

    def save(self, value: float, path: str) -> None:
        self._session.run(self._assign, {self._new_value: value})
        durable.save_durably(self._saver, self._session, path, 12)


@pytest.fixture
def saves() -> Iterator[Saves]:
    with tf.Graph().as_default(), fastsup.Session() as session:
        value = v1.get_variable("value", [], initializer=v1.zeros_initializer())
        new_value = v1.placeholder(tf.float32, [])
        assign = v1.assign(value, new_value)
        yield Saves(session, value, new_value, assign, v1.train.Saver())


def restorable(folder: Path) -> list[float]:
    """The values of the checkpoints, of which a restore tries the first one first."""
    paths = [path for path in map(str, folder.glob("*.index")) if "tempstate" not in path]
    return [tf.train.load_variable(path.removesuffix(".index"), "value") for path in sorted(paths, reverse=True)]


@pytest.mark.parametrize("separator", ["/", "//"])
def test_the_other_name_goes_with_the_save(saves: Saves, tmp_path: Path, separator: str) -> None:
    for value in (1.0, 2.0, 3.0):
        saves.save(value, f"{tmp_path}{separator}model.ckpt")
        assert restorable(tmp_path) == [value]
    assert not [name for name in os.listdir(tmp_path) if name.startswith(OTHER)]


@pytest.mark.parametrize("place", ["flush", "meta graph"])
def test_it_stays_if_the_save_fails_after_it_has_replaced_a_file(
    saves: Saves, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has been written may not be on the disk, though it can be read."""
    saves.save(1.0, f"{tmp_path}/model.ckpt")
    flush = durable.fsync_checkpoint

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error", "the file")

    def fail_unless_other(path: Any) -> Any:
        return flush(path) if Path(path).name == OTHER else fail()

    with monkeypatch.context() as patch:
        if place == "flush":
            patch.setattr(durable, "fsync_checkpoint", fail_unless_other)
        else:
            patch.setattr(v1.train.Saver, "export_meta_graph", fail)
        with pytest.raises((tf.errors.OpError, OSError)):
            saves.save(2.0, f"{tmp_path}/model.ckpt")
    assert tf.train.load_variable(f"{tmp_path}/{OTHER}", "value") == 1.0
    saves.save(3.0, f"{tmp_path}/model.ckpt")
    assert restorable(tmp_path) == [3.0]


def test_a_restore_finds_it(saves: Saves, tmp_path: Path) -> None:
    """The process was killed when the index was replaced and the data wasn't; the state file names the checkpoint."""
    saves.save(1.0, f"{tmp_path}/model.ckpt")
    for path in tmp_path.glob("model.ckpt-12.*"):
        (tmp_path / path.name.replace("model.ckpt-12", OTHER)).write_bytes(path.read_bytes())
    (tmp_path / "model.ckpt-12.data-00000-of-00001").write_bytes(b"torn")
    assert train.latest_intact_checkpoint(tmp_path) == str(tmp_path / OTHER)
    with tf.Graph().as_default():
        value = v1.get_variable("value", [], initializer=v1.zeros_initializer())
        ready = tf.constant([], tf.string)
        scaffold = train.Scaffold(saver=v1.train.Saver([value]), ready_op=ready, ready_for_local_init_op=ready)
        creator = train.ChiefSessionCreator(scaffold, checkpoint_dir=str(tmp_path))
        with train.MonitoredSession(creator) as session:
            assert session.run(value) == 1.0


def test_without_hard_links_and_without_room(saves: Saves, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The save fails, and what it has begun is deleted. The checkpoint is as it was."""
    saves.save(1.0, f"{tmp_path}/model.ckpt")

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "the file")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", fail)
        patch.setattr("shutil.copyfileobj", fail)
        with pytest.raises(tf.errors.ResourceExhaustedError, match="kept while it is overwritten"):
            saves.save(2.0, f"{tmp_path}/model.ckpt")
    assert restorable(tmp_path) == [1.0]
    assert not [name for name in os.listdir(tmp_path) if name.startswith(OTHER)]


@pytest.mark.parametrize("use_resource", [True, False])
@pytest.mark.parametrize("session_class", [v1.Session, fastsup.Session])
def test_the_step_may_be_a_variable(tmp_path: Path, session_class: Any, use_resource: bool) -> None:
    """As `Saver.save` takes it."""
    with tf.Graph().as_default(), session_class() as session:
        step = v1.get_variable("step", [], tf.int64, v1.constant_initializer(12), use_resource=use_resource)
        session.run(step.initializer)
        sv = train.Supervisor(logdir=str(tmp_path), global_step=step, saver=v1.train.Saver(), summary_op=None)
        for _ in range(2):
            assert sv._save(session, sv.saver, sv.save_path, global_step=step) == f"{tmp_path}/model.ckpt-12"
        sv.summary_writer.close()
    assert not list(tmp_path.glob(f"{OTHER}*"))
