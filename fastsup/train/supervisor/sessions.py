"""The sessions of a Supervisor: one is made and its model got ready, and closed when the run ends."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tensorflow.python.platform import tf_logging as logging

from fastsup.common import stop_signals
from fastsup.common.errors import not_end_of_input
from fastsup.common.interpreter_end import fork_reason, raise_in_fork, warn_of_leaked_threads
from fastsup.core import timeline
from fastsup.core.probe import Profiler
from fastsup.core.sessions import current_origin
from fastsup.runtime.session import Session
from fastsup.train.session.signal_end import is_by_signal, log_failed_end

__all__ = ["Sessions"]


class Sessions:
    """Makes the sessions of a Supervisor, and ends them.

    Args:
      sv: the Supervisor, whose methods and properties a subclass may override.
      init_fn: function of the session for a model without a checkpoint, or None.
      profiler: what records the runs, or None.
      handle_signals: whether signals end a managed session with a checkpoint.
      stop_grace_secs: seconds that threads have to end after a stop was requested.
      warns: whether a thread that takes longer is a warning, not an error.
    """

    def __init__(
        self,
        sv: Any,
        init_fn: Callable[[Any], Any] | None,
        profiler: Profiler | None,
        handle_signals: bool,
        stop_grace_secs: float,
        warns: bool,
    ) -> None:
        self._sv = sv
        self._profiler = profiler
        self._handle_signals = handle_signals
        self._warns = warns
        self.stop_grace_secs = stop_grace_secs
        self._made_in = os.getpid()
        self._in_timeline: Any = None
        self.init_fn = init_fn

    def managed(
        self, master: str, config: Any, start_standard_services: bool, close_summary_writer: bool
    ) -> Iterator[Any]:
        """Yields the session of `Supervisor.managed_session`, which is a context manager of this generator."""
        sv = self._sv
        watches = self._handle_signals and sv._logdir is not None and stop_signals.install()
        try:
            session = self._prepare_or_stop(master, config, start_standard_services, close_summary_writer)
            try:
                yield session
            except Exception as error:
                if fork_reason(self._made_in):
                    raise
                sv.request_stop(not_end_of_input(error))
            except (KeyboardInterrupt, SystemExit):
                if stop_signals.received():
                    try:
                        sv._checkpoints.save_last(sv._save, session, sv._saver, sv._global_step)
                    except BaseException as error:
                        log_failed_end("Supervisor", error)
                raise
            finally:
                self._stop_and_close(session, close_summary_writer)
        finally:
            if watches:
                stop_signals.uninstall()

    def _prepare_or_stop(
        self, master: str, config: Any, start_standard_services: bool, close_summary_writer: bool
    ) -> Any:
        sv = self._sv
        try:
            return sv.prepare_or_wait_for_session(
                master=master, config=config, start_standard_services=start_standard_services
            )
        except BaseException as error:
            if isinstance(error, Exception):
                sv.request_stop(error)
            sv.stop(close_summary_writer=close_summary_writer)
            # If stop() hasn't raised the error, it is an OutOfRangeError, which the coordinator takes for the end of
            # the input. Here it means that a checkpoint is cut short.
            raise

    def _stop_and_close(self, session: Any, close_summary_writer: bool) -> None:
        if raise_in_fork(self._made_in, "The Supervisor can't be stopped", sys.exc_info()[0]):
            return
        by_signal = is_by_signal(sys.exc_info()[0])
        held = stop_signals.holds_signals()
        try:
            self._sv.stop(close_summary_writer=close_summary_writer)
        except BaseException as error:
            if not by_signal:
                raise
            log_failed_end("Supervisor", error)
        finally:
            # Cancels steps that still wait, for example in a queue. Nothing depends on the session now.
            with contextlib.suppress(Exception):
                session.close()
            stop_signals.release(held)

    @timeline.phase("open")
    def prepare(
        self, master: str, config: Any, wait_for_checkpoint: bool, max_wait_secs: float, start_standard_services: bool
    ) -> Any:
        """See `Supervisor.prepare_or_wait_for_session`."""
        sv = self._sv
        # A stopped Supervisor can be used again.
        sv._coord.clear_stop()
        if sv._summary_writer:
            sv._summary_writer.reopen()
        session = None
        try:
            session = self._make(master, config, wait_for_checkpoint, max_wait_secs)
            if sv._is_chief:
                sv._write_graph()
            if start_standard_services:
                self._start_threads(session)
        except BaseException:
            self._abandon(session)
            raise
        self._record(session)
        self._in_timeline = timeline.begin("train")
        return session

    def _make(self, master: str, config: Any, wait_for_checkpoint: bool, max_wait_secs: float) -> Any:
        sv, manager = self._sv, self._sv._session_manager
        if not sv._is_chief:
            return manager.wait_for_session(master, config=config, max_wait_secs=max_wait_secs)
        return manager.prepare_session(
            master,
            saver=sv.saver,
            checkpoint_dir=sv._logdir,
            wait_for_checkpoint=wait_for_checkpoint,
            max_wait_secs=max_wait_secs,
            config=config,
            init_op=sv.init_op,
            init_feed_dict=sv._init_feed_dict,
            init_fn=self.init_fn,
        )

    def _start_threads(self, session: Any) -> None:
        if self._sv._is_chief:
            logging.info("Starting standard services.")
            self._sv.start_standard_services(session)
        logging.info("Starting queue runners.")
        self._sv.start_queue_runners(session)

    def _record(self, session: Any) -> None:
        if isinstance(session, Session):
            session._record_runs(self._profiler, current_origin("train"))

    def _abandon(self, session: Any) -> None:
        """Ends the threads and the session that a failed start has left. Errors here would hide the first one."""
        if session is not None:
            self._sv._coord.request_stop()
            with contextlib.suppress(Exception):
                session.close()
            alive = [thread for thread in self._registered_threads() if thread.is_alive()]
            for thread in alive:
                if thread is not threading.current_thread():
                    thread.join(max(0.0, min(self.stop_grace_secs, threading.TIMEOUT_MAX)))
            if not any(thread.is_alive() for thread in alive):
                self._sv._coord.clear_stop()
        if self._sv._event_log.owns_writer:
            with contextlib.suppress(Exception):
                self._sv._event_log.close()

    def _registered_threads(self) -> set[threading.Thread]:
        """Returns the threads that the coordinator waits for. Its `join` forgets them."""
        return set(self._sv._coord._registered_threads)

    @timeline.phase("end")
    def stop(self, threads: Any, close_summary_writer: bool, ignore_live_threads: bool) -> None:
        """See `Supervisor.stop`."""
        raise_in_fork(self._made_in, "The Supervisor can't be stopped")
        timeline.finish(self._in_timeline)
        coord, log = self._sv._coord, self._sv._event_log
        coord.request_stop()
        warns = self._warns and not ignore_live_threads
        awaited = self._registered_threads().union(threads or ()) if warns else set()
        close = log.close_after_error
        try:
            coord.join(
                threads, stop_grace_period_secs=self.stop_grace_secs, ignore_live_threads=ignore_live_threads or warns
            )
            close = log.close
        finally:
            warn_of_leaked_threads(awaited, self.stop_grace_secs)
            # After the threads have ended, because they write events.
            if close_summary_writer:
                close()
