"""The running parts of a Supervisor: its sessions, events, checkpoints and service threads."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from tensorflow.core.framework import summary_pb2
from tensorflow.core.util import event_pb2
from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import coordinator, training_util

from fastsup.checkpoint.durable import save_durably
from fastsup.checkpoint.writer import CheckpointWriter
from fastsup.common import stop_signals
from fastsup.common.errors import not_end_of_input
from fastsup.common.interpreter_end import fork_reason, no_interpreter_exit, raise_in_fork, warn_of_leaked_threads
from fastsup.core import timeline
from fastsup.core.probe import Profiler
from fastsup.core.sessions import current_origin
from fastsup.events.graph_text import write_graph_as_text
from fastsup.runtime.session import Session
from fastsup.train.session.monitored_session import is_by_signal, log_failed_end

__all__ = [
    "EventLog",
    "SVStepCounterThread",
    "SVSummaryThread",
    "SVTimerCheckpointThread",
    "Sessions",
    "SupervisorSaves",
    "start_services",
]


class Sessions:
    """Creates the sessions of a Supervisor, and ends them."""

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
        watches = self._handle_signals and stop_signals.install()
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
            # If stop() hasn't raised the error, it is an OutOfRangeError, which the coordinator treats as the end of
            # the input. Here, it means that a checkpoint is truncated.
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
            # Closing the session cancels steps that are still waiting, for example for a queue. Nothing depends on the
            # session now.
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
        """Ends the threads and the session of a failed start. Doesn't raise errors, which would hide the first one."""
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
            # Close the writer after the threads have ended, because they write events.
            if close_summary_writer:
                close()


_SessionLog = event_pb2.SessionLog


class EventLog:
    """Writes the events of a Supervisor."""

    def __init__(self, graph: ops.Graph, meta_graph_def: Any, logdir: Any, writer: Any, owns_writer: bool) -> None:
        self._graph = graph
        self._meta_graph_def = meta_graph_def
        self._logdir = logdir
        self.owns_writer = owns_writer
        self.writer = writer
        self.has_graph: bool = False

    def write_graph(self) -> None:
        """Writes the graph to the directory and, once per event file, to the events."""
        if self._logdir:
            write_graph_as_text(self._graph.as_graph_def(add_shapes=True), self._logdir, "graph.pbtxt")
        if not self.writer or self.has_graph:
            return
        self.writer.add_graph(self._graph)
        self.writer.add_meta_graph(self._meta_graph_def)
        self.has_graph = True

    def log_session_start(self, step: int) -> None:
        """Makes readers discard the later steps of an earlier run."""
        self.writer.add_session_log(_SessionLog(status=_SessionLog.START), step)

    def log_checkpoint(self, path: Any, step: int) -> None:
        """Records that a checkpoint was saved."""
        self.writer.add_session_log(_SessionLog(status=_SessionLog.CHECKPOINT, checkpoint_path=path), step)

    def close(self) -> None:
        """Logs the end of the session and closes the event file."""
        writer = self.writer
        if not writer:
            return
        # A closed FileWriter writes nothing, and warns about each event.
        if getattr(writer, "_closed", None) is not True:
            # Leave the step out, because the session from which to read it may be closed.
            writer.add_session_log(_SessionLog(status=_SessionLog.STOP))
            writer.close()
        # A reopened writer starts another file, which also needs the graph.
        self.has_graph = False

    def close_after_error(self) -> None:
        """Closes the event file. Only logs an error, which is often a consequence of the raised one."""
        try:
            self.close()
        except Exception as error:
            logging.warning("The summary writer could not be closed: %s", error)


class SupervisorSaves:
    """Saves checkpoints."""

    def __init__(self, graph: ops.Graph, path: str | None, in_background: bool) -> None:
        self._graph = graph
        self.in_background = in_background
        self._writer = CheckpointWriter(remember_state=True)
        self.path = path

    def save(self, sess: Any, saver: Any, save_path: Any, global_step: Any = None) -> Any:
        """Saves a checkpoint named by the step of its variables, and waits until it is written."""

        def log_start() -> None:
            logging.info("Saving checkpoint to path %s", save_path)

        if not isinstance(sess, Session):
            log_start()
            return save_durably(saver, sess, save_path, global_step)
        if self.in_background:
            self._writer.prepare(sess, saver)
        # The gate blocks steps from here on, so the step in the name matches the variables.
        with no_interpreter_exit, sess.gate:
            step = None if global_step is None else self.read_step(sess, global_step)
            path = self._writer.save(sess, saver, save_path, step, log_start, in_background=self.in_background)
        return self._writer.wait() if path is None else path

    def read_step(self, sess: Any, global_step: Any) -> int:
        """Returns the value of the global step in a session."""
        # Unlike fetching the variable, fetching its tensor is known to write nothing.
        tensor = self._graph.as_graph_element(global_step)
        return training_util.global_step(sess, tensor)  # type: ignore[no-any-return]

    def save_last(self, save: Callable[..., Any], sess: Any, saver: Any, global_step: Any) -> None:
        """Saves the last state of training when a signal ends the run. The services may still be running."""
        if self.path is None or saver is None:
            return
        held = stop_signals.holds_signals()
        try:
            # This write replaces a failed one.
            self._writer.wait_and_log()
            path = save(sess, saver, self.path, global_step=global_step)
            stop_signals.log_last_save(path or self.path)
        finally:
            stop_signals.release(held)


