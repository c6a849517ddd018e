"""The contenders: one class for each way to run a step, all with the methods `steps(n)` and `close()`.

Each has its own graph, built by the same function, its own session and, where the program is remote, its own server.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

import fastsup.core
import fastsup.train
from benchmarks.measure import NEVER
from benchmarks.programs import Step

tf1 = tf.compat.v1


def leave_out_stale_steps() -> None:
    """Leaves out of the log what TensorFlow's StepCounterHook says when it reads the global step too early."""
    logging.getLogger("tensorflow").addFilter(lambda record: "has not been increased" not in record.getMessage())


@dataclass(frozen=True)
class Program:
    """A step, and the kind of session for it.

    Args:
      build: function that builds the step in the default graph.
      remote: whether the step runs on a gRPC server in this process.
      devices: number of CPU devices that the session has.
      device: the device for the operations that ask for none, such as "/gpu:0"; empty for TensorFlow's choice.
      target: the engine of a cluster that runs already; empty for none.
    """

    build: Callable[[], Step]
    remote: bool = False
    devices: int = 1
    device: str = ""
    target: str = ""

    def config(self) -> Any:
        """Makes the session's ConfigProto."""
        return tf1.ConfigProto(device_count={"CPU": self.devices})


def caller(function: Callable[..., Any], *arguments: Any) -> Callable[[int], None]:
    """Returns a loop around a call, the same for all contenders."""
    if not arguments:

        def steps(n: int) -> None:
            for _ in repeat(None, n):
                function()
    elif len(arguments) == 1:
        (first,) = arguments

        def steps(n: int) -> None:
            for _ in repeat(None, n):
                function(first)
    else:
        first, second = arguments

        def steps(n: int) -> None:
            for _ in repeat(None, n):
                function(first, second)

    return steps


class InGraph:
    """Base class: a graph with the program's step in it."""

    _run_steps: Callable[[int], None]

    def __init__(self, program: Program) -> None:
        self._server = tf1.train.Server.create_local_server() if program.remote else None
        self._target = self._server.target if self._server else program.target
        self._config = program.config()
        self._graph = tf.Graph()
        with self._graph.as_default(), tf.device(program.device or None):
            self._step = program.build()

    def steps(self, n: int) -> None:
        with self._graph.as_default():
            self._run_steps(n)

    def _run_arguments(self) -> tuple[Any, ...]:
        step = self._step
        return (step.fetches, step.feed_dict) if step.feed_dict else (step.fetches,)


class Monitored(InGraph):
    """A MonitoredTrainingSession with its default hooks and the program's, in a temporary directory."""

    library: Any
    is_chief = True

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._folder = tempfile.TemporaryDirectory(prefix="fastsup-benchmark-")
        with self._graph.as_default():
            if not self.is_chief:
                initialize(self._target)
            self._session = self.library.MonitoredTrainingSession(
                master=self._target,
                is_chief=self.is_chief,
                config=self._config,
                checkpoint_dir=self._folder.name,
                hooks=self._step.hooks(self.library),
                save_checkpoint_secs=600,
                save_summaries_steps=100,
                log_step_count_steps=100,
            )
        self._run_steps = self._make_steps()

    def _make_steps(self) -> Callable[[int], None]:
        return caller(self._session.run, *self._run_arguments())

    def close(self) -> None:
        with self._graph.as_default():
            self._session.close()
        self._folder.cleanup()


def initialize(target: str) -> None:
    """Does a chief's part for the default graph: its variables have their first values."""
    with tf1.Session(target) as session:
        session.run(tf1.global_variables_initializer())


class TensorFlowMonitored(Monitored):
    library = tf1.train


class FastsupMonitored(Monitored):
    library = fastsup.train


