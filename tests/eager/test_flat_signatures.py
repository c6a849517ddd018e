"""ConcreteFunctions that are called by their inputs: frozen, pruned, wrapped and loaded ones are lifted, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

import fastsup

Calls = list[tuple[tuple[Any, ...], dict[str, Any]]]
CASES: dict[str, Callable[[Path], tuple[Any, Calls]]] = {}


def case(make: Callable[[Path], tuple[Any, Calls]]) -> Callable[[Path], tuple[Any, Calls]]:
    CASES[make.__name__] = make
    return make


def numbers(*shape: int) -> Any:
    return tf.constant(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


def of_two(weights: Any) -> Any:
    signature = [tf.TensorSpec([None, 3], name="x"), tf.TensorSpec([3], name="y")]
    return tf.function(lambda x, y: {"sum": x @ weights + y, "y": y * 2.0}, input_signature=signature)


@case
def frozen(folder: Path) -> tuple[Any, Calls]:
    weights = tf.Variable(numbers(3, 3))
    function = convert_variables_to_constants_v2(of_two(weights).get_concrete_function())
    x, y = numbers(2, 3), numbers(3)
    return function, [((x, y), {}), ((x,), {"y": y}), ((), {"x": x, "y": y}), ((numbers(5, 3), y), {})]


def wrapped() -> Any:
    def of_a_graph(x: Any, y: Any) -> Any:
        variable = tf.compat.v1.get_variable("v", [3], initializer=tf.compat.v1.ones_initializer())
        total = tf.add(x * variable, y, name="total")
        return total - 1.0, [tf.reduce_sum(total)]

    return tf.compat.v1.wrap_function(of_a_graph, [tf.TensorSpec([None, 3]), tf.TensorSpec([3])])


@case
def wrapped_function(folder: Path) -> tuple[Any, Calls]:
    arrays = (numbers(2, 3).numpy(), [1.0, 2.0, 3.0])
    return wrapped(), [((numbers(2, 3), numbers(3)), {}), ((numbers(4, 3), numbers(3)), {}), (arrays, {})]


@case
def pruned(folder: Path) -> tuple[Any, Calls]:
    whole = wrapped()
    function = whole.prune(whole.inputs[:2], whole.graph.get_tensor_by_name("total:0"))
    first, second = function._arg_keywords
    return function, [
        ((numbers(2, 3), numbers(3)), {}),
        ((), {first: numbers(2, 3), second: numbers(3)}),
        ((numbers(2, 3),), {second: numbers(3)}),
    ]


@case
def pruned_without_inputs(folder: Path) -> tuple[Any, Calls]:
    function = tf.compat.v1.wrap_function(lambda: tf.constant(3.0) * 2.0, [])
    return function.prune([], function.outputs), [((), {}), ((), {})]


def loaded(folder: Path) -> Any:
    module = tf.Module()
    module.weights = tf.Variable(numbers(3, 3))
    module.serve = tf.function(
        lambda x: {"product": x @ module.weights}, input_signature=[tf.TensorSpec([None, 3], name="x")]
    )
    tf.saved_model.save(module, str(folder), signatures=module.serve)
    return tf.saved_model.load(str(folder))


@case
def loaded_signature(folder: Path) -> tuple[Any, Calls]:
    module = loaded(folder)
    function = module.signatures["serving_default"]
    function.kept = module  # The variables are the module's.
    return function, [((numbers(2, 3),), {}), ((), {"x": numbers(2, 3)}), ((numbers(4, 3),), {})]


@case
def with_both_signatures(folder: Path) -> tuple[Any, Calls]:
    function = tf.function(lambda pair: pair["b"] - pair["a"])
    concrete = function.get_concrete_function({"a": tf.TensorSpec([3]), "b": tf.TensorSpec([3])})
    a, b = numbers(3), numbers(3) * 2.0
    return concrete, [(({"a": a, "b": b},), {}), ((a, b), {}), ((), {"pair": {"b": b, "a": a}})]


@case
def with_a_variable(folder: Path) -> tuple[Any, Calls]:
    variable = tf.Variable(numbers(3))
    concrete = tf.function(lambda v, x: v.assign_add(x) * 1.0).get_concrete_function(variable, tf.TensorSpec([3]))
    return concrete, [((variable, numbers(3) * 0.0), {})]


@pytest.mark.parametrize("name", CASES)
def test_calls_are_lifted(name: str, tmp_path: Path) -> None:
    function, calls = CASES[name](tmp_path)
    lifted = fastsup.function(function, fallback="raise")
    for _ in range(3):
        for args, kwargs in calls:
            expected, found = function(*args, **kwargs), lifted(*args, **kwargs)
            tf.nest.assert_same_structure(found, expected)
            for ours, theirs in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
                np.testing.assert_array_equal(ours, theirs)
    assert lifted.lifted
    assert lifted.why_not_lifted == ""


@pytest.mark.parametrize("name", [name for name in CASES if name != "with_a_variable"])
def test_calls_have_patterns(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call with arguments like an earlier call's doesn't ask TensorFlow for the tensors that it makes of them."""
    function, calls = CASES[name](tmp_path)
    lifted = fastsup.function(function, fallback="raise")
    calls = [(args, kwargs) for args, kwargs in calls if not any(isinstance(value, list) for value in args)]
    for args, kwargs in calls * 2:
        lifted(*args, **kwargs)

    def fail(*args: Any) -> None:
        raise AssertionError("asked again")

    monkeypatch.setattr("fastsup.eager.tracing.ConcreteTracer.inputs", fail)
    for args, kwargs in calls:
        lifted(*args, **kwargs)


