"""InteractiveSession: a Session that is the default one as soon as it is made."""

from __future__ import annotations

from tensorflow.python.client import session as tf_session

from fastsup.runtime.session import Session

__all__ = ["InteractiveSession"]


# TensorFlow's class is the last base: its constructor and its `close` are reached by those of Session.
class InteractiveSession(Session, tf_session.InteractiveSession):  # type: ignore[misc]
    """A `tf.compat.v1.InteractiveSession` whose steps run through cached plans. The arguments are those of `Session`.

    It is the default session of the thread, and its graph the default graph, until `close`.
    """
