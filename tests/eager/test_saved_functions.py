"""TensorFlow and Keras take a lifted function for the function in it: modules, SavedModels, checkpoints, strategies."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import concrete_function, polymorphic_function
from tensorflow.python.saved_model import loader_impl
from tensorflow.python.trackable.base import Trackable

import fastsup

pytestmark = pytest.mark.timeout(120)

IMPLEMENTATIONS = {"tensorflow": tf.function, "fastsup": functools.partial(fastsup.function, fallback="raise")}
SCALAR = tf.TensorSpec([], tf.float32)


@pytest.fixture(params=IMPLEMENTATIONS)
def decorate(request: pytest.FixtureRequest) -> Any:
    return IMPLEMENTATIONS[request.param]


def lifted_concrete(function: Any) -> Any:
    return fastsup.function(function.get_concrete_function(), fallback="raise")


@pytest.fixture(params=["tensorflow", "fastsup"])
def concrete_of(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """The ConcreteFunction of a function with a signature."""
    return (lambda function: function.get_concrete_function()) if request.param == "tensorflow" else lifted_concrete


def reloaded(module: Any, folder: Path, **options: Any) -> Any:
    tf.saved_model.save(module, str(folder), **options)
    return tf.saved_model.load(str(folder))


def make_scale(decorate: Any) -> Any:
    class Scale(tf.Module):
        def __init__(self, by: float) -> None:
            super().__init__()
            self.by = tf.Variable(by)

        @decorate(input_signature=[SCALAR])
        def method(self, x: Any) -> Any:
            return x * self.by

        @decorate
        def traced_by_calls(self, x: Any, power: int = 1) -> Any:
            return (x * self.by) ** power

        @tf.Module.with_name_scope
        @decorate
        def never_called(self, x: Any) -> Any:
            return x

    return Scale


# What isinstance says.


def test_it_is_what_is_in_it() -> None:
    function = fastsup.function(lambda x: x, input_signature=[SCALAR])
    concrete = lifted_concrete(function)
    assert isinstance(function, Trackable)
    assert isinstance(concrete, Trackable)
    assert isinstance(function, polymorphic_function.Function)
    assert isinstance(function, tf.types.experimental.GenericFunction)
    assert not isinstance(function, concrete_function.ConcreteFunction)
    assert isinstance(concrete, concrete_function.ConcreteFunction)
    assert not isinstance(concrete, polymorphic_function.Function)
    assert not isinstance(concrete, tf.types.experimental.GenericFunction)


def test_it_has_what_tensorflow_keeps_in_it() -> None:
    def body(x: Any, y: float = 2.0) -> Any:
        return x + y

    ours, theirs = fastsup.function(body), tf.function(body)
    assert ours.function_spec.fullargspec == theirs.function_spec.fullargspec
    assert ours.function_type == theirs.function_type
    assert (ours._name, ours._autograph, ours._jit_compile) == ("body", True, None)
    assert tf.function(ours).python_function is ours
    for name in ("__deepcopy__", "_no_such_name"):
        assert not hasattr(ours, name)
        assert not hasattr(theirs, name)


# SavedModels.


def test_a_module_keeps_its_functions(decorate: Any, tmp_path: Path) -> None:
    module = make_scale(decorate)(3.0)
    module.inner = make_scale(decorate)(5.0)
    module.attribute = decorate(lambda x: module.by - x, input_signature=[SCALAR])
    module.several = [decorate(lambda x: x + 1.0, input_signature=[SCALAR])]
    module.named = {"two": decorate(lambda x: x + 2.0, input_signature=[SCALAR])}
    for power in (1, 2):
        module.traced_by_calls(tf.constant(1.0), power)
    module.traced_by_calls(tf.ones([2]))
    loaded = reloaded(module, tmp_path)
    x = tf.constant(2.0)
    assert [float(loaded.method(x)), float(loaded.inner.method(x)), float(loaded.attribute(x))] == [6.0, 10.0, 1.0]
    assert [float(loaded.several[0](x)), float(loaded.named["two"](x))] == [3.0, 4.0]
    assert [float(loaded.traced_by_calls(x, power)) for power in (1, 2)] == [6.0, 36.0]
    assert loaded.traced_by_calls(tf.ones([2])).numpy().tolist() == [3.0, 3.0]
    with pytest.raises(ValueError, match="Could not find matching concrete function"):
        loaded.traced_by_calls(x, 3)
    # It is the only function with a signature of its class that can be one.
    assert list(reloaded(make_scale(decorate)(3.0), tmp_path / "alone").signatures) == ["serving_default"]


def test_a_saved_module_can_be_saved_again(decorate: Any, tmp_path: Path) -> None:
    loaded = reloaded(make_scale(decorate)(3.0), tmp_path / "first")
    again = tf.Module()
    again.loaded = loaded
    again.function = decorate(loaded.method.python_function, input_signature=[SCALAR])
    again.restored = loaded.method if decorate is tf.function else fastsup.function(loaded.method, fallback="raise")
    assert float(again.restored(tf.constant(2.0))) == 6.0
    again = reloaded(again, tmp_path / "second")
    assert [float(again.function(tf.constant(2.0))), float(again.restored(tf.constant(2.0)))] == [6.0, 6.0]


@pytest.mark.parametrize("kind", ["function", "dict", "method", "default"])
def test_signatures(decorate: Any, kind: str, tmp_path: Path) -> None:
    module = make_scale(decorate)(3.0)
    module.other = decorate(lambda x: {"sum": x + module.by}, input_signature=[tf.TensorSpec([], tf.float32, name="y")])
    signatures = {
        "function": module.other,
        "dict": {"first": module.method, "second": module.other},
        "method": module.method,
        "default": None,
    }[kind]
    loaded = reloaded(module, tmp_path, signatures=signatures)
    x = tf.constant(2.0)
    if kind == "dict":
        first, second = loaded.signatures["first"], loaded.signatures["second"]
        assert float(first(x=x)["output_0"]) == 6.0
        assert float(second(y=x)["sum"]) == 5.0
    elif kind != "default":  # Two functions could be it.
        (result,) = loaded.signatures["serving_default"](x).values()
        assert float(result) == (5.0 if kind == "function" else 6.0)


def test_a_function_that_can_be_no_signature(decorate: Any, tmp_path: Path) -> None:
    module = tf.Module()
    module.function = decorate(lambda x: x)
    with pytest.raises(ValueError, match="Expected a TensorFlow function for which to generate a signature, but got"):
        tf.saved_model.save(module, str(tmp_path), signatures=module.function)


def test_concrete_functions(concrete_of: Callable[[Any], Any], tmp_path: Path) -> None:
    module = make_scale(tf.function)(3.0)
    module.concrete = concrete_of(module.method)
    both = {"one": module.concrete, "other": concrete_of(tf.function(lambda: {"by": module.by + 1.0}))}
    assert float(module.concrete(tf.constant(2.0))) == 6.0
    loaded = reloaded(module, tmp_path, signatures=both)
    assert float(loaded.concrete(x=tf.constant(2.0))) == 6.0
    assert float(loaded.signatures["one"](tf.constant(2.0))["output_0"]) == 6.0
    assert float(loaded.signatures["other"]()["by"]) == 4.0


def test_a_concrete_function_beside_the_lifted_one(tmp_path: Path) -> None:
    module = make_scale(tf.function)(3.0)
    module.theirs = module.method.get_concrete_function()
    module.ours = fastsup.function(module.theirs)
    loaded = reloaded(module, tmp_path, signatures=module.ours)
    assert [float(loaded.theirs(x=tf.constant(2.0))), float(loaded.ours(x=tf.constant(2.0)))] == [6.0, 6.0]


def test_captured_state(decorate: Any, tmp_path: Path) -> None:
    module = tf.Module()
    module.count = tf.Variable(0)
    keys, values = tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64)
    module.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)
    constant = tf.constant([10, 20, 30, 40], tf.int64)

    @decorate(input_signature=[tf.TensorSpec([None], tf.string)])
    def look_up(words: Any) -> Any:
        return module.table.lookup(words)

    @decorate(input_signature=[tf.TensorSpec([None], tf.string)])
    def call(words: Any) -> Any:
        module.count.assign_add(1)
        return tf.gather(constant, look_up(words) + 1)

    module.call = call
    assert call(tf.constant(["b", "a", "c"])).numpy().tolist() == [40, 30, 10]
    loaded = reloaded(module, tmp_path)
    for _ in range(2):
        assert loaded.call(tf.constant(["a", "c"])).numpy().tolist() == [30, 10]
    assert int(loaded.count) == int(module.count) + 2


def test_variables_that_a_function_makes(decorate: Any, tmp_path: Path) -> None:
    module = tf.Module()
    module.made = []

    @decorate(input_signature=[SCALAR])
    def call(x: Any) -> Any:
        if not module.made:
            module.made.append(tf.Variable(7.0))
        return x * module.made[0]

    module.call = call
    assert float(reloaded(module, tmp_path).call(tf.constant(2.0))) == 14.0


def test_a_function_that_captures_what_is_not_saved(decorate: Any, tmp_path: Path) -> None:
    elsewhere = tf.Variable(1.0)
    module = tf.Module()
    module.call = decorate(lambda: elsewhere + 1.0, input_signature=[])
    with pytest.raises(AssertionError, match="untracked"):
        tf.saved_model.save(module, str(tmp_path))


def test_aliases(decorate: Any, tmp_path: Path) -> None:
    module = make_scale(decorate)(3.0)
    options = tf.saved_model.SaveOptions(function_aliases={"the_method": module.method})
    tf.saved_model.save(module, str(tmp_path), options=options)
    model = loader_impl.parse_saved_model(str(tmp_path))
    assert "the_method" in model.meta_graphs[0].meta_info_def.function_aliases.values()


LOADER = """
import sys
import tensorflow as tf
loaded = tf.saved_model.load(sys.argv[1])
print(float(loaded.method(tf.constant(2.0))), float(loaded.signatures["serving_default"](tf.constant(2.0))["output_0"]))
assert not any(name.partition(".")[0] == "fastsup" for name in sys.modules)
"""


@pytest.mark.slow
def test_it_loads_without_fastsup(processes: Any, tmp_path: Path) -> None:
    tf.saved_model.save(make_scale(fastsup.function)(3.0), str(tmp_path))
    done = processes.run(sys.executable, "-c", LOADER, str(tmp_path), check=True)
    assert done.stdout.split()[-2:] == ["6.0", "6.0"]


# Checkpoints.


@pytest.mark.parametrize(("saved_with", "restored_with"), [("fastsup", "tensorflow"), ("tensorflow", "fastsup")])
def test_checkpoints(saved_with: str, restored_with: str, tmp_path: Path) -> None:
    def checkpoint(implementation: str, value: float) -> Any:
        module = make_scale(IMPLEMENTATIONS[implementation])(value)
        module.attribute = IMPLEMENTATIONS[implementation](lambda x: module.by - x, input_signature=[SCALAR])
        module.method(tf.constant(1.0))
        return tf.train.Checkpoint(module=module, function=module.attribute)

    path = checkpoint(saved_with, 3.0).save(str(tmp_path / "model"))
    other = checkpoint(restored_with, 5.0)
    other.restore(path).assert_consumed()
    assert float(other.module.method(tf.constant(2.0))) == 6.0
    assert float(other.function(tf.constant(1.0))) == 2.0


def test_an_attribute_can_be_replaced_and_deleted(decorate: Any, tmp_path: Path) -> None:
    module = tf.Module()
    module.call = decorate(lambda x: x + 1.0, input_signature=[SCALAR])
    module.gone = module.call
    module.call = decorate(lambda x: x + 2.0, input_signature=[SCALAR])
    del module.gone
    loaded = reloaded(module, tmp_path)
    assert float(loaded.call(tf.constant(1.0))) == 3.0
    assert not hasattr(loaded, "gone")


# Keras.


def test_a_keras_model_with_a_function(decorate: Any, tmp_path: Path) -> None:
    model = keras.Sequential([keras.layers.Input([2]), keras.layers.Dense(1, kernel_initializer="ones")])
    model.serve = decorate(lambda x: {"score": model(x) * 2.0}, input_signature=[tf.TensorSpec([None, 2])])
    x = np.ones([3, 2], np.float32)
    assert model.serve(x)["score"].numpy().tolist() == [[4.0]] * 3
    loaded = reloaded(model, tmp_path / "saved", signatures=model.serve)
    assert loaded.serve(tf.constant(x))["score"].numpy().tolist() == [[4.0]] * 3
    assert loaded.signatures["serving_default"](tf.constant(x))["score"].numpy().tolist() == [[4.0]] * 3
    model.export(str(tmp_path / "exported"), verbose=False)
    assert tf.saved_model.load(str(tmp_path / "exported")).serve(tf.constant(x)).numpy().tolist() == [[2.0]] * 3


def test_an_export_archive(decorate: Any, tmp_path: Path) -> None:
    model = keras.Sequential([keras.layers.Input([2]), keras.layers.Dense(1, kernel_initializer="ones")])
    archive = keras.export.ExportArchive()
    archive.track(model)
    serve = decorate(lambda x: model(x) * 2.0)
    with pytest.raises(ValueError, match="never been called"):
        archive.add_endpoint("uncalled", serve)
    serve(tf.ones([1, 2]))
    archive.add_endpoint("called", serve)
    archive.add_endpoint("specified", decorate(lambda x: model(x)), input_signature=[tf.TensorSpec([None, 2])])
    archive.write_out(str(tmp_path), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path))
    assert loaded.called(tf.ones([1, 2])).numpy().tolist() == [[4.0]]
    assert loaded.specified(tf.ones([3, 2])).shape == [3, 1]


# Others that look at the class.


def test_a_strategy_runs_it(decorate: Any) -> None:
    """TensorFlow wraps the Python function of a function, so that the strategy's part runs inside."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        count = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)

    @decorate
    def add(x: Any) -> Any:
        count.assign_add(x)
        return x * 2.0

    for _ in range(3):
        assert float(strategy.run(add, (tf.constant(1.0),))) == 2.0
    assert count.numpy() == 3.0


