"""Supervisor: initialises or recovers a model, and runs the services beside its training loop. As TensorFlow's does."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tensorflow.core.util import event_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import meta_graph, ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary import summary as tf_summary
from tensorflow.python.training import coordinator, training_util
from tensorflow.python.training import supervisor as tf_supervisor

from fastsup.checkpoint.async_save import BackgroundSaver
from fastsup.checkpoint.output_directory import directory_path
from fastsup.checkpoint.unchanged_checkpoint import LEFT_AS_IT_IS, checkpoint_of_now
from fastsup.core import timeline
from fastsup.core.recorder import program_recorder_now, recorder_of
from fastsup.core.session_origin import current_origin
from fastsup.events.graph_text import write_graph_as_text
from fastsup.runtime import stop_signals
from fastsup.runtime.executor import check_executor
from fastsup.runtime.interpreter_end import uninterrupted
from fastsup.runtime.session import Session
from fastsup.train.session import session_manager as session_manager_mod
from fastsup.train.session.leaked_threads import warn_of_stray_threads
from fastsup.train.supervisor.arguments import check_choice, check_kinds, check_seconds
from fastsup.train.supervisor.graph_elements import SupervisorElements
from fastsup.train.supervisor.services import SVStepCounterThread, SVSummaryThread, SVTimerCheckpointThread

__all__ = ["SVStepCounterThread", "SVSummaryThread", "SVTimerCheckpointThread", "Supervisor"]

_SessionLog = event_pb2.SessionLog


class Supervisor(SupervisorElements, tf_supervisor.Supervisor):  # type: ignore[misc]
    """Takes care of what a training program needs beside its loop.

    It initialises the model or restores its newest checkpoint, and starts services that save checkpoints, write
    summaries and count steps, each in a thread of its own:

        sv = Supervisor(logdir=logdir)
        with sv.managed_session() as sess:
            while not sv.should_stop():
                sess.run(train_op)

    An exception of the loop or of a service stops all of them and is raised where the block ends. The end of the input
    (`tf.errors.OutOfRangeError`) stops them too, and isn't raised. Several replicas run the same program; one of them
    is the chief, which initialises, saves and writes summaries, and for which the others wait.

    Args:
      graph: the model's graph, which is finished by this call. Defaults to the default graph.
      ready_op: 1-D string tensor: empty if the model is ready, else what is missing. Defaults to the graph's
        collection READY_OP, or else to a report of uninitialised variables. None: it isn't asked.
      ready_for_local_init_op: the same, asked before `local_init_op` is run. Defaults to the collection
        READY_FOR_LOCAL_INIT_OP, or else to None.
      is_chief: whether to initialise and recover the model, or to wait until the chief has done it.
      init_op: operation that initialises a model without checkpoint. Defaults to the collection INIT_OP, or else to
        one that initialises all global variables. None: there is none.
      init_feed_dict: feeds for `init_op`.
      local_init_op: operation to run in every new session. Defaults to the collection LOCAL_INIT_OP, or else to one
        that initialises local variables and tables. None: there is none.
      logdir: directory for checkpoints and events; made if it isn't there. None: neither is written.
      summary_op: operation that gives a serialised Summary. Defaults to the collection SUMMARY_OP, or else to all
        summaries merged. None: the summary service isn't started.
      saver: `tf.compat.v1.train.Saver`. Defaults to the collection SAVERS, or else to one for all global variables.
        None: nothing is saved or restored.
      global_step: integer tensor or variable that counts steps. Defaults to the collection GLOBAL_STEP, or else to
        the tensor of that name. None: steps aren't counted, nor recorded in checkpoints and summaries.
      save_summaries_secs: seconds between two summaries; 0 for none.
      save_model_secs: seconds between two checkpoints; 0 for none.
      recovery_wait_secs: seconds between two looks at a model that the chief gets ready.
      stop_grace_secs: seconds that threads have to end in, once a stop was requested.
      checkpoint_basename: base name of the checkpoint files.
      session_manager: SessionManager that makes the sessions. None: one is made of the arguments above.
      summary_writer: writer for the events. Defaults to a FileWriter for `logdir`. None: no events are written.
      init_fn: function called with the session, after `init_op`, to initialise a model without checkpoint.
      local_init_run_options: RunOptions for `local_init_op`.
      executor: executor mode of the sessions, as for `fastsup.Session`.
      async_save: whether checkpoints are written in the background.
      stray_threads: what happens to a finished run of which a thread outlives `stop_grace_secs`. "warn": it ends, with
        a warning that names the thread and where it stands. "raise": it fails with a RuntimeError, as TensorFlow's.
      handle_signals: whether SIGTERM and SIGINT, where nobody else handles them, end a `managed_session` that has a
        `logdir` between two steps, with a checkpoint, and the program after it, with exit code 143 or
        KeyboardInterrupt. A second signal ends the program at once.
      profiler: `fastsup.HookProfiler` that records the runs of the thread that makes the session; None for the one that
        is on for the whole program, whenever one is.

    Raises:
      RuntimeError: eager execution is enabled.
      TypeError: an argument is of the wrong type.
      ValueError: an argument has no valid value, or belongs to another graph, or a variable of a replica that isn't
        the chief has no device.
      tf.errors.OpError: `logdir` couldn't be made.
    """

    def __init__(
        self,
        graph: Any = None,
        ready_op: Any = SupervisorElements.USE_DEFAULT,
        ready_for_local_init_op: Any = SupervisorElements.USE_DEFAULT,
        is_chief: bool = True,
        init_op: Any = SupervisorElements.USE_DEFAULT,
        init_feed_dict: Any = None,
        local_init_op: Any = SupervisorElements.USE_DEFAULT,
        logdir: Any = None,
        summary_op: Any = SupervisorElements.USE_DEFAULT,
        saver: Any = SupervisorElements.USE_DEFAULT,
        global_step: Any = SupervisorElements.USE_DEFAULT,
        save_summaries_secs: float | None = 120,
        save_model_secs: float | None = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = 120,
        checkpoint_basename: str = "model.ckpt",
        session_manager: Any = None,
        summary_writer: Any = SupervisorElements.USE_DEFAULT,
        init_fn: Callable[[Any], Any] | None = None,
        local_init_run_options: Any = None,
        *,
        executor: str = "auto",
        async_save: bool = False,
        stray_threads: str = "warn",
        handle_signals: bool = True,
        profiler: Any = None,
    ) -> None:
        if context.executing_eagerly():
            raise RuntimeError("Supervisors are incompatible with eager execution.")
        check_seconds("save_summaries_secs", save_summaries_secs, "pass 0 for no summaries")
        check_seconds("save_model_secs", save_model_secs, "pass 0 for no checkpoints")
        check_seconds("stop_grace_secs", stop_grace_secs, "pass 0 not to wait for threads", endless=True)
        check_choice("stray_threads", stray_threads, ("warn", "raise"))
        check_kinds(graph, saver, init_fn)
        logdir = directory_path("logdir", logdir)
        self._profiler = recorder_of(profiler)
        self._in_timeline: Any = None
        if check_executor(executor) != "auto" and session_manager is not None:
            raise ValueError(
                f"executor={executor!r} and session_manager={session_manager!r} were both given: the sessions have the "
                "executor of their SessionManager, so pass executor to that."
            )
        if graph is None:
            graph = ops.get_default_graph()
        with graph.as_default():
            self._init_ready_op(ready_op=ready_op, ready_for_local_init_op=ready_for_local_init_op)
            self._init_init_op(init_op=init_op, init_feed_dict=init_feed_dict)
            self._init_local_init_op(local_init_op=local_init_op)
            self._init_saver(saver=saver)
            self._init_summary_op(summary_op=summary_op)
            self._init_global_step(global_step=global_step)
        self._graph = graph
        self._meta_graph_def = meta_graph.create_meta_graph_def(
            graph_def=graph.as_graph_def(add_shapes=True),
            saver_def=self._saver.saver_def if self._saver else None,
            graph=graph,
        )
        self._is_chief = is_chief
        self._coord = coordinator.Coordinator()
        self._recovery_wait_secs = recovery_wait_secs
        self._stop_grace_secs = stop_grace_secs
        self._init_fn = init_fn
        self._local_init_run_options = local_init_run_options
        self._executor = executor
        self._async_save = async_save
        self._background_saver: BackgroundSaver | None = None
        self._stray_threads = stray_threads
        self._handle_signals = handle_signals
        # Only a chief saves and writes.
        self._logdir = logdir if is_chief else None
        self._save_summaries_secs = save_summaries_secs if is_chief else None
        self._save_model_secs = save_model_secs if is_chief else None
        self._save_path = os.path.join(logdir, checkpoint_basename) if self._logdir else None
        self._graph_added_to_summary = False
        self._init_session_manager(session_manager=session_manager)
        self._check_elements(own_manager=session_manager is None)
        self._verify_setup()
        # Last of all, since it makes a directory and a thread.
        self._owns_summary_writer = summary_writer is Supervisor.USE_DEFAULT
        self._summary_writer = None
        if is_chief and not self._owns_summary_writer:
            self._summary_writer = summary_writer
        elif self._logdir:
            self._summary_writer = tf_summary.FileWriter(self._logdir)
        graph.finalize()

    def _init_session_manager(self, session_manager: Any = None) -> None:
        if session_manager is None:
            session_manager = session_manager_mod.SessionManager(
                local_init_op=self._local_init_op,
                ready_op=self._ready_op,
                ready_for_local_init_op=self._ready_for_local_init_op,
                graph=self._graph,
                recovery_wait_secs=self._recovery_wait_secs,
                local_init_run_options=self._local_init_run_options,
                executor=self._executor,
            )
        self._session_manager = session_manager

    def _verify_setup(self) -> None:
        # Where there is a chief there are replicas, and a variable without device would be one in each of them.
        if self._is_chief:
            return
        for op in self._graph.get_operations():
            if op.type in ("Variable", "VariableV2") and not op.device:
                raise ValueError(f"When using replicas, all Variables must have their device set: {op}")

    @property
    def is_chief(self) -> bool:
        """Whether this is the chief."""
        return self._is_chief

    @property
    def session_manager(self) -> Any:
        """The SessionManager that makes the sessions."""
        return self._session_manager

    @property
    def coord(self) -> Any:
        """The Coordinator of the services' threads, for threads of the program's own."""
        return self._coord

    @property
    def summary_writer(self) -> Any:
        """The chief's writer of events, or None."""
        return self._summary_writer

    @property
    def save_summaries_secs(self) -> float | None:
        """Seconds between two summaries. None if this isn't the chief."""
        return self._save_summaries_secs

    @property
    def save_model_secs(self) -> float | None:
        """Seconds between two checkpoints. None if this isn't the chief."""
        return self._save_model_secs

    @property
    def save_path(self) -> Any:
        """The path that checkpoints are saved under, without the step. None without `logdir`."""
        return self._save_path

    def _write_graph(self) -> None:
        if self._logdir:
            write_graph_as_text(self._graph.as_graph_def(add_shapes=True), self._logdir, "graph.pbtxt")
        if self._summary_writer and not self._graph_added_to_summary:
            self._summary_writer.add_graph(self._graph)
            self._summary_writer.add_meta_graph(self._meta_graph_def)
            self._graph_added_to_summary = True

    def _value_of(self, sess: Any, global_step: Any) -> int:
        # A variable's tensor: what is fetched of it then is known to write nothing.
        tensor = self._graph.as_graph_element(global_step)
        return training_util.global_step(sess, tensor)  # type: ignore[no-any-return]

    def _save(self, sess: Any, saver: Any, save_path: Any, global_step: Any = None) -> Any:
        """Saves a checkpoint, named by the step that its variables are of. Every one that the services save."""
        if not isinstance(sess, Session):
            logging.info("Saving checkpoint to path %s", save_path)
            return saver.save(sess, save_path, global_step=global_step)
        # Between two steps from here on, so that the name is right too.
        with uninterrupted, sess.gate:
            step = None if global_step is None else self._value_of(sess, global_step)
            saved_already = checkpoint_of_now(sess, saver, save_path, step, write_meta_graph=True)
            if saved_already is not None:
                logging.info(LEFT_AS_IT_IS, step, saved_already)
                return saved_already
            logging.info("Saving checkpoint to path %s", save_path)
            if not self._async_save:
                # Counted before, in case that the gate loses its patience with a step.
                passed = sess.gate.passed
                path = saver.save(sess, save_path, global_step=step)
                sess._note_checkpoint(path, passed)
                return path
            if self._background_saver is None:
                self._background_saver = BackgroundSaver(saver)
            self._background_saver.save(sess, save_path, step)
        return self._background_saver.wait()

    def start_standard_services(self, sess: Any) -> list[threading.Thread] | None:
        """Starts the services: for summaries, for the count of steps, and for checkpoints.

        Args:
          sess: the session that they use.

        Returns:
          The threads, started. None without `logdir`, which is said in a warning.

        Raises:
          RuntimeError: this isn't the chief.
        """
        if not self._is_chief:
            raise RuntimeError(
                "Only chief supervisor can start standard services. Because only chief supervisors can write events."
            )
        if not self._logdir:
            logging.warning("Standard services need a 'logdir' passed to the SessionManager")
            return None
        if self._global_step is not None and self._summary_writer:
            # It tells readers to forget what an earlier run wrote of later steps; without a step it can't.
            step = self._value_of(sess, self._global_step)
            self._summary_writer.add_session_log(_SessionLog(status=_SessionLog.START), step)
        threads: list[threading.Thread] = []
        if self._save_summaries_secs and self._summary_writer:
            if self._summary_op is not None:
                threads.append(SVSummaryThread(self, sess))
            if self._global_step is not None:
                threads.append(SVStepCounterThread(self, sess))
        if self.saver and self._save_model_secs:
            threads.append(SVTimerCheckpointThread(self, sess))
        for thread in threads:
            thread.start()
        return threads

    @timeline.phase("open")
    def prepare_or_wait_for_session(
        self,
        master: str = "",
        config: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        start_standard_services: bool = True,
    ) -> Any:
        """A new session whose model is ready: the chief gets it ready, everybody else waits for it.

        Args:
          master: the execution engine to connect to.
          config: ConfigProto of the session, or None.
          wait_for_checkpoint: whether a chief waits for a checkpoint to be there.
          max_wait_secs: seconds to wait at most.
          start_standard_services: whether to start the services, in the chief, and the queue runners.

        Raises:
          RuntimeError: the model couldn't be got ready.
          tf.errors.DeadlineExceededError: the chief hadn't got the model ready after `max_wait_secs`.
        """
        # After a stop(), both can be used again.
        self._coord.clear_stop()
        if self._summary_writer:
            self._summary_writer.reopen()
        session = None
        try:
            if self._is_chief:
                session = self._session_manager.prepare_session(
                    master,
                    init_op=self.init_op,
                    saver=self.saver,
                    checkpoint_dir=self._logdir,
                    wait_for_checkpoint=wait_for_checkpoint,
                    max_wait_secs=max_wait_secs,
                    config=config,
                    init_feed_dict=self._init_feed_dict,
                    init_fn=self._init_fn,
                )
                self._write_graph()
                if start_standard_services:
                    logging.info("Starting standard services.")
                    self.start_standard_services(session)
            else:
                session = self._session_manager.wait_for_session(master, config=config, max_wait_secs=max_wait_secs)
            if start_standard_services:
                logging.info("Starting queue runners.")
                self.start_queue_runners(session)
        except BaseException:
            self._abandon(session)
            raise
        if isinstance(session, Session):
            session._record_runs(self._profiler, current_origin("train"))
            recorder = self._profiler or program_recorder_now()
            if recorder is not None:
                # What has got the session ready is none of the time between two steps.
                recorder.interrupt_here()
        self._in_timeline = timeline.begin("train")
        return session

    def _abandon(self, session: Any) -> None:
        """Ends what was begun for a session that couldn't be made ready. Whatever else goes wrong isn't the cause."""
        if session is not None:
            self._coord.request_stop()
            with contextlib.suppress(Exception):
                session.close()
            # Without those that were not started, and without this one, should it be one of them.
            threads = [thread for thread in self._registered_threads() if thread.is_alive()]
            for thread in threads:
                if thread is not threading.current_thread():
                    thread.join(max(0.0, min(self._stop_grace_secs, threading.TIMEOUT_MAX)))
            if not any(thread.is_alive() for thread in threads):
                self._coord.clear_stop()
        if self._owns_summary_writer:
            with contextlib.suppress(Exception):
                self._close_summary_writer()

    def start_queue_runners(self, sess: Any, queue_runners: Any = None) -> list[threading.Thread]:
        """Starts the threads of queue runners.

        Args:
          sess: the session that they run in.
          queue_runners: list of `QueueRunner`. Defaults to the graph's collection QUEUE_RUNNERS, which
            `prepare_or_wait_for_session` and `managed_session` have started already.

        Returns:
          The threads, started.

        Raises:
          RuntimeError: eager execution is enabled.
        """
        if context.executing_eagerly():
            raise RuntimeError("Queues are not compatible with eager execution.")
        if queue_runners is None:
            queue_runners = self._graph.get_collection(ops.GraphKeys.QUEUE_RUNNERS)
        threads: list[threading.Thread] = []
        for runner in queue_runners:
            threads.extend(runner.create_threads(sess, coord=self._coord, daemon=True, start=True))
        return threads

    def loop(
        self, timer_interval_secs: float | None, target: Callable[..., Any], args: Any = None, kwargs: Any = None
    ) -> threading.Thread:
        """Starts a thread that calls a function again and again, until a stop is requested. `stop()` waits for it.

        Args:
          timer_interval_secs: seconds from one call to the next; None for no pause between them.
          target: the function.
          args: its positional arguments, or None.
          kwargs: its keyword arguments, or None.

        Returns:
          The thread, started.

        Raises:
          ValueError: `timer_interval_secs` is infinite, or there are arguments for no function.
          TypeError: `target` can't be called, or `timer_interval_secs` is no number.
        """
        check_seconds("timer_interval_secs", timer_interval_secs, "pass None for no pause between two calls")
        if target is not None and not callable(target):
            raise TypeError(f"{type(target).__name__!r} object is not callable: target must be a function.")
        thread: threading.Thread = coordinator.LooperThread(
            self._coord, timer_interval_secs, target=target, args=args, kwargs=kwargs
        )
        thread.start()
        return thread

    @timeline.phase("end")
    def stop(self, threads: Any = None, close_summary_writer: bool = True, ignore_live_threads: bool = False) -> None:
        """Stops the services and waits for their threads. The session stays open.

        Args:
          threads: threads to wait for, beside the services', the queue runners' and those of `loop()`.
          close_summary_writer: whether to close the summary writer.
          ignore_live_threads: whether threads that outlive `stop_grace_secs` are nothing to speak of.

        Raises:
          RuntimeError: a thread outlived `stop_grace_secs`, and `stray_threads` is "raise".
          Exception: the first one that was reported to the coordinator.
        """
        timeline.finish(self._in_timeline)
        self._coord.request_stop()
        warn = self._stray_threads == "warn" and not ignore_live_threads
        awaited = self._registered_threads().union(threads or ()) if warn else set()
        try:
            self._coord.join(
                threads,
                stop_grace_period_secs=self._stop_grace_secs,
                ignore_live_threads=ignore_live_threads or warn,
            )
        except BaseException:
            warn_of_stray_threads(awaited, self._stop_grace_secs)
            if close_summary_writer:
                try:
                    self._close_summary_writer()
                except Exception as error:
                    # It would hide the one that is being raised, which often is its cause.
                    logging.warning("The summary writer could not be closed: %s", error)
            raise
        warn_of_stray_threads(awaited, self._stop_grace_secs)
        # After the threads, since they write to it.
        if close_summary_writer:
            self._close_summary_writer()

    def _registered_threads(self) -> set[threading.Thread]:
        """The threads that the coordinator waits for. Its join() forgets them."""
        return set(self._coord._registered_threads)

    def _close_summary_writer(self) -> None:
        writer = self._summary_writer
        if not writer:
            return
        # A FileWriter that is closed already would write nothing, and complain.
        if getattr(writer, "_closed", None) is not True:
            # Without a step: there may be no session any more to read it in.
            writer.add_session_log(_SessionLog(status=_SessionLog.STOP))
            writer.close()
        # The next events file gets the graph anew.
        self._graph_added_to_summary = False

    def request_stop(self, ex: Any = None) -> None:
        """Requests that all threads stop.

        Args:
          ex: exception, or `sys.exc_info()` of one, that is the reason. The first one is raised by `stop()`.
        """
        self._coord.request_stop(ex=ex)

    def should_stop(self) -> bool:
        """Whether a stop was requested."""
        # Nothing but the call: loops ask this in every step.
        return self._coord.should_stop()  # type: ignore[no-any-return]

    def stop_on_exception(self) -> contextlib.AbstractContextManager[None]:
        """A context manager that takes an exception of its block for the reason to stop, and doesn't raise it."""
        manager: contextlib.AbstractContextManager[None] = self._coord.stop_on_exception()
        return manager

    def wait_for_stop(self) -> None:
        """Returns once a stop was requested."""
        self._coord.wait_for_stop()

    def summary_computed(self, sess: Any, summary: Any, global_step: Any = None) -> None:
        """Appends a summary to the events file.

        Args:
          sess: session to read the global step in.
          summary: a Summary, or a serialised one.
          global_step: the step that it belongs to. None: the present one is read.

        Raises:
          TypeError: `summary` is neither.
          RuntimeError: there is no summary writer.
        """
        if not self._summary_writer:
            raise RuntimeError("Writing a summary requires a summary writer.")
        if global_step is None and self.global_step is not None:
            # Also in a thread, which executes eagerly under TensorFlow 2 behaviour.
            with self._graph.as_default():
                global_step = training_util.global_step(sess, self.global_step)
        self._summary_writer.add_summary(summary, global_step)

    @contextlib.contextmanager
    def managed_session(
        self,
        master: str = "",
        config: Any = None,
        start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> Iterator[Any]:
        """A block with a session that is ready, which is closed, with all threads stopped, where the block ends.

        Args:
          master: the execution engine to connect to.
          config: ConfigProto of the session, or None.
          start_standard_services: whether to start the services, in the chief, and the queue runners.
          close_summary_writer: whether to close the summary writer in the end.

        Returns:
          A context manager that gives the session.

        Raises:
          Exception: the first one of the block or of a thread. The end of the input (`tf.errors.OutOfRangeError`) is
            none, unless it comes while the session is made.
        """
        watching = self._handle_signals and self._logdir is not None and stop_signals.watch()
        try:
            with self._ready_session(master, config, start_standard_services, close_summary_writer) as session:
                yield session
        finally:
            if watching:
                stop_signals.unwatch()

    @contextlib.contextmanager
    def _ready_session(
        self, master: str, config: Any, start_standard_services: bool, close_summary_writer: bool
    ) -> Iterator[Any]:
        try:
            session = self.prepare_or_wait_for_session(
                master=master, config=config, start_standard_services=start_standard_services
            )
        except BaseException as error:
            if isinstance(error, Exception):
                self.request_stop(error)
            self.stop(close_summary_writer=close_summary_writer)
            # Here, where stop() has not raised it: the coordinator takes OutOfRangeError for the end of the input, but
            # a checkpoint that ends too early raises it too.
            raise
        try:
            yield session
        except Exception as error:
            self.request_stop(error)
        except (KeyboardInterrupt, SystemExit):
            if stop_signals.has_come():
                self._save_at_the_end(session)
            raise
        finally:
            held = stop_signals.holds_signals()
            try:
                self.stop(close_summary_writer=close_summary_writer)
            finally:
                # Ends calls that are still waiting, in a queue say. Whatever it raises comes too late to matter.
                with contextlib.suppress(Exception):
                    session.close()
                stop_signals.release(held)

    def _save_at_the_end(self, session: Any) -> None:
        """Saves what training has reached, where a signal ends it. The services may be at work still."""
        if self._save_path is None or self._saver is None:
            return
        held = stop_signals.holds_signals()
        try:
            if self._background_saver is not None:
                self._background_saver.wait()
            self._save(session, self._saver, self._save_path, global_step=self._global_step)
        finally:
            stop_signals.release(held)

    # The names of old.
    PrepareSession = prepare_or_wait_for_session
    StartQueueRunners = start_queue_runners
    StartStandardServices = start_standard_services
    Stop = stop
    RequestStop = request_stop
    Loop = loop
    ShouldStop = should_stop
    StopOnException = stop_on_exception
    WaitForStop = wait_for_stop
    SummaryComputed = summary_computed
