"""The sessions of a Supervisor: one is made and its model got ready, and closed when the run ends."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tensorflow.python.platform import tf_logging as logging

from fastsup.common import stop_signals
from fastsup.common.fork import fork_reason, raise_in_fork
from fastsup.common.tensorflow_errors import not_end_of_input
from fastsup.core import timeline
from fastsup.core.probe import Profiler
from fastsup.core.session_origin import current_origin
from fastsup.runtime.session import Session
from fastsup.train.supervisor.threads import SupervisorThreads

__all__ = ["SupervisorSessions"]


class SupervisorSessions(SupervisorThreads):
    """Base of Supervisor: makes sessions and ends them."""

    _handle_signals: bool
    _init_fn: Callable[[Any], Any] | None
    _profiler: Profiler | None
    _session_manager: Any

    @property
    def session_manager(self) -> Any:
        """The SessionManager that makes the sessions."""
        return self._session_manager

    @contextlib.contextmanager
    def managed_session(
        self,
        master: str = "",
        config: Any = None,
        start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> Iterator[Any]:
        """A block with a session whose model is ready. At its end all threads are stopped and the session is closed.

        Args:
          master: the execution engine to connect to.
          config: ConfigProto of the session, or None.
          start_standard_services: whether to start the services (in the chief) and the queue runners.
          close_summary_writer: whether to close the summary writer at the end.

        Returns:
          A context manager that gives the session.

        Raises:
          Exception: the first error of the block or of a thread. `tf.errors.OutOfRangeError` is the end of the input
            and isn't raised, unless it occurs while the session is made.
        """
        watches = self._handle_signals and self._logdir is not None and stop_signals.watch()
        try:
            session = self._prepare_or_stop(master, config, start_standard_services, close_summary_writer)
            try:
                yield session
            except Exception as error:
                if fork_reason(self._made_in):
                    raise
                self.request_stop(not_end_of_input(error))
            except (KeyboardInterrupt, SystemExit):
                if stop_signals.has_come():
                    self._save_on_signal(session)
                raise
            finally:
                self._stop_and_close(session, close_summary_writer)
        finally:
            if watches:
                stop_signals.unwatch()

    def _prepare_or_stop(
        self, master: str, config: Any, start_standard_services: bool, close_summary_writer: bool
    ) -> Any:
        try:
            return self.prepare_or_wait_for_session(
                master=master, config=config, start_standard_services=start_standard_services
            )
        except BaseException as error:
            if isinstance(error, Exception):
                self.request_stop(error)
            self.stop(close_summary_writer=close_summary_writer)
            # If stop() hasn't raised the error, it is an OutOfRangeError, which the coordinator takes for the end of
            # the input. Here it means that a checkpoint is cut short.
            raise

    def _stop_and_close(self, session: Any, close_summary_writer: bool) -> None:
        if raise_in_fork(self._made_in, "The Supervisor can't be stopped", sys.exc_info()[0]):
            return
        held = stop_signals.holds_signals()
        try:
            self.stop(close_summary_writer=close_summary_writer)
        finally:
            # Cancels steps that still wait, for example in a queue. Nothing depends on the session any more.
            with contextlib.suppress(Exception):
                session.close()
            stop_signals.release(held)

    @timeline.phase("open")
    def prepare_or_wait_for_session(
        self,
        master: str = "",
        config: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        start_standard_services: bool = True,
    ) -> Any:
        """Makes a session whose model is ready. The chief gets the model ready; every other replica waits for that.

        Args:
          master: the execution engine to connect to.
          config: ConfigProto of the session, or None.
          wait_for_checkpoint: whether a chief waits for a first checkpoint.
          max_wait_secs: seconds to wait at most.
          start_standard_services: whether to start the services (in the chief) and the queue runners.

        Returns:
          The session, which the caller has to close.

        Raises:
          RuntimeError: the model isn't ready after it was initialised.
          tf.errors.DeadlineExceededError: the chief hadn't got the model ready after `max_wait_secs`.
        """
        # A stopped Supervisor can be used again.
        self._coord.clear_stop()
        if self._summary_writer:
            self._summary_writer.reopen()
        session = None
        try:
            session = self._make_session(master, config, wait_for_checkpoint, max_wait_secs)
            if self._is_chief:
                self._write_graph()
            if start_standard_services:
                self._start_threads(session)
        except BaseException:
            self._abandon(session)
            raise
        self._record(session)
        self._in_timeline = timeline.begin("train")
        return session

    PrepareSession = prepare_or_wait_for_session

    def _make_session(self, master: str, config: Any, wait_for_checkpoint: bool, max_wait_secs: float) -> Any:
        manager = self._session_manager
        if not self._is_chief:
            return manager.wait_for_session(master, config=config, max_wait_secs=max_wait_secs)
        return manager.prepare_session(
            master,
            saver=self.saver,
            checkpoint_dir=self._logdir,
            wait_for_checkpoint=wait_for_checkpoint,
            max_wait_secs=max_wait_secs,
            config=config,
            init_op=self.init_op,
            init_feed_dict=self._init_feed_dict,
            init_fn=self._init_fn,
        )

    def _start_threads(self, session: Any) -> None:
        if self._is_chief:
            logging.info("Starting standard services.")
            self.start_standard_services(session)
        logging.info("Starting queue runners.")
        self.start_queue_runners(session)

    def _record(self, session: Any) -> None:
        if isinstance(session, Session):
            session._record_runs(self._profiler, current_origin("train"))

    def _abandon(self, session: Any) -> None:
        """Ends the threads and the session that a failed start has left. Errors here would hide the first one."""
        if session is not None:
            self._coord.request_stop()
            with contextlib.suppress(Exception):
                session.close()
            self._join_registered_threads()
        if self._owns_summary_writer:
            with contextlib.suppress(Exception):
                self._close_summary_writer()

    def _join_registered_threads(self) -> None:
        """Waits for the threads that were started, except the present one. Clears the stop if all have ended."""
        alive = [thread for thread in self._registered_threads() if thread.is_alive()]
        for thread in alive:
            if thread is not threading.current_thread():
                thread.join(max(0.0, min(self._stop_grace_secs, threading.TIMEOUT_MAX)))
        if not any(thread.is_alive() for thread in alive):
            self._coord.clear_stop()