def test_a_module_decorates_it_in_place(decorate: Any) -> None:
    function = decorate(lambda x: x + 1.0)
    function._decorate(lambda inner: lambda x: inner(x) * 2.0)
    assert float(function(tf.constant(1.0))) == 4.0
    with pytest.raises(ValueError, match="cannot be decorated after they have been traced"):
        function._decorate(lambda inner: inner)
    clone = function._clone(lambda x: x - 1.0)
    assert (type(clone), float(clone(tf.constant(1.0)))) == (type(function), 0.0)


def test_as_a_part_of_tensorflow(decorate: Any) -> None:
    """As a branch, as a map's function, as an argument, and in a function that calls it."""
    double = decorate(lambda x: x * 2)
    assert int(tf.cond(tf.constant(True), lambda: double(2), lambda: double(3))) == 4
    assert list(tf.data.Dataset.range(3).map(double).as_numpy_iterator()) == [0, 2, 4]
    assert tf.map_fn(double, tf.constant([1, 2])).numpy().tolist() == [2, 4]
    outer = tf.function(lambda function, x: function(x) + 1)
    assert [int(outer(double, 2)), int(outer(double, 2)), outer.experimental_get_tracing_count()] == [5, 5, 1]


@pytest.mark.parametrize("name", ["_shared_rendezvous", "_omit_frequent_tracing_warning"])
def test_an_attribute_that_tensorflow_sets(name: str) -> None:
    function = fastsup.function(lambda x: x)
    setattr(function, name, True)
    assert getattr(function.original, name) is True
