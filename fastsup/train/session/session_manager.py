"""SessionManager: makes a session and gets its model ready, by restoring it, initialising it, or waiting for it."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from tensorflow.python.distribute import distribute_lib
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import session_manager as tf_session_manager

from fastsup.runtime.graph.global_step import track_global_step
from fastsup.runtime.session import Session
from fastsup.train.session.model_restore import ModelRestore, check_restore
from fastsup.train.session.ready_check import Readiness, ReadyCheck, explains_result_of
from fastsup.train.session.session_wait import (
    WAITING_FOR_MODEL,
    WaitLog,
    check_recovery_wait_secs,
    deadline_exceeded,
    limit_text,
    number_of_workers,
    pause_before_look,
    wait_for_servers,
)

__all__ = ["SessionManager"]


def _name_of(operation: Any) -> str:
    if operation is None:
        return "None"
    return str(operation.name) if hasattr(operation, "name") else f"<no name for {type(operation)}>"


class SessionManager(tf_session_manager.SessionManager):  # type: ignore[misc]
    """Makes sessions and gets their models ready.

    A model is restored from the newest intact checkpoint. A damaged or incomplete checkpoint is reported by a warning
    with its path and the cause, and stays on the disk. It is an error if there are checkpoints and none is intact: a
    trained model never starts again from its initial values without a word.

    Args:
      local_init_op: operation to run in every new session, or None.
      ready_op: 1-D string tensor: empty if the model is ready, else the names of missing variables. None: not checked.
      ready_for_local_init_op: the same for `local_init_op`, which runs only if the tensor is empty. None: not checked.
      graph: the graph. Defaults to the default graph.
      recovery_wait_secs: seconds between two checks of a model that another process gets ready.
      local_init_run_options: RunOptions for `local_init_op`.
      local_init_feed_dict: feeds for `local_init_op`.
      executor: executor mode of the sessions, as for `fastsup.Session`.
      restore: "strict", as in TensorFlow: the checkpoint must have every tensor of the saver. "partial": the model is
        initialised first, then the tensors that the checkpoint has are restored; the log lists missing tensors, and
        tensors that the model doesn't have. A tensor of another shape or type is an error in both modes.

    Raises:
      TypeError: `recovery_wait_secs` isn't a number.
      ValueError: `ready_for_local_init_op` was given without `local_init_op`, `recovery_wait_secs` isn't finite, or
        `restore` is unknown.
    """

    def __init__(
        self,
        local_init_op: Any = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        graph: Any = None,
        recovery_wait_secs: float = 30,
        local_init_run_options: Any = None,
        local_init_feed_dict: Any = None,
        executor: str = "auto",
        restore: str = "strict",
        *,
        _looks_early: bool = False,
    ) -> None:
        check_recovery_wait_secs(recovery_wait_secs)
        check_restore(restore)
        super().__init__(
            local_init_op,
            ready_op,
            ready_for_local_init_op,
            graph,
            recovery_wait_secs,
            local_init_run_options,
            local_init_feed_dict,
        )
        self._executor = executor
        self._restore = restore
        # Whether the first looks of a wait for the chief come sooner than after `recovery_wait_secs`. A program that
        # makes a SessionManager gets TensorFlow's pauses.
        self._looks_early = _looks_early
        self._ready_check = ReadyCheck(ready_op, ready_for_local_init_op)

    def prepare_session(
        self,
        master: str,
        init_op: Any = None,
        saver: Any = None,
        checkpoint_dir: Any = None,
        checkpoint_filename_with_path: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
        init_feed_dict: Any = None,
        init_fn: Callable[[Any], Any] | None = None,
    ) -> Session:
        """Makes a session and restores its model from a checkpoint, or initialises it if there is none.

        Args:
          master: the execution engine to connect to.
          init_op: operation that initialises the model, or None. Not run after a restore. With `restore="partial"` it
            is run before the restore.
          saver: `Saver` to restore with. None: nothing is restored.
          checkpoint_dir: directory whose newest intact checkpoint is restored; or
          checkpoint_filename_with_path: path of the checkpoint to restore. At most one of the two.
          wait_for_checkpoint: whether to wait until `checkpoint_dir` has a checkpoint.
          max_wait_secs: seconds to wait for a checkpoint at most.
          config: ConfigProto of the session, or None.
          init_feed_dict: feeds for `init_op`.
          init_fn: function of the session, called after `init_op`, or None.

        Returns:
          The session, ready to run.

        Raises:
          RuntimeError: there is neither a checkpoint nor a way to initialise the model, or the model isn't ready after
            it was initialised.
          ValueError: both `checkpoint_dir` and `checkpoint_filename_with_path` were given, or the latter doesn't exist.
          NoIntactCheckpointError: there are checkpoints, and each is damaged. A tf.errors.DataLossError.
          tf.errors.NotFoundError, tf.errors.InvalidArgumentError: the checkpoint doesn't fit the model.
        """

        def initialize(session: Any) -> None:
            if init_op is not None:
                session.run(init_op, feed_dict=init_feed_dict)
            if init_fn:
                init_fn(session)

        session, restored = self._restore_checkpoint(
            master,
            saver,
            checkpoint_dir,
            checkpoint_filename_with_path,
            wait_for_checkpoint,
            max_wait_secs,
            config,
            initialize,
        )
        with self._closed_on_error(session):
            if not restored:
                if init_op is None and not init_fn and self._local_init_op is None:
                    raise RuntimeError("Model is not initialized and no init_op or init_fn or local_init_op was given")
                initialize(session)
            readiness = self._get_ready(session)
            init = f"Init op: {_name_of(init_op)}, init fn: {init_fn}"
            if not readiness.local_init_done:
                raise RuntimeError(
                    f"Init operations did not make model ready for local_init.  {init}, "
                    f"error: {readiness.missing_for_local_init}"
                )
            if not readiness.model_ready:
                raise RuntimeError(
                    f"Init operations did not make model ready.  {init}, local_init_op: {self._local_init_op}, "
                    f"error: {readiness.missing}"
                )
            self._remember_restored(session, restored)
        return session

    def recover_session(
        self,
        master: str,
        saver: Any = None,
        checkpoint_dir: Any = None,
        checkpoint_filename_with_path: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
    ) -> tuple[Session, bool]:
        """Makes a session and restores its model from a checkpoint, if there is one.

        Args:
          master: the execution engine to connect to.
          saver: `Saver` to restore with. None: nothing is restored.
          checkpoint_dir: directory whose newest intact checkpoint is restored; or
          checkpoint_filename_with_path: path of the checkpoint to restore. At most one of the two.
          wait_for_checkpoint: whether to wait until `checkpoint_dir` has a checkpoint.
          max_wait_secs: seconds to wait for a checkpoint at most.
          config: ConfigProto of the session, or None.

        Returns:
          (session, ready). `ready` is True if a checkpoint was restored and the model is ready after that.

        Raises:
          ValueError: both `checkpoint_dir` and `checkpoint_filename_with_path` were given, or the latter doesn't exist.
          NoIntactCheckpointError: there are checkpoints, and each is damaged. A tf.errors.DataLossError.
          tf.errors.NotFoundError, tf.errors.InvalidArgumentError: the checkpoint doesn't fit the model.
        """
        session, restored = self._restore_checkpoint(
            master, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint, max_wait_secs, config
        )
        with self._closed_on_error(session):
            if not restored:
                self._try_run_local_init_op(session)
                return session, False
            readiness = self._get_ready(session)
            source = checkpoint_dir or checkpoint_filename_with_path
            if readiness.model_ready:
                self._remember_restored(session, restored)
                logging.info("Restored model from %s", source)
            elif readiness.local_init_done:
                logging.info("Restoring model from %s did not make model ready: %s", source, readiness.missing)
            else:
                logging.info(
                    "Restoring model from %s did not make model ready for local init: %s",
                    source,
                    readiness.missing_for_local_init,
                )
            return session, readiness.model_ready

    def wait_for_session(self, master: str, config: Any = None, max_wait_secs: float | None = float("inf")) -> Session:
        """Makes a session once another process has got the model ready.

        The model is checked every `recovery_wait_secs`. The log lists the missing variables, at growing intervals.

        Args:
          master: the execution engine to connect to.
          config: ConfigProto of the session, or None.
          max_wait_secs: seconds to wait at most; None for no limit.

        Returns:
          The session, ready to run.

        Raises:
          tf.errors.DeadlineExceededError: the model wasn't ready after `max_wait_secs`.
        """
        limit = math.inf if max_wait_secs is None else max_wait_secs
        looks_early = self._looks_early and bool(master)
        workers = number_of_workers() if looks_early else 1
        log = WaitLog(self._recovery_wait_secs)
        if master:
            wait_for_servers(master, config, limit, self._recovery_wait_secs, log)
            awaited = f"the process that initialises or restores the model at {master}, usually the chief"
        else:
            awaited = "a model of this process alone (master is ''), which no other process can make ready"
        while True:
            session = self._make_session(master, config)
            with self._closed_on_error(session):
                readiness = self._get_ready(session)
            if readiness.model_ready:
                return session
            self._safe_close(session)
            missing = readiness.missing_for_local_init, readiness.missing
            pause = max(0.0, self._recovery_wait_secs)
            if looks_early:
                pause = pause_before_look(log.waited(), pause, workers)
            if limit - log.waited() < pause:
                raise deadline_exceeded(limit, "{}. Ready_for_local_init_op: {}, ready: {}".format(awaited, *missing))
            log.info(WAITING_FOR_MODEL, *missing, awaited, log.waited(), limit_text(limit))
            time.sleep(pause)

    def _make_session(self, master: str, config: Any) -> Session:
        self._target = master
        session = Session(master, graph=self._graph, config=config, executor=self._executor)
        # From the first run on, so that the count covers every step that is under way when a loop starts.
        track_global_step(session)
        return session

    @contextlib.contextmanager
    def _closed_on_error(self, session: Session) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._safe_close(session)
            raise

    def _get_ready(self, session: Session) -> Readiness:
        """Runs `local_init_op`, if the model is ready for it, and then checks the model."""
        local_init_done, missing_for_local_init = self._try_run_local_init_op(session)
        if not local_init_done:
            return Readiness(False, False, missing_for_local_init, None)
        model_ready, missing = self._model_ready(session)
        return Readiness(True, bool(model_ready), missing_for_local_init, missing)

    def _model_ready(self, sess: Any) -> Any:
        with explains_result_of("ready_op", self._ready_op):
            return (True, None) if self._ready_check.is_ready(sess) else super()._model_ready(sess)

    def _model_ready_for_local_init(self, sess: Any) -> Any:
        with explains_result_of("ready_for_local_init_op", self._ready_for_local_init_op):
            if self._ready_check.is_ready_for_local_init(sess):
                return True, None
            return super()._model_ready_for_local_init(sess)

    def _restore_checkpoint(
        self,
        master: str,
        saver: Any = None,
        checkpoint_dir: Any = None,
        checkpoint_filename_with_path: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
        initialize: Callable[[Any], None] | None = None,
    ) -> tuple[Session, str | None]:
        """Makes a session and restores a checkpoint, if there is one.

        Args:
          master: the execution engine to connect to.
          saver: as for `prepare_session`; so are the other arguments.
          checkpoint_dir: directory whose newest intact checkpoint is restored; or
          checkpoint_filename_with_path: path of the checkpoint to restore.
          wait_for_checkpoint: whether to wait until `checkpoint_dir` has a checkpoint.
          max_wait_secs: seconds to wait for a checkpoint at most.
          config: ConfigProto of the session, or None.
          initialize: function of the session that initialises its model before a partial restore, or None.

        Returns:
          (session, path). The path is that of the restored checkpoint, or None.
        """
        # Initialising a TPU clears its memory, so it comes before the restore.
        strategy = distribute_lib.get_strategy()
        initialize_system = getattr(strategy.extended, "_experimental_initialize_system", None)
        if initialize_system is not None:
            initialize_system()
        session = self._make_session(master, config)
        with self._closed_on_error(session):
            directory, path = checkpoint_dir, checkpoint_filename_with_path
            if directory and path:
                raise ValueError("Can not provide both checkpoint_dir and checkpoint_filename_with_path.")
            if not saver or not (directory or path):
                return session, None
            restore = ModelRestore(session, saver, self._restore, initialize)
            if path:
                return session, restore.from_path(path)
            limit = max_wait_secs if wait_for_checkpoint else 0.0
            return session, restore.from_directory(directory, limit, self._recovery_wait_secs)

    def _remember_restored(self, session: Session, path: str | None) -> None:
        """Notes that the session's state is that of a checkpoint. `local_init_op` runs again after each restart."""
        if path is not None and self._restore == "strict":
            session._note_checkpoint(path, session.gate.passed)
