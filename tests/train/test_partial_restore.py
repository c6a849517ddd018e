"""restore="partial": what a checkpoint holds is restored, the rest is initialised, and both are listed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fastsup import train

v1 = tf.compat.v1


def variables(**values: Any) -> dict[str, Any]:
    return {name: v1.get_variable(name, initializer=tf.constant(value)) for name, value in values.items()}


def partitioned(parts: int, rows: int = 4) -> Any:
    partitioner = v1.fixed_size_partitioner(parts)
    return v1.get_variable("table", [rows, 2], initializer=v1.zeros_initializer(), partitioner=partitioner)


def count_through(session: Any, table: Any) -> None:
    """Sets a partitioned variable's elements to 0, 1, 2, …"""
    first = 0
    for part in table:
        size = int(np.prod(part.shape))
        session.run(v1.assign(part, np.arange(first, first + size).reshape(part.shape)))
        first += size


@pytest.fixture
def folder(tmp_path: Any) -> str:
    return str(tmp_path)


def save(
    folder: str, build: Callable[[], Any], change: Callable[[Any, Any], None] | None = None, step: int = 1
) -> None:
    """Saves a model with its variables as they are initialised, or as `change` leaves them."""
    with tf.Graph().as_default(), v1.Session() as session:
        made = build()
        session.run(v1.global_variables_initializer())
        if change is not None:
            change(session, made)
        v1.train.Saver(sharded=True).save(session, os.path.join(folder, "model.ckpt"), step)


def prepare(folder: str, saver: Any = None, master: str = "", init_fn: Any = None) -> Any:
    manager = train.SessionManager(ready_op=v1.report_uninitialized_variables(), restore="partial")
    init_op = v1.global_variables_initializer()
    saver = saver or v1.train.Saver()
    # As a Scaffold leaves it.
    v1.get_default_graph().finalize()
    return manager.prepare_session(master, init_op=init_op, saver=saver, checkpoint_dir=folder, init_fn=init_fn)


def listed(tf_log: Any, level: str, begins: str) -> list[str]:
    """What the lines of that level list after their colon."""
    records = [record for record in tf_log.records if record.levelname == level]
    return [text.split(": ", 1)[1] for text in (record.getMessage() for record in records) if text.startswith(begins)]


def missing(tf_log: Any) -> list[str]:
    return listed(tf_log, "WARNING", "Not in the checkpoint")


def extra(tf_log: Any) -> list[str]:
    return listed(tf_log, "INFO", "In the checkpoint")


@pytest.mark.parametrize("master", ["in this process", "over a server"])
def test_missing_and_extra(graph: Any, folder: str, tf_log: Any, master: str) -> None:
    save(folder, lambda: variables(a=1.0, b=[2.0, 3.0], gone=4.0, away="text"))
    model = variables(a=-1.0, b=[-1.0, -1.0], new=5.0, also_new="words")
    target = v1.train.Server.create_local_server().target if master == "over a server" else ""
    with prepare(folder, master=target) as session:
        values = session.run(model)
    assert values["a"] == 1.0
    assert values["b"].tolist() == [2.0, 3.0]
    assert values["new"] == 5.0
    assert values["also_new"] == b"words"
    assert missing(tf_log) == ["also_new, new"]
    assert extra(tf_log) == ["away, gone"]


def test_a_checkpoint_that_holds_all(graph: Any, folder: str, tf_log: Any) -> None:
    save(folder, lambda: variables(a=1.0, text=["x", "y"], yes=True, half=np.float16(2), whole=np.int64(2**40)))
    model = variables(a=-1.0, text=["", ""], yes=False, half=np.float16(0), whole=np.int64(0))
    with prepare(folder) as session:
        values = session.run(model)
    assert values.pop("text").tolist() == [b"x", b"y"]
    assert values == {"a": 1.0, "yes": True, "half": 2.0, "whole": 2**40}
    assert missing(tf_log) == extra(tf_log) == []


def test_what_the_saver_does_not_save_is_initialised(graph: Any, folder: str, tf_log: Any) -> None:
    save(folder, lambda: variables(a=1.0))
    model = variables(a=-1.0, unsaved=3.0)
    with prepare(folder, v1.train.Saver([model["a"]])) as session:
        assert session.run(model) == {"a": 1.0, "unsaved": 3.0}
    assert missing(tf_log) == []


