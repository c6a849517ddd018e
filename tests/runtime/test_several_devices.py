"""Sessions with several devices: whatever the executor mode, a step ends, or is refused before it runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from processes import Processes
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import kernels

import fastsup
from fastsup import train
from fastsup.runtime import executor as executors

v1 = tf.compat.v1

SINGLE_THREADED = "SINGLE_THREADED_EXECUTOR"

# How many threads there are is settled when the first session of a process is made.
EVERY_MODE = """
import faulthandler, sys
import tensorflow as tf, fastsup
faulthandler.dump_traceback_later(60, exit=True)
v1 = tf.compat.v1
for devices in (1, 2, 3):
    with tf.Graph().as_default() as graph:
        with graph.device("/cpu:0"):
            x = v1.placeholder_with_default(1.0, [])
            v = v1.get_variable("v", initializer=1.0, use_resource=True)
        with graph.device(f"/cpu:{devices - 1}"):
            y = x * 2.0 + v
        with graph.device("/cpu:0"):
            z = y * 3.0
        init = v1.global_variables_initializer()
    for mode in ("auto", "thread_pool", "inline", "single_threaded", "config"):
        config = v1.ConfigProto(device_count={"CPU": devices}, inter_op_parallelism_threads=int(sys.argv[1]))
        if mode == "config":
            config.experimental.executor_type = "SINGLE_THREADED_EXECUTOR"
        executor = "auto" if mode == "config" else mode
        with fastsup.Session(graph=graph, config=config, executor=executor) as session:
            session.run(init)
            try:
                results = {float(session.run(z, feeds)) for _ in range(60) for feeds in (None, {x: 1.0})}
            except tf.errors.UnimplementedError as error:
                results = "refused"
        print(devices, mode, results)
"""


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_no_mode_waits_without_end(threads: int, processes: Processes) -> None:
    done = processes.python("-c", EVERY_MODE, str(threads))
    assert done.returncode == 0, done.stderr[-3000:]
    expected = [
        f"{devices} {mode} {'refused' if devices > 1 and mode in ('single_threaded', 'config') else {9.0}}"
        for devices in (1, 2, 3)
        for mode in ("auto", "thread_pool", "inline", "single_threaded", "config")
    ]
    assert done.stdout.splitlines() == expected


def two_devices(by_config: bool = False, devices: int = 2) -> dict[str, Any]:
    config = v1.ConfigProto(device_count={"CPU": devices}, allow_soft_placement=True)
    if not by_config:
        return {"config": config, "executor": "single_threaded"}
    config.experimental.executor_type = SINGLE_THREADED
    return {"config": config}


@pytest.fixture
def parts(graph: Any) -> Any:
    """An operation on each of two devices, the second of which waits for the first."""
    with graph.device("/cpu:0"):
        x = v1.placeholder_with_default(1.0, [], name="x")
        first = tf.multiply(x, 2.0, name="first")
    with graph.device("/cpu:1"):
        second = tf.add(first, 1.0, name="second")
    return SimpleNamespace(x=x, first=first, second=second)


@pytest.mark.parametrize("by_config", [False, True])
def test_the_error_names_devices_and_operations(parts: Any, by_config: bool) -> None:
    with fastsup.Session(**two_devices(by_config)) as session:
        for _ in range(2):
            with pytest.raises(tf.errors.UnimplementedError) as raised:
                session.run(parts.second)
        assert session.run(parts.first) == 2.0
    for text in ("'x/input' on /device:CPU:0", "'second/y' on /device:CPU:1", "Or place all of the step's operations"):
        assert text in raised.value.message
    remedy = "out of the config" if by_config else 'executor="auto", "inline" or "thread_pool"'
    assert remedy in raised.value.message


def test_every_way_to_run_it(parts: Any) -> None:
    """Those that no plan describes too."""
    with fastsup.Session(**two_devices()) as session:
        ways = [
            lambda: session.run(parts.second, {parts.x: 2.0}),
            lambda: session.run(parts.second, options=v1.RunOptions()),
            lambda: session.make_callable(parts.second)(),
            lambda: session.make_callable(parts.second, accept_options=True)(),
            lambda: session.make_callable(parts.second, [parts.x])(2.0),
            lambda: session._make_callable_from_options(config_pb2.CallableOptions(fetch=[parts.second.name]))(),
        ]
        for way in ways:
            with pytest.raises(tf.errors.UnimplementedError, match="several devices"):
                way()


@pytest.mark.parametrize("kind", ["SingularMonitoredSession", "MonitoredTrainingSession"])
def test_a_monitored_session(graph: Any, kind: str) -> None:
    step = v1.train.get_or_create_global_step()
    with graph.device("/cpu:1"):
        v1.get_variable("v", initializer=1.0, use_resource=True)
    v1.assign_add(step, 1)
    with pytest.raises(tf.errors.UnimplementedError, match=r"several devices.*/device:CPU:1"):
        with getattr(train, kind)(**two_devices()):
            raise AssertionError("initialised")


def nothing_placed(graph: Any) -> Any:
    x = v1.placeholder_with_default(1.0, [])
    return x + v1.get_variable("v", initializer=1.0, use_resource=True), {x: 1.0}


def all_on_the_second(graph: Any) -> Any:
    with graph.device("/cpu:1"):
        return v1.get_variable("v", initializer=1.0, use_resource=True) + 1.0, None


def beside_a_variable(graph: Any) -> Any:
    with graph.device("/cpu:1"):
        v = v1.get_variable("v", initializer=1.0, use_resource=True)
    return v.assign_add(1.0).op, None


def of_no_such_device(graph: Any) -> Any:
    with graph.device("/gpu:3"):
        return tf.random.uniform([]) * 0.0 + 2.0, None


@pytest.mark.parametrize("build", [nothing_placed, all_on_the_second, beside_a_variable, of_no_such_device])
@pytest.mark.parametrize("by_config", [False, True])
def test_a_step_on_one_of_the_devices_runs(graph: Any, build: Any, by_config: bool) -> None:
    fetches, feeds = build(graph)
    init = v1.global_variables_initializer()
    with fastsup.Session(**two_devices(by_config, devices=3)) as session:
        session.run(init)
        for _ in range(3):
            assert session.run(fetches, feeds) in (None, 2.0)


def in_a_function(graph: Any) -> Any:
    @tf.function
    def function(x: Any) -> Any:
        with tf.device("/cpu:1"):
            y = x * 2.0
        return y + x

    return function(tf.random.uniform([]))


def initialisers(graph: Any) -> Any:
    for i in range(2):
        with graph.device(f"/cpu:{i}"):
            v1.get_variable(f"v{i}", initializer=1.0, use_resource=True)
    return v1.global_variables_initializer()


@pytest.mark.parametrize("build", [in_a_function, initialisers])
def test_refused_as_well(graph: Any, build: Any) -> None:
    fetches = build(graph)
    with fastsup.Session(**two_devices()) as session:
        with pytest.raises(tf.errors.UnimplementedError, match="several devices"):
            session.run(fetches)


def on_a_machine_with(monkeypatch: Any, *kinds: str) -> None:
    """Lets the machine seem to have devices, and TensorFlow a kernel of each kind for each operation."""
    there = [SimpleNamespace(device_type=kind) for kind in kinds]
    monkeypatch.setattr(context.context(), "list_physical_devices", lambda *_: there)
    monkeypatch.setattr(kernels, "get_registered_kernels_for_op", lambda _: SimpleNamespace(kernel=there))


@pytest.mark.parametrize(
    ("limits", "alone"), [({}, False), ({"GPU": 0}, True), ({"GPU": 1}, False), ({"CPU": 2, "GPU": 0}, True)]
)
def test_auto_counts_the_devices_of_the_session(monkeypatch: Any, graph: Any, limits: Any, alone: bool) -> None:
    """A GPU that the config hides is none of the session's."""
    on_a_machine_with(monkeypatch, "CPU", "GPU", "GPU")
    v1.get_variable("v", initializer=1.0, use_resource=True)
    graph.finalize()
    config = executors.config_for("auto", graph, "", v1.ConfigProto(device_count=limits))
    assert (config.experimental.executor_type == SINGLE_THREADED) is alone