def wrong_calls(function: Any) -> Calls:
    x, y = numbers(2, 3), numbers(3)
    return [
        ((x,), {}),
        ((x, y, y), {}),
        ((x, y), {"y": y}),
        ((x, y), {"z": y}),
        ((x, tf.constant([1, 2, 3])), {}),
        ((x, tf.ones([4])), {}),
        ((x, "text"), {}),
        ((), {}),
    ]


@pytest.mark.parametrize("name", ["frozen", "pruned", "wrapped_function"])
def test_wrong_arguments_raise_what_tensorflow_raises(name: str, tmp_path: Path) -> None:
    function, calls = CASES[name](tmp_path)
    lifted = fastsup.function(function, fallback="raise")
    lifted(*calls[0][0])
    for args, kwargs in wrong_calls(function):
        with pytest.raises(Exception) as theirs:
            function(*args, **kwargs)
        with pytest.raises(type(theirs.value)) as ours:
            lifted(*args, **kwargs)
        assert str(ours.value).splitlines()[0] == str(theirs.value).splitlines()[0]
    assert lifted.why_not_lifted == ""


@pytest.mark.parametrize("fallback", ["warn", "raise"])
def test_what_tensorflow_runs_is_said(fallback: str, tf_log: Any) -> None:
    # TensorFlow doesn't look at the shapes of a ConcreteFunction's arguments.
    concrete = tf.function(lambda x: x * 2.0).get_concrete_function(tf.TensorSpec([3]))
    lifted = fastsup.function(concrete, fallback=fallback)
    np.testing.assert_array_equal(lifted(tf.ones([3])), [2.0] * 3)
    reason = r"it was traced for float32 of shape \(3,\), and was called with float32 of shape \(4,\)"
    if fallback == "raise":
        for _ in range(2):
            with pytest.raises(RuntimeError, match=reason):
                lifted(tf.ones([4]))
    else:
        np.testing.assert_array_equal(lifted(tf.ones([4])), [2.0] * 4)
    np.testing.assert_array_equal(lifted(tf.ones([3])), [2.0] * 3)
    assert "it was traced for float32 of shape (3,)" in lifted.why_not_lifted