def test_names_are_the_savers(graph: Any, folder: str, tf_log: Any) -> None:
    save(folder, lambda: variables(old_name=1.0))
    model = variables(a=-1.0, b=-2.0)
    with prepare(folder, v1.train.Saver({"old_name": model["a"], "other": model["b"]})) as session:
        assert session.run(model) == {"a": 1.0, "b": -2.0}
    assert missing(tf_log) == ["other"]


def test_init_fn_comes_before_what_is_restored(graph: Any, folder: str) -> None:
    save(folder, lambda: variables(a=1.0))
    model = variables(a=-1.0, new=0.0)
    pretrained = [v1.assign(variable, 9.0) for variable in model.values()]
    with prepare(folder, init_fn=lambda session: session.run(pretrained)) as session:
        assert session.run(model) == {"a": 1.0, "new": 9.0}


@pytest.mark.parametrize(("saved", "wanted"), [(1, 2), (2, 1), (2, 4), (4, 2)])
@pytest.mark.parametrize("sharded", [False, True])
def test_partitioned_variables(graph: Any, folder: str, tf_log: Any, saved: int, wanted: int, sharded: bool) -> None:
    save(folder, lambda: partitioned(saved), count_through)
    table = partitioned(wanted)
    new = variables(new=1.0)
    with prepare(folder, v1.train.Saver(sharded=sharded)) as session:
        whole = np.concatenate(session.run(list(table)))
        assert session.run(new) == {"new": 1.0}
    assert whole.tolist() == np.arange(8.0).reshape(4, 2).tolist()
    assert missing(tf_log) == ["new"]


def test_a_partitioned_variable_of_another_shape(graph: Any, folder: str) -> None:
    save(folder, lambda: partitioned(2, rows=6))
    partitioned(2)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"table has shape \[6, 2\] in the checkpoint, \[4, 2\] here"
    ):
        prepare(folder)


def test_a_table(graph: Any, folder: str, tf_log: Any) -> None:
    def table() -> Any:
        return tf.lookup.experimental.MutableHashTable(
            tf.string, tf.int64, -1, name="words", experimental_is_anonymous=False
        )

    def fill(session: Any, made: Any) -> None:
        session.run(made.insert(tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64)))

    def build() -> Any:
        variables(a=1.0)
        return table()

    save(folder, build, fill)
    words = build()
    variables(new=2.0)
    found = words.lookup(tf.constant(["a", "b", "c"]))
    with prepare(folder) as session:
        assert session.run(found).tolist() == [1, 2, -1]
    assert missing(tf_log) == ["new"]


@pytest.mark.parametrize("size", [2, 4])
def test_another_shape_is_an_error(graph: Any, folder: str, size: int) -> None:
    save(folder, lambda: variables(w=[1.0, 2.0, 3.0]))
    variables(w=[0.0] * size, new=1.0)
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        prepare(folder)
    assert "Restoring from checkpoint failed. This is most likely due to a mismatch" in raised.value.message
    assert f"w has shape [3] in the checkpoint, [{size}] here" in raised.value.message


def test_another_type_is_an_error(graph: Any, folder: str) -> None:
    save(folder, lambda: variables(w=1.0))
    variables(w=np.float64(1.0))
    with pytest.raises(tf.errors.InvalidArgumentError, match="w is float32 in the checkpoint, float64 here"):
        prepare(folder)


def test_a_saver_that_reshapes(graph: Any, folder: str) -> None:
    save(folder, lambda: variables(w=[1.0, 2.0, 3.0, 4.0]))
    model = variables(w=[[0.0, 0.0], [0.0, 0.0]])
    with prepare(folder, v1.train.Saver(reshape=True)) as session:
        assert session.run(model)["w"].tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_a_saver_from_a_definition(graph: Any, folder: str) -> None:
    """Such a saver doesn't know its variables, only the names of its operations."""
    save(folder, lambda: variables(a=1.0))
    model = variables(a=-1.0, new=2.0)
    definition = v1.train.Saver().as_saver_def()
    with prepare(folder, v1.train.Saver(saver_def=definition)) as session:
        assert session.run(model) == {"a": 1.0, "new": 2.0}


