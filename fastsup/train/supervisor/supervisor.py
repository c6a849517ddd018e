"""Supervisor, which initializes or restores a model and runs services during training, like TensorFlow's Supervisor."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.framework import meta_graph, ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary import summary as tf_summary
from tensorflow.python.training import coordinator, training_util
from tensorflow.python.training import supervisor as tf_supervisor

from fastsup.checkpoint.directory import directory_argument
from fastsup.common.parts import Delegated, delegate
from fastsup.core.checks import check_choice, check_flag, doubt_about_text
from fastsup.core.probe import check_profiler
from fastsup.runtime.executor import check_executor
from fastsup.runtime.graph.variable_sharing import add_reads_without_copy
from fastsup.train.session import session_manager as session_manager_mod
from fastsup.train.supervisor.graph_elements import USE_DEFAULT, GraphElements, check_seconds, check_types
from fastsup.train.supervisor.services import (
    EventLog,
    Sessions,
    SupervisorSaves,
    SVStepCounterThread,
    SVSummaryThread,
    SVTimerCheckpointThread,
    start_services,
)

__all__ = ["SVStepCounterThread", "SVSummaryThread", "SVTimerCheckpointThread", "Supervisor", "SupervisorForwards"]


class SupervisorForwards:
    """Members other than the public methods that programs read, assign and override in a Supervisor."""

    _executor: str
    _is_chief: bool
    _local_init_run_options: Any
    _recovery_wait_secs: float
    _save_model_secs: float | None
    _save_summaries_secs: float | None
    _coord: Any
    _session_manager: Any

    _graph = Delegated("_elements", "graph")
    _ready_op = Delegated("_elements", "ready_op")
    _ready_for_local_init_op = Delegated("_elements", "ready_for_local_init_op")
    _init_op = Delegated("_elements", "init_op")
    _init_feed_dict = Delegated("_elements", "init_feed_dict")
    _local_init_op = Delegated("_elements", "local_init_op")
    _saver = Delegated("_elements", "saver")
    _summary_op = Delegated("_elements", "summary_op")
    _global_step = Delegated("_elements", "global_step")
    _summary_writer = Delegated("_event_log", "writer")
    _graph_added_to_summary = Delegated("_event_log", "has_graph")
    _async_save = Delegated("_checkpoints", "in_background")
    _save_path = Delegated("_checkpoints", "path")
    _init_fn = Delegated("_sessions", "init_fn")
    _stop_grace_secs = Delegated("_sessions", "stop_grace_secs")

    _init_ready_op = delegate("_elements", "init_ready_op")
    _init_init_op = delegate("_elements", "init_init_op")
    _init_local_init_op = delegate("_elements", "init_local_init_op")
    _init_saver = delegate("_elements", "init_saver")
    _init_summary_op = delegate("_elements", "init_summary_op")
    _init_global_step = delegate("_elements", "init_global_step")
    _get_first_op_from_collection = delegate("_elements", "first_of_collection")
    _default_global_step_tensor = delegate("_elements", "default_global_step")
    _write_graph = delegate("_event_log", "write_graph")
    # TensorFlow doesn't have this method. It saves each checkpoint of a Supervisor.
    _save = delegate("_checkpoints", "save")

    @property
    def is_chief(self) -> bool:
        """True if this is the chief."""
        return self._is_chief

    @property
    def coord(self) -> Any:
        """The Coordinator of the services' threads. A program's own threads may also use it."""
        return self._coord

    @property
    def session_manager(self) -> Any:
        """The SessionManager that creates the sessions."""
        return self._session_manager

    @property
    def init_op(self) -> Any:
        """The operation that initializes the model, or None."""
        return self._init_op

    @property
    def init_feed_dict(self) -> Any:
        """The feeds of `init_op`, or None."""
        return self._init_feed_dict

    @property
    def ready_op(self) -> Any:
        """The tensor that is empty if the model is ready, or None."""
        return self._ready_op

    @property
    def ready_for_local_init_op(self) -> Any:
        """The tensor that is empty if the model is ready for `local_init_op`, or None."""
        return self._ready_for_local_init_op

    @property
    def summary_op(self) -> Any:
        """The operation that computes the summary, or None."""
        return self._summary_op

    @property
    def global_step(self) -> Any:
        """The tensor or variable that counts steps, or None."""
        return self._global_step

    @property
    def saver(self) -> Any:
        """The Saver of the checkpoints, or None."""
        return self._saver

    @property
    def summary_writer(self) -> Any:
        """The chief's writer of events, or None."""
        return self._summary_writer

    @property
    def save_summaries_secs(self) -> float | None:
        """Seconds between summaries. None if this isn't the chief."""
        return self._save_summaries_secs

    @property
    def save_model_secs(self) -> float | None:
        """Seconds between checkpoints. None if this isn't the chief."""
        return self._save_model_secs

    @property
    def save_path(self) -> Any:
        """The path of the checkpoints, without the step. None without a `logdir`."""
        return self._save_path

    def _init_session_manager(self, session_manager: Any = None) -> None:
        if session_manager is None:
            session_manager = session_manager_mod.SessionManager(
                graph=self._graph,
                ready_op=self._ready_op,
                ready_for_local_init_op=self._ready_for_local_init_op,
                local_init_op=self._local_init_op,
                local_init_run_options=self._local_init_run_options,
                recovery_wait_secs=self._recovery_wait_secs,
                executor=self._executor,
                _looks_early=True,
            )
        self._session_manager = session_manager

    def _verify_setup(self) -> None:
        # Each replica would have its own copy of a variable without a device.
        if self._is_chief:
            return
        for op in self._graph.get_operations():
            if op.type in ("Variable", "VariableV2") and not op.device:
                raise ValueError(f"When using replicas, all Variables must have their device set: {op}")


