"""Sessions over the devices of the eager context, which live no longer than it does."""

from __future__ import annotations

from typing import Any

from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import ops

from fastsup.common.interpreter_end import completed_before_exit
from fastsup.eager.devices.context_life import OfEagerContext
from fastsup.eager.devices.eager_session import SESSION_TARGET

__all__ = ["OverEagerContext", "SharedCallable", "SharedSession"]


class SharedCallable(tf_session.BaseSession._Callable):  # type: ignore[misc]
    """TensorFlow's own callable of such a session. It isn't released when the session's runtime is gone."""

    _completed_before_exit = completed_before_exit

    def __del__(self) -> None:
        if self._session._usable():
            with self._completed_before_exit:
                super().__del__()


class OverEagerContext(OfEagerContext):
    """Base of sessions over the eager context's devices. One that is left open lives as long as the process."""

    left_open = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._session = None
        self._take_context()
        super().__init__(*args, **kwargs)

    def _usable(self) -> bool:
        return not self.left_open and super()._usable()

    def __del__(self) -> None:
        if self._usable():
            with self._completed_before_exit:
                super().__del__()  # type: ignore[misc]


class SharedSession(OverEagerContext, tf_session.Session):  # type: ignore[misc]
    """A session over the eager context's devices.

    Args:
      graph: its graph.
      config: its ConfigProto.
    """

    def __init__(self, graph: ops.Graph, config: Any) -> None:
        super().__init__(SESSION_TARGET, graph, config)
