"""The cost of a call, of a step, of a large value and of a checkpoint where the work is on another device than the CPU.

python -m benchmarks.gpu                     # on the first GPU: ten minutes
python -m benchmarks.gpu --device /cpu:1     # on a second CPU device, which tries the benchmark itself
python -m benchmarks.gpu --functions         # calls of functions alone: a minute
python -m benchmarks.gpu --functions --plugin FILE --device /device:KIND:0  # on a device that a plugin brings
python -m benchmarks.gpu --largest 64 --save-megabytes 100
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

if os.environ.get("CUDA_VISIBLE_DEVICES") == "-1":  # The package hides the GPUs from the other benchmarks.
    del os.environ["CUDA_VISIBLE_DEVICES"]
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table
from tensorflow.python.framework import load_library

import fastsup
from benchmarks import cases, contenders, functions, pauses, programs, report
from benchmarks.measure import QUICK_SLICE_SECS, SLICE_SECS, alternate

v1 = tf.compat.v1

STEPS: dict[str, tuple[str, programs.Step]] = {
    "sgd": ("default hooks, StopAtStep, Logging(100)", programs.sgd_with_hooks),
    "feed_dict": ("fed 32x10 and 32 floats", programs.feed_dict),
    "tf_data": ("fed by tf.data", programs.tf_data),
    "chains": ("4 chains of 256x256 matmuls", programs.four_chains),
    "big_matmul": ("one 2048x2048 matmul", programs.one_big_matmul),
}
EXECUTORS = ("auto", "thread_pool", "inline", "single_threaded")
NO_END_SECS = 120
# Contenders of benchmarks.functions: their calls return when the work is in the device's stream.
FUNCTIONS = ("tf.function", "fastsup.function", "the runtime alone")
# Calls between two waits for the device.
BURST = 200


def config_for(device: str) -> Any:
    """The ConfigProto of a session that has the device: more CPU devices for "/cpu:1" and the like."""
    kind, _, number = device.strip("/").partition(":")
    return v1.ConfigProto(device_count={"CPU": int(number) + 1} if kind.lower() == "cpu" else {})


def step_lines(device: str, rounds: int, slice_secs: float) -> list[report.Line]:
    """Steps of sessions against TensorFlow's and the bare callable."""
    lines = []
    for name, (title, build) in STEPS.items():
        program = contenders.Program(build, devices=config_for(device).device_count.get("CPU", 1), device=device)
        rows = (
            cases.monitored(f"{title}: run", 1.1, floors=(cases.POOL, cases.INLINE)),
            cases.session("same, Session.run", 1.1),
        )
        names = (cases.TF_MONITORED, cases.TF_SESSION, cases.POOL, cases.INLINE, cases.MONITORED, cases.SESSION)
        makers = {contender: partial(cases.CLASSES[contender], program) for contender in names}
        lines += report.lines_of(cases.Case(name, makers, rows), alternate(makers, rounds, slice_secs))
    return lines


def function_rows(device: str, rounds: int) -> list[tuple[str, dict[str, float]]]:
    """The host's time in calls of functions: (what and where, seconds of each contender).

    Args:
      device: the device; each function is called on the first CPU device, too.
      rounds: number of bursts of each contender, in turns.
    """
    rows = []
    for place in ("/cpu:0", device):
        for model, title in (("tiny", "10 numbers"), ("dense", "a training step of two Dense layers")):
            with tf.device(place):
                makers = functions.contenders_of(model)
                made = {name: makers[name]() for name in FUNCTIONS}
                seconds: dict[str, list[float]] = {name: [] for name in FUNCTIONS}
                for number in range(rounds + 10):
                    for name, contender in made.items():
                        started = perf_counter()
                        contender.steps(BURST)
                        if number >= 10:  # After some calls, "auto" has chosen.
                            seconds[name].append((perf_counter() - started) / BURST)
                        tf.test.experimental.sync_devices()
            rows.append((f"{title}, on {place}", {name: median(found) for name, found in seconds.items()}))
    return rows