class _Service(coordinator.LooperThread):  # type: ignore[misc]
    """A thread that uses the Supervisor's session immediately, and then every `timer_interval_secs` seconds."""

    def __init__(self, sv: Any, sess: Any, timer_interval_secs: float) -> None:
        super().__init__(sv.coord, timer_interval_secs)
        self._sv = sv
        self._sess = sess

    def run(self) -> None:
        # A thread without a default graph executes eagerly under TF 2 behavior, and can't use a Saver.
        with self._sv._graph.as_default():
            super().run()


class SVSummaryThread(_Service):
    """Runs the summary op every `save_summaries_secs` seconds, and writes its summary to the event file."""

    def __init__(self, sv: Any, sess: Any) -> None:
        super().__init__(sv, sess, sv.save_summaries_secs)

    def run_loop(self) -> None:
        sv, step = self._sv, None
        if sv.global_step is None:
            summary = self._sess.run(sv.summary_op)
        else:
            summary, step = self._sess.run([sv.summary_op, sv.global_step])
        if sv.summary_writer:
            logging.info("Recording summary at step %s.", step)
            sv.summary_writer.add_summary(summary, step)


class SVStepCounterThread(_Service):
    """Measures the global steps per second every `save_summaries_secs` seconds, for the event file and the log."""

    def __init__(self, sv: Any, sess: Any, step_counter: Any = None) -> None:
        super().__init__(sv, sess, sv.save_summaries_secs)
        self._step_counter = sv.global_step if step_counter is None else step_counter
        self._summary_tag = f"{self._step_counter.op.name}/sec"
        self._last_time = 0.0
        self._last_step = 0

    def _measure(self) -> tuple[int, float]:
        """Returns the steps and the seconds since the last measurement."""
        last_step, last_time = self._last_step, self._last_time
        self._last_step = training_util.global_step(self._sess, self._step_counter)
        self._last_time = time.time()
        return self._last_step - last_step, self._last_time - last_time

    def start_loop(self) -> None:
        self._last_time = time.time()
        self._last_step = training_util.global_step(self._sess, self._step_counter)

    def run_loop(self) -> None:
        steps, seconds = self._measure()
        # If the clock is too coarse or was set back, there is no rate.
        rate = steps / seconds if seconds > 0.0 else float("inf")
        writer = self._sv.summary_writer
        if writer:
            summary = summary_pb2.Summary()
            summary.value.add(tag=self._summary_tag, simple_value=rate)
            writer.add_summary(summary, self._last_step)
        logging.log_first_n(logging.INFO, "%s: %g", 10, self._summary_tag, rate)


class SVTimerCheckpointThread(_Service):
    """Saves a checkpoint every `save_model_secs` seconds, and logs it in the event file."""

    def __init__(self, sv: Any, sess: Any) -> None:
        super().__init__(sv, sess, sv.save_model_secs)

    def run_loop(self) -> None:
        sv = self._sv
        sv._save(self._sess, sv.saver, sv.save_path, global_step=sv.global_step)
        if sv.summary_writer and sv.global_step is not None:
            sv._event_log.log_checkpoint(sv.save_path, training_util.global_step(self._sess, sv.global_step))


def start_services(sv: Any, sess: Any) -> list[Any] | None:
    """Starts the services of a Supervisor in a session. See `Supervisor.start_standard_services`."""
    if not sv._is_chief:
        raise RuntimeError(
            "Only chief supervisor can start standard services. Because only chief supervisors can write events."
        )
    if not sv._logdir:
        logging.warning("Standard services need a 'logdir' passed to the SessionManager")
        return None
    if sv._global_step is not None and sv._summary_writer:
        sv._event_log.log_session_start(sv._checkpoints.read_step(sess, sv._global_step))
    services: list[Any] = []
    if sv._save_summaries_secs and sv._summary_writer:
        if sv._summary_op is not None:
            services.append(SVSummaryThread(sv, sess))
        if sv._global_step is not None:
            services.append(SVStepCounterThread(sv, sess))
    if sv.saver and sv._save_model_secs:
        services.append(SVTimerCheckpointThread(sv, sess))
    for service in services:
        service.start()
    return services
