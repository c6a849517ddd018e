"""Checks of a Supervisor's arguments. They raise TensorFlow's exception if the argument would fail there later."""

from __future__ import annotations

import math
import numbers
from typing import Any

from tensorflow.core.protobuf import saver_pb2
from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging

from fastsup.core.checks import doubt_about

__all__ = ["check_fetchable", "check_saver", "check_seconds", "check_types"]


def check_seconds(name: str, value: Any, remedy: str, endless: bool = False) -> None:
    """Refuses a value that isn't a number of seconds. Warns of a negative one and of NaN: both mean no wait.

    Args:
      name: name of the argument.
      value: the seconds. None is refused only if `endless`.
      remedy: end of the message, a clause that says what to pass.
      endless: whether infinity is valid.

    Raises:
      TypeError: `value` isn't a number.
      ValueError: `value` is infinite, unless `endless`.
    """
    if value is None and not endless:
        return
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number of seconds, got {value!r} of type {type(value).__name__}; {remedy}.")
    if value == math.inf and not endless:
        raise ValueError(f"{name} must be finite, got {value!r}; {remedy}.")
    no_wait = "there is no wait" if endless else "there is no pause"
    doubt = doubt_about(name, value, no_wait, no_wait, "supervisor")
    if doubt is not None:
        logging.warning("%s %s.", doubt, remedy[0].upper() + remedy[1:])


def check_types(graph: Any, saver: Any, init_fn: Any) -> None:
    """Refuses arguments of the wrong type. None and 0 (the default) are valid.

    Args:
      graph: the argument `graph`.
      saver: the argument `saver`.
      init_fn: the argument `init_fn`.

    Raises:
      AttributeError: `graph` isn't a graph, or `saver` isn't a saver.
      TypeError: `init_fn` isn't a function.
    """
    if graph is not None and not hasattr(graph, "as_default"):
        raise AttributeError(
            f"{type(graph).__name__!r} object has no attribute 'as_default': graph={graph!r} must be a tf.Graph."
        )
    if saver and not hasattr(saver, "saver_def"):
        raise AttributeError(
            f"{type(saver).__name__!r} object has no attribute 'saver_def': saver={saver!r} must be a "
            "tf.compat.v1.train.Saver, or None to save nothing."
        )
    if init_fn and not callable(init_fn):
        raise TypeError(
            f"{type(init_fn).__name__!r} object is not callable: init_fn={init_fn!r} must be a function of the session."
        )


def check_fetchable(graph: ops.Graph, name: str, element: Any) -> None:
    """Refuses an element that a session of the graph can't fetch.

    Args:
      graph: the graph of the sessions.
      name: name of the argument.
      element: the operation or tensor that was given for it.

    Raises:
      TypeError, ValueError: as the session would raise it.
    """
    try:
        tf_session._FetchHandler(graph, element, {})
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error} It was given as {name}: give one of the Supervisor's graph.") from None


def check_saver(graph: ops.Graph, saver: Any) -> None:
    """Refuses a saver whose operations the graph doesn't have.

    A saver knows its operations by name, so one that was imported with the graph, or made in a copy of it, is valid.

    Args:
      graph: the graph of the sessions.
      saver: the saver. Objects without a `SaverDef` aren't checked.

    Raises:
      TypeError: the graph lacks an operation of the saver.
    """
    saver_def = getattr(saver, "saver_def", None)
    if not isinstance(saver_def, saver_pb2.SaverDef) or not saver_def.filename_tensor_name:
        return
    names = (saver_def.filename_tensor_name, saver_def.save_tensor_name, saver_def.restore_op_name)
    try:
        for name in names:
            graph.as_graph_element(name)
    except (KeyError, ValueError) as error:
        raise TypeError(
            f"Cannot interpret feed_dict key as Tensor: {error.args[0]} saver={saver!r} was made for another graph: "
            "make it where the Supervisor's graph is the default graph."
        ) from None
