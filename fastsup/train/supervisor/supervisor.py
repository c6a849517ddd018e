"""Supervisor: initialises or restores a model, and runs services during training, as TensorFlow's Supervisor does."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.framework import meta_graph, ops
from tensorflow.python.training import coordinator
from tensorflow.python.training import supervisor as tf_supervisor

from fastsup.checkpoint.directory import directory_argument
from fastsup.core.checks import check_flag
from fastsup.core.probe import check_profiler
from fastsup.runtime.executor import check_executor
from fastsup.runtime.graph.variable_sharing import add_reads_without_copy
from fastsup.train.session import session_manager as session_manager_mod
from fastsup.train.supervisor.arguments import check_choice, check_seconds, check_types
from fastsup.train.supervisor.services import SVStepCounterThread, SVSummaryThread, SVTimerCheckpointThread
from fastsup.train.supervisor.sessions import SupervisorSessions

__all__ = ["SVStepCounterThread", "SVSummaryThread", "SVTimerCheckpointThread", "Supervisor"]


class Supervisor(SupervisorSessions, tf_supervisor.Supervisor):  # type: ignore[misc]
    """Runs a training program: initialises or restores its model, saves checkpoints, writes summaries, and stops it.

    The checkpoints, the summaries and the rate of steps are services. Each runs in a thread of its own:

        sv = Supervisor(logdir=logdir)
        with sv.managed_session() as sess:
            while not sv.should_stop():
                sess.run(train_op)

    An error in the loop or in a service stops all threads, and is raised at the end of the block. The end of the input
    (`tf.errors.OutOfRangeError`) stops them too, and isn't raised. If several replicas run the program, one of them is
    the chief: it initialises the model, saves checkpoints and writes summaries. The other replicas wait for the chief.

    Args:
      graph: the model's graph, which the constructor finalises. Defaults to the default graph.
      ready_op: 1-D string tensor: empty if the model is ready, else the names of missing variables. Defaults to the
        graph's collection READY_OP, or else to a report of uninitialised variables. None: not checked.
      ready_for_local_init_op: the same for `local_init_op`, which runs only if the tensor is empty. Defaults to the
        collection READY_FOR_LOCAL_INIT_OP, or else to None. None: not checked.
      is_chief: whether this replica initialises and restores the model. False: it waits for the chief.
      init_op: operation that initialises a model without a checkpoint. Defaults to the collection INIT_OP, or else to
        an operation that initialises all global variables. None: no operation.
      init_feed_dict: feeds of `init_op`.
      local_init_op: operation that runs in every new session. Defaults to the collection LOCAL_INIT_OP, or else to an
        operation that initialises local variables and tables. None: no operation.
      logdir: directory of the checkpoints and event files; made if it doesn't exist. None: neither is written.
      summary_op: operation that computes a serialised Summary. Defaults to the collection SUMMARY_OP, or else to all
        summaries merged. None: the summary service isn't started.
      saver: `tf.compat.v1.train.Saver`. Defaults to the collection SAVERS, or else to a saver of all global variables.
        None: nothing is saved or restored.
      global_step: integer tensor or variable that counts steps. Defaults to the collection GLOBAL_STEP, or else to
        the tensor of that name. None: checkpoints and summaries have no step.
      save_summaries_secs: seconds between two summaries; 0 for none.
      save_model_secs: seconds between two checkpoints; 0 for none.
      recovery_wait_secs: the most seconds between two checks of a model that the chief gets ready.
      stop_grace_secs: seconds that threads have to end after a stop was requested.
      checkpoint_basename: base name of the checkpoint files.
      session_manager: SessionManager that makes the sessions. None: one is made from the arguments above.
      summary_writer: writer of the events. Defaults to a FileWriter for `logdir`. None: no events are written.
      init_fn: function of the session, called after `init_op` for a model without a checkpoint.
      local_init_run_options: RunOptions for `local_init_op`.
      executor: executor mode of the sessions, as for `fastsup.Session`.
      async_save: whether checkpoints are written in the background.
      stray_threads: the end of a finished run of which a thread outlives `stop_grace_secs`. "warn": a warning with the
        thread's name and stack. "raise": a RuntimeError, as in TensorFlow.
      handle_signals: whether SIGTERM and SIGINT, unless the program handles them, end a `managed_session` that has a
        `logdir` between two steps, with a checkpoint, and then the program, with exit code 143 or KeyboardInterrupt. A
        second signal of the kind ends the program at once.
      profiler: `fastsup.HookProfiler` that records the runs of the thread that makes the session. None: the profiler of
        the whole program, if one is on.

    Raises:
      RuntimeError: eager execution is enabled.
      AttributeError: `graph` is no graph, or `saver` no saver.
      TypeError: an argument is of another wrong type.
      ValueError: an argument has no valid value or belongs to another graph, or this replica isn't the chief and a
        variable has no device.
      tf.errors.OpError: `logdir` couldn't be made.
    """

    def __init__(
        self,
        graph: Any = None,
        ready_op: Any = SupervisorSessions.USE_DEFAULT,
        ready_for_local_init_op: Any = SupervisorSessions.USE_DEFAULT,
        is_chief: bool = True,
        init_op: Any = SupervisorSessions.USE_DEFAULT,
        init_feed_dict: Any = None,
        local_init_op: Any = SupervisorSessions.USE_DEFAULT,
        logdir: Any = None,
        summary_op: Any = SupervisorSessions.USE_DEFAULT,
        saver: Any = SupervisorSessions.USE_DEFAULT,
        global_step: Any = SupervisorSessions.USE_DEFAULT,
        save_summaries_secs: float | None = 120,
        save_model_secs: float | None = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = 120,
        checkpoint_basename: str = "model.ckpt",
        session_manager: Any = None,
        summary_writer: Any = SupervisorSessions.USE_DEFAULT,
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
        check_types(graph, saver, init_fn)
        logdir = directory_argument("logdir", logdir)
        self._profiler = check_profiler(profiler)
        self._in_timeline: Any = None
        if check_executor(executor) != "auto" and session_manager is not None:
            raise ValueError(
                f"executor={executor!r} and session_manager={session_manager!r} were both given: the sessions have the "
                "executor of their SessionManager, so pass executor to that."
            )
        check_flag(async_save=async_save, handle_signals=handle_signals)
        self._executor = executor
        self._stray_threads = stray_threads
        self._made_in = os.getpid()
        self._handle_signals = handle_signals
        self._stop_grace_secs = stop_grace_secs
        self._recovery_wait_secs = recovery_wait_secs
        self._init_fn = init_fn
        self._local_init_run_options = local_init_run_options

        # Only the chief writes files.
        self._is_chief = is_chief
        self._logdir = logdir if is_chief else None
        self._save_summaries_secs = save_summaries_secs if is_chief else None
        self._save_model_secs = save_model_secs if is_chief else None
        self._save_path = os.path.join(logdir, checkpoint_basename) if self._logdir else None

        self._graph = ops.get_default_graph() if graph is None else graph
        with self._graph.as_default():
            # In TensorFlow's order, which the names of the new operations depend on.
            self._init_ready_op(ready_op, ready_for_local_init_op)
            self._init_init_op(init_op, init_feed_dict)
            self._init_local_init_op(local_init_op)
            self._init_saver(saver)
            self._init_summary_op(summary_op)
            self._init_global_step(global_step)
        self._meta_graph_def = meta_graph.create_meta_graph_def(
            graph_def=self._graph.as_graph_def(add_shapes=True),
            saver_def=self._saver.saver_def if self._saver else None,
            graph=self._graph,
        )
        self._coord = coordinator.Coordinator()
        self._init_session_manager(session_manager)
        self._check_elements(own_manager=session_manager is None)
        self._verify_setup()
        self._init_saving(async_save)
        if async_save:
            add_reads_without_copy(self._graph)
        # Makes a directory and a thread, so it comes after all checks.
        self._init_summary_writer(summary_writer, make_default=summary_writer is self.USE_DEFAULT)
        self._graph.finalize()

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
            )
            session_manager._looks_early = True
        self._session_manager = session_manager

    def _verify_setup(self) -> None:
        # Each replica would have its own copy of a variable without a device.
        if self._is_chief:
            return
        for op in self._graph.get_operations():
            if op.type in ("Variable", "VariableV2") and not op.device:
                raise ValueError(f"When using replicas, all Variables must have their device set: {op}")

    @property
    def is_chief(self) -> bool:
        """True if this is the chief."""
        return self._is_chief

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
        """The path of the checkpoints, without the step. None without a `logdir`."""
        return self._save_path
