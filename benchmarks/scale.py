"""What the control plane of a job costs by its number of tasks: files, connections, looks of waiting workers.

    python -m benchmarks.scale                           # a thousand workers, a hundred parameter servers: two minutes
    python -m benchmarks.scale --workers 4 --servers 2   # a small job
    python -m benchmarks.scale --processes               # the same counts in a small job of real processes

The tasks are threads of this process. They run the code of real tasks: parameter servers poll for the end of the job
and check whether anybody trains, workers write their files and wait for a chief, all of them listen on the loopback.
Only TensorFlow's servers and sessions aren't there; what a look of a waiting worker costs is measured on real ones
alongside it. docs/scaling.md has the figures, and the model that they are compared with.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import resource
import socket
import sys
import tempfile
import threading
import time
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from rich.console import Console
from rich.table import Table
from tensorflow.python.training import server_lib

import fastsup.train
from benchmarks import scale_job
from benchmarks.cluster_step import SERVERS, VARIABLES, WIDTH, cluster_of
from benchmarks.scale_counts import Counter, counted_calls
from fastsup.cluster import server
from fastsup.cluster.job_completion import JobCompletionWatcher, mark_task_ended, mark_task_started

tf1 = tf.compat.v1

WORKERS, PARAMETER_SERVERS = 1000, 100
TRAIN_SECS, END_SECS = 20.0, 10.0


class Listener:
    """The ports of the tasks that train. Counts the connections to each."""

    def __init__(self, count: int) -> None:
        self._sockets = [socket.create_server(("localhost", 0), backlog=1024) for _ in range(count)]
        self.addresses = [f"localhost:{opened.getsockname()[1]}" for opened in self._sockets]
        self.accepted: collections.Counter[str] = collections.Counter()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._accept, args=(0,), daemon=True)
        self._thread.start()

    def _accept(self, index: int) -> None:
        # Only the chief's are accepted; the others' stay in the backlog.
        chief = self._sockets[index]
        chief.settimeout(0.2)
        while not self._ends.is_set():
            try:
                connection, _ = chief.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            connection.close()
            self.accepted[self.addresses[index]] += 1

    def close(self) -> None:
        self._ends.set()
        self._thread.join()
        for opened in self._sockets:
            opened.close()


class FakeJob:
    """A job of threads.

    Args:
      folder: the model directory.
      workers: number of workers, the chief excluded.
      servers: number of parameter servers.
    """

    def __init__(self, folder: str, workers: int, servers: int) -> None:
        self.folder, self.workers, self.servers = folder, workers, servers
        self.listener = Listener(workers + 1)
        addresses = self.listener.addresses
        cluster = {
            "chief": addresses[:1],
            "worker": addresses[1:],
            "ps": [f"localhost:{n + 1}" for n in range(servers)],
        }
        self._spec = server_lib.ClusterSpec({name: tasks for name, tasks in cluster.items() if tasks})
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "ps", "index": 0}})
        self._never = threading.Event()
        self.all_read = threading.Barrier(servers + 1)
        self.ended_at: list[float] = []
        self.failures: list[BaseException] = []

    def serve(self, index: int) -> None:
        """A parameter server: the code of a real one, around a server that does nothing."""
        config = SimpleNamespace(
            cluster_spec=self._spec, task_type="ps", task_id=index, session_creation_timeout_secs=7200
        )
        watcher = JobCompletionWatcher(self.folder)
        self.all_read.wait()
        try:
            server.serve_until_job_ends(SimpleNamespace(join=self._never.wait), config, watcher)
            self.ended_at.append(time.monotonic())
        except BaseException as error:
            self.failures.append(error)

    def start(self) -> list[threading.Thread]:
        threads = [threading.Thread(target=self.serve, args=(n,), daemon=True) for n in range(self.servers)]
        for thread in threads:
            thread.start()
        # The worst case: all of them have read what an earlier run has left.
        self.all_read.wait()
        for role, count in (("chief", 1), ("worker", self.workers)):
            for index in range(count):
                mark_task_started(self.folder, role, index)
        return threads

    def close(self) -> None:
        self._never.set()
        self.listener.close()


def run_fake_job(workers: int, servers: int, train_secs: float, earlier_run: bool) -> dict[str, Any]:
    """Runs a job of threads from its start to its end, and counts.

    Args:
      workers: number of workers.
      servers: number of parameter servers.
      train_secs: seconds for which nothing ends.
      earlier_run: whether the files of an earlier run are there.

    Returns:
      The counts by phase, and how long the ends took.
    """
    counter = Counter()
    with tempfile.TemporaryDirectory() as folder:
        if earlier_run:
            for role, count in (("chief", 1), ("worker", workers)):
                for index in range(count):
                    mark_task_ended(folder, role, index)
        job = FakeJob(folder, workers, servers)
        with counted_calls(counter):
            cpu = [time.process_time()]
            threads = job.start()
            cpu.append(time.process_time())
            counter.phase = "training"
            time.sleep(train_secs)
            cpu.append(time.process_time())
            counter.phase = "end"
            mark_task_ended(folder, "chief", 0)
            last = time.monotonic()
            gap = END_SECS / max(1, workers)
            for index in range(workers):
                mark_task_ended(folder, "worker", index)
                last = time.monotonic()
                time.sleep(gap)
            for thread in threads:
                thread.join(60)
            cpu.append(time.process_time())
        job.close()
        if job.failures:
            raise job.failures[0]
        assert len(job.ended_at) == servers, f"{servers - len(job.ended_at)} parameter servers haven't ended"
        return {
            "calls": counter.calls,
            "chief": job.listener.accepted[job.listener.addresses[0]],
            "cpu": {"start": cpu[1] - cpu[0], "training": cpu[2] - cpu[1], "end": cpu[3] - cpu[2]},
            "ends_after": max(job.ended_at) - last,
            "train_secs": train_secs,
        }


# The looks of workers that wait for a chief.


def waiting_looks(workers: int, wait_secs: float, look_secs: float, longest: float = 30.0) -> list[float]:
    """When workers look that wait for a chief: threads that pause as `SessionManager.wait_for_session` does.

    Args:
      workers: their number.
      wait_secs: when the chief is back.
      look_secs: what a look takes.
      longest: `recovery_wait_secs`.

    Returns:
      The seconds of all looks, since the loss.
    """
    from fastsup.train.session.session_manager import pause_before_look

    looks: list[float] = []
    started = time.monotonic()

    def wait() -> None:
        while True:
            now = time.monotonic() - started
            looks.append(now)
            if now >= wait_secs:
                return
            time.sleep(look_secs)
            time.sleep(pause_before_look(time.monotonic() - started, longest, workers))

    threads = [threading.Thread(target=wait) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return looks


def _cpu_secs(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cost_of_a_look(seconds: float) -> dict[str, float]:
    """Measures the look of a waiting worker at parameter servers, which are processes: a session, and a run in it.

    Returns:
      The seconds that one takes, and of CPU: of this process, and of one parameter server.
    """
    with cluster_of(SERVERS) as worker, tf.Graph().as_default():
        with tf1.device(tf1.train.replica_device_setter(SERVERS)):
            for number in range(VARIABLES):
                tf1.get_variable(f"v{number}", [WIDTH], initializer=tf1.ones_initializer())
            tf1.train.get_or_create_global_step()
        manager = fastsup.train.SessionManager(ready_op=tf1.report_uninitialized_variables(), recovery_wait_secs=0)
        children = _children()

        def look() -> None:
            session = manager._make_session(worker.target, None)
            manager._get_ready(session)
            session.close()

        look()
        before = [_cpu_secs(pid) for pid in children]
        cpu, started, looks = time.process_time(), time.monotonic(), 0
        while time.monotonic() - started < seconds:
            look()
            looks += 1
        took = time.monotonic() - started
        spent = [_cpu_secs(pid) - old for pid, old in zip(children, before, strict=True)]
        return {
            "secs": took / looks,
            "worker_cpu": (time.process_time() - cpu) / looks,
            "server_cpu": sum(spent) / len(spent) / looks,
        }


def _children() -> list[int]:
    with open(f"/proc/self/task/{threading.get_native_id()}/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]


# What is printed.


def calls_table(title: str, found: dict[str, Any]) -> Table:
    """The calls of the file system and the connections, by phase."""
    table = Table("what", "start", "training, a second", "end", title=title, title_justify="left")
    kinds = sorted({kind for _, kind in found["calls"]})
    for kind in kinds:
        counts = [found["calls"].get((phase, kind), 0) for phase in ("start", "training", "end")]
        table.add_row(kind, f"{counts[0]:,}", f"{counts[1] / found['train_secs']:,.1f}", f"{counts[2]:,}")
    cpu = found["cpu"]
    table.add_row(
        "CPU of all tasks, s",
        f"{cpu['start']:.2f}",
        f"{cpu['training'] / found['train_secs']:.3f}",
        f"{cpu['end']:.2f}",
    )
    table.add_row("connections to the chief, in all", "", f"{found['chief']}", "")
    table.add_row("the last parameter server ends after the last worker, s", "", "", f"{found['ends_after']:.1f}")
    return table


def looks_table(workers: int, looks: list[float], cost: dict[str, float], wait_secs: float) -> Table:
    """The looks by second of the wait, and the load that they are for one parameter server."""
    title = f"{workers:,} workers wait {wait_secs:.0f} s for a chief; a look takes {1e3 * cost['secs']:.1f} ms"
    title += f", of CPU {1e3 * cost['worker_cpu']:.1f} ms at the worker, {1e3 * cost['server_cpu']:.2f} ms at a server"
    table = Table("seconds of the wait", "looks a second", "cores of a parameter server", title=title)
    for first, last in ((0, 1), (1, 2), (2, 4), (4, 8), (8, 16), (16, 32), (32, 64), (64, 128)):
        if first >= wait_secs:
            break
        last = min(last, wait_secs)
        rate = sum(first <= look < last for look in looks) / (last - first)
        table.add_row(f"{first} to {last:g}", f"{rate:,.1f}", f"{rate * cost['server_cpu']:.2f}")
    return table


def main(arguments: list[str] | None = None) -> int:
    """Runs the command, and prints the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=WORKERS, help=f"number of workers ({WORKERS})")
    parser.add_argument(
        "--servers", type=int, default=PARAMETER_SERVERS, help=f"of parameter servers ({PARAMETER_SERVERS})"
    )
    parser.add_argument("--train-secs", type=float, default=TRAIN_SECS, help=f"of training ({TRAIN_SECS:g})")
    parser.add_argument("--wait-secs", type=float, default=30.0, help="until the chief is back (30)")
    parser.add_argument("--processes", action="store_true", help="instead: count in a job of eight real processes")
    options = parser.parse_args(arguments)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * options.workers + 200
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard), hard))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)
    if options.processes:
        console.print(scale_job.calls_table(scale_job.run_job(options.train_secs)))
        return 0
    for earlier_run in (False, True):
        found = run_fake_job(options.workers, options.servers, options.train_secs, earlier_run)
        title = f"{options.workers:,} workers, {options.servers:,} parameter servers"
        console.print(calls_table(title + (", after an earlier run" if earlier_run else ""), found))
    cost = cost_of_a_look(5.0)
    looks = waiting_looks(options.workers, options.wait_secs, cost["secs"])
    console.print(looks_table(options.workers, looks, cost, options.wait_secs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
