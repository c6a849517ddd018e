"""`python -m benchmarks.compiled`: Keras's `fit`, compiled by XLA or not, as it is and accelerated, by kind of model.

The ways take turns in one process. A row has microseconds a step, the median over the turns.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

import fastsup

BATCH = 32
ROUNDS = 3
# By how models are called: whether XLA compiles them, and the arguments of `accelerate`, or None for Keras alone.
WAYS: dict[str, tuple[bool, dict[str, str] | None]] = {
    "Keras": (False, None),
    "accelerated": (False, {}),
    "Keras, compiled": (True, None),
    "one step a call": (True, {"fuse": "never"}),
    "many steps a call": (True, {"fuse": "always"}),
    "by trial": (True, {"fuse": "auto"}),
}


def floats(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def numbers(rows: int, length: int) -> Any:
    return np.random.default_rng(0).integers(0, 1000, (rows, length))


layers = keras.layers
# By name: the layers before the last one, a batch's shape, what makes rows, and the number of rows.
MODELS: dict[str, tuple[Callable[[], list[Any]], list[int], Callable[..., Any], int]] = {
    "Dense": (lambda: [layers.Dense(32, "relu")], [64], floats, 4096),
    "Dense, BatchNormalization": (
        lambda: [layers.Dense(32), layers.BatchNormalization(), layers.Activation("relu")],
        [64],
        floats,
        4096,
    ),
    "Dense, Dropout": (lambda: [layers.Dense(32, "relu"), layers.Dropout(0.3)], [64], floats, 4096),
    "Embedding, mean": (
        lambda: [layers.Embedding(1000, 32), layers.GlobalAveragePooling1D()],
        [20],
        numbers,
        4096,
    ),
    "LSTM of 20 steps": (lambda: [layers.LSTM(32)], [20, 8], floats, 4096),
    "two convolutions": (
        lambda: [
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
        ],
        [28, 28, 1],
        floats,
        640,
    ),
}


def new_model(name: str, compiled: bool, options: dict[str, str] | None) -> Any:
    make, shape, rows_of, _ = MODELS[name]
    keras.utils.set_random_seed(1)
    dtype = "int64" if rows_of is numbers else "float32"
    model = keras.Sequential([keras.Input(shape, dtype=dtype), *make(), layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], jit_compile=compiled)
    return model if options is None else fastsup.keras.accelerate(model, **options)


def measure(name: str) -> None:
    _, shape, rows_of, rows = MODELS[name]
    x = rows_of(rows, *shape)
    y = np.arange(rows) % 10
    models = {way: new_model(name, *options) for way, options in WAYS.items()}
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for way, model in models.items():
        model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)
        # Until the trial has ended.
        until = time.perf_counter() + 5
        while time.perf_counter() < until and way == "by trial":
            model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)
    for _ in range(ROUNDS):
        for way, model in models.items():
            epochs, started = 0, time.perf_counter()
            while time.perf_counter() < started + 1.5:
                model.fit(x, y, batch_size=BATCH, epochs=5, verbose=0)
                epochs += 5
            times[way].append((time.perf_counter() - started) / (epochs * rows / BATCH))
    row = [1e6 * statistics.median(values) for values in times.values()]
    chosen = "many steps" if models["by trial"].train_function.fused else "one step"
    cells = [f"{value:,.0f}" if value >= 10 else f"{value:.2f}" for value in row]
    print(f"| {name} | {' | '.join(cells)} | {chosen} |", flush=True)


def main() -> None:
    print(f"| model | {' | '.join(WAYS)} | chosen |\n|---|{'--:|' * len(WAYS)}---|")
    for name in sys.argv[1:] or MODELS:
        measure(name)


if __name__ == "__main__":
    main()
