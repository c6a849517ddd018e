"""A step over gRPC: two parameter servers, each a process, with 20 variables; what a worker's session adds to it.

    python -m benchmarks.cluster_step                 # one table, two minutes
    python -m benchmarks.cluster_step --rounds 20 --all

The worker's server is in this process, as in a real worker. Contenders take turns. Each has its own variables.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from rich.console import Console

from benchmarks import contenders, report
from benchmarks.cases import Case, Row
from benchmarks.measure import NEVER, QUICK_SLICE_SECS, SLICE_SECS, alternate
from benchmarks.programs import Step

tf1 = tf.compat.v1

SERVERS, VARIABLES, WIDTH = 2, 20, 100
ROUNDS = 7


class TensorFlowWorker(contenders.TensorFlowMonitored):
    """The session of a worker that isn't the chief: its hooks are the program's alone."""

    is_chief = False


class FastsupWorker(contenders.FastsupMonitored):
    is_chief = False


class FastsupWorkerRunLoop(contenders.FastsupRunLoop):
    is_chief = False


CHIEF = "chief"
WORKER = "worker"
STOPPING = "worker, StopAtStepHook"
POOL, INLINE = "callable, thread pool", "callable, calling thread"


def free_addresses(count: int) -> list[str]:
    """Addresses of this machine at which nobody listens."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind(("localhost", 0))
        return [f"localhost:{opened.getsockname()[1]}" for opened in sockets]


def serve(cluster: dict[str, list[str]], task: int) -> None:
    """Is a parameter server, until its standard input is closed."""
    server = tf1.train.Server(tf1.train.ClusterSpec(cluster), job_name="ps", task_index=task)
    sys.stdin.read()
    del server


@contextlib.contextmanager
def cluster_of(servers: int) -> Iterator[Any]:
    """Starts parameter servers and this process's own server.

    Args:
      servers: number of parameter servers.

    Yields:
      This process's server.
    """
    addresses = free_addresses(servers + 1)
    cluster = {"worker": addresses[:1], "ps": addresses[1:]}
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.cluster_step", "--serve", json.dumps(cluster), str(task)],
            stdin=subprocess.PIPE,
            env=environment,
        )
        for task in range(servers)
    ]
    try:
        yield tf1.train.Server(tf1.train.ClusterSpec(cluster), job_name="worker", task_index=0)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def descent(stops: bool, numbers: Iterator[int]) -> Step:
    """Gradient descent on variables that are spread over the parameter servers, in their own container."""
    graph = tf1.get_default_graph()
    with graph.container(f"contender{next(numbers)}"), tf1.device(tf1.train.replica_device_setter(SERVERS)):
        variables = [
            tf1.get_variable(f"v{number}", [WIDTH], initializer=tf1.ones_initializer()) for number in range(VARIABLES)
        ]
        loss = tf.add_n([tf.reduce_sum(tf.square(variable - 3.0)) for variable in variables])
        train_op = tf1.train.GradientDescentOptimizer(0.01).minimize(loss, tf1.train.get_or_create_global_step())
    if not stops:
        return Step(train_op)
    return Step(train_op, hooks=lambda train: [train.StopAtStepHook(last_step=NEVER)])


def case_of(target: str) -> Case:
    """Makes the case: the contenders and the rows of the table.

    Args:
      target: the engine of the worker's server.
    """
    numbers = itertools.count()
    plain = contenders.Program(partial(descent, False, numbers), target=target)
    stopping = contenders.Program(partial(descent, True, numbers), target=target)
    made: dict[str, Callable[[], Any]] = {
        POOL: partial(contenders.PoolCallable, plain),
        INLINE: partial(contenders.InlineCallable, plain),
        "tf Session.run": partial(contenders.TensorFlowSession, plain),
        "fastsup Session.run": partial(contenders.FastsupSession, plain),
    }
    rows = [Row("Session.run(train_op)", "fastsup Session.run", "tf Session.run", (POOL, INLINE))]
    kinds: list[tuple[str, Any, Any, Any, Any]] = [
        (CHIEF, plain, contenders.TensorFlowMonitored, contenders.FastsupMonitored, contenders.FastsupRunLoop),
        (WORKER, plain, TensorFlowWorker, FastsupWorker, FastsupWorkerRunLoop),
        (STOPPING, stopping, TensorFlowWorker, FastsupWorker, FastsupWorkerRunLoop),
    ]
    for kind, program, theirs, ours, loop in kinds:
        made[f"tf {kind}"] = partial(theirs, program)
        made[f"fastsup {kind}"] = partial(ours, program)
        made[f"fastsup {kind}, run_loop"] = partial(loop, program)
        rows.append(Row(f"{kind}: run(train_op)", f"fastsup {kind}", f"tf {kind}", (POOL, INLINE)))
        rows.append(Row("same, run_loop(train_op)", f"fastsup {kind}, run_loop", f"tf {kind}", (POOL, INLINE)))
    return Case("2 parameter servers", made, tuple(rows))


def main(arguments: list[str] | None = None) -> int:
    """Runs the command, and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster_step", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"slices for each contender ({ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="short slices, for rough numbers")
    parser.add_argument("--all", action="store_true", help="show every contender too")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(json.loads(options.serve[0]), int(options.serve[1]))
        return 0
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)
    with cluster_of(SERVERS) as server:
        case = case_of(server.target)
        slice_secs = QUICK_SLICE_SECS if options.quick else SLICE_SECS
        samples = {case.name: alternate(case.contenders, options.rounds, slice_secs)}
    console.print(report.results_table(report.lines_of(case, samples[case.name])))
    if options.all:
        console.print(report.contenders_table(samples))
    return 0


if __name__ == "__main__":
    sys.exit(main())
