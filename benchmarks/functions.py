"""Steps of TF 2 and Keras: tf.function, Keras's fit, JAX, PyTorch and ours, alternating in one process.

    python -m benchmarks.functions              # all models
    python -m benchmarks.functions tiny dense   # some of them
    pip install torch "jax[cpu]"                # for the rows of PyTorch and JAX, which are left out without them

A model's first row is `tf.function`, to which the ratios refer. Each contender has its own variables.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table
from tensorflow.core.protobuf import config_pb2

import fastsup
from benchmarks.measure import alternate

SLICE_SECS = 0.5

Step = Callable[[], Any]


class Calls:
    """A step that is called again and again.

    Args:
      step: the step.
      kept: what has its variables.
    """

    def __init__(self, step: Step, kept: Any = None) -> None:
        self._step, self._kept = step, kept

    def steps(self, n: int) -> None:
        """Runs n steps."""
        step = self._step
        for _ in range(n):
            step()

    def close(self) -> None:
        """Nothing to close."""


class Fit:
    """Keras's fit of a model on one batch that is repeated."""

    def __init__(self, make_model: Callable[[], Any], x: Any, y: Any, executions: int, accelerated: bool) -> None:
        self._model = make_model()
        self._model.compile(keras.optimizers.Adam(0.001), loss_of(y), steps_per_execution=executions, jit_compile=False)
        if accelerated:
            fastsup.keras.accelerate(self._model, fallback="raise")
        self._data = tf.data.Dataset.from_tensors((x, y)).repeat()
        self._executions = executions

    def steps(self, n: int) -> None:
        """Runs n steps, or some more: whole executions."""
        steps = -(-n // self._executions) * self._executions
        self._model.fit(self._data, steps_per_epoch=steps, verbose=0, shuffle=False)

    def close(self) -> None:
        """Nothing to close."""


def loss_of(y: Any) -> str:
    """The loss for labels of a kind."""
    return "sparse_categorical_crossentropy" if y.dtype.kind == "i" else "mse"


# Models.


def tiny_step() -> tuple[Callable[[Any], Any], Any]:
    """Gradient descent on ten numbers."""
    weights = tf.Variable(tf.linspace(1.0, 2.0, 10))

    def step(x: Any) -> Any:
        weights.assign_sub(0.01 * 2.0 * (weights - x))
        return tf.reduce_sum(weights)

    return step, tf.fill([10], 3.0)


def dense() -> Any:
    """Two dense layers with dropout."""
    layers = keras.layers
    return keras.Sequential([keras.Input([32]), layers.Dense(64, "relu"), layers.Dropout(0.2), layers.Dense(1)])


def conv() -> Any:
    """A small convolutional net."""
    layers = keras.layers
    return keras.Sequential(
        [keras.Input([28, 28, 1]), layers.Conv2D(16, 3, activation="relu"), layers.MaxPooling2D(),
         layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(),
         layers.Dense(10, "softmax")]
    )  # fmt: skip


def lstm() -> Any:
    """One recurrent layer over 20 time steps."""
    return keras.Sequential([keras.Input([20, 16]), keras.layers.LSTM(32), keras.layers.Dense(1)])


def transformer() -> Any:
    """Twenty layers of attention, on 16 tokens of 64 numbers."""
    inputs = keras.Input([16, 64])
    x = inputs
    for _ in range(20):
        attended = keras.layers.MultiHeadAttention(4, 16)(x, x)
        x = keras.layers.LayerNormalization()(x + attended)
        x = keras.layers.LayerNormalization()(x + keras.layers.Dense(64)(keras.layers.Dense(128, "gelu")(x)))
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.GlobalAveragePooling1D()(x)))


def resnet() -> Any:
    """Three stages of two residual blocks, on images of 32 x 32."""
    layers = keras.layers
    inputs = keras.Input([32, 32, 3])
    x = layers.Conv2D(16, 3, padding="same")(inputs)
    for filters, strides in ((16, 1), (32, 2), (64, 2)):
        for stride in (strides, 1):
            short = x if stride == 1 and x.shape[-1] == filters else layers.Conv2D(filters, 1, stride)(x)
            inner = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(filters, 3, stride, padding="same")(x)))
            inner = layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same")(inner))
            x = layers.ReLU()(short + inner)
    return keras.Model(inputs, layers.Dense(10, "softmax")(layers.GlobalAveragePooling2D()(x)))


# The model, its batch, and what its labels are.
MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...], str]] = {
    "dense": (dense, (32, 32), "number"),
    "conv": (conv, (32, 28, 28, 1), "class"),
    "lstm": (lstm, (16, 20, 16), "number"),
    "transformer": (transformer, (8, 16, 64), "number"),
    "resnet": (resnet, (16, 32, 32, 3), "class"),
}


