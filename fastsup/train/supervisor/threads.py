"""The threads of a Supervisor: services, queue runners and loops, and their common stop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import coordinator

from fastsup.common.fork import raise_in_fork
from fastsup.common.leaked_threads import warn_of_leaked_threads
from fastsup.core import timeline
from fastsup.train.supervisor.arguments import check_seconds
from fastsup.train.supervisor.event_writing import SupervisorEvents
from fastsup.train.supervisor.saving import SupervisorSaves
from fastsup.train.supervisor.services import make_services

__all__ = ["SupervisorThreads"]


class SupervisorThreads(SupervisorEvents, SupervisorSaves):
    """Base of Supervisor: starts threads, and stops them together."""

    _coord: Any
    _in_timeline: Any
    _made_in: int
    _stop_grace_secs: float
    _stray_threads: str

    @property
    def coord(self) -> Any:
        """The Coordinator of the services' threads. A program's own threads may use it too."""
        return self._coord

    def start_standard_services(self, sess: Any) -> list[threading.Thread] | None:
        """Starts the services: for summaries, for the rate of steps, and for checkpoints.

        `prepare_or_wait_for_session` and `managed_session` call this method. A service isn't started if its interval is
        0, or if it has nothing to do.

        Args:
          sess: the session in which the services run.

        Returns:
          The started threads; None without a `logdir`.

        Raises:
          RuntimeError: this Supervisor isn't the chief.
        """
        if not self._is_chief:
            raise RuntimeError(
                "Only chief supervisor can start standard services. Because only chief supervisors can write events."
            )
        if not self._logdir:
            logging.warning("Standard services need a 'logdir' passed to the SessionManager")
            return None
        if self._global_step is not None and self._summary_writer:
            self._log_session_start(self._read_step(sess, self._global_step))
        services = make_services(self, sess)
        for service in services:
            service.start()
        return services

    def start_queue_runners(self, sess: Any, queue_runners: Any = None) -> list[threading.Thread]:
        """Starts the threads of queue runners.

        Args:
          sess: the session in which they run.
          queue_runners: list of `QueueRunner`. Defaults to the graph's collection QUEUE_RUNNERS, which
            `prepare_or_wait_for_session` and `managed_session` start.

        Returns:
          The started threads.

        Raises:
          RuntimeError: eager execution is enabled.
        """
        if context.executing_eagerly():
            raise RuntimeError("Queues are not compatible with eager execution.")
        if queue_runners is None:
            queue_runners = self._graph.get_collection(ops.GraphKeys.QUEUE_RUNNERS)
        return [
            thread
            for runner in queue_runners
            for thread in runner.create_threads(sess, coord=self._coord, daemon=True, start=True)
        ]

    def loop(
        self, timer_interval_secs: float | None, target: Callable[..., Any], args: Any = None, kwargs: Any = None
    ) -> threading.Thread:
        """Starts a thread that calls a function repeatedly until a stop is requested. `stop()` waits for the thread.

        Args:
          timer_interval_secs: seconds from one call to the next. None: no pause between two calls.
          target: the function.
          args: its positional arguments, or None.
          kwargs: its keyword arguments, or None.

        Returns:
          The started thread.

        Raises:
          ValueError: `timer_interval_secs` is infinite, or arguments were given without a function.
          TypeError: `target` can't be called, or `timer_interval_secs` is no number.
        """
        check_seconds("timer_interval_secs", timer_interval_secs, "pass None for no pause between two calls")
        if target is not None and not callable(target):
            raise TypeError(f"{type(target).__name__!r} object is not callable: target must be a function.")
        looper: threading.Thread = coordinator.LooperThread(
            self._coord, timer_interval_secs, target=target, args=args, kwargs=kwargs
        )
        looper.start()
        return looper

    @timeline.phase("end")
    def stop(self, threads: Any = None, close_summary_writer: bool = True, ignore_live_threads: bool = False) -> None:
        """Stops the services and waits for their threads. The session stays open.

        Args:
          threads: threads to wait for, in addition to the services', the queue runners' and those of `loop()`.
          close_summary_writer: whether to close the summary writer.
          ignore_live_threads: whether to ignore threads that outlive `stop_grace_secs`.

        Raises:
          RuntimeError: a thread outlived `stop_grace_secs`, and `stray_threads` is "raise".
          Exception: the first error that was reported to the coordinator.
        """
        raise_in_fork(self._made_in, "The Supervisor can't be stopped")
        timeline.finish(self._in_timeline)
        self._coord.request_stop()
        warns = self._stray_threads == "warn" and not ignore_live_threads
        awaited = self._registered_threads().union(threads or ()) if warns else set()
        failed = True
        try:
            self._coord.join(
                threads, stop_grace_period_secs=self._stop_grace_secs, ignore_live_threads=ignore_live_threads or warns
            )
            failed = False
        finally:
            warn_of_leaked_threads(awaited, self._stop_grace_secs)
            # After the threads have ended, because they write events.
            if close_summary_writer and failed:
                self._close_summary_writer_or_log()
            elif close_summary_writer:
                self._close_summary_writer()

    def _close_summary_writer_or_log(self) -> None:
        # An error here is often a consequence of the one that is being raised, and would hide it.
        try:
            self._close_summary_writer()
        except Exception as error:
            logging.warning("The summary writer could not be closed: %s", error)

    def _registered_threads(self) -> set[threading.Thread]:
        """Returns the threads that the coordinator waits for. Its `join` forgets them."""
        return set(self._coord._registered_threads)

    def request_stop(self, ex: Any = None) -> None:
        """Requests that all threads stop.

        Args:
          ex: the exception that is the reason, or its `sys.exc_info()`. `stop()` raises the first one.
        """
        self._coord.request_stop(ex=ex)

    def should_stop(self) -> bool:
        """Returns True if a stop was requested."""
        # Loops call this in every step: no other work here.
        return self._coord.should_stop()  # type: ignore[no-any-return]

    def stop_on_exception(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context manager that requests a stop with the exception of its block, and doesn't raise it."""
        manager: contextlib.AbstractContextManager[None] = self._coord.stop_on_exception()
        return manager

    def wait_for_stop(self) -> None:
        """Waits until a stop was requested."""
        self._coord.wait_for_stop()

    # TensorFlow's old names.
    StartStandardServices = start_standard_services
    StartQueueRunners = start_queue_runners
    Loop = loop
    Stop = stop
    RequestStop = request_stop
    ShouldStop = should_stop
    StopOnException = stop_on_exception
    WaitForStop = wait_for_stop