class Supervisor(SupervisorForwards, tf_supervisor.Supervisor):  # type: ignore[misc]
    """Runs a training program: initializes or restores its model, saves checkpoints, writes summaries, and stops it.

    The checkpoints, the summaries and the step rate are services. Each runs in its own thread:

        sv = Supervisor(logdir=logdir)
        with sv.managed_session() as sess:
            while not sv.should_stop():
                sess.run(train_op)

    An error in the loop or in a service stops all threads, and is raised at the end of the block. The end of the input
    (`tf.errors.OutOfRangeError`) also stops them, but isn't raised. If several replicas run the program, one of them is
    the chief: it initializes the model, saves checkpoints and writes summaries. The other replicas wait for the chief.

    Args:
      graph: the model's graph, which the constructor finalizes. Defaults to the default graph.
      ready_op: 1-D string tensor, which is empty if the model is ready, and otherwise contains the names of missing
        variables. Defaults to the graph's collection READY_OP, or else to a report of uninitialized variables. If None,
        the model isn't checked.
      ready_for_local_init_op: the same for `local_init_op`, which runs only if the tensor is empty. Defaults to the
        collection READY_FOR_LOCAL_INIT_OP, or else to None.
      is_chief: Whether this replica initializes and restores the model. If False, waits for the chief.
      init_op: operation that initializes a model without a checkpoint. Defaults to the collection INIT_OP, or else to
        an operation that initializes all global variables. If None, there is no operation.
      init_feed_dict: feeds of `init_op`.
      local_init_op: operation that runs in every new session. Defaults to the collection LOCAL_INIT_OP, or else to an
        operation that initializes local variables and tables. If None, there is no operation.
      logdir: directory of the checkpoints and event files, which is created if necessary. If None, writes neither.
      summary_op: operation that computes a serialized Summary. Defaults to the collection SUMMARY_OP, or else to all
        summaries merged. If None, the summary service isn't started.
      saver: `tf.compat.v1.train.Saver`. Defaults to the collection SAVERS, or else to a saver of all global variables.
        If None, saves and restores nothing.
      global_step: integer tensor or variable that counts steps. Defaults to the collection GLOBAL_STEP, or else to the
        tensor with that name. If None, checkpoints and summaries have no step.
      save_summaries_secs: seconds between summaries. If 0, writes none.
      save_model_secs: seconds between checkpoints. If 0, saves none.
      recovery_wait_secs: maximum seconds between checks of a model that the chief prepares.
      stop_grace_secs: seconds that threads get to end after a stop is requested.
      checkpoint_basename: base name of the checkpoint files.
      session_manager: SessionManager that creates the sessions. If None, one is created from the arguments above.
      summary_writer: writer of the events. Defaults to a FileWriter for `logdir`. If None, writes no events.
      init_fn: function of the session, called after `init_op` for a model without a checkpoint.
      local_init_run_options: RunOptions for `local_init_op`.
      executor: executor mode of the sessions, as for `fastsup.Session`.
      async_save: Whether checkpoints are written in the background.
      stray_threads: how to handle threads that outlive `stop_grace_secs` after the run. "warn" logs a warning with each
        thread's name and stack. "raise" raises a RuntimeError, as in TensorFlow.
      handle_signals: Whether SIGTERM and SIGINT, unless the program handles them, end a `managed_session` between two
        steps, with a checkpoint, and then the program, with exit code 143 or KeyboardInterrupt. A second signal of the
        same kind ends the program immediately. If None, True for the chief with a `logdir`, which saves.
      profiler: `fastsup.HookProfiler` that records the runs of the thread that creates the session. If None, uses the
        profiler of the whole program, if one is on.

    Raises:
      RuntimeError: If eager execution is enabled.
      AttributeError: If `graph` isn't a graph, or `saver` isn't a saver.
      TypeError: If another argument has the wrong type.
      ValueError: If an argument has an invalid value or belongs to another graph, or this replica isn't the chief and a
        variable has no device.
      tf.errors.OpError: If `logdir` couldn't be created.
    """

    USE_DEFAULT = USE_DEFAULT

    def __init__(
        self,
        graph: Any = None,
        ready_op: Any = USE_DEFAULT,
        ready_for_local_init_op: Any = USE_DEFAULT,
        is_chief: bool = True,
        init_op: Any = USE_DEFAULT,
        init_feed_dict: Any = None,
        local_init_op: Any = USE_DEFAULT,
        logdir: Any = None,
        summary_op: Any = USE_DEFAULT,
        saver: Any = USE_DEFAULT,
        global_step: Any = USE_DEFAULT,
        save_summaries_secs: float | None = 120,
        save_model_secs: float | None = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = 120,
        checkpoint_basename: str = "model.ckpt",
        session_manager: Any = None,
        summary_writer: Any = USE_DEFAULT,
        init_fn: Callable[[Any], Any] | None = None,
        local_init_run_options: Any = None,
        *,
        executor: str = "auto",
        async_save: bool = False,
        stray_threads: str = "warn",
        handle_signals: bool | None = None,
        profiler: Any = None,
    ) -> None:
        if context.executing_eagerly():
            raise RuntimeError("Supervisors are incompatible with eager execution.")
        check_seconds("save_summaries_secs", save_summaries_secs, "pass 0 for no summaries")
        check_seconds("save_model_secs", save_model_secs, "pass 0 for no checkpoints")
        check_seconds("stop_grace_secs", stop_grace_secs, "pass 0 not to wait for threads", endless=True)
        check_choice("stray_threads", stray_threads, ("warn", "raise"))
        check_types(graph, saver, init_fn)
        logdir = directory_argument("logdir", logdir)
        profiler = check_profiler(profiler)
        if check_executor(executor) != "auto" and session_manager is not None:
            raise ValueError(
                f"executor={executor!r} and session_manager={session_manager!r} were both given: sessions use the "
                "executor of their SessionManager, so pass executor to the SessionManager."
            )
        check_flag(async_save=async_save)
        if doubt := doubt_about_text("is_chief", is_chief):
            logging.warning("%s", doubt)
        self._executor = executor
        self._recovery_wait_secs = recovery_wait_secs
        self._local_init_run_options = local_init_run_options

        # Only the chief writes files.
        self._is_chief = is_chief
        self._logdir = logdir if is_chief else None
        if handle_signals is None:
            handle_signals = self._logdir is not None
        check_flag(handle_signals=handle_signals)
        self._save_summaries_secs = save_summaries_secs if is_chief else None
        self._save_model_secs = save_model_secs if is_chief else None
        save_path = os.path.join(logdir, checkpoint_basename) if self._logdir else None

        self._elements = GraphElements(ops.get_default_graph() if graph is None else graph, methods=self)
        self._coord = coordinator.Coordinator()
        self._sessions = Sessions(self, init_fn, profiler, handle_signals, stop_grace_secs, stray_threads == "warn")
        with self._graph.as_default():
            # Create the elements in TensorFlow's order, which determines the names of the new operations.
            self._init_ready_op(ready_op, ready_for_local_init_op)
            self._init_init_op(init_op, init_feed_dict)
            self._init_local_init_op(local_init_op)
            self._init_saver(saver)
            self._init_summary_op(summary_op)
            self._init_global_step(global_step)
        self._checkpoints = SupervisorSaves(self._graph, save_path, in_background=async_save)
        self._meta_graph_def = meta_graph.create_meta_graph_def(
            graph_def=self._graph.as_graph_def(add_shapes=True),
            saver_def=self._saver.saver_def if self._saver else None,
            graph=self._graph,
        )
        self._init_session_manager(session_manager)
        self._elements.check(session_manager is None, is_chief, writes=bool(self._logdir))
        self._verify_setup()
        if async_save:
            add_reads_without_copy(self._graph)
        # This creates a directory and a thread, so it follows all checks.
        makes_writer = summary_writer is self.USE_DEFAULT
        if makes_writer or not is_chief:
            summary_writer = tf_summary.FileWriter(self._logdir) if self._logdir else None
        self._event_log = EventLog(self._graph, self._meta_graph_def, self._logdir, summary_writer, makes_writer)
        self._graph.finalize()

    @contextlib.contextmanager
    def managed_session(
        self,
        master: str = "",
        config: Any = None,
        start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> Iterator[Any]:
        """Returns a context manager for a session with a ready model. At its end, stops all threads and closes it.

        Args:
          master: the execution engine to connect to.
          config: ConfigProto of the session, or None.
          start_standard_services: Whether to start the services (in the chief) and the queue runners.
          close_summary_writer: Whether to close the summary writer at the end.

        Returns:
          A context manager that yields the session.

        Raises:
          Exception: The first error of the block or of a thread. `tf.errors.OutOfRangeError` is the end of the input
            and isn't raised, unless it occurs while the session is created.
        """
        yield from self._sessions.managed(master, config, start_standard_services, close_summary_writer)

    def prepare_or_wait_for_session(
        self,
        master: str = "",
        config: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        start_standard_services: bool = True,
    ) -> Any:
        """Creates a session whose model is ready. The chief prepares the model, and every other replica waits for it.

        Args:
          master: the execution engine to connect to.
          config: ConfigProto of the session, or None.
          wait_for_checkpoint: Whether a chief waits for a first checkpoint.
          max_wait_secs: maximum seconds to wait.
          start_standard_services: Whether to start the services (in the chief) and the queue runners.

        Returns:
          The session, which the caller must close.

        Raises:
          RuntimeError: If the model isn't ready after it was initialized.
          tf.errors.DeadlineExceededError: If the chief hasn't prepared the model after `max_wait_secs`.
        """
        return self._sessions.prepare(master, config, wait_for_checkpoint, max_wait_secs, start_standard_services)

    def start_standard_services(self, sess: Any) -> list[threading.Thread] | None:
        """Starts the services for summaries, for the step rate, and for checkpoints.

        `prepare_or_wait_for_session` and `managed_session` call this method. A service isn't started if its interval is
        0, or if it has nothing to do.

        Args:
          sess: the session in which the services run.

        Returns:
          The started threads, or None without a `logdir`.

        Raises:
          RuntimeError: If this Supervisor isn't the chief.
        """
        return start_services(self, sess)

    def start_queue_runners(self, sess: Any, queue_runners: Any = None) -> list[threading.Thread]:
        """Starts the threads of queue runners.

        Args:
          sess: the session in which they run.
          queue_runners: list of `QueueRunner`. Defaults to the graph's collection QUEUE_RUNNERS, which
            `prepare_or_wait_for_session` and `managed_session` start.

        Returns:
          The started threads.

        Raises:
          RuntimeError: If eager execution is enabled.
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
          timer_interval_secs: seconds from one call to the next. If None, there is no pause between calls.
          target: the function.
          args: its positional arguments, or None.
          kwargs: its keyword arguments, or None.

        Returns:
          The started thread.

        Raises:
          ValueError: If `timer_interval_secs` is infinite, or arguments were given without a function.
          TypeError: If `target` can't be called, or `timer_interval_secs` isn't a number.
        """
        check_seconds("timer_interval_secs", timer_interval_secs, "pass None for no pause between two calls")
        if target is not None and not callable(target):
            raise TypeError(f"{type(target).__name__!r} object is not callable: target must be a function.")
        looper: threading.Thread = coordinator.LooperThread(
            self._coord, timer_interval_secs, target=target, args=args, kwargs=kwargs
        )
        looper.start()
        return looper

    def stop(self, threads: Any = None, close_summary_writer: bool = True, ignore_live_threads: bool = False) -> None:
        """Stops the services and waits for their threads. The session stays open.

        threads: threads to wait for, in addition to those of the services, the queue runners and `loop()`.
        close_summary_writer: Whether to close the summary writer.
        ignore_live_threads: Whether to ignore threads that outlive `stop_grace_secs`.

        Raises:
          RuntimeError: If a thread outlived `stop_grace_secs` and `stray_threads` is "raise".
          Exception: The first error that was reported to the coordinator.
        """
        self._sessions.stop(threads, close_summary_writer, ignore_live_threads)

    def request_stop(self, ex: Any = None) -> None:
        """Requests that all threads stop.

        Args:
          ex: the exception that is the reason, or its `sys.exc_info()`. `stop()` raises the first one.
        """
        self._coord.request_stop(ex=ex)

    def should_stop(self) -> bool:
        """Returns True if a stop was requested."""
        # Loops call this in every step, so do nothing else here.
        return self._coord.should_stop()  # type: ignore[no-any-return]

    def stop_on_exception(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context manager that requests a stop with the exception of its block, and doesn't raise it."""
        manager: contextlib.AbstractContextManager[None] = self._coord.stop_on_exception()
        return manager

    def wait_for_stop(self) -> None:
        """Waits until a stop was requested."""
        self._coord.wait_for_stop()

    def summary_computed(self, sess: Any, summary: Any, global_step: Any = None) -> None:
        """Writes a summary to the event file.

        Args:
          sess: session in which the global step is read.
          summary: a Summary, or a serialized one.
          global_step: the step of the summary. Defaults to the current global step.

        Raises:
          TypeError: If `summary` isn't a summary.
          RuntimeError: If the Supervisor has no summary writer.
        """
        if not self._summary_writer:
            raise RuntimeError("Writing a summary requires a summary writer.")
        if global_step is None and self.global_step is not None:
            # A thread without a default graph executes eagerly under TF 2 behavior.
            with self._graph.as_default():
                global_step = training_util.global_step(sess, self.global_step)
        self._summary_writer.add_summary(summary, global_step)

    # The methods under TensorFlow's old names.
    PrepareSession = prepare_or_wait_for_session
    StartStandardServices = start_standard_services
    StartQueueRunners = start_queue_runners
    Loop = loop
    Stop = stop
    RequestStop = request_stop
    ShouldStop = should_stop
    StopOnException = stop_on_exception
    WaitForStop = wait_for_stop
    SummaryComputed = summary_computed
