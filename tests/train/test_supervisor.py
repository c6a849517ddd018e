"""Supervisor: its arguments and their defaults, what it takes from the graph, and how it gets a model ready."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.training import session_manager as tf_session_manager
from tensorflow.python.training import supervisor as tf_supervisor

import fastsup
from fastsup import train
from fastsup.train.session import session_manager
from fastsup.train.supervisor import supervisor

v1 = tf.compat.v1
Keys = v1.GraphKeys

OLD_NAMES = {
    "PrepareSession": "prepare_or_wait_for_session",
    "StartQueueRunners": "start_queue_runners",
    "StartStandardServices": "start_standard_services",
    "Stop": "stop",
    "RequestStop": "request_stop",
    "Loop": "loop",
    "ShouldStop": "should_stop",
    "StopOnException": "stop_on_exception",
    "WaitForStop": "wait_for_stop",
    "SummaryComputed": "summary_computed",
}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def test_arguments() -> None:
    """TensorFlow's, in its order and with its defaults; what is ours comes after them, by keyword alone."""
    theirs, ours = parameters(v1.train.Supervisor), parameters(train.Supervisor)
    assert ours[: len(theirs)] == theirs
    more = {"executor": "auto", "async_save": False, "stray_threads": "warn", "handle_signals": None, "profiler": None}
    assert ours[len(theirs) :] == [(name, inspect.Parameter.KEYWORD_ONLY, value) for name, value in more.items()]


def test_methods() -> None:
    names = [name for name in vars(tf_supervisor.Supervisor) if not name.startswith("_")]
    assert set(OLD_NAMES) | {"USE_DEFAULT", "managed_session", "coord", "save_path"} <= set(names)
    for name in names:
        theirs, ours = getattr(tf_supervisor.Supervisor, name), getattr(train.Supervisor, name)
        if callable(theirs):
            assert parameters(ours) == parameters(theirs), name
        else:
            assert type(ours) is type(theirs), name
    for old, new in OLD_NAMES.items():
        assert getattr(train.Supervisor, old) is getattr(train.Supervisor, new)


def test_names() -> None:
    assert train.Supervisor is supervisor.Supervisor
    assert issubclass(train.Supervisor, tf_supervisor.Supervisor)
    for name in ("SVSummaryThread", "SVStepCounterThread", "SVTimerCheckpointThread"):
        assert issubclass(getattr(supervisor, name), train.LooperThread)
        assert parameters(getattr(supervisor, name)) == parameters(getattr(tf_supervisor, name))
        assert not hasattr(train, name)  # As in TensorFlow.
        assert not hasattr(v1.train, name)
    assert train.Supervisor.USE_DEFAULT == tf_supervisor.Supervisor.USE_DEFAULT == 0


def model() -> Any:
    """One of everything that a Supervisor looks for."""
    v1.train.get_or_create_global_step()
    weights = v1.get_variable("w", initializer=[1.0, 2.0])
    v1.get_variable("l", initializer=3.0, collections=[Keys.LOCAL_VARIABLES])
    v1.summary.scalar("loss", v1.reduce_sum(weights))
    return weights


def test_same_graph(both: Any, tmp_path: Any) -> None:
    """The same operations, under the same names, in the same collections."""
    made = []
    for impl in (both.tensorflow, both.fastsup):
        with tf.Graph().as_default() as graph:
            model()
            sv = impl.train.Supervisor(logdir=str(tmp_path / impl.name))
            sv.stop()
        elements = [sv.ready_op, sv.init_op, sv.summary_op, sv.global_step]
        collections = {
            key: [getattr(element, "name", type(element)) for element in graph.get_collection(key)]
            for key in graph.get_all_collection_keys()
        }
        made.append((graph.as_graph_def(), [element.name for element in elements], collections))
    assert made[0] == made[1]
    assert len(made[0][2]) >= 7