def test_a_model_without_variables(graph: Any, folder: str) -> None:
    save(folder, lambda: variables(a=1.0))
    one = tf.constant(1)
    with prepare(folder, v1.train.Saver(allow_empty=True)) as session:
        assert session.run(one) == 1


def test_a_checkpoint_of_objects(folder: str, tf_log: Any) -> None:
    """What tf.train.Checkpoint has written: the names of the variables are kept alongside those of the objects."""
    with tf.Graph().as_default(), v1.Session() as session:
        made = variables(a=1.0)
        session.run(v1.global_variables_initializer())
        v1.train.Checkpoint(x=made["a"]).save(os.path.join(folder, "ckpt"), session=session)
    with tf.Graph().as_default():
        model = variables(a=-1.0, new=2.0)
        with prepare(folder) as session:
            assert session.run(model) == {"a": 1.0, "new": 2.0}
    assert missing(tf_log) == ["new"]


@pytest.mark.parametrize("damage", ["data cut", "data flipped", "index cut", "index missing"])
def test_damage_leaves_nothing_of_a_checkpoint(graph: Any, folder: str, tf_log: Any, damage: str) -> None:
    """The newer one sets `new` and then fails; the older one doesn't hold it, so it is as it was initialised."""
    save(folder, lambda: variables(zz=[1.0] * 1000), step=1)
    save(folder, lambda: variables(new=7.0, zz=[2.0] * 1000), step=2)
    ending = ".index" if damage.startswith("index") else ".data-00000-of-00001"
    path = os.path.join(folder, "model.ckpt-2" + ending)
    if damage.endswith("cut"):
        os.truncate(path, os.path.getsize(path) - 50)
    elif damage.endswith("missing"):
        os.remove(path)
    else:
        with open(path, "r+b") as file:
            file.seek(-100, os.SEEK_END)
            file.write(b"\x01")
    model = variables(new=5.0, zz=[0.0] * 1000)
    with prepare(folder) as session:
        values = session.run(model)
    assert values["new"] == 5.0
    assert set(values["zz"]) == {1.0}
    assert missing(tf_log) == ["new"]
    assert len([record for record in tf_log.records if "can't be restored" in record.getMessage()]) == 1


def test_recover_session_leaves_the_rest_uninitialised(graph: Any, folder: str) -> None:
    save(folder, lambda: variables(a=1.0))
    model = variables(a=-1.0, new=2.0)
    manager = train.SessionManager(ready_op=v1.report_uninitialized_variables(), restore="partial")
    session, ready = manager.recover_session("", saver=v1.train.Saver(), checkpoint_dir=folder)
    with session:
        assert ready is False
        assert session.run(model["a"]) == 1.0
        assert session.run(v1.report_uninitialized_variables()).tolist() == [b"new"]


def test_one_file(graph: Any, folder: str) -> None:
    save(folder, lambda: variables(a=1.0))
    model = variables(a=-1.0, new=2.0)
    path = os.path.join(folder, "model.ckpt-1")
    with train.SingularMonitoredSession(checkpoint_filename_with_path=path, restore="partial") as session:
        assert session.run(model) == {"a": 1.0, "new": 2.0}
    with tf.Graph().as_default():
        variables(a=-1.0)
        with pytest.raises(ValueError, match=r"The passed save_path is not a valid checkpoint: .*model\.ckpt-9"):
            train.SingularMonitoredSession(checkpoint_filename_with_path=path[:-1] + "9", restore="partial")


def test_it_reaches_all_ways_to_make_a_session(folder: str, tf_log: Any) -> None:
    save(folder, lambda: (variables(a=1.0), v1.train.get_or_create_global_step()))
    ways: list[Callable[[], Any]] = [
        lambda: train.MonitoredTrainingSession(checkpoint_dir=folder, restore="partial", save_checkpoint_secs=None),
        lambda: train.MonitoredSession(train.ChiefSessionCreator(checkpoint_dir=folder, restore="partial")),
        lambda: train.SingularMonitoredSession(checkpoint_dir=folder, restore="partial"),
    ]
    for way in ways:
        with tf.Graph().as_default():
            v1.train.get_or_create_global_step()
            model = variables(a=-1.0, new=2.0)
            with way() as session:
                assert session.run(model) == {"a": 1.0, "new": 2.0}
    assert missing(tf_log) == ["new"] * 3
