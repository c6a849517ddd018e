"""Snapshots for saves in the background: what training does afterwards must not reach them, whatever writes variables.

`FASTSUP_HYPOTHESIS=long` has the random programs be many.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastsup
from fastsup.checkpoint.writer import BackgroundSaver, saved_tensors
from fastsup.runtime.graph.variable_sharing import Snapshot, add_reads_without_copy, snapshot_of

v1 = tf.compat.v1
raw = tf.raw_ops
LONG = os.environ.get("FASTSUP_HYPOTHESIS") == "long"


def variable(name: str = "v", shape: Any = (8, 4), use_resource: bool = True, dtype: Any = tf.float32) -> Any:
    return v1.get_variable(name, shape, dtype, initializer=v1.ones_initializer(), use_resource=use_resource)


def snapshot(saver: Any, is_remote: bool = False) -> Snapshot:
    graph = tf.compat.v1.get_default_graph()
    return snapshot_of(graph, saved_tensors(saver, graph), is_remote)


def take(session: Any, saver: Any) -> list[Any]:
    """The values of a snapshot, as a background save takes it."""
    tensors = saved_tensors(saver, session.graph)
    kept = snapshot_of(session.graph, tensors)
    values: list[Any] = session._copy_values(tensors, [None] * len(tensors), kept.shared, kept.before)
    return values


def address(value: Any) -> int:
    return int(value.__array_interface__["data"][0])


# Every kind of operation that writes.


HALF = 0.5


def slot(name: str) -> Any:
    return variable(name)


def dense(kind: str, slots: int, **arguments: Any) -> Callable[[Any], Any]:
    """An optimizer's operation: of a variable, of so many variables alongside it, and of a gradient."""

    def make(v: Any) -> Any:
        function = getattr(raw, kind)
        names = [name for name in inspect.signature(function).parameters if name != "name"]
        values: dict[str, Any] = {}
        for name in names[: 1 + slots]:
            values[name] = (v if name == "var" else slot(f"slot_{name}")).handle
        for name in names[1 + slots :]:
            if name in arguments:
                values[name] = arguments[name]
            elif name == "grad":
                values[name] = tf.ones([8, 4]) if "Sparse" not in kind else tf.ones([2, 4])
            elif name == "delta":
                values[name] = tf.ones([8, 4])
            elif name == "indices":
                values[name] = tf.constant([1, 3])
            elif name in ("use_locking", "use_nesterov", "update_slots", "multiply_linear_by_lr"):
                continue
            elif name == "global_step":
                values[name] = tf.constant(1, tf.int64)
            else:
                values[name] = tf.constant(HALF)
        return function(**values)

    return make


def rows(kind: str) -> Callable[[Any], Any]:
    return lambda v: getattr(raw, kind)(resource=v.handle, indices=tf.constant([1, 3]), updates=tf.fill([2, 4], 3.0))


def rows_nd(kind: str) -> Callable[[Any], Any]:
    return lambda v: getattr(raw, kind)(ref=v.handle, indices=tf.constant([[1], [3]]), updates=tf.fill([2, 4], 3.0))


def whole(kind: str) -> Callable[[Any], Any]:
    return lambda v: getattr(raw, kind)(resource=v.handle, value=tf.fill([8, 4], 3.0))