@pytest.mark.parametrize("explicit", [False, True])
def test_defaults(impl: Any, graph: Any, tmp_path: Any, explicit: bool) -> None:
    model()
    use_default = impl.train.Supervisor.USE_DEFAULT
    names = ["ready_op", "ready_for_local_init_op", "init_op", "local_init_op", "summary_op", "saver", "global_step",
             "summary_writer"]  # fmt: skip
    more = dict.fromkeys(names, use_default) if explicit else {}
    sv = impl.train.Supervisor(logdir=str(tmp_path), **more)
    assert graph.finalized
    assert sv.is_chief is True
    assert sv.ready_op is graph.get_collection(Keys.READY_OP)[0]
    assert sv.ready_for_local_init_op is None
    assert sv.init_op is graph.get_collection(Keys.INIT_OP)[0]
    assert sv.init_feed_dict is None
    assert len(graph.get_collection(Keys.LOCAL_INIT_OP)) == 1
    assert sv.saver is graph.get_collection(Keys.SAVERS)[0]
    assert sv.summary_op is graph.get_collection(Keys.SUMMARY_OP)[0]
    assert sv.global_step is v1.train.get_global_step()
    assert sv.save_summaries_secs == 120
    assert sv.save_model_secs == 600
    assert sv.save_path == str(tmp_path / "model.ckpt")
    assert isinstance(sv.summary_writer, v1.summary.FileWriter)
    assert isinstance(sv.coord, v1.train.Coordinator)
    assert isinstance(sv.session_manager, impl.train.SessionManager)
    assert sv.should_stop() is False
    sv.stop()
    assert sv.should_stop() is True


def test_everything_none(impl: Any, graph: Any) -> None:
    model()
    value = tf.constant(1.0)
    sv = impl.train.Supervisor(
        ready_op=None, init_op=None, local_init_op=None, summary_op=None, saver=None, global_step=None,
        summary_writer=None, init_fn=lambda session: None, save_model_secs=None, save_summaries_secs=None,
    )  # fmt: skip
    assert [sv.ready_op, sv.init_op, sv.summary_op, sv.saver, sv.global_step, sv.summary_writer] == [None] * 6
    assert [sv.save_path, sv.save_model_secs, sv.save_summaries_secs] == [None] * 3
    with sv.managed_session() as session:
        assert session.run(value) == 1.0
    assert all(graph.get_collection(key) == [] for key in (Keys.READY_OP, Keys.INIT_OP, Keys.SAVERS, Keys.SUMMARY_OP))


def test_model_without_variables_and_summaries(impl: Any, graph: Any, tmp_path: Any) -> None:
    value = tf.constant(1.0)
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    assert sv.saver is None
    assert sv.summary_op is None
    assert sv.global_step is None
    with sv.managed_session() as session:
        assert session.run(value) == 1.0


def test_from_collections(impl: Any, graph: Any, tmp_path: Any, tf_log: Any) -> None:
    weights = model()
    given = {
        Keys.READY_OP: [tf.constant([], tf.string), tf.constant(["no"])],
        Keys.READY_FOR_LOCAL_INIT_OP: [tf.constant([], tf.string)],
        Keys.INIT_OP: [v1.global_variables_initializer()],
        Keys.LOCAL_INIT_OP: [v1.local_variables_initializer()],
        Keys.SAVERS: [v1.train.Saver([weights])],
        Keys.SUMMARY_OP: [tf.constant(b"")],
    }
    for key, elements in given.items():
        for element in elements:
            v1.add_to_collection(key, element)
    sv = impl.train.Supervisor(logdir=str(tmp_path), stop_grace_secs=5)
    found = [sv.ready_op, sv.ready_for_local_init_op, sv.init_op, sv._local_init_op, sv.saver, sv.summary_op]
    assert all(element is elements[0] for element, elements in zip(found, given.values(), strict=True))
    assert "Found 2 ready_op operations. Returning the first one." in tf_log.messages
    assert sum(message.startswith("Found ") for message in tf_log.messages) == 1
    assert {key: graph.get_collection(key) for key in given} == given
    sv.stop()


