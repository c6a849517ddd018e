"""InteractiveSession: a Session that is the default one as soon as it is made."""

from __future__ import annotations

from typing import Any

from tensorflow.python.client import session as tf_session

from fastsup.runtime.session import Session

__all__ = ["InteractiveSession"]


# TensorFlow's class is the last base: its constructor and its `close` are reached by those of Session.
class InteractiveSession(Session, tf_session.InteractiveSession):  # type: ignore[misc]
    """A `tf.compat.v1.InteractiveSession` whose steps run through cached plans.

    It is the default session of the thread, and its graph the default graph, until `close`.

    Args:
      target: the execution engine to connect to. Defaults to one in this process.
      graph: the graph to launch. Defaults to the default graph.
      config: a `tf.compat.v1.ConfigProto`, or None.

    Raises:
      TypeError: an argument is of the wrong type.
      tf.errors.OpError: TensorFlow couldn't make the session.
    """

    def __init__(self, target: str = "", graph: Any = None, config: Any = None) -> None:
        super().__init__(target, graph, config)
