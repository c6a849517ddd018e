"""Programs that end while daemon threads are inside TensorFlow's runtime: what runs there, and how the program ends."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

import fastsup
import fastsup.core
import fastsup.train

v1 = tf.compat.v1
FORK_SECS = 15.0


class SlowToDelete:
    """Stands for all that a large program deletes at its end: other threads ask for the interpreter's lock then."""

    def __del__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        sleep(0.1)


class Program:
    """A graph, and one way to use it in daemon threads.

    Args:
      impl: "fastsup" or "tensorflow": whose sessions.
      folder: where checkpoints are written.
    """

    def __init__(self, impl: str, folder: str) -> None:
        self.folder = folder
        self.train: Any = fastsup.train if impl == "fastsup" else v1.train
        self.session_class: Any = fastsup.Session if impl == "fastsup" else v1.Session
        self.slow = SlowToDelete()
        self.kept: list[Any] = []
        self.graph = tf.Graph()
        with self.graph.as_default():
            step = v1.train.get_or_create_global_step()
            weights = v1.get_variable("weights", [100], initializer=v1.zeros_initializer(), use_resource=True)
            chain = [tf.constant(1.0)]
            for _ in range(60):
                chain.append(chain[-1] + 1.0)
            self.chain = chain
            with tf.control_dependencies([v1.assign_add(weights, tf.ones([100]) * chain[-1])]):
                self.train_op = v1.assign_add(step, tf.constant(1, tf.int64)).op

    def in_a_daemon(self, body: Callable[[], None]) -> None:
        def run() -> None:
            with self.graph.as_default():
                # Those of a session that the watchdog has ended.
                with contextlib.suppress(tf.errors.OpError, RuntimeError):
                    body()

        threading.Thread(target=run, daemon=True).start()

    def session(self) -> Any:
        with self.graph.as_default():
            session = self.session_class()
            session.run(v1.global_variables_initializer())
        self.kept.append(session)
        return session

    def train_in_a_daemon(self, loop: bool = False, op: Any = None, **arguments: Any) -> None:
        def body() -> None:
            options = {"save_checkpoint_secs": None, "save_checkpoint_steps": 200, "log_step_count_steps": None}
            with self.train.MonitoredTrainingSession(checkpoint_dir=self.folder, **{**options, **arguments}) as session:
                if loop:
                    session.run_loop(self.train_op)
                while not session.should_stop():
                    session.run(self.train_op if op is None else op)

        self.in_a_daemon(body)

    # What runs.

    def queue_runners(self) -> None:
        with self.graph.as_default():
            queue = v1.FIFOQueue(2, tf.float32, shapes=[()])
            v1.train.add_queue_runner(v1.train.QueueRunner(queue, [queue.enqueue(x) for x in self.chain[-4:]]))
            value = queue.dequeue()
            session = self.session()
            v1.train.start_queue_runners(session)
            session.run(value)

    def new_plans(self) -> None:
        session = self.session()

        def body() -> None:
            for fetches in itertools.cycle(itertools.product(self.chain, self.chain)):
                session.run(list(fetches))

        self.in_a_daemon(body)

    def sessions_that_come_and_go(self) -> None:
        def body() -> None:
            while True:
                with self.session_class() as session:
                    session.run(self.chain[3])
                del session

        self.in_a_daemon(body)

    def monitored(self) -> None:
        self.train_in_a_daemon()

    def run_loop(self) -> None:
        self.train_in_a_daemon(loop=True)

    def async_save(self) -> None:
        self.train_in_a_daemon(save_checkpoint_steps=1, async_save=True)

    def watchdog(self) -> None:
        with self.graph.as_default():
            starved = v1.FIFOQueue(1, tf.float32, shapes=[()]).dequeue()
        self.train_in_a_daemon(op=starved, hooks=[self.train.WatchdogHook(0.02, stop=True)])

    def profiler(self) -> None:
        self.kept.append(fastsup.HookProfiler())
        self.train_in_a_daemon(profiler=self.kept[-1])

    def supervisor(self) -> None:
        with self.graph.as_default():
            sv = self.train.Supervisor(logdir=self.folder, save_model_secs=0.001, save_summaries_secs=0.001)
            session = sv.prepare_or_wait_for_session()
        self.kept += [sv, session]

        def body() -> None:
            while not sv.should_stop():
                session.run(self.train_op)

        self.in_a_daemon(body)

    def step_loop(self) -> None:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        # It takes no arguments, does nothing, and returns 0: go on.
        address = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p)
        self.kept.append(b"int (fs_loop *, void *)")
        step = new(address, self.kept[-1], None)
        self.in_a_daemon(lambda: fastsup.core.StepLoop(step).run() and None)

    def generator(self) -> None:
        with self.graph.as_default():
            numbers = tf.data.Dataset.from_generator(itertools.count, output_signature=tf.TensorSpec((), tf.int64))
            value = v1.data.make_one_shot_iterator(numbers.prefetch(2)).get_next()
            session = self.session()

        def body() -> None:
            while True:
                session.run(value)

        self.in_a_daemon(body)

    # How it ends.

    def script_ends(self) -> None:
        pass

    def exits(self) -> None:
        sys.exit(3)

    def exits_in_a_thread(self) -> None:
        threading.Thread(target=sys.exit, args=(4,)).start()

    def raises(self) -> None:
        raise ValueError("the end")

    def raises_in_a_thread(self) -> None:
        threading.Thread(target=self.raises).start()

    def is_terminated(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(FORK_SECS)

    def is_interrupted(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(FORK_SECS)

    def forks(self) -> None:
        child = os.fork()
        if child == 0:
            return
        until = time.monotonic() + FORK_SECS
        while time.monotonic() < until:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                sys.exit(abs(os.waitstatus_to_exitcode(status)))
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        sys.exit("the child hangs")

    def collects_a_cycle(self) -> None:
        cycle: list[Any] = [self.session_class(graph=self.graph)]
        cycle[0].run(self.chain[5])
        cycle.append(cycle)
        del cycle
        gc.collect()

    def exits_at_once(self) -> None:
        os._exit(5)


class Kind(NamedTuple):
    """What runs when the program ends.

    Args:
      start: what starts it.
      span: seconds after the start within which the runs of the table end.
      in_tensorflow: whether TensorFlow has it.
    """

    start: Callable[[Program], None]
    span: float
    in_tensorflow: bool = False


class End(NamedTuple):
    """How the program ends.

    Args:
      act: what ends it.
      code: the exit code, or minus the signal that it dies of.
      tracebacks: how many are printed.
    """

    act: Callable[[Program], None]
    code: int = 0
    tracebacks: int = 0


KINDS = {
    "`Session`, queue runners": Kind(Program.queue_runners, 0.02, True),
    "`Session`, new fetches in each run": Kind(Program.new_plans, 0.1, True),
    "sessions that come and go": Kind(Program.sessions_that_come_and_go, 0.1, True),
    "`MonitoredTrainingSession`": Kind(Program.monitored, 1.0, True),
    "`run_loop`": Kind(Program.run_loop, 1.0),
    "`async_save=True`, every step": Kind(Program.async_save, 1.0),
    "`WatchdogHook(stop=True)`": Kind(Program.watchdog, 1.0),
    "`profiler=`": Kind(Program.profiler, 1.0),
    "`Supervisor` and its services": Kind(Program.supervisor, 0.3, True),
    "`StepLoop`, a step in C": Kind(Program.step_loop, 0.05),
    "`Dataset.from_generator`": Kind(Program.generator, 0.1, True),
}
ENDS = {
    "the script ends": End(Program.script_ends),
    "`sys.exit(3)`": End(Program.exits, 3),
    "`sys.exit(4)` in a thread": End(Program.exits_in_a_thread),
    "an exception": End(Program.raises, 1, 1),
    "an exception in a thread": End(Program.raises_in_a_thread, 0, 1),
    "SIGTERM": End(Program.is_terminated, -signal.SIGTERM),
    "SIGINT": End(Program.is_interrupted, -signal.SIGINT, 1),
    "`os.fork()`, both end": End(Program.forks),
    "a session in a cycle is collected": End(Program.collects_a_cycle),
    "`os._exit(5)`": End(Program.exits_at_once, 5),
}