def test_of_another_graph(impl: Any, tmp_path: Any) -> None:
    """Its own defaults, not those of the default graph."""
    with tf.Graph().as_default() as graph:
        weights = model()
    with tf.Graph().as_default() as default:
        sv = impl.train.Supervisor(graph, logdir=str(tmp_path))
        with sv.managed_session(start_standard_services=False) as session:
            assert session.graph is graph
            assert list(session.run(weights)) == [1.0, 2.0]
        assert default.get_operations() == []
        assert not default.finalized


@pytest.mark.parametrize("is_chief", [True, False])
def test_properties(impl: Any, graph: Any, tmp_path: Any, is_chief: bool) -> None:
    with tf.device("/cpu:0"):
        weights = model()
    ready = tf.constant([], tf.string)
    initializer, feeds = v1.global_variables_initializer(), {tf.constant(1.0): 2.0}
    sv = impl.train.Supervisor(
        ready_op=ready, ready_for_local_init_op=ready, is_chief=is_chief, init_op=initializer, init_feed_dict=feeds,
        logdir=str(tmp_path), summary_op=None, global_step=weights, save_summaries_secs=3, save_model_secs=4.5,
        checkpoint_basename="mine",
    )  # fmt: skip
    assert sv.is_chief is is_chief
    assert sv.ready_op is ready
    assert sv.ready_for_local_init_op is ready
    assert sv.init_op is initializer
    assert sv.init_feed_dict is feeds
    assert sv.summary_op is None
    assert sv.global_step is weights
    chief = [3, 4.5, str(tmp_path / "mine")]
    assert [sv.save_summaries_secs, sv.save_model_secs, sv.save_path] == (chief if is_chief else [None] * 3)
    assert (sv.summary_writer is None) is not is_chief
    sv.stop()


def test_eager_execution(impl: Any, graph: Any, tmp_path: Any) -> None:
    sv = impl.train.Supervisor()
    with context.eager_mode():
        with pytest.raises(RuntimeError, match=r"^Supervisors are incompatible with eager execution\.$"):
            impl.train.Supervisor(logdir=str(tmp_path / "new"))
        with pytest.raises(RuntimeError, match=r"^Queues are not compatible with eager execution\.$"):
            sv.start_queue_runners(None)
    assert not (tmp_path / "new").exists()


# The global step that nobody put into the collection.


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_global_step_by_name(impl: Any, graph: Any, dtype: Any) -> None:
    v1.Variable(tf.constant(287, dtype), name="global_step", use_resource=False)
    sv = impl.train.Supervisor()
    assert graph.get_collection(Keys.GLOBAL_STEP) == [sv.global_step]
    with sv.managed_session() as session:
        assert session.run(sv.global_step) == 287


def test_global_step_that_is_no_integer(impl: Any, graph: Any, tf_log: Any) -> None:
    tf.constant(1.5, name="global_step")
    assert impl.train.Supervisor().global_step is None
    assert "Found 'global_step' is not an int type: <dtype: 'float32'>" in tf_log.messages


def test_resource_that_is_no_global_step(impl: Any, graph: Any, tf_log: Any) -> None:
    """Its name is that of a handle, which is no integer: `get_or_create_global_step` puts it into the collection."""
    v1.Variable(287, name="global_step", use_resource=True)
    assert impl.train.Supervisor().global_step is None
    assert "Found 'global_step' is not an int type: <dtype: 'resource'>" in tf_log.messages


# How the model is got ready.


def test_order_of_initialisation(impl: Any, graph: Any, tmp_path: Any) -> None:
    trace: list[str] = []

    def traced(name: str, value: Any = None) -> Any:
        with tf.control_dependencies([v1.py_func(lambda: trace.append(name), [], [])]):
            return tf.no_op() if value is None else tf.identity(value)

    nothing = tf.constant([], tf.string)
    sv = impl.train.Supervisor(
        logdir=str(tmp_path),
        init_op=traced("init_op"),
        init_fn=lambda session: trace.append("init_fn"),
        local_init_op=traced("local_init_op"),
        ready_op=traced("ready_op", nothing),
        ready_for_local_init_op=traced("ready_for_local_init_op", nothing),
        save_model_secs=0,
        save_summaries_secs=0,
    )
    with sv.managed_session():
        assert trace == ["init_op", "init_fn", "ready_for_local_init_op", "local_init_op", "ready_op"]