WRITERS: dict[str, Callable[[Any], Any]] = {
    **{kind: whole(kind) for kind in ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")},
    **{
        f"ResourceScatter{kind}": rows(f"ResourceScatter{kind}")
        for kind in ("Add", "Sub", "Mul", "Div", "Max", "Update")
    },
    **{f"ResourceScatterNd{kind}": rows_nd(f"ResourceScatterNd{kind}") for kind in ("Add", "Sub", "Max", "Update")},
    "ResourceStridedSliceAssign": lambda v: v[2:4].assign(tf.fill([2, 4], 3.0)),
    "ResourceApplyGradientDescent": dense("ResourceApplyGradientDescent", 0),
    "ResourceApplyProximalGradientDescent": dense("ResourceApplyProximalGradientDescent", 0),
    "ResourceApplyMomentum": dense("ResourceApplyMomentum", 1),
    "ResourceApplyKerasMomentum": dense("ResourceApplyKerasMomentum", 1),
    "ResourceApplyAdagrad": dense("ResourceApplyAdagrad", 1),
    "ResourceApplyAdagradV2": dense("ResourceApplyAdagradV2", 1),
    "ResourceApplyAdadelta": dense("ResourceApplyAdadelta", 2),
    "ResourceApplyAdam": dense("ResourceApplyAdam", 2),
    "ResourceApplyAdaMax": dense("ResourceApplyAdaMax", 2),
    "ResourceApplyAddSign": dense("ResourceApplyAddSign", 1),
    "ResourceApplyPowerSign": dense("ResourceApplyPowerSign", 1),
    "ResourceApplyFtrl": dense("ResourceApplyFtrl", 2, lr_power=-0.5),
    "ResourceApplyRMSProp": dense("ResourceApplyRMSProp", 2),
    "ResourceApplyCenteredRMSProp": dense("ResourceApplyCenteredRMSProp", 3, epsilon=2.0),
    "ResourceSparseApplyMomentum": dense("ResourceSparseApplyMomentum", 1),
    "ResourceSparseApplyKerasMomentum": dense("ResourceSparseApplyKerasMomentum", 1),
    "ResourceSparseApplyAdagrad": dense("ResourceSparseApplyAdagrad", 1),
    "ResourceSparseApplyAdadelta": dense("ResourceSparseApplyAdadelta", 2),
    "ResourceSparseApplyFtrl": dense("ResourceSparseApplyFtrl", 2, lr_power=-0.5),
    "ResourceSparseApplyProximalGradientDescent": dense("ResourceSparseApplyProximalGradientDescent", 0),
    "ResourceSparseApplyRMSProp": dense("ResourceSparseApplyRMSProp", 2),
}


@pytest.mark.parametrize("gathers_first", [False, True])
@pytest.mark.parametrize("writer", list(WRITERS))
def test_what_is_shared_stays_as_it_was(graph: Any, writer: str, gathers_first: bool) -> None:
    """Also where an operation on rows has had the variable copied when it is read: no such write reaches a value."""
    v = variable()
    write = WRITERS[writer](v)
    gather = raw.ResourceGather(resource=v.handle, indices=tf.constant([0]), dtype=tf.float32)
    without_copy = raw.DisableCopyOnRead(resource=v.handle)
    read = raw.ReadVariableOp(resource=v.handle, dtype=tf.float32)
    initialize = v1.global_variables_initializer()
    with fastsup.Session() as session:
        for before in (None, [without_copy]):
            session.run(initialize)
            if gathers_first:
                session.run(gather)
            (shared,) = session._copy_values([read], [None], [True], before)
            kept = shared.copy()
            session.run(write)
            session.run(write)
            numpy.testing.assert_array_equal(shared, kept)
            assert (session.run(read) != kept).any()
            del shared


def test_random_numbers_state(graph: Any) -> None:
    state = v1.get_variable("state", initializer=tf.constant([1, 2, 3], tf.int64), use_resource=True)
    draw = raw.StatefulUniform(
        resource=state.handle, algorithm=tf.constant(1, tf.int64), shape=tf.constant([100]), dtype=tf.float32
    )
    read = state.read_value()
    with fastsup.Session() as session:
        session.run(v1.global_variables_initializer())
        (shared,) = session._copy_values([read], [None], [True])
        kept = shared.copy()
        session.run(draw)
        numpy.testing.assert_array_equal(shared, kept)
        assert (session.run(read) != kept).any()


# What is shared, and what is copied.


def test_an_assigned_variable_is_shared(graph: Any) -> None:
    v = variable("assigned")
    v.assign(v * 2.0)
    assert snapshot(v1.train.Saver()) == Snapshot([True], [])


@pytest.mark.parametrize("writer", ["AssignAddVariableOp", "ResourceApplyAdam", "ResourceApplyGradientDescent"])
def test_a_variable_that_is_added_to_is_copied(graph: Any, writer: str) -> None:
    """Shared, it would be copied by the next step, into new memory."""
    WRITERS[writer](variable("v"))
    kept = snapshot(v1.train.Saver(var_list=[v for v in v1.global_variables() if v.op.name == "v"]))
    assert kept == Snapshot([False], [])


def test_a_variable_that_a_function_adds_to_is_copied(graph: Any) -> None:
    v = variable("v")
    tf.function(lambda: v.assign_add(tf.ones([8, 4])))()
    assert snapshot(v1.train.Saver()) == Snapshot([False], [])


def test_a_partitioned_variable_is_shared(graph: Any) -> None:
    v1.get_variable("parts", [9, 2], partitioner=v1.fixed_size_partitioner(3), use_resource=True)
    assert snapshot(v1.train.Saver()).shared == [True] * 3


def test_a_reference_variable_is_copied(graph: Any) -> None:
    variable("reference", use_resource=False)
    assert snapshot(v1.train.Saver()) == Snapshot([False], [])


def test_an_embedding_is_copied(graph: Any) -> None:
    """With an operation that has it read without a copy first; without one, what was read is a copy."""
    tf.nn.embedding_lookup(variable("table"), tf.constant([1]))
    saver = v1.train.Saver()
    assert snapshot(saver) == Snapshot([True], [])
    assert snapshot(saver, is_remote=True) == Snapshot([False], [])
    for _ in range(2):
        add_reads_without_copy(graph)
        kept = snapshot(saver)
        assert kept.shared == [False]
        assert [op.name for op in kept.before] == ["table/DisableCopyOnRead"]
    assert snapshot(saver, is_remote=True) == Snapshot([False], [])


def test_nothing_is_added_to_a_finished_graph_or_for_dense_variables(graph: Any) -> None:
    v1.assign_add(variable("dense"), tf.ones([8, 4]))
    add_reads_without_copy(graph)
    tf.nn.embedding_lookup(variable("table"), tf.constant([1]))
    graph.finalize()
    add_reads_without_copy(graph)
    assert [op.name for op in graph.get_operations() if op.type == "DisableCopyOnRead"] == []


def test_an_embedding_in_a_function_is_copied(graph: Any) -> None:
    table = variable("table")

    @tf.function
    def look_up() -> Any:
        return tf.nn.embedding_lookup(table, tf.constant([1]))

    look_up()
    add_reads_without_copy(graph)
    assert snapshot(v1.train.Saver()).shared == [False]


def test_an_embedding_in_a_conditional_is_copied(graph: Any) -> None:
    table = variable("table")
    v1.cond(v1.placeholder(tf.bool, []), lambda: tf.gather(table, [1]), lambda: tf.zeros([1, 4]))
    add_reads_without_copy(graph)
    assert snapshot(v1.train.Saver()).shared == [False]


def test_what_another_librarys_operation_takes_is_copied(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    v = variable("v")
    v.assign(v * 2.0)
    monkeypatch.delattr(raw, "AssignVariableOp")
    assert snapshot(v1.train.Saver()).shared == [False]


# What it costs.


def test_what_is_shared_is_not_copied(graph: Any) -> None:
    v = variable("assigned", [1000, 100])
    double = v.assign(v * 2.0).op
    saver = v1.train.Saver()
    with fastsup.Session() as session:
        session.run(v1.global_variables_initializer())
        (first,), (second,) = take(session, saver), take(session, saver)
        assert address(first) == address(second)
        session.run(double)
        (third,) = take(session, saver)
        assert address(third) != address(first)
        assert set(numpy.ravel(third)) == {2.0}
        assert set(numpy.ravel(first)) == {1.0}


def test_an_embedding_is_copied_once(graph: Any) -> None:
    """Neither the runtime's reads nor the operations on rows that follow copy it as well."""
    table = variable("table", [1000, 100])
    update = v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 2])))
    saver = v1.train.Saver()
    add_reads_without_copy(graph)
    tensors = saved_tensors(saver, graph)
    kept = snapshot(saver)
    with fastsup.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(update)
        (buffer,) = session._copy_values(tensors, [None], kept.shared, kept.before)
        places = set()
        for _ in range(3):
            session.run(update)
            (again,) = session._copy_values(tensors, [buffer], kept.shared, kept.before)
            assert again is buffer
            session.run(kept.before)
            (shared,) = session._copy_values(tensors, [None], [True])
            places.add(address(shared))
            del shared
        assert len(places) == 1


