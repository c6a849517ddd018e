"""Which trace a call of a `fastsup.function` goes to, and that calls of known forms don't ask TensorFlow for it."""

from __future__ import annotations

import collections
import dataclasses
import gc
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import attr
import numpy as np
import pytest
import tensorflow as tf
from fastsup.eager.patterns import CallPattern
from tensorflow.core.function import trace_type
from tensorflow.python.framework import constant_op

import fastsup
from fastsup.eager import tf_abi
from fastsup.eager.calls import CachedCall, CallCount, LiftedCalls, scope_of_devices
from fastsup.eager.lift import LiftLimit
from fastsup.eager.tracing import ArgumentType, CallTypes, FunctionTracer

pytestmark = pytest.mark.timeout(120)

# The calls of `Calls` find the binding open, whichever test comes first.
assert tf_abi.unavailable_reason() == ""


def lift(function: Any, **options: Any) -> Any:
    return fastsup.function(function, fallback="raise", **options)


@pytest.fixture(params=["tensorflow", "fastsup"])
def decorate(request: pytest.FixtureRequest) -> Any:
    """`tf.function` and `fastsup.function`, for bodies that must do the same with both."""
    return tf.function if request.param == "tensorflow" else lift


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments of the calls for which TensorFlow was asked for the trace."""
    seen: list[Any] = []
    concrete = FunctionTracer.concrete

    def note(self: Any, args: Any, kwargs: Any) -> Any:
        seen.append((args, kwargs))
        return concrete(self, args, kwargs)

    monkeypatch.setattr(FunctionTracer, "concrete", note)
    return seen


def numbers(structure: Any) -> list[bytes]:
    return [np.asarray(value).tobytes() for value in tf.nest.flatten(structure, expand_composites=True)]


# Forms of arguments.


class Pair(NamedTuple):
    a: Any
    b: Any


class Reversed(Pair):
    """A namedtuple whose items come in another order than its fields."""

    def __iter__(self) -> Iterator[Any]:
        return iter([self.b, self.a])


class Extension(tf.experimental.ExtensionType):  # type: ignore[misc]
    x: tf.Tensor
    n: int


@attr.s(auto_attribs=True)
class Fields:
    a: Any
    n: int


@dataclasses.dataclass
class Flattened:
    a: Any
    n: int

    def __tf_flatten__(self) -> tuple[Any, Any]:
        return (self.n,), (self.a,)

    @classmethod
    def __tf_unflatten__(cls, metadata: Any, parts: Any) -> Any:
        return cls(parts[0], metadata[0])


@dataclasses.dataclass(frozen=True)
class Config:
    n: int


SIGNATURE = {"input_signature": [tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.float32)]}
VARIABLE = tf.Variable([1.0, 2.0])
CONSTANT = tf.constant([1.0, 2.0])
DEFAULT = np.float32([5.0])
CONFIGS = [Config(0), Config(1)]


def vector(i: int, size: int = 3) -> Any:
    return tf.fill([size], float(i))


def times(x: Any, n: Any) -> Any:
    return x * tf.cast(n, tf.float32)


# A function, options of tf.function, and the arguments of call i. The calls of a form have few patterns.
FORMS: dict[str, tuple[Callable[..., Any], dict[str, Any], Callable[[int], tuple[Any, ...]]]] = {
    "namedtuple": (lambda p: p.a - p.b, {}, lambda i: (Pair(vector(i), vector(2)),)),
    "namedtuple of arrays": (lambda p: p.a - p.b, {}, lambda i: (Pair(np.float32([i]), np.float32([2])),)),
    "namedtuple in a list": (lambda p: p[0].a * p[0].b, {}, lambda i: ([Pair(vector(i), 3 + i % 2)],)),
    "namedtuple in another order": (lambda p: p.a - 2.0 * p.b, {}, lambda i: (Reversed(vector(i), vector(2)),)),
    "OrderedDict": (
        lambda d: d["b"] - d["a"],
        {},
        lambda i: (collections.OrderedDict(b=vector(i), a=vector(1)),),
    ),
    "defaultdict": (
        lambda d: d["b"] - d["a"],
        {},
        lambda i: (collections.defaultdict(int, b=vector(i), a=vector(1)),),
    ),
    "extension type": (lambda e: e.x * float(e.n), {}, lambda i: (Extension(vector(i), i % 2),)),
    "attrs": (lambda f: f.a * float(f.n), {}, lambda i: (Fields(vector(i), i % 2),)),
    "dataclass that is flattened": (lambda f: f.a * float(f.n), {}, lambda i: (Flattened(vector(i), i % 2),)),
    "equal objects": (
        lambda x, c: x * float(c.n),
        {},
        lambda i: (vector(i), CONFIGS[i] if i < 2 else Config(i % 2)),
    ),
    "ragged": (lambda r: r * 2.0, {}, lambda i: (tf.RaggedTensor.from_row_lengths(vector(i), [1, 2]),)),
    "sparse": (lambda s: tf.sparse.to_dense(s), {}, lambda i: (tf.sparse.from_dense(tf.eye(2) * (1.0 + i)),)),
    "indexed slices": (
        lambda s: tf.convert_to_tensor(s),
        {},
        lambda i: (tf.IndexedSlices(vector(i), tf.range(3), tf.constant([4])),),
    ),
    "100 tensors": (lambda values: tf.add_n(values), {}, lambda i: ([vector(i + k) for k in range(100)],)),
    "100 arrays": (lambda *values: tf.add_n(values), {}, lambda i: tuple(np.full(2, i + k) for k in range(100))),
    "NumPy scalar": (times, {}, lambda i: (vector(i), np.float32(i))),
    "NaN": (times, {}, lambda i: (vector(i), float("nan"))),
    "complex": (lambda x, n: x * n.imag, {}, lambda i: (vector(i), 1j)),
    "range": (lambda x, n: x * float(len(n)), {}, lambda i: (vector(i), range(3))),
    "texts": (lambda s: tf.strings.length(s), {}, lambda i: (np.array(["a" * (1 + i), "b"]),)),
    "default array": (lambda x, y=DEFAULT: x * y, {}, lambda i: (vector(i),)),
    "default tensor": (lambda x, y=CONSTANT[:1], n=2: x * y * n, {}, lambda i: (vector(i),)),
    "float with a signature": (times, SIGNATURE, lambda i: (vector(i), float(i))),
    "int with a signature": (times, SIGNATURE, lambda i: (vector(i), i)),
    "doubles with a signature": (times, SIGNATURE, lambda i: (np.ones(1 + i), np.float64(i))),
    "list with a signature": (times, SIGNATURE, lambda i: ([1.0] * (1 + i), i)),
    "variable with a signature": (times, SIGNATURE, lambda i: (VARIABLE, i)),
    "default with a signature": (lambda x, n=3.0: x * n, SIGNATURE, lambda i: (vector(i, 1 + i),)),
    "ragged with a signature": (
        lambda r: r * 2.0,
        {"input_signature": [tf.RaggedTensorSpec([None, None], tf.float32)]},
        lambda i: (tf.RaggedTensor.from_row_lengths(vector(i, 2 + i), [1 + i, 1]),),
    ),
    "keywords": (lambda *xs, n, **more: xs[0] * n + more["b"], {}, lambda i: (vector(i), vector(1))),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_arguments_are_described(name: str, looked_up: list[Any]) -> None:
    step, options, arguments = FORMS[name]
    keywords = {"b": vector(7), "n": np.float32(3.0)} if name == "keywords" else {}
    theirs, ours = tf.function(step, autograph=False, **options), lift(step, autograph=False, **options)
    for i in range(8):
        assert numbers(ours(*arguments(i), **keywords)) == numbers(theirs(*arguments(i), **keywords))
    assert ours.original.experimental_get_tracing_count() == theirs.experimental_get_tracing_count()
    # No more than the patterns of the first calls.
    assert len(looked_up) <= 2


def test_a_value_that_cannot_be_converted_is_an_error_of_tensorflow() -> None:
    theirs, ours = tf.function(times, **SIGNATURE), lift(times, **SIGNATURE)
    for bad in ([1.0, "a"], [[1.0], [1.0, 2.0]], "a", [[1.0]], None):
        ours([1.0], 2.0)
        with pytest.raises(Exception) as wanted:
            theirs(bad, 2.0)
        for _ in range(2):
            with pytest.raises(type(wanted.value)) as raised:
                ours(bad, 2.0)
            assert str(raised.value).splitlines()[0] == str(wanted.value).splitlines()[0]
    assert ours([3.0], 2).numpy().tolist() == [6.0]


def test_an_object_that_goes_takes_its_pattern_with_it() -> None:
    ours = lift(lambda x, c: x * float(c.n))
    for _ in range(3):
        assert ours(CONSTANT, Config(4)).numpy().tolist() == [4.0, 8.0]
        gc.collect()
        assert ours(CONSTANT, Config(5)).numpy().tolist() == [5.0, 10.0]


def test_what_no_pattern_describes_ends_nothing(looked_up: list[Any]) -> None:
    ours = lift(lambda x: tf.raw_ops.TensorListLength(input_handle=x) if x.dtype == tf.variant else x * 2.0)
    for _ in range(20):
        handle = tf.raw_ops.EmptyTensorList(
            element_shape=tf.constant([], tf.int32), max_num_elements=-1, element_dtype=tf.float32
        )
        assert int(ours(handle)) == 0
    ours(vector(1))
    looked_up.clear()
    assert ours(vector(3)).numpy().tolist() == [6.0] * 3
    assert not looked_up


# Which trace a call goes to.


def traced_by_number(decorate: Any, **options: Any) -> Any:
    """A function whose result is the number of the trace that has made it."""
    traces: list[Any] = []

    def step(x: Any, n: Any = 0) -> Any:
        traces.append(None)
        first = tf.nest.flatten(x, expand_composites=True)[0]
        return tf.cast(tf.size(first), tf.int32) * 0 + len(traces)

    return decorate(step, autograph=False, **options)


def random_call(chance: random.Random) -> tuple[Any, ...]:
    shape = [chance.choice([1, 2, 3]) for _ in range(chance.choice([1, 2, 2]))]
    kind = chance.randrange(6)
    value: Any = tf.ones(shape) if kind % 2 else np.ones(shape, np.float32)
    if kind == 4:
        value = Pair(value, tf.ones([chance.choice([1, 2])]))
    if kind == 5:
        value = tf.RaggedTensor.from_row_lengths(tf.ones([4]), chance.choice([[1, 3], [4], [2, 2]]))
    return (value,) if chance.random() < 0.6 else (value, chance.choice([1, 2]))


@pytest.mark.parametrize("reduce_retracing", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_calls_go_to_the_traces_of_tensorflow(reduce_retracing: bool, seed: int) -> None:
    chance = random.Random(seed)
    theirs, ours = (traced_by_number(decorate, reduce_retracing=reduce_retracing) for decorate in (tf.function, lift))
    calls = [random_call(chance) for _ in range(20)]
    for number in range(600):
        call = random_call(chance) if number % 25 == 0 else chance.choice(calls)
        if number % 40 == 7:
            for function in (theirs, ours):
                function.get_concrete_function(tf.TensorSpec([None, number % 3 + 1]))
        if number % 40 == 27:
            with tf.GradientTape():
                assert int(theirs(*call)) == int(ours(*call))
        assert int(theirs(*call)) == int(ours(*call)), call
    assert theirs.experimental_get_tracing_count() == ours.original.experimental_get_tracing_count()


def test_iterators_and_variables_beside_open_dimensions() -> None:
    theirs, ours = (traced_by_number(decorate, reduce_retracing=True) for decorate in (tf.function, lift))
    iterators = [iter(tf.data.Dataset.from_tensors(tf.ones([size])).repeat()) for size in (1, 2, 2)]
    variables = [tf.Variable(tf.ones([size])) for size in (1, 2, 2)]
    chance = random.Random(1)
    for _ in range(150):
        call = (tf.ones([chance.choice([1, 2, 3])]), chance.choice([*iterators, *variables]))
        assert int(theirs(*call)) == int(ours(*call))


@pytest.mark.parametrize("make", [tf.ones, lambda shape: np.ones(shape, np.float32)], ids=["tensors", "arrays"])
def test_a_new_shape_of_a_relaxed_trace_costs_no_pattern(make: Any, looked_up: list[Any]) -> None:
    ours = lift(lambda x: tf.reduce_sum(x), reduce_retracing=True)
    for size in range(1, 300):
        assert float(ours(make([size]))) == size
    # The first shape, the second, and one pattern for all.
    assert len(ours._call_cache) <= 3
    assert len(looked_up) <= 3
    assert float(ours(make([1]))) == 1.0
    assert ours.original.experimental_get_tracing_count() == 2


def test_many_shapes_of_a_function_that_creates_its_variables(looked_up: list[Any]) -> None:
    made: list[Any] = []

    def step(x: Any) -> Any:
        if not made:
            made.append(tf.Variable(2.0))
        return tf.reduce_sum(x) * made[0]

    ours = lift(step, autograph=False, reduce_retracing=True)
    for size in range(1, 40):
        assert float(ours(tf.ones([size]))) == 2.0 * size
    assert len(looked_up) <= 3


def test_many_shapes_of_a_concrete_function() -> None:
    concrete = tf.function(times).get_concrete_function(tf.TensorSpec([None, 2]), tf.TensorSpec([]))
    ours = lift(concrete)
    for size in range(1, 40):
        assert float(tf.reduce_sum(ours(np.ones([size, 2]), float(size)))) == 2.0 * size * size
    assert len(ours._call_cache) == 1
    with pytest.raises(TypeError):
        ours(np.ones([2, 3]), 1.0)


def test_a_list_that_contains_itself_is_an_error(decorate: Any) -> None:
    function = decorate(lambda values: values[0] * 2.0)
    function([CONSTANT])
    values: list[Any] = [CONSTANT]
    values.append(values)
    with pytest.raises(RecursionError):
        function(values)
    assert function([CONSTANT]).numpy().tolist() == [2.0, 4.0]


def test_an_array_is_converted_in_the_call_of_its_own_shape_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = lift(lambda x, y: x + y)
    # Every second number of an array: TensorFlow converts what isn't contiguous.
    calls = [(np.ones([2 * size], np.float32)[::2], np.ones([4], np.float32)[::4]) for size in range(2, 10)]
    for call in calls:
        ours(*call)
    converted: list[Any] = []
    convert = constant_op.convert_to_eager_tensor

    def note(value: Any, *args: Any, **kwargs: Any) -> Any:
        converted.append(value)
        return convert(value, *args, **kwargs)

    monkeypatch.setattr(constant_op, "convert_to_eager_tensor", note)
    for call in calls:
        ours(*call)
    # An array of one number is contiguous: on one device it is copied in C.
    assert len(converted) == len(calls) * (1 if scope_of_devices() is None else 2)


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int8", "int32", "int64", "uint8", "bool", "complex64"]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3, 4)])
def test_an_array_becomes_the_tensor_that_tensorflow_makes_of_it(dtype: str, shape: tuple[int, ...]) -> None:
    ours = lift(lambda x: tf.identity(x))
    array = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5, dtype)
    wide = np.repeat(array, 2, axis=0)[::2] if shape else array
    for value in (array, array.copy(), wide, np.asfortranarray(array), array[::-1] if shape else array):
        found = ours(value)
        assert found.dtype == tf.convert_to_tensor(value).dtype
        np.testing.assert_array_equal(found.numpy(), value)
    read_only = array.copy()
    read_only.flags.writeable = False
    np.testing.assert_array_equal(ours(read_only).numpy(), array)


def test_a_tensor_of_an_array_is_a_copy() -> None:
    kept = tf.Variable(tf.zeros([3]))

    def keep(x: Any) -> Any:
        kept.assign(x)
        return tf.identity(x)

    ours = lift(keep)
    array = np.array([1.0, 2.0, 3.0], np.float32)
    for _ in range(3):
        result = ours(array)
        array[:] = -1.0
        assert result.numpy().tolist() == kept.numpy().tolist() == [1.0, 2.0, 3.0]
        array[:] = [1.0, 2.0, 3.0]


def test_arrays_in_another_byte_order() -> None:
    ours = lift(lambda x: x + 1)
    for value in (np.array([1, 2], ">i4"), np.array([1, 2], "<i4")) * 2:
        assert ours(value).numpy().tolist() == [2, 3]


# Cached calls.


class Calls(LiftedCalls):
    """Calls that are all cached, and run by a Python function. `asked` counts those of no known pattern."""

    def __init__(self, most: int) -> None:
        super().__init__(lambda x: x, CallCount(None), most)
        self.asked = 0

    def _call_new(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.asked += 1
        if self._call_cache.takes_more():
            types = CallTypes([ArgumentType(trace_type.from_value(args[0]), 0, False)], {}, [], 1)
            pattern = CallPattern(args, kwargs, types, self._call_cache.kinds, scope_of_devices())
            self._add_cached_call(CachedCall(pattern, None, []), args, kwargs)
        return args[0]


VALUES: dict[str, Callable[[int], Any]] = {
    "tensors": lambda i: tf.ones([i]),
    "arrays": lambda i: np.ones([i]),
    "numbers": float,
    "namedtuples": lambda i: Pair(np.ones([i]), i % 7),
    "attrs": lambda i: Fields(np.ones([i]), i % 7),
    "dataclasses": lambda i: Flattened(np.ones([i]), i % 7),
    "dicts": lambda i: {"a": np.ones([i]), "b": (i,)},
    "ragged": lambda i: tf.RaggedTensor.from_row_splits(tf.ones([i]), np.arange(i + 1), validate=False),
}


@pytest.mark.parametrize("name", VALUES)
def test_many_patterns_in_turns(name: str) -> None:
    calls = Calls(most=1000)
    values = [VALUES[name](i) for i in range(600)]
    for value in values:
        assert calls(value) is value
    assert calls.asked == len(calls._call_cache) == 600
    for value in values:
        assert calls(value) is value
    assert calls.asked == 600


def test_a_full_table_keeps_its_size_and_follows_the_program() -> None:
    calls = Calls(most=100)
    for i in range(200):
        calls(float(i))
    assert len(calls._call_cache) == 100
    before = calls.asked
    for _ in range(3):
        for i in range(200):
            calls(float(i))
    # More values than there is room for: half of the calls still find their cached call, and few cached calls are made.
    assert calls.asked - before < 400
    for _ in range(100):
        for i in range(1000, 1050):
            calls(float(i))
    before = calls.asked
    for i in range(1000, 1050):
        calls(float(i))
    assert calls.asked == before
    assert len(calls._call_cache) == 100


def test_cached_calls_of_objects_that_are_gone_go() -> None:
    calls = Calls(most=1000)
    for _ in range(900):
        calls(lambda: None)
    assert len(calls._call_cache) < 200


# How many traces are lifted.


def test_past_the_limit_tensorflow_runs_the_rest(tf_log: Any, looked_up: list[Any]) -> None:
    variable = tf.Variable(1.0)
    ours = fastsup.function(lambda n: variable.assign_add(n))
    theirs_variable = tf.Variable(1.0)
    theirs = tf.function(lambda n: theirs_variable.assign_add(n))
    ours._limit = LiftLimit(most_graphs=3)
    for _ in range(4):
        for n in range(6):
            assert float(ours(float(n))) == float(theirs(float(n)))
    steps = [entry.step for entry in ours._entries.values()]
    assert [step is not None for step in steps] == [True] * 3 + [False] * 3
    assert not ours.lifted
    assert ours.why_not_lifted == "3 of its traces are already lifted, which is the limit"
    assert len([text for text in tf_log.messages if "isn't lifted" in text]) == 1
    # Each call after the first ones goes straight to its graph, or to TensorFlow.
    assert len(looked_up) == 6
    # The program goes on to other values: the graphs of those that it no longer calls make room.
    for _ in range(300):
        ours(5.0)
    assert list(ours._entries.values())[5].step is not None
    assert len([entry for entry in ours._entries.values() if entry.step is not None]) == 3
    before = float(variable)
    assert float(ours(5.0)) == before + 5.0
    assert float(ours(0.0)) == before + 5.0


def test_no_trace_is_lifted_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = fastsup.function(lambda n: tf.constant(1.0) * n, fallback="silent")
    ours._limit = LiftLimit(most_graphs=2)
    lifted: list[Any] = []
    lift_one = ours._lift
    monkeypatch.setattr(ours, "_lift", lambda concrete: lifted.append(concrete) or lift_one(concrete))
    for _ in range(300):
        for n in range(4):
            assert float(ours(float(n))) == n
    assert len(lifted) == 2


def test_random_sequences_go_on_past_the_limit() -> None:
    def draw(n: float) -> Any:
        return tf.random.uniform([], seed=3) * n

    tf.random.set_seed(1)
    theirs = tf.function(draw)
    wanted = [[float(theirs(float(n))) for n in range(4)] for _ in range(150)]
    wanted_of_one = [float(theirs(3.0)) for _ in range(300)]
    tf.random.set_seed(1)
    ours = fastsup.function(draw, fallback="silent")
    ours._limit = LiftLimit(most_graphs=2)
    assert [[float(ours(float(n))) for n in range(4)] for _ in range(150)] == wanted
    assert [float(ours(3.0)) for _ in range(300)] == wanted_of_one


def test_the_limit_counts_memory() -> None:
    def step(x: Any, n: int) -> Any:
        for _ in range(n):
            x = tf.sin(x)
        return x

    ours = fastsup.function(step, autograph=False, fallback="silent")
    ours._limit = LiftLimit(most_bytes=10**12)
    ours(CONSTANT, 1)
    assert ours.lifted
    ours._limit = LiftLimit(most_bytes=1_000_000)
    ours(CONSTANT, 500)
    assert not ours.lifted
    assert ours.why_not_lifted.startswith("its graph would take about 5.")


def test_more_traces_than_the_limit_are_an_error_if_that_is_asked_for() -> None:
    ours = lift(lambda n: tf.constant(1.0) * n)
    ours._limit = LiftLimit(most_graphs=1)
    assert float(ours(1.0)) == 1.0
    for _ in range(2):
        with pytest.raises(RuntimeError, match="1 of its traces are already lifted, which is the limit"):
            ours(2.0)
    assert float(ours(1.0)) == 1.0