def test_init_fn_alone(impl: Any, graph: Any) -> None:
    weights = v1.get_variable("w", initializer=[1.0, 2.0])
    seen = []

    def init_fn(session: Any) -> None:
        seen.append(session)
        session.run(weights.initializer)

    sv = impl.train.Supervisor(init_op=None, init_fn=init_fn)
    with sv.managed_session() as session:
        assert list(session.run(weights)) == [1.0, 2.0]
        assert seen == [session]


def test_init_op_with_feeds(impl: Any, graph: Any) -> None:
    value = v1.placeholder(tf.float32, [2])
    weights = v1.get_variable("w", initializer=value)
    sv = impl.train.Supervisor(init_feed_dict={value: [3.0, 4.0]})
    with sv.managed_session() as session:
        assert list(session.run(weights)) == [3.0, 4.0]


@pytest.mark.parametrize("is_chief", [True, False])
def test_local_variables_and_tables(impl: Any, graph: Any, is_chief: bool) -> None:
    with tf.device("/cpu:0"):
        local = v1.get_variable("l", initializer=[1.0, 2.0], collections=[Keys.LOCAL_VARIABLES])
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [7]), 0)
        looked_up = table.lookup(tf.constant("a"))
    sv = impl.train.Supervisor(init_op=None, is_chief=is_chief)
    with sv.managed_session() as session:
        assert list(session.run(local)) == [1.0, 2.0]
        assert session.run(looked_up) == 7


@pytest.mark.parametrize(
    ("collection", "argument"), [(Keys.GLOBAL_VARIABLES, "init_op"), (Keys.LOCAL_VARIABLES, "local_init_op")]
)
def test_model_that_is_not_ready(impl: Any, graph: Any, tmp_path: Any, collection: str, argument: str) -> None:
    first = v1.get_variable("v", initializer=1.0, collections=[collection])
    v1.get_variable("w", initializer=1.0, collections=[collection])
    sv = impl.train.Supervisor(logdir=str(tmp_path), **{argument: first.initializer})
    with pytest.raises(RuntimeError, match=r"(?s)^Init operations did not make model ready\..*not initialized: w$"):
        with sv.managed_session():
            pytest.fail("The model isn't ready.")
    assert sv.should_stop()


def test_nothing_to_initialise_with(impl: Any, graph: Any) -> None:
    sv = impl.train.Supervisor(init_op=None, local_init_op=None)
    with pytest.raises(RuntimeError, match="Model is not initialized and no init_op or init_fn or local_init_op was"):
        sv.prepare_or_wait_for_session()


