"""Callbacks of known cost in Keras's `fit`, as the profile tells them, and what recording a batch costs.

    python -m benchmarks.profiled_callbacks            # about five minutes
    KERAS_BACKEND=jax python -m benchmarks.profiled_callbacks --plain

Each callback reads the profiler's clock when it begins and when it ends, and the profile is compared with its own sum.
The costs of recording come from calls of `fit` in turns, without and with a profiler.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median, quantiles
from typing import Any

import keras
import numpy as np
from rich.console import Console
from rich.table import Table

import fastsup
from benchmarks.measure import resident

BATCHES, BATCH_SIZE = 1_000, 32
# The batches of an epoch whose cost is measured, and of the memory's warm-up and run.
TIMED_BATCHES, PAIRS = 1_000, 8
WARM_UP_BATCHES, MEMORY_BATCHES = 20_000, 100_000
WIDTHS = {"a short batch": 4, "a longer batch": 160}


class Planted(keras.callbacks.Callback):  # type: ignore[misc]
    """Takes a known time in some calls, and sums up what it took.

    Args:
      ns: how long such a call takes, in nanoseconds.
      every: number of batches between two such calls.
    """

    def __init__(self, ns: int, every: int = 1) -> None:
        super().__init__()
        self.ns, self.every = ns, every
        self.spent_ns = 0

    def spend(self, batch: int) -> None:
        started = time.perf_counter_ns()
        if batch % self.every == 0:
            self.wait(started + self.ns)
        self.spent_ns += time.perf_counter_ns() - started

    def wait(self, until_ns: int) -> None:
        while time.perf_counter_ns() < until_ns:
            pass


class Busy(Planted):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.spend(batch)


class Sleeping(Busy):
    def wait(self, until_ns: int) -> None:
        time.sleep((until_ns - time.perf_counter_ns()) / 1e9)


class InThread(Busy):
    """Keras may call it in another thread. It does so on backends other than TensorFlow."""

    async_safe = True


class InValidation(Planted):
    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.spend(batch)


PLANTED: dict[str, Callable[[], Planted]] = {
    "5 µs": lambda: Busy(5_000),
    "50 µs": lambda: Busy(50_000),
    "2 ms": lambda: Busy(2_000_000),
    "1 ms, asleep": lambda: Sleeping(1_000_000),
    "50 µs, async_safe": lambda: InThread(50_000),
    "50 µs in validation": lambda: InValidation(50_000),
    "2 ms, every 10th batch": lambda: Busy(2_000_000, every=10),
}


def made_model(width: int, accelerated: bool) -> Any:
    """Returns a compiled model of one hidden layer.

    Args:
      width: number of units of the hidden layer.
      accelerated: whether `fastsup.keras.accelerate` runs its steps.
    """
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([8]), keras.layers.Dense(width, "tanh"), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    if accelerated:
        import fastsup.keras

        fastsup.keras.accelerate(model)
    return model


def fit(model: Any, batches: int, *, validated: bool = False, epochs: int = 1, callbacks: Any = ()) -> None:
    rows = np.ones([batches * BATCH_SIZE, 8], "float32"), np.ones([batches * BATCH_SIZE, 1], "float32")
    model.fit(
        *rows,
        batch_size=BATCH_SIZE,
        epochs=epochs,
        verbose=0,
        validation_data=rows if validated else None,
        callbacks=list(callbacks),
    )


def accuracy(accelerated: bool, batches: int = BATCHES) -> dict[str, tuple[float, float, float]]:
    """Measures planted callbacks.

    Args:
      accelerated: whether fastsup runs the model's steps.
      batches: number of batches of the `fit` of each callback.

    Returns:
      For each callback the milliseconds that it took, those that the profile tells, and the part of the wall clock that
      the profile can't account for.
    """
    told = {}
    for name, make in PLANTED.items():
        model, planted, profiler = made_model(4, accelerated), make(), fastsup.HookProfiler()
        with profiler:
            fit(model, batches, validated=isinstance(planted, InValidation), callbacks=[planted])
        report = profiler.report()
        rows = [row for row in report.rows if row.owner == type(planted).__name__ and row.phase.endswith("batch_end")]
        total_ns = sum(row.times.total_ns for row in rows)
        told[name] = planted.spent_ns / 1e6, total_ns / 1e6, report.unaccounted_ns / report.wall_ns
    return told


class Epochs(keras.callbacks.Callback):  # type: ignore[misc]
    """Measures the epochs, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._begun = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seconds.append(time.perf_counter() - self._begun)


def cost(model: Any, callbacks: Any = (), pairs: int = PAIRS) -> list[tuple[float, float]]:
    """Measures a batch without and with a profiler.

    Args:
      model: the model.
      callbacks: the callbacks of each `fit`.
      pairs: number of pairs of `fit`.

    Returns:
      For each pair the microseconds of a batch without and with a profiler, in the second of two epochs.
    """

    def batch_us() -> float:
        epochs = Epochs()
        fit(model, TIMED_BATCHES, epochs=2, callbacks=[*callbacks, epochs])
        return 1e6 * epochs.seconds[1] / TIMED_BATCHES

    fit(model, TIMED_BATCHES, epochs=2)
    found = []
    for _ in range(pairs):
        off = batch_us()
        with fastsup.HookProfiler():
            found.append((off, batch_us()))
    return found


def memory(accelerated: bool) -> tuple[int, int]:
    """Returns the resident bytes of a recorded program before and after many batches.

    Args:
      accelerated: whether fastsup runs the model's steps.
    """
    model, data_batches = made_model(4, accelerated), 5_000
    with fastsup.HookProfiler():
        fit(model, data_batches, epochs=WARM_UP_BATCHES // data_batches, callbacks=[Busy(0)])
        before = resident()
        fit(model, data_batches, epochs=MEMORY_BATCHES // data_batches, callbacks=[Busy(0)])
        return before, resident()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.profiled_callbacks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--plain", action="store_true", help="without the accelerated model, which needs TensorFlow")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="pairs of fit for each cost (%(default)s)")
    options = parser.parse_args()
    console = Console()
    for accelerated in (False,) if options.plain else (False, True):
        title = "accelerated" if accelerated else f"Keras's own, {keras.backend.backend()}"
        table = Table("a callback of", "took ms", "told ms", "off by", "unaccounted", title=title)
        for name, (took, told, unaccounted) in accuracy(accelerated).items():
            table.add_row(name, f"{took:.1f}", f"{told:.1f}", f"{told / took - 1:+.1%}", f"{unaccounted:.1%}")
        console.print(table)
        table = Table("recording", "off µs", "on µs", "longer by", "ratio (quartiles)", title=title)
        for name, width in WIDTHS.items():
            for callbacks in ([], [Busy(0)]):
                pairs = cost(made_model(width, accelerated), callbacks, options.pairs)
                off, on = (median(pair[which] for pair in pairs) for which in (0, 1))
                low, middle, high = quantiles(on / off for off, on in pairs)
                ratio = f"{middle:.3f} ({low:.3f} to {high:.3f})"
                case = f"{name}, {'one callback' if callbacks else 'no callback'}"
                table.add_row(case, f"{off:.1f}", f"{on:.1f}", f"{on - off:+.1f}", ratio)
        console.print(table)
        before, after = memory(accelerated)
        console.print(
            f"Resident memory over {MEMORY_BATCHES:,} recorded batches: {before / 1e6:.1f} to {after / 1e6:.1f} MB."
        )


if __name__ == "__main__":
    main()