# Programs of all kinds of variables, which the same steps change.


class Kinds:
    """Kinds of variables: each makes one that holds its step in every element, and the operation that adds one."""

    @staticmethod
    def dense(name: str) -> Any:
        v = v1.get_variable(name, [50], initializer=v1.zeros_initializer(), use_resource=True)
        return v1.assign_add(v, tf.ones([50]))

    @staticmethod
    def assigned(name: str) -> Any:
        v = v1.get_variable(name, [50], initializer=v1.zeros_initializer(), use_resource=True)
        return v.assign(v + 1.0)

    @staticmethod
    def descent(name: str) -> Any:
        v = v1.get_variable(name, [50], initializer=v1.zeros_initializer(), use_resource=True)
        return raw.ResourceApplyGradientDescent(var=v.handle, alpha=-1.0, delta=tf.ones([50]))

    @staticmethod
    def reference(name: str) -> Any:
        v = v1.get_variable(name, [50], initializer=v1.zeros_initializer(), use_resource=False)
        return v1.assign_add(v, tf.ones([50]), use_locking=True)

    @staticmethod
    def scattered_reference(name: str) -> Any:
        v = v1.get_variable(name, [50], initializer=v1.zeros_initializer(), use_resource=False)
        return v1.scatter_add(v, tf.range(50), tf.ones([50]), use_locking=True)

    @staticmethod
    def scattered(name: str) -> Any:
        v = v1.get_variable(name, [50], initializer=v1.zeros_initializer(), use_resource=True)
        return v1.scatter_add(v, tf.range(50), tf.ones([50]))

    @staticmethod
    def gathered(name: str) -> Any:
        v = v1.get_variable(name, [50], initializer=v1.zeros_initializer(), use_resource=True)
        return v1.scatter_update(v, tf.range(50), tf.gather(v, tf.range(50)) + 1.0)

    @staticmethod
    def sliced(name: str) -> Any:
        v = v1.get_variable(name, [50], initializer=v1.zeros_initializer(), use_resource=True)
        return v[0:50].assign(v + 1.0)

    @staticmethod
    def partitioned(name: str) -> Any:
        parts = v1.get_variable(
            name,
            [50],
            initializer=v1.zeros_initializer(),
            partitioner=v1.fixed_size_partitioner(3),
            use_resource=True,
        )
        return tf.group(*(v1.assign_add(part, tf.ones_like(part)) for part in parts))

    @staticmethod
    def text(name: str) -> Any:
        v = v1.get_variable(name, initializer=tf.fill([50], "0"), use_resource=True)
        return v.assign(tf.strings.as_string(tf.strings.to_number(v, tf.int64) + 1))

    @staticmethod
    def in_function(name: str) -> Any:
        v = v1.get_variable(name, [50], initializer=v1.zeros_initializer(), use_resource=True)

        @tf.function
        def add() -> Any:
            return v.assign_add(tf.ones([50]))

        return add()

    @staticmethod
    def table(name: str) -> Any:
        table = tf.lookup.experimental.DenseHashTable(
            tf.int64, tf.float32, 0.0, -1, -2, name=name, experimental_is_anonymous=False
        )
        keys = tf.constant([1, 2, 3], tf.int64)
        v1.add_to_collection(v1.GraphKeys.SAVEABLE_OBJECTS, _saveable(table, name))
        return table.insert(keys, table.lookup(keys) + 1.0)


