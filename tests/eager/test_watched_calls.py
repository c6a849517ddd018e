"""While a tool of TensorFlow's watches, lifted functions run where it sees them, and raise what it raises."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import fastsup
from fastsup.eager import tf_abi
from fastsup.eager.calls import why_not_lifted_here

IMPLEMENTATIONS = {"tensorflow": tf.function, "fastsup": fastsup.function}


@pytest.fixture(params=IMPLEMENTATIONS)
def decorate(request: pytest.FixtureRequest) -> Any:
    return IMPLEMENTATIONS[request.param]


@pytest.fixture(autouse=True)
def nothing_stays_on() -> Iterator[None]:
    assert tf_abi.unavailable_reason() == ""
    yield
    tf.summary.trace_off()
    tf.debugging.disable_check_numerics()
    assert why_not_lifted_here() == ""


def product(x: Any) -> Any:
    return tf.matmul(x, x, name="the_product")


def called(function: Any) -> Any:
    """The function after some calls."""
    for _ in range(3):
        function(tf.eye(3))
    return function


# TensorFlow has no graphs of a function that it has run before.
@pytest.mark.parametrize(
    "make", [lambda: tf.function(product), lambda: fastsup.function(product), lambda: called(fastsup.function(product))]
)
def test_a_graph_is_traced(make: Callable[[], Any]) -> None:
    function = make()
    tf.summary.trace_on(graph=True)
    function(tf.eye(3))
    graphs = [graph.pre_optimization_graph for graph in context.context().export_run_metadata().function_graphs]
    tf.summary.trace_off()
    assert "the_product" in {node.name for graph in graphs for node in graph.node if node.op == "MatMul"}


def names_of_collected_graphs(function: Any) -> list[set[str]]:
    """The operations of each graph that TensorFlow's eager context has collected in two calls."""
    argument = tf.eye(3)
    context.enable_run_metadata()
    for _ in range(2):
        function(argument)
    collected = context.export_run_metadata()
    context.disable_run_metadata()
    return [{node.name for node in graph.node} for graph in collected.partition_graphs]


def test_graphs_are_collected() -> None:
    """Only the C++ part of TensorFlow's eager context knows that it collects them."""
    expected = names_of_collected_graphs(tf.function(product))
    assert "the_product" in expected[0]
    assert names_of_collected_graphs(fastsup.function(product)) == expected
    assert names_of_collected_graphs(called(fastsup.function(product))) == expected


def has_kernel(folder: Path, name: str) -> bool:
    """Whether a profile names a kernel."""
    (profile,) = folder.rglob("*.xplane.pb")
    return name.encode() in profile.read_bytes()


@pytest.mark.one_device("the fake accelerator doesn't trace its kernels")
def test_the_profiler_sees_kernels(decorate: Any, tmp_path: Path) -> None:
    function = called(decorate(product))
    tf.profiler.experimental.start(str(tmp_path))
    for _ in range(5):
        function(tf.eye(3))
    tf.profiler.experimental.stop()
    assert has_kernel(tmp_path, "the_product:MatMul")


@pytest.mark.one_device("the fake accelerator doesn't trace its kernels")
def test_the_profile_of_a_traced_summary(decorate: Any, tmp_path: Path) -> None:
    function = called(decorate(product))
    with tf.summary.create_file_writer(str(tmp_path)).as_default():
        tf.summary.trace_on(graph=True, profiler=True, profiler_outdir=str(tmp_path))
        function(tf.eye(3))
        tf.summary.trace_export("trace", step=0)
    assert has_kernel(tmp_path, "the_product:MatMul")


def test_numbers_are_checked(decorate: Any) -> None:
    function = decorate(tf.math.log)
    good, bad = tf.constant([1.0, 2.0]), tf.constant([1.0, -1.0])
    for _ in range(3):
        function(good)
    tf.debugging.enable_check_numerics()
    with pytest.raises(tf.errors.InvalidArgumentError, match="Detected Infinity or NaN"):
        function(bad)
    function(good)
    # It is on in the thread that has turned it on.
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function(bad)))
    thread.start()
    thread.join()
    assert np.isnan(results[0][1])
    tf.debugging.disable_check_numerics()
    assert np.isnan(function(bad)[1])


def test_debug_information_is_dumped(decorate: Any, tmp_path: Path) -> None:
    function = called(decorate(product))
    tf.debugging.experimental.enable_dump_debug_info(str(tmp_path), "FULL_TENSOR", circular_buffer_size=-1)
    function(tf.eye(3))
    tf.debugging.experimental.disable_dump_debug_info()
    (executions,) = tmp_path.glob("*.execution")
    assert b"__inference_product" in executions.read_bytes()


def test_lifted_calls_go_on_afterwards_and_say_where_they_were(tmp_path: Path) -> None:
    function = fastsup.function(product, fallback="raise")
    tf.summary.trace_on(graph=True)
    function(tf.eye(3))
    assert not function.lifted
    assert function.why_not_lifted == "tf.summary.trace_on is on"
    tf.summary.trace_off()
    tf.profiler.experimental.start(str(tmp_path))
    assert why_not_lifted_here() == "TensorFlow's profiler is on"
    tf.profiler.experimental.stop()
    context.enable_run_metadata()
    assert why_not_lifted_here().startswith("the eager context collects graphs (enable_run_metadata, ")
    context.disable_run_metadata()
    tf.debugging.enable_check_numerics()
    assert why_not_lifted_here() == "a tf.debugging tool observes the operations here"
    tf.debugging.disable_check_numerics()
    function(tf.eye(3))
    assert function.lifted
    assert function.why_not_lifted == ""


@pytest.mark.parametrize("optimized", [False, True])
def test_graphs_of_a_function_are_collected(optimized: bool) -> None:
    """TensorFlow's own tests look so for what its optimizer has done."""

    def square(x: Any) -> Any:
        return tf.matmul(x, x, name=f"square_{optimized}")

    found = []
    for function in (tf.function(square), fastsup.function(square)):
        with context.collect_graphs(optimized=optimized) as graphs:
            function(tf.eye(3))
        of_each = [{node.name for node in graph.node} for graph in graphs]
        # The others are of calls before.
        found.append([names for names in of_each if f"square_{optimized}" in names])
        assert why_not_lifted_here() == ""
    assert found[0] == found[1] != []
