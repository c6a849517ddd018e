"""Tests whether every task of a cluster answers, with a limit on the time that the caller waits."""

from __future__ import annotations

import threading
from typing import Any

from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_ops

__all__ = ["ServerProbe"]


class ServerProbe:
    """Opens a session in its own thread, which succeeds once every task that the session needs has answered.

    TensorFlow's runtime waits without limit for a task that is down. No timeout of the session or of the run ends that
    wait, so the probe's thread waits in place of the caller.

    Args:
      master: execution engine to connect to.
      config: ConfigProto of the session, or None. Its device filters say which tasks are needed.
    """

    def __init__(self, master: str, config: Any) -> None:
        self._master = master
        self._config = config
        self._error: BaseException | None = None
        # A daemon: if a task never answers, the thread never ends, and must not keep the process alive.
        self._thread = threading.Thread(target=self._connect, name=f"probe of {master}", daemon=True)
        self._thread.start()

    def _connect(self) -> None:
        try:
            # Outside a graph, a session without a config takes that of eager execution.
            with ops.Graph().as_default():
                probe = control_flow_ops.no_op()
                with tf_session.Session(self._master, config=self._config) as session:
                    session.run(probe)
        except BaseException as error:
            self._error = error

    def has_answered(self, timeout_secs: float) -> bool:
        """Waits until all tasks have answered, or until the timeout.

        Args:
          timeout_secs: seconds to wait at most.

        Returns:
          True if all tasks have answered.

        Raises:
          BaseException: the error with which the probe's session failed, if it has.
        """
        self._thread.join(min(timeout_secs, threading.TIMEOUT_MAX))
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True
