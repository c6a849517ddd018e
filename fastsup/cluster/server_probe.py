"""Finding out whether the tasks of a cluster answer, without being held up by those that don't."""

from __future__ import annotations

import threading
from typing import Any

from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_ops

__all__ = ["Contact"]


class Contact:
    """Makes a first session in a thread of its own, which lasts until every task that the session needs has answered.

    TensorFlow's runtime waits for a task that isn't up for as long as it takes, and nothing ends that wait: no timeout
    of the session or of the run. So it isn't the caller that waits.

    Args:
      master: the execution engine to connect to.
      config: ConfigProto of the session, or None. Its device filters say which tasks are needed.
    """

    def __init__(self, master: str, config: Any) -> None:
        self._master = master
        self._config = config
        self._error: BaseException | None = None
        # It may have to be left behind, and must not keep the process from ending.
        self._thread = threading.Thread(target=self._connect, name=f"contact with {master}", daemon=True)
        self._thread.start()

    def _connect(self) -> None:
        try:
            # Within the graph: outside one, a session without a config takes that of eager execution.
            with ops.Graph().as_default():
                nothing = control_flow_ops.no_op()
                with tf_session.Session(self._master, config=self._config) as session:
                    session.run(nothing)
        except BaseException as error:
            self._error = error

    def made(self, within: float) -> bool:
        """Whether all have answered, now or within so many seconds. Raises what came of it, if that was an error."""
        self._thread.join(min(within, threading.TIMEOUT_MAX))
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True