def test_arguments_of_the_session_manager(impl: Any, graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class is looked up when it's used, in the module of the session managers."""
    module = session_manager if impl.name == "fastsup" else tf_session_manager
    made = []

    class Recording(module.SessionManager):  # type: ignore[misc, name-defined]
        def __init__(self, **arguments: Any) -> None:
            made.append(arguments)
            super().__init__(**arguments)

    monkeypatch.setattr(module, "SessionManager", Recording)
    options = v1.RunOptions(timeout_in_ms=60_000)
    more = {"executor": "inline"} if impl.name == "fastsup" else {}
    private = {"_looks_early": True} if impl.name == "fastsup" else {}
    sv = impl.train.Supervisor(recovery_wait_secs=7, local_init_run_options=options, **more)
    assert made == [
        {"local_init_op": sv._local_init_op, "ready_op": sv.ready_op, "ready_for_local_init_op": None, "graph": graph,
         "recovery_wait_secs": 7, "local_init_run_options": options, **more, **private}
    ]  # fmt: skip
    assert type(sv.session_manager) is Recording


def test_methods_of_the_session_manager_replaced(impl: Any, graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As large programs do it, on the class, after the supervisor was made."""
    value = tf.constant(1.0)
    sv = impl.train.Supervisor()
    session, calls = impl.Session(), []
    monkeypatch.setattr(
        impl.train.SessionManager, "prepare_session", lambda self, *args, **more: calls.append((args, more)) or session
    )
    with sv.managed_session() as managed:
        assert managed is session
        assert managed.run(value) == 1.0
    ((args, more),) = calls
    assert args == ("",)
    assert set(more) == {"init_op", "saver", "checkpoint_dir", "wait_for_checkpoint", "max_wait_secs", "config",
                         "init_feed_dict", "init_fn"}  # fmt: skip


def test_methods_that_a_subclass_overrides(both: Any, tmp_path: Any) -> None:
    """TensorFlow's private ones, in the order of their calls."""
    names = [name for name, value in vars(tf_supervisor.Supervisor).items() if callable(value) and name[:2] != "__"]
    private = [name for name in names if name.startswith("_")]
    found = []
    for impl in (both.tensorflow, both.fastsup):
        called: list[str] = []

        def overriding(name: str, called: list[str] = called) -> Any:
            def method(self: Any, *args: Any, **kwargs: Any) -> Any:
                called.append(name)
                return getattr(super(type(self), self), name)(*args, **kwargs)

            return method

        kind = type("Overriding", (impl.train.Supervisor,), {name: overriding(name) for name in private})
        with tf.Graph().as_default():
            v1.get_variable("w", initializer=1.0)
            sv = kind(logdir=str(tmp_path / impl.name), save_model_secs=0, save_summaries_secs=0)
            with sv.managed_session():
                pass
        found.append(called)
    assert set(private) == set(found[0])
    assert found[0] == found[1]


def test_elements_that_a_subclass_assigns(impl: Any, graph: Any) -> None:
    """Before the constructor of its base, which replaces them, or in place of what it finds."""
    value = tf.constant(1.0)

    class Assigning(impl.train.Supervisor):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self._saver = "mine"
            super().__init__()

        def _init_init_op(self, init_op: Any = 0, init_feed_dict: Any = None) -> None:
            super()._init_init_op(init_op, init_feed_dict)
            self._init_op = value

    sv = Assigning()
    assert sv.saver is None
    assert sv.init_op is sv._init_op is value


def test_session_manager_that_was_given(impl: Any, graph: Any) -> None:
    """TensorFlow's own too: its sessions are then TensorFlow's."""
    value = tf.constant(1.0)
    manager = v1.train.SessionManager()
    sv = impl.train.Supervisor(session_manager=manager)
    assert sv.session_manager is manager
    with sv.managed_session() as session:
        assert type(session) is v1.Session
        assert session.run(value) == 1.0


@pytest.mark.parametrize("executor", ["auto", "thread_pool", "inline", "single_threaded"])
def test_session_is_ours(graph: Any, executor: str) -> None:
    weights = v1.get_variable("w", initializer=1.0, use_resource=True)
    sv = train.Supervisor(executor=executor)
    with sv.managed_session() as session:
        assert type(session) is fastsup.Session
        if executor != "auto":
            assert session.executor == executor
        assert session.run(weights) == 1.0


def test_no_deprecation_noise(graph: Any, tf_log: Any) -> None:
    with train.Supervisor().managed_session():
        pass
    assert not [message for message in tf_log.messages if "deprecated" in message.lower()]


def test_threads_of_a_supervisor_that_only_exists(impl: Any, graph: Any, tmp_path: Any) -> None:
    model()
    before = set(threading.enumerate())
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    assert [thread.name for thread in set(threading.enumerate()) - before] == ["EventLoggerThread"]
    sv.stop()
    assert set(threading.enumerate()) == before