def batch(shape: tuple[int, ...], labels: str) -> tuple[Any, Any]:
    """Inputs and labels."""
    random = np.random.default_rng(0)
    x = random.normal(size=shape).astype(np.float32)
    count = shape[0]
    if labels == "class":
        return x, random.integers(10, size=[count]).astype(np.int32)
    return x, random.normal(size=[count, 1]).astype(np.float32)


def train_step(make_model: Callable[[], Any], y: Any) -> Callable[[Any, Any], Any]:
    """A training step with Adam, as a Python function."""
    model = make_model()
    optimizer = keras.optimizers.Adam(0.001)
    optimizer.build(model.trainable_variables)
    loss = keras.losses.get(loss_of(y))

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(loss(y, model(x, training=True)))
        optimizer.apply_gradients(
            zip(tape.gradient(value, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return value

    return step


# Contenders.


def chosen_graph(lifted: Any, args: tuple[Any, ...]) -> Any:
    """The graph of a lifted step, once its executor is chosen."""
    for _ in range(201):  # "auto" has chosen after this.
        lifted(*args)
    return lifted._last_step().graph


def bare(lifted: Any, *args: Any) -> Step:
    """The step in the runtime, called with EagerTensors and with nothing around it."""
    chosen = chosen_graph(lifted, args).compile(lifted.executor)
    return lambda: chosen(*args)


def tensorflows_callable(lifted: Any, *args: Any) -> Step:
    """The same graph in the same session by TensorFlow's callable, which takes and returns NumPy arrays."""
    graph = chosen_graph(lifted, args)
    options = config_pb2.CallableOptions(
        feed=[tensor.name for tensor in graph.feeds],
        fetch=[tensor.name for tensor in graph.outputs],
        target=[operation.name for operation in graph.targets],
    )
    if lifted.executor == "inline":
        options.run_options.inter_op_thread_pool = -1
    session = graph._sessions[lifted.executor == "single_threaded"].session
    call = session._make_callable_from_options(options)
    arrays = [np.asarray(value) for value in args]
    return lambda: call(*arrays)


def functions(make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]) -> dict[str, Callable[[], Any]]:
    """tf.function, its concrete function, ours, and the bare callable."""

    def made(wrap: Callable[[Callable[..., Any], tuple[Any, ...]], Step]) -> Callable[[], Calls]:
        def contender() -> Calls:
            step, args = make()
            return Calls(wrap(step, args), step)

        return contender

    def plain(step: Callable[..., Any], args: tuple[Any, ...]) -> Step:
        function = tf.function(step)
        return lambda: function(*args)

    def concrete(step: Callable[..., Any], args: tuple[Any, ...]) -> Step:
        function = tf.function(step).get_concrete_function(*args)
        return lambda: function(*args)

    def ours(step: Callable[..., Any], args: tuple[Any, ...]) -> Step:
        function = fastsup.function(step, fallback="raise")
        return lambda: function(*args)

    def floor(step: Callable[..., Any], args: tuple[Any, ...]) -> Step:
        return bare(fastsup.function(step, fallback="raise"), *args)

    def tensorflows(step: Callable[..., Any], args: tuple[Any, ...]) -> Step:
        return tensorflows_callable(fastsup.function(step, fallback="raise"), *args)

    return {
        "tf.function": made(plain),
        "concrete function": made(concrete),
        "fastsup.function": made(ours),
        "TensorFlow's callable, same session": made(tensorflows),
        "the runtime alone": made(floor),
    }


def fits(make_model: Callable[[], Any], x: Any, y: Any) -> dict[str, Callable[[], Any]]:
    """Keras's fit, and the accelerated one."""

    def fit(executions: int, accelerated: bool) -> Callable[[], Fit]:
        return lambda: Fit(make_model, x, y, executions, accelerated)

    return {
        "Keras fit": fit(1, False),
        "Keras fit, steps_per_execution=10": fit(10, False),
        "Keras fit, steps_per_execution=100": fit(100, False),
        "Keras fit, accelerated": fit(1, True),
        "Keras fit, accelerated, steps_per_execution=100": fit(100, True),
    }


def jax_steps() -> dict[str, Callable[[], Any]]:
    """The tiny step in JAX: a call each, and many in one `lax.scan`."""
    import jax

    def descend(weights: Any, x: Any) -> tuple[Any, Any]:
        weights = weights - 0.01 * 2.0 * (weights - x)
        return weights, weights.sum()

    class Jit(Calls):
        def __init__(self) -> None:
            self._function = jax.jit(descend)
            self._state = jax.numpy.linspace(1.0, 2.0, 10)
            self._x = jax.numpy.full([10], 3.0)

        def steps(self, n: int) -> None:
            function, state, x = self._function, self._state, self._x
            for _ in range(n):
                state, _value = function(state, x)
            self._state = state.block_until_ready()

    class Scan(Jit):
        def __init__(self) -> None:
            super().__init__()
            self._function = jax.jit(
                lambda state, x: jax.lax.scan(lambda carry, _: descend(carry, x), state, length=1000)
            )

        def steps(self, n: int) -> None:
            super().steps(-(-n // 1000))

    return {"JAX, jit": Jit, "JAX, lax.scan of 1,000": Scan}


def torch_steps() -> dict[str, Callable[[], Any]]:
    """The tiny step in PyTorch."""
    import torch

    def make() -> Calls:
        weights = torch.linspace(1, 2, 10)
        x = torch.full([10], 3.0)

        def step() -> Any:
            weights.sub_(0.01 * 2.0 * (weights - x))
            return weights.sum()

        return Calls(step)

    return {"PyTorch": make}


def contenders_of(name: str) -> dict[str, Callable[[], Any]]:
    """The contenders of a model, by name."""
    if name == "tiny":

        def tiny() -> tuple[Callable[..., Any], tuple[Any, ...]]:
            step, x = tiny_step()
            return step, (x,)

        found = functions(tiny)
        if importlib.util.find_spec("jax"):
            found |= jax_steps()
        if importlib.util.find_spec("torch"):
            found |= torch_steps()
        return found
    make_model, shape, labels = MODELS[name]
    x, y = batch(shape, labels)
    found = functions(lambda: (train_step(make_model, y), (tf.constant(x), tf.constant(y))))
    return found | fits(make_model, x, y) if name == "dense" else found


def first_calls(name: str, turns: int) -> dict[str, float]:
    """Median seconds of a first call, which traces: TensorFlow's and ours, in turns."""
    seconds: dict[str, list[float]] = {"tf.function": [], "fastsup.function": []}
    for _ in range(turns):
        for kind, times in seconds.items():
            if name == "tiny":
                step, x = tiny_step()
                args: tuple[Any, ...] = (x,)
            else:
                make_model, shape, labels = MODELS[name]
                values = batch(shape, labels)
                step = train_step(make_model, values[1])
                args = tuple(map(tf.constant, values))
            function = tf.function(step) if kind == "tf.function" else fastsup.function(step, fallback="raise")
            gc.collect()
            started = perf_counter()
            function(*args)
            times.append(perf_counter() - started)
    return {kind: float(np.median(times)) for kind, times in seconds.items()}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.functions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ["tiny", *MODELS]
    parser.add_argument("models", nargs="*", metavar="model", help=f"one of {', '.join(names)}; all without any")
    parser.add_argument("--rounds", type=int, default=7, help="slices for each contender (7)")
    parser.add_argument("--slice-secs", type=float, default=SLICE_SECS, help="length of a slice in seconds (0.5)")
    parser.add_argument("--json", type=Path, help="file for all samples")
    options = parser.parse_args()
    for name in options.models:
        if name not in names:
            parser.error(f"argument model: must be one of {', '.join(names)}, got {name}")
    tf.get_logger().setLevel("ERROR")  # It warns of the many functions.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    table = Table("model", "step", title="median slice; ratio to tf.function", title_justify="left")
    for heading in ("µs a step", "ratio", "first call, ms"):
        table.add_column(heading, justify="right")
    kept: dict[str, Any] = {}
    for name in options.models or names:
        samples = alternate(contenders_of(name), options.rounds, options.slice_secs)
        first = first_calls(name, turns=5)
        kept[name] = {"seconds": samples, "first_call_seconds": first}
        medians = {kind: float(np.median(values)) for kind, values in samples.items()}
        for kind, seconds in medians.items():
            ratio = medians["tf.function"] / seconds
            shown = f"{1e3 * first[kind]:,.0f}" if kind in first else ""
            table.add_row(name, kind, f"{1e6 * seconds:,.2f}", f"{ratio:,.2f} x", shown)
        table.add_section()
    console.print(table)
    versions = {"fastsup": fastsup.__version__, "tensorflow": tf.__version__, "keras": keras.__version__}
    head = ", ".join(f"{package} {version}" for package, version in versions.items())
    console.print(f"{head}, Python {platform.python_version()}, {os.cpu_count()} cores")
    if options.json:
        options.json.write_text(json.dumps({"versions": versions, "models": kept}, indent=1))


if __name__ == "__main__":
    main()