def _saveable(table: Any, name: str) -> Any:
    from tensorflow.python.ops import lookup_ops

    return lookup_ops.DenseHashTable._Saveable(table, name)


KINDS = {name: kind for name, kind in vars(Kinds).items() if not name.startswith("_")}


class Gated(v1.train.Saver):
    """A Saver whose writes wait until they are let go, so that steps come between the snapshot and the write."""

    def __init__(self) -> None:
        super().__init__(max_to_keep=1000)
        self.go = threading.Event()

    def save(self, sess: Any, save_path: Any, global_step: Any = None, **kwargs: Any) -> Any:
        assert self.go.wait(60)
        return super().save(sess, save_path, global_step=global_step, **kwargs)


def steps_in(path: str) -> set[float]:
    """The steps of which the values in a checkpoint are."""
    reader = v1.train.NewCheckpointReader(path)
    found: set[float] = set()
    for name in reader.get_variable_to_shape_map():
        values = numpy.ravel(reader.get_tensor(name))
        if name.endswith("-values"):
            # Of a table, which has room for more keys.
            values = values[numpy.ravel(reader.get_tensor(name.replace("-values", "-keys"))) > 0]
        if not name.endswith("-keys"):
            found.update(map(float, values))
    return found


@pytest.mark.slow
@settings(
    max_examples=200 if LONG else 12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=2, max_size=6),
    saves=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=4),
    executor=st.sampled_from(["thread_pool", "inline"]),
    prepares=st.booleans(),
)
def test_all_values_of_a_checkpoint_are_of_one_step(
    tmp_path_factory: pytest.TempPathFactory,
    kinds: list[str],
    saves: list[tuple[int, int]],
    executor: str,
    prepares: bool,
) -> None:
    folder = tmp_path_factory.mktemp("saves")
    with tf.Graph().as_default():
        step = tf.group(*(KINDS[kind].__func__(f"{kind}_{number}") for number, kind in enumerate(kinds)))
        if prepares:
            add_reads_without_copy(tf.compat.v1.get_default_graph())
        saver = Gated()
        background = BackgroundSaver(saver)
        with fastsup.Session(executor=executor) as session:
            session.run([v1.global_variables_initializer(), v1.tables_initializer()])
            session.run(step)
            done, paths = 1, {}
            for before, during in saves:
                for _ in range(before):
                    session.run(step)
                done += before
                saver.go.clear()
                background.save(session, str(folder / "save"), len(paths), write_meta_graph=False)
                saved_at = done
                for _ in range(during):
                    session.run(step)
                done += during
                saver.go.set()
                paths[background.wait()] = saved_at
    assert {path: steps_in(path) for path in paths} == {path: {float(at)} for path, at in paths.items()}