class FastsupRunLoop(FastsupMonitored):
    """The same session, with run_loop."""

    def _make_steps(self) -> Callable[[int], None]:
        run_loop, fetches, feed_dict = self._session.run_loop, self._step.fetches, self._step.feed_dict
        if not feed_dict:
            return lambda n: run_loop(fetches, n)
        return lambda n: run_loop(fetches, n, lambda: feed_dict)


class Supervised(InGraph):
    """The classic loop around a Supervisor's session.

    Its services, which act every few minutes, aren't started: under TF 2 behaviour TensorFlow's fail and stop the loop.
    """

    library: Any

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._folder = tempfile.TemporaryDirectory(prefix="fastsup-benchmark-")
        with self._graph.as_default():
            supervisor = self.library.Supervisor(logdir=self._folder.name)
            self._managed = supervisor.managed_session(self._target, config=self._config, start_standard_services=False)
            session = self._managed.__enter__()
        should_stop, run, arguments = supervisor.should_stop, session.run, self._run_arguments()

        def steps(n: int) -> None:
            for _ in repeat(None, n):
                if should_stop():
                    break
                run(*arguments)

        self._run_steps = steps

    def close(self) -> None:
        with self._graph.as_default():
            self._managed.__exit__(None, None, None)
        self._folder.cleanup()


class TensorFlowSupervised(Supervised):
    library = tf1.train


class FastsupSupervised(Supervised):
    library = fastsup.train


class Bare(InGraph):
    """A session without hooks."""

    executor_type = ""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._coordinator = tf1.train.Coordinator()
        with self._graph.as_default():
            initializers = [tf1.global_variables_initializer(), tf1.local_variables_initializer()]
            self._session = self._make_session()
            self._session.run(initializers)
            if tf1.get_collection(tf1.GraphKeys.QUEUE_RUNNERS):
                tf1.train.start_queue_runners(self._session, self._coordinator)
        self._run_steps = self._make_steps()

    def _make_session(self) -> Any:
        self._config.experimental.executor_type = self.executor_type
        return tf1.Session(self._target, config=self._config)

    def _make_steps(self) -> Callable[[int], None]:
        return caller(self._session.run, *self._run_arguments())

    def close(self) -> None:
        del self._run_steps
        self._coordinator.request_stop()
        self._session.close()
        self._coordinator.join(ignore_live_threads=True)


class TensorFlowSession(Bare):
    """TensorFlow's Session.run."""


class FastsupSession(Bare):
    """fastsup's Session.run."""

    def _make_session(self) -> Any:
        return fastsup.Session(self._target, config=self._config)


class PoolCallable(Bare):
    """The callable of the runtime, without any layer. The operations run on the thread pool."""

    thread_pool = 0

    def _make_steps(self) -> Callable[[int], None]:
        options = config_pb2.CallableOptions(feed=[tensor.name for tensor in self._step.feed_dict])
        options.run_options.inter_op_thread_pool = self.thread_pool
        for fetch in tf.nest.flatten(self._step.fetches):
            if isinstance(fetch, tf.Operation):
                options.target.append(fetch.name)
            else:
                options.fetch.append(self._graph.as_graph_element(fetch).name)
        return caller(self._session._make_callable_from_options(options), *self._step.feed_dict.values())


class InlineCallable(PoolCallable):
    """The callable of the runtime, in the calling thread."""

    thread_pool = -1


class SingleThreadedCallable(PoolCallable):
    """The callable of the runtime, in a session with the single-threaded executor."""

    executor_type = "SINGLE_THREADED_EXECUTOR"


class IdleHook(fastsup.core.Hook):
    def begin(self, loop: Any) -> None:
        self.due_at_step(NEVER)


class IdleHooks:
    """A loop around a step that does nothing, with hooks that are never due."""

    def __init__(self, count: int) -> None:
        self._hooks = [IdleHook() for _ in range(count)]

    def steps(self, n: int) -> None:
        fastsup.core.StepLoop(int, self._hooks, max_steps=n).run()

    def close(self) -> None:
        self._hooks = []
