"""SessionManager: makes a session and gets its variables ready. TensorFlow's, over `fastsup.Session`."""

from __future__ import annotations

import time
from typing import Any

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.distribute import distribute_lib
from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import session_manager as tf_session_manager

from fastsup.runtime.global_step import track_global_step
from fastsup.runtime.session import Session

__all__ = ["SessionManager"]


class SessionManager(tf_session_manager.SessionManager):  # type: ignore[misc]
    """Makes sessions whose model is ready to be used.

    Args:
      local_init_op: operation to run in every new session, or None.
      ready_op: operation that tells whether the model is ready: an empty 1-D string tensor if so, else what is
        missing. None: it isn't asked.
      ready_for_local_init_op: the same, asked before `local_init_op` is run.
      graph: the graph. Defaults to the default graph.
      recovery_wait_secs: seconds between two looks at a model that somebody else gets ready.
      local_init_run_options: RunOptions for `local_init_op`.
      local_init_feed_dict: feeds for `local_init_op`.
      executor: executor mode of the sessions, as for `fastsup.Session`.

    Raises:
      ValueError: `ready_for_local_init_op` without `local_init_op`.
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
    ) -> None:
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

    def _make_session(self, master: str, config: Any) -> Session:
        self._target = master
        session = Session(master, graph=self._graph, config=config, executor=self._executor)
        # From the first run on, so that nothing that is under way when a loop starts was missed.
        track_global_step(session)
        return session

    def _restore_checkpoint(
        self,
        master: str,
        saver: Any = None,
        checkpoint_dir: Any = None,
        checkpoint_filename_with_path: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
    ) -> tuple[Session, bool]:
        """A new session, and whether a checkpoint was restored into it."""
        strategy = distribute_lib.get_strategy()
        initialize_system = getattr(strategy.extended, "_experimental_initialize_system", None)
        if initialize_system is not None:
            initialize_system()
        session = self._make_session(master, config)
        if checkpoint_dir and checkpoint_filename_with_path:
            raise ValueError("Can not provide both checkpoint_dir and checkpoint_filename_with_path.")
        if not saver or not (checkpoint_dir or checkpoint_filename_with_path):
            return session, False
        restore = tf_session_manager._restore_checkpoint_and_maybe_run_saved_model_initializers
        if checkpoint_filename_with_path:
            restore(session, saver, checkpoint_filename_with_path)
            return session, True
        waited = 0.0
        state = checkpoint_management.get_checkpoint_state(checkpoint_dir)
        while not state or not state.model_checkpoint_path:
            if not wait_for_checkpoint or waited >= max_wait_secs:
                return session, False
            logging.info("Waiting for checkpoint to be available.")
            time.sleep(self._recovery_wait_secs)
            waited += self._recovery_wait_secs
            state = checkpoint_management.get_checkpoint_state(checkpoint_dir)
        restore(session, saver, state.model_checkpoint_path)
        saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
        return session, True

    def wait_for_session(self, master: str, config: Any = None, max_wait_secs: float | None = float("inf")) -> Session:
        """A new session, once somebody else has got the model ready.

        Args:
          master: the execution engine to connect to.
          config: ConfigProto of the session, or None.
          max_wait_secs: seconds to wait at most; None for no limit.

        Raises:
          tf.errors.DeadlineExceededError: the model wasn't ready after `max_wait_secs`.
        """
        limit = float("inf") if max_wait_secs is None else max_wait_secs
        started = time.time()
        while True:
            session = self._make_session(master, config)
            not_ready = None
            initialised, not_ready_for_local_init = self._try_run_local_init_op(session)
            if initialised:
                ready, not_ready = self._model_ready(session)
                if ready:
                    return session
            self._safe_close(session)
            if limit - (time.time() - started) < self._recovery_wait_secs:
                raise errors.DeadlineExceededError(
                    None, None, f"Session was not ready after waiting {int(limit)} secs."
                )
            logging.info(
                "Waiting for model to be ready.  Ready_for_local_init_op:  %s, ready: %s",
                not_ready_for_local_init,
                not_ready,
            )
            time.sleep(self._recovery_wait_secs)