@pytest.mark.parametrize(("device", "alone"), [("/cpu:0", True), ("/cpu:1", False), ("/gpu:0", False)])
def test_auto_judges_by_the_devices_of_the_graph(monkeypatch: Any, graph: Any, device: str, alone: bool) -> None:
    on_a_machine_with(monkeypatch, "CPU", "GPU")
    with graph.device("/cpu:0"):
        v = v1.get_variable("v", initializer=1.0, use_resource=True)
    with graph.device(device):
        v + 1.0
    graph.finalize()
    config = executors.config_for("auto", graph, "", v1.ConfigProto(device_count={"CPU": 2}))
    assert (config.experimental.executor_type == SINGLE_THREADED) is alone


def test_a_function_may_be_on_an_accelerator(monkeypatch: Any, graph: Any) -> None:
    on_a_machine_with(monkeypatch, "CPU", "GPU")
    with graph.device("/cpu:0"):
        tf.function(lambda x: x * 2.0)(tf.constant(1.0))
    graph.finalize()
    config = executors.config_for("auto", graph, "", v1.ConfigProto())
    assert config.experimental.executor_type != SINGLE_THREADED


def test_a_light_step_on_one_device_of_several_is_tried_in_the_calling_thread(parts: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("fastsup.runtime.trial._SAVED_SECS", 1e9)  # The trial begins at once.
    with fastsup.Session(config=v1.ConfigProto(device_count={"CPU": 2})) as session:
        with session.graph.device("/cpu:1"):
            elsewhere = tf.random.uniform([])
        steps = [(parts.first, None), (parts.first, {parts.x: 1.0}), (elsewhere.op, None)]
        for fetch, feeds in (*steps, (parts.second, None), (elsewhere, None)):
            for _ in range(300):
                session.run(fetch, feeds)
        *tried, on_both, fetched = session.executor_info()
    assert len(tried) == 3
    assert all(plan.seconds is not None for plan in tried)
    # What is fetched goes to the first CPU device.
    assert [(plan.executor, plan.seconds) for plan in (on_both, fetched)] == [("thread_pool", None)] * 2


def test_inline_says_that_several_devices_take_the_pool(parts: Any, tf_log: Any) -> None:
    with fastsup.Session(config=v1.ConfigProto(device_count={"CPU": 2}), executor="inline") as session:
        session.run(parts.first)
        assert "several devices" not in tf_log.text
        assert session.run(parts.second) == 3.0
        session.run([parts.second])
        session.run([parts.first, parts.second])
        first, second, *others = session.executor_info()
    assert first.executor == "inline"
    assert [second.executor, *(other.executor for other in others)] == ["thread_pool"] * (1 + len(others))
    warning = "has no effect on a step of several devices, which TensorFlow runs on its thread pool: "
    assert tf_log.text.count(warning) == 1
    assert "'second:0' on /device:CPU:0, operation 'second/y' on /device:CPU:1" in tf_log.text
