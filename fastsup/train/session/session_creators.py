"""Session creators, which create the session below a monitored session, for a chief and for a worker."""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.training import monitored_session as tf_monitored_session

from fastsup.common.interpreter_end import no_interpreter_exit
from fastsup.train.session import session_manager
from fastsup.train.session.session_manager import check_recovery_wait_secs, check_restore, wait_for_servers

__all__ = ["ChiefSessionCreator", "Scaffold", "SessionCreator", "WorkerSessionCreator"]

Scaffold: Any = tf_monitored_session.Scaffold
SessionCreator: Any = tf_monitored_session.SessionCreator


class _GraphSessionCreator(SessionCreator):  # type: ignore[misc]
    """Base of both session creators. Keeps a scaffold, and creates a SessionManager when it is needed."""

    def __init__(
        self,
        scaffold: Any,
        master: str,
        config: Any,
        executor: str,
        recovery_wait_secs: float,
        restore: str = "strict",
    ) -> None:
        check_recovery_wait_secs(recovery_wait_secs)
        check_restore(restore)
        if scaffold and not hasattr(scaffold, "finalize"):
            raise AttributeError(
                f"{type(scaffold).__name__!r} object has no attribute 'finalize': scaffold={scaffold!r} must be a "
                "tf.compat.v1.train.Scaffold, or None to use the graph's."
            )
        self._recovery_wait_secs = recovery_wait_secs
        self._restore = restore
        self._scaffold = scaffold or Scaffold()
        self._session_manager: Any = None
        self._master = master
        self._config = config
        self._executor = executor

    def _finalize_graph(self) -> Any:
        with no_interpreter_exit:
            self._scaffold.finalize()
            return self._get_session_manager()

    def _get_session_manager(self) -> Any:
        if not self._session_manager:
            self._session_manager = self._new_session_manager(
                local_init_op=self._scaffold.local_init_op,
                local_init_feed_dict=self._scaffold.local_init_feed_dict,
                ready_op=self._scaffold.ready_op,
                ready_for_local_init_op=self._scaffold.ready_for_local_init_op,
                graph=ops.get_default_graph(),
                recovery_wait_secs=self._recovery_wait_secs,
                executor=self._executor,
                restore=self._restore,
                _looks_early=True,
            )
        return self._session_manager

    def _new_session_manager(self, **options: Any) -> Any:
        """Creates the SessionManager. A subclass may create a different one."""
        return session_manager.SessionManager(**options)


class ChiefSessionCreator(_GraphSessionCreator, tf_monitored_session.ChiefSessionCreator):  # type: ignore[misc]
    """Creates the session of a chief, which initializes or restores the model.

    Args:
      scaffold: `Scaffold` with the operations that prepare the model. Defaults to one with the graph's operations.
      master: the execution engine to connect to.
      config: ConfigProto of the session, or None.
      checkpoint_dir: directory whose newest intact checkpoint is restored. Exclusive with the path below.
      checkpoint_filename_with_path: path of the checkpoint to restore.
      executor: executor mode, as for `fastsup.Session`.
      recovery_wait_secs: seconds between checks of a directory that has no checkpoint yet.
      restore: "strict" or "partial", as for `SessionManager`.
      max_wait_secs: maximum seconds until every server that the session needs answers. If None, there is no limit.

    Raises:
      AttributeError: If `scaffold` isn't a Scaffold.
      TypeError: If `recovery_wait_secs` isn't a number.
      ValueError: If `recovery_wait_secs` isn't finite, or `restore` is unknown.
    """

    def __init__(
        self,
        scaffold: Any = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: Any = None,
        checkpoint_filename_with_path: Any = None,
        executor: str = "auto",
        recovery_wait_secs: float = 30,
        restore: str = "strict",
        max_wait_secs: float | None = None,
    ) -> None:
        super().__init__(scaffold, master, config, executor, recovery_wait_secs, restore)
        self._checkpoint_dir = checkpoint_dir
        self._checkpoint_filename_with_path = checkpoint_filename_with_path
        self._max_wait_secs = max_wait_secs

    def create_session(self) -> Any:
        """Finalizes the graph and creates a session.

        Returns:
          The session, ready to run.

        Raises:
          tf.errors.DeadlineExceededError: If a server didn't answer within `max_wait_secs`.
          Exception: As for `SessionManager.prepare_session`.
        """
        manager = self._finalize_graph()
        if self._master and self._max_wait_secs is not None:
            wait_for_servers(self._master, self._config, self._max_wait_secs, self._recovery_wait_secs)
        return manager.prepare_session(
            self._master,
            saver=self._scaffold.saver,
            checkpoint_dir=self._checkpoint_dir,
            checkpoint_filename_with_path=self._checkpoint_filename_with_path,
            config=self._config,
            init_op=self._scaffold.init_op,
            init_feed_dict=self._scaffold.init_feed_dict,
            init_fn=self._scaffold.init_fn,
        )


class WorkerSessionCreator(_GraphSessionCreator, tf_monitored_session.WorkerSessionCreator):  # type: ignore[misc]
    """Creates the session of a worker, which waits until the chief has prepared the model.

    Args:
      scaffold: `Scaffold` with the operations that check the model. Defaults to one with the graph's operations.
      master: the execution engine to connect to.
      config: ConfigProto of the session, or None.
      max_wait_secs: maximum seconds to wait for the model.
      executor: executor mode, as for `fastsup.Session`.
      recovery_wait_secs: maximum seconds between checks of the model. The first checks are more frequent.

    Raises:
      AttributeError: If `scaffold` isn't a Scaffold.
      TypeError: If `recovery_wait_secs` isn't a number.
      ValueError: If `recovery_wait_secs` isn't finite.
    """

    def __init__(
        self,
        scaffold: Any = None,
        master: str = "",
        config: Any = None,
        max_wait_secs: float = 30 * 60,
        executor: str = "auto",
        recovery_wait_secs: float = 30,
    ) -> None:
        super().__init__(scaffold, master, config, executor, recovery_wait_secs)
        self._max_wait_secs = max_wait_secs

    def create_session(self) -> Any:
        """Finalizes the graph, waits for the model and creates a session.

        Returns:
          The session, ready to run.

        Raises:
          tf.errors.DeadlineExceededError: If the model wasn't ready after `max_wait_secs`.
        """
        return self._finalize_graph().wait_for_session(
            self._master, config=self._config, max_wait_secs=self._max_wait_secs
        )
