"""The time from the start of a process to the end of its first step: what fastsup adds to TensorFlow's.

    python -m benchmarks.first_step                  # two minutes

Each program runs in its own process, TensorFlow's and fastsup's in turns. A new installation is one whose cache is
empty: its first lifted function is preceded by a self-test.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

SESSION = """
import tensorflow as tf
{imports}
with tf.Graph().as_default():
    step = tf.compat.v1.assign_add({train}.get_or_create_global_step(), 1)
    with {train}.MonitoredTrainingSession() as session:
        session.run(step)
        print("done", flush=True)
"""
FUNCTION = """
import tensorflow as tf
{imports}
weight = tf.Variable(0.0)
@{function}
def step():
    weight.assign_add(1.0)
step()
print("done", flush=True)
"""
KERAS = """
import keras, numpy as np
{imports}
model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
model.compile("sgd", "mse")
{accelerate}
x = np.zeros([32, 4], "float32")
model.fit(x, x[:, 0], batch_size=32, verbose=0)
print("done", flush=True)
"""


class Program(NamedTuple):
    """A program on TensorFlow alone, and with fastsup."""

    name: str
    alone: str
    ours: str
    # Whether it needs the self-test.
    lifts: bool


PROGRAMS = (
    Program(
        "MonitoredTrainingSession",
        SESSION.format(imports="", train="tf.compat.v1.train"),
        SESSION.format(imports="import fastsup.train", train="fastsup.train"),
        False,
    ),
    Program(
        "tf.function, fastsup.function",
        FUNCTION.format(imports="", function="tf.function"),
        FUNCTION.format(imports="import fastsup", function="fastsup.function"),
        True,
    ),
    Program(
        "Keras fit, fastsup.keras.accelerate",
        KERAS.format(imports="", accelerate=""),
        KERAS.format(imports="import fastsup.keras", accelerate="fastsup.keras.accelerate(model)"),
        True,
    ),
)


def seconds(program: str, cache: str) -> float:
    """Runs a program, with a folder for fastsup's cache. Returns the seconds until it has said that it is done."""
    environment = {**os.environ, "XDG_CACHE_HOME": cache, "TF_CPP_MIN_LOG_LEVEL": "3"}
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        took = time.perf_counter() - start
    if said != "done\n" or process.returncode:
        raise RuntimeError(f"The program has failed with exit code {process.returncode}: {program}")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="processes of each kind; the table has the medians")
    arguments = parser.parse_args()
    table = Table("seconds to the end of the first step", "TensorFlow", "fastsup", "adds", "new installation")
    with tempfile.TemporaryDirectory() as folder:
        for program in PROGRAMS:
            kept = os.path.join(folder, "kept")
            first = seconds(program.ours, tempfile.mkdtemp(dir=folder))
            seconds(program.ours, kept)
            alone, ours = [], []
            for _ in range(arguments.rounds):
                alone.append(seconds(program.alone, kept))
                ours.append(seconds(program.ours, kept))
            added = statistics.median(ours) - statistics.median(alone)
            times = f"{statistics.median(alone):.2f}", f"{statistics.median(ours):.2f}", f"{added:+.2f}"
            table.add_row(program.name, *times, f"{first:.2f}" if program.lifts else "")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
