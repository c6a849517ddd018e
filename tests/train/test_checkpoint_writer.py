"""CheckpointWriter: the writes that CheckpointSaverHook and Supervisor share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import fastsup
from fastsup.checkpoint.writer import CheckpointWriter

v1 = tf.compat.v1


@pytest.fixture
def session(step: Any) -> Any:
    with fastsup.Session() as session:
        session.run(v1.global_variables_initializer())
        yield session


class Log(list[str]):
    """Called at the start of each write."""

    def __call__(self) -> None:
        self.append("write")


@pytest.mark.parametrize(("remember_state", "writes"), [(True, 1), (False, 2)])
def test_the_same_state_twice(session: Any, tmp_path: Path, remember_state: bool, writes: int) -> None:
    writer, log = CheckpointWriter(remember_state=remember_state), Log()
    saver = v1.train.Saver()
    paths = [writer.save(session, saver, str(tmp_path / "model"), 0, log) for _ in range(2)]
    assert paths == [str(tmp_path / "model-0")] * 2
    assert len(log) == writes


def test_a_step_makes_another_state(session: Any, step: Any, tmp_path: Path) -> None:
    writer, log = CheckpointWriter(remember_state=True), Log()
    saver = v1.train.Saver()
    for _ in range(2):
        path = writer.save(session, saver, str(tmp_path / "model"), 0, log)
        session.run(step.op)
    assert len(log) == 2
    assert v1.train.load_variable(path, "global_step") == 1


@pytest.mark.parametrize("write_meta_graph", [None, True, False])
@pytest.mark.parametrize("in_background", [False, True])
def test_the_meta_graph(session: Any, tmp_path: Path, write_meta_graph: Any, in_background: bool) -> None:
    writer = CheckpointWriter()
    options = {"write_meta_graph": write_meta_graph, "in_background": in_background}
    writer.save(session, v1.train.Saver(), str(tmp_path / "model"), 3, Log(), **options)
    writer.wait()
    assert (tmp_path / "model-3.index").exists()
    assert (tmp_path / "model-3.meta").exists() is (write_meta_graph is not False)


def test_a_saver_that_knows_no_meta_graph(session: Any, tmp_path: Path) -> None:
    class Plain:
        def save(self, session: Any, path: str, global_step: Any) -> str:
            return f"{path} of {global_step}"

    assert CheckpointWriter().save(session, Plain(), "model", 3, Log()) == "model of 3"


def test_two_savers_in_the_background(session: Any, step: Any, tmp_path: Path) -> None:
    other = v1.get_variable("other", initializer=2.0)
    session.run(other.initializer)
    writer = CheckpointWriter()
    for variable, name in ((step.global_step, "first"), (other, "second")):
        saver = v1.train.Saver([variable])
        assert writer.save(session, saver, str(tmp_path / name), 0, Log(), in_background=True) is None
    assert writer.wait() == str(tmp_path / "second-0")
    found = {name: dict(v1.train.list_variables(str(tmp_path / f"{name}-0"))) for name in ("first", "second")}
    assert found == {"first": {"global_step": []}, "second": {"other": []}}


def test_finish_gives_each_step_once(session: Any, tmp_path: Path) -> None:
    ended: list[bool] = []
    writer = CheckpointWriter(when_written=lambda: ended.append(True))
    assert writer.finish() is None
    writer.save(session, v1.train.Saver(), str(tmp_path / "model"), 7, Log(), in_background=True)
    assert writer.finish() == 7
    assert ended == [True]
    assert writer.finish() is None


def test_errors_of_the_background(session: Any, tmp_path: Path, tf_log: Any) -> None:
    """They are raised once, or logged once."""
    (tmp_path / "file").touch()
    writer, saver = CheckpointWriter(), v1.train.Saver()
    bad = str(tmp_path / "file" / "model")
    writer.save(session, saver, bad, 1, Log(), in_background=True)
    with pytest.raises(ValueError, match="file"):
        writer.finish()
    assert writer.wait() is None
    writer.save(session, saver, bad, 2, Log(), in_background=True)
    assert writer.wait_and_log()
    assert not writer.wait_and_log()
    assert [text for text in tf_log.messages if text.startswith("The checkpoint of step 2 could not be written")]
    assert writer.save(session, saver, str(tmp_path / "model"), 3, Log()) == str(tmp_path / "model-3")
