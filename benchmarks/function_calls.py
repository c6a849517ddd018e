"""Calls of `fastsup.function` whose arguments change: many shapes, many values, all forms, against `tf.function`.

    python -m benchmarks.function_calls                  # all cases: ten minutes
    python -m benchmarks.function_calls shapes forms     # those whose names contain one of the words
    python -m benchmarks.function_calls --check          # exit with 1 if a limit is missed

Both make the same calls, in turns, in one process. The first two rounds, in which functions are traced and lifted,
aren't counted. A case misses its limit if a call takes more than 1.2 times as long as one of the `tf.function`, or if
memory grows after the second round.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import fastsup
from benchmarks.measure import resident

WARM_UP_ROUNDS, ROUNDS = 2, 4
MOST_TIMES = 1.2
MOST_BYTES_GROWN = 2_000_000

# A round of one contender: the calls that it makes.
Round = Callable[[], None]


@dataclasses.dataclass
class Case:
    """Calls that both contenders make.

    Args:
      title: what the table calls it.
      rounds: function that is given `tf.function` or `fastsup.function` and returns a round.
      calls: calls of a round.
    """

    title: str
    rounds: Callable[[Any], Round]
    calls: int


@dataclasses.dataclass
class Result:
    """Seconds of a call, of each contender, and the bytes by which memory has grown after the second round."""

    title: str
    theirs: float
    ours: float
    grown: int

    @property
    def missed(self) -> bool:
        return self.ours > MOST_TIMES * self.theirs or self.grown > MOST_BYTES_GROWN


class Pair(NamedTuple):
    a: Any
    b: Any


class Extension(tf.experimental.ExtensionType):  # type: ignore[misc]
    x: tf.Tensor
    n: int


@dataclasses.dataclass
class Flattened:
    """A dataclass that TensorFlow takes apart."""

    a: Any
    n: int

    def __tf_flatten__(self) -> tuple[Any, Any]:
        return (self.n,), (self.a,)

    @classmethod
    def __tf_unflatten__(cls, metadata: Any, parts: Any) -> Any:
        return cls(parts[0], metadata[0])


def calls_of(title: str, step: Callable[..., Any], calls: Sequence[tuple[Any, ...]], **options: Any) -> Case:
    """A case of one function that is called with each of many arguments in turns."""

    def rounds(decorate: Any) -> Round:
        function = decorate(step, autograph=False, **options)

        def one_round() -> None:
            for call in calls:
                function(*call)

        return one_round

    return Case(title, rounds, len(calls))


def of_many_rivals(title: str, count: int) -> Case:
    """Shapes of a trace besides which there are more others than a pattern with open dimensions compares."""
    arrays = [np.ones([1 + number // 80, 1 + number % 80], np.float32) for number in range(count)]

    def rounds(decorate: Any) -> Round:
        function = decorate(lambda x: tf.reduce_sum(x), autograph=False)
        for size in range(1, 11):
            function.get_concrete_function(tf.TensorSpec([size, size], tf.float32))
        function.get_concrete_function(tf.TensorSpec([None, None], tf.float32))

        def one_round() -> None:
            for array in arrays:
                function(array)

        return one_round

    return Case(title, rounds, count)


def keras_lengths(lengths: int) -> Case:
    """`predict_on_batch` of a Keras model with batches of many lengths."""
    batches = [np.ones([1, length, 4], np.float32) for length in range(1, 1 + lengths)]

    def rounds(decorate: Any) -> Round:
        model = keras.Sequential([keras.Input([None, 4]), keras.layers.Dense(2), keras.layers.GlobalMaxPooling1D()])
        if decorate is not tf.function:
            fastsup.keras.accelerate(model)

        def one_round() -> None:
            for batch in batches:
                model.predict_on_batch(batch)

        return one_round

    return Case(f"shapes: Keras predict_on_batch, {lengths} lengths", rounds, lengths)


def shapes_and_values(count: int) -> Iterator[Case]:
    """Many shapes and many values. A function lifts 512 traces, and keeps 2,048 routes."""

    def total(x: Any) -> Any:
        return tf.reduce_sum(x)

    tensors = [(tf.ones([size]),) for size in range(1, 1 + count)]
    arrays = [(np.ones(size, np.float32),) for size in range(1, 1 + count)]
    yield calls_of(f"shapes: {count:,}, tensors, a trace for all", total, tensors, reduce_retracing=True)
    yield calls_of(f"shapes: {count:,}, arrays, a trace for all", total, arrays, reduce_retracing=True)
    yield calls_of(f"shapes: {count:,}, tensors, a trace for each", total, tensors)
    yield calls_of(f"shapes: {count:,}, arrays, a trace for each", total, arrays)
    yield of_many_rivals(f"shapes: {4 * count:,}, arrays, twice the limit of patterns", 4 * count)
    yield keras_lengths(300)
    x = tf.ones([3])
    for values in (400, count):
        what = "" if values == 400 else ", twice the limit of traces"
        yield calls_of(f"values: {values:,}{what}", lambda x, n: x * n, [(x, float(n)) for n in range(values)])


def forms(count: int) -> Iterator[Case]:
    """Each form of argument."""
    x, y = tf.ones([3]), tf.ones([])
    ragged, sparse = tf.ragged.constant([[1.0, 2.0], [3.0]]), tf.sparse.from_dense(tf.eye(3))
    signature = {"input_signature": [tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.float32)]}
    ragged_signature = {"input_signature": [tf.RaggedTensorSpec([None, None], tf.float32)]}
    lengths = [tf.RaggedTensor.from_row_lengths(tf.ones([n + 2]), [n, 2]) for n in range(100)]

    def first(value: Any) -> Any:
        return tf.nest.flatten(value, expand_composites=True)[0] * 2.0

    def scaled(x: Any, n: Any) -> Any:
        return x * n

    yield calls_of("forms: a tensor (the hot path)", first, [(x,)] * count)
    yield calls_of("forms: an array", first, [(np.ones(3, np.float32),)] * count)
    yield calls_of("forms: a NumPy scalar", first, [(np.float32(3.0),)] * count)
    yield calls_of("forms: a namedtuple", first, [(Pair(x, y),)] * count)
    yield calls_of("forms: an OrderedDict", first, [(collections.OrderedDict(b=x, a=y),)] * count)
    yield calls_of("forms: a dataclass", lambda value: value.a * 2.0, [(Flattened(x, 3),)] * count)
    yield calls_of("forms: an extension type", lambda value: value.x * 2.0, [(Extension(x, 3),)] * count)
    yield calls_of("forms: a ragged tensor", first, [(ragged,)] * count)
    yield calls_of("forms: ragged tensors of a signature", first, [(one,) for one in lengths], **ragged_signature)
    yield calls_of("forms: a sparse tensor", tf.sparse.to_dense, [(sparse,)] * count)
    yield calls_of("forms: a list of 100 tensors", tf.add_n, [([x] * 100,)] * count)
    yield calls_of("forms: a NaN", scaled, [(x, float("nan")) for _ in range(count)])
    yield calls_of("forms: a float of a signature", scaled, [(x, float(n)) for n in range(count)], **signature)
    yield calls_of("forms: doubles of a signature", scaled, [(np.ones(3), 2)] * count, **signature)
    yield calls_of("forms: a list of a signature", scaled, [([1.0, 2.0], 2)] * count, **signature)


def measure(case: Case, rounds: int) -> Result:
    """Runs a case.

    Args:
      case: the case.
      rounds: the rounds that are counted.
    """
    contenders = [case.rounds(tf.function), case.rounds(fastsup.function)]
    for _ in range(WARM_UP_ROUNDS):
        for contender in contenders:
            contender()
    before = resident()
    seconds: list[list[float]] = [[], []]
    for _ in range(rounds):
        for contender, kept in zip(contenders, seconds, strict=True):
            started = perf_counter()
            contender()
            kept.append((perf_counter() - started) / case.calls)
    theirs, ours = map(min, seconds)
    return Result(case.title, theirs, ours, resident() - before)


def main() -> int:
    """Runs the command. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.function_calls",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="*", metavar="WORD", help="only cases whose titles contain one of these")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds that are counted ({ROUNDS})")
    parser.add_argument("--count", type=int, default=1024, help="shapes and values of a round (1,024)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is missed")
    options = parser.parse_args()
    tf.get_logger().setLevel("ERROR")
    missed = 0
    print(f"{'':54}{'tf.function, µs':>16}{'fastsup, µs':>14}{'times faster':>14}{'grown, kB':>11}")
    for case in (*forms(options.count), *shapes_and_values(options.count)):
        if options.words and not any(word in case.title for word in options.words):
            continue
        result = measure(case, options.rounds)
        missed += result.missed
        times = (1e6 * result.theirs, 1e6 * result.ours, result.theirs / result.ours)
        text = "{:>16,.1f}{:>14,.1f}{:>13,.2f}x".format(*times)
        print(f"{case.title:54}{text}{result.grown / 1e3:>11,.0f}{'  missed' if result.missed else ''}", flush=True)
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