@pytest.mark.slow
@pytest.mark.parametrize("async_save", [False, True])
@pytest.mark.parametrize("supervised", [False, True])
def test_sessions_prepare_their_graphs(graph: Any, tmp_path: Any, supervised: bool, async_save: bool) -> None:
    from fastsup import train

    table = variable("table")
    step = v1.train.get_or_create_global_step()
    update = v1.scatter_add(table, [1, 2], tf.ones([2, 4]))
    train_op = tf.group(update, tf.gather(table, [0]), v1.assign_add(step, 1))
    folder = str(tmp_path)
    if supervised:
        opened = train.Supervisor(logdir=folder, save_model_secs=0.01, async_save=async_save).managed_session()
    else:
        opened = train.MonitoredTrainingSession(checkpoint_dir=folder, save_checkpoint_steps=2, async_save=async_save)
    with opened as session:
        for _ in range(20):
            session.run(train_op)
    added = [op.name for op in graph.get_operations() if op.type == "DisableCopyOnRead"]
    assert added == (["table/DisableCopyOnRead"] if async_save else [])
    for path in v1.train.get_checkpoint_state(folder).all_model_checkpoint_paths:
        reader = v1.train.NewCheckpointReader(path)
        assert set(reader.get_tensor("table")[1]) == {1.0 + reader.get_tensor("global_step")}
        assert set(reader.get_tensor("table")[0]) == {1.0}