def functions_table(rows: list[tuple[str, dict[str, float]]]) -> Table:
    """The table of `function_rows`: microseconds, and ratios."""
    title = "the host's time in a call of a function, µs"
    table = Table("what", *FUNCTIONS, "TensorFlow / ours", "ours / runtime", title=title, title_justify="left")
    for what, seconds in rows:
        theirs, ours, floor = (seconds[name] for name in FUNCTIONS)
        micros = [f"{1e6 * value:,.1f}" for value in (theirs, ours, floor)]
        table.add_row(what, *micros, f"{theirs / ours:.1f} x", f"{ours / floor:.2f} x")
    return table


def executor_row(device: str, executor: str) -> str:
    """What one executor mode does with a step on the device, in its own process: microseconds, or why not."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", device, "--one-executor", executor]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=NO_END_SECS)
    except subprocess.TimeoutExpired:
        return f"no end after {NO_END_SECS} s"
    return done.stdout.strip().splitlines()[-1] if done.returncode == 0 else f"exit code {done.returncode}"


def run_one_executor(device: str, executor: str) -> None:
    """Prints what a step costs, its result checked, and in which mode; or the error that refuses it."""
    with tf.Graph().as_default() as graph:
        with tf.device(device):
            weights = v1.get_variable("weights", initializer=np.ones((256, 256), np.float32), use_resource=True)
            update = weights.assign((weights @ weights) / 256.0)
        with tf.control_dependencies([update]):
            total = tf.reduce_sum(weights.read_value())
        initialize = v1.global_variables_initializer()
        graph.finalize()
        with fastsup.Session(config=config_for(device), executor=executor) as session:
            try:
                session.run(initialize)
                results = {float(session.run(total)) for _ in range(300)}
            except tf.errors.UnimplementedError as error:
                print(f"refused: {str(error.message).splitlines()[0][:90]}")
                return
            if results != {256.0 * 256.0}:
                raise AssertionError(f"wrong results: {results}")
            started = perf_counter()
            for _ in range(200):
                session.run(total)
            micros = 1e6 * (perf_counter() - started) / 200
            print(f"{micros:,.0f} µs, {session.executor_info()[-1].executor}")


def transfer_rows(device: str, largest_megabytes: int) -> list[tuple[str, float, float]]:
    """Fetched and fed values of 4 KB and more: (title, seconds of TensorFlow's session, seconds of ours)."""
    rows = []
    kilobytes = 4
    while kilobytes <= largest_megabytes << 10:
        size = f"{kilobytes} KB" if kilobytes < 1024 else f"{kilobytes >> 10} MB"
        with tf.Graph().as_default():
            with tf.device(device):
                taken = v1.placeholder(tf.float32, [None])
                made = tf.fill([kilobytes * 256], tf.random.uniform([]))
                arrived = tf.reduce_sum(taken[:1])
            values = np.ones(kilobytes * 256, np.float32)
            with v1.Session(config=config_for(device)) as theirs, fastsup.Session(config=config_for(device)) as ours:
                turns = max(5, min(200, (1 << 18) // kilobytes))
                for title, fetch, feeds in ((f"{size} fetched", made, None), (f"{size} fed", arrived, {taken: values})):
                    seconds = median_seconds([partial(session.run, fetch, feeds) for session in (theirs, ours)], turns)
                    rows.append((title, *seconds))
        kilobytes *= 16
    return rows


def median_seconds(calls: list[Callable[[], Any]], turns: int) -> list[float]:
    """Median seconds of each call, in turns."""
    samples: list[list[float]] = [[] for _ in calls]
    for turn in range(turns + 3):
        for call, kept in zip(calls, samples, strict=True):
            started = perf_counter()
            call()
            if turn >= 3:
                kept.append(perf_counter() - started)
    return [median(kept) for kept in samples]


def profiled_step(device: str) -> tuple[float, float, float]:
    """Seconds of a heavy step that fetches nothing: by HookProfiler, by the clock, and with the device waited for."""
    profiler = fastsup.HookProfiler()
    with tf.Graph().as_default(), tempfile.TemporaryDirectory() as folder:
        with tf.device(device):
            weights = v1.get_variable("weights", initializer=np.eye(2048, dtype=np.float32), use_resource=True)
            product = weights
            for _ in range(8):
                product = product @ weights
            update = weights.assign(product)
            read = tf.reduce_sum(weights)
        step = v1.train.get_or_create_global_step()
        with tf.control_dependencies([update]):
            train_op = step.assign_add(1).op
        with fastsup.train.MonitoredTrainingSession(
            checkpoint_dir=folder, config=config_for(device), profiler=profiler, save_checkpoint_steps=10**9
        ) as session:
            for _ in range(5):
                session.run(train_op)
            before = profiler.snapshot()
            started = perf_counter()
            for _ in range(20):
                session.run(train_op)
            returned = perf_counter() - started
            after = profiler.snapshot()
            session.run_without_hooks(read)
            waited = perf_counter() - started
    recorded = (after["wall_ns"] - before["wall_ns"]) * 1e-9
    return recorded / 20, returned / 20, waited / 20


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="/gpu:0", help="where the steps run (/gpu:0)")
    parser.add_argument("--largest", type=int, default=1024, metavar="MB", help="largest value fetched and fed (1024)")
    parser.add_argument("--save-megabytes", type=int, default=10_000, help="size of the checkpoint (10000)")
    parser.add_argument("--rounds", type=int, default=7, help="slices for each contender (7)")
    parser.add_argument("--quick", action="store_true", help="short slices, for rough numbers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything to this file as well")
    parser.add_argument("--functions", action="store_true", help="measure calls of functions alone")
    parser.add_argument("--plugin", type=Path, metavar="FILE", help="library of a pluggable device, to load first")
    parser.add_argument("--one-executor", choices=EXECUTORS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plugin:
        load_library.load_pluggable_device_library(str(options.plugin))
    elif options.device.startswith("/cpu:"):
        devices = [tf.config.LogicalDeviceConfiguration()] * (int(options.device.rpartition(":")[2]) + 1)
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    if options.device.lower().startswith("/gpu") and not tf.config.list_physical_devices("GPU"):
        parser.error("argument --device: TensorFlow finds no GPU here. --device /cpu:1 tries the benchmark without one")
    return options


def main() -> None:
    """Measures and prints."""
    options = parse_options()
    if options.one_executor:
        run_one_executor(options.device, options.one_executor)
        return
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    device = options.device
    calls = function_rows(device, 10 * options.rounds)
    console.print(functions_table(calls))
    if options.functions:
        return
    lines = step_lines(device, options.rounds, QUICK_SLICE_SECS if options.quick else SLICE_SECS)
    console.print(report.results_table(lines))

    executors = {executor: executor_row(device, executor) for executor in EXECUTORS}
    transfers = transfer_rows(device, options.largest)
    table = Table("what", "TensorFlow", "fastsup", "ratio", title=f"on {device}", title_justify="left")
    for executor, text in executors.items():
        table.add_row(f'executor="{executor}"', "", text, "")
    for title, theirs, ours in transfers:
        table.add_row(title, f"{1e6 * theirs:,.0f} µs", f"{1e6 * ours:,.0f} µs", f"{ours / theirs:.2f} x")

    longest = {
        name: pauses.longest_pause(train, {**arguments, "config": config_for(device)}, options.save_megabytes, device)
        for name, (train, arguments) in pauses.ARGUMENTS.items()
    }
    for name, seconds in longest.items():
        table.add_row(f"longest pause for {options.save_megabytes:,} MB: {name}", "", f"{1e3 * seconds:,.0f} ms", "")
    recorded, returned, waited = profiled_step(device)
    table.add_row("heavy step that fetches nothing: HookProfiler", "", f"{1e3 * recorded:,.2f} ms", "")
    table.add_row("same, run() has returned after", "", f"{1e3 * returned:,.2f} ms", "")
    table.add_row("same, the device has finished after", "", f"{1e3 * waited:,.2f} ms", "")
    console.print(table)
    machine = report.machine()
    gpus = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")]
    names = [str(details.get("device_name")) for details in gpus]
    console.print(f"{machine['processor']}, {names or 'no GPU'}; TensorFlow {machine['tensorflow']}; {machine['date']}")
    if options.json:
        steps = {line.row.title: {"ours": line.ours, "floor": line.floor, "tensorflow": line.peer} for line in lines}
        found = {"machine": machine, "gpus": names, "functions": calls, "steps": steps, "executors": executors}
        found |= {"transfers": transfers, "longest_pause": longest, "heavy_step": [recorded, returned, waited]}
        options.json.write_text(json.dumps(found, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
