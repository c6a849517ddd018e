"""The graph elements of a Supervisor (given, from the graph's collections, or created), and checks of its arguments."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

from tensorflow.core.protobuf import saver_pb2
from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import dtypes, ops
from tensorflow.python.ops import control_flow_ops, lookup_ops, variables
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary import summary
from tensorflow.python.training import saver as saver_mod

from fastsup.core.checks import doubt_about

__all__ = ["USE_DEFAULT", "GraphElements", "check_fetchable", "check_saver", "check_seconds", "check_types"]


def check_seconds(name: str, value: Any, remedy: str, endless: bool = False) -> None:
    """Rejects a value that isn't a number of seconds. Warns about a negative number or NaN, which mean no wait."""
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
    """Rejects arguments of the wrong type. None and 0 (the default) are valid."""
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
    """Rejects an element that a session of the graph can't fetch."""
    try:
        tf_session._FetchHandler(graph, element, {})
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error} It was passed as {name}: pass one from the Supervisor's graph.") from None


def check_saver(graph: ops.Graph, saver: Any) -> None:
    """Rejects a saver whose operations the graph doesn't have.

    A saver knows its operations by name, so a saver that was imported with the graph, or created in a copy, is valid.
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
            f"Cannot interpret feed_dict key as Tensor: {error.args[0]} saver={saver!r} was created for another "
            "graph: create it while the Supervisor's graph is the default graph."
        ) from None


# Represents an omitted argument. It is TensorFlow's value, so it can also be passed by position.
USE_DEFAULT = 0


class GraphElements:
    """The operations, tensors and saver of a Supervisor. Each `init_` method sets one or two of them."""

    def __init__(self, graph: ops.Graph, methods: Any) -> None:
        self.graph = graph
        self._methods = methods

    def init_ready_op(self, ready_op: Any = USE_DEFAULT, ready_for_local_init_op: Any = USE_DEFAULT) -> None:
        self.ready_op: Any = self._resolve(ready_op, ops.GraphKeys.READY_OP, variables.report_uninitialized_variables)
        self.ready_for_local_init_op: Any = self._resolve(
            ready_for_local_init_op, ops.GraphKeys.READY_FOR_LOCAL_INIT_OP, lambda: None
        )

    def init_init_op(self, init_op: Any = USE_DEFAULT, init_feed_dict: Any = None) -> None:
        self.init_op: Any = self._resolve(init_op, ops.GraphKeys.INIT_OP, variables.global_variables_initializer)
        self.init_feed_dict = init_feed_dict

    def init_local_init_op(self, local_init_op: Any = USE_DEFAULT) -> None:
        self.local_init_op: Any = self._resolve(local_init_op, ops.GraphKeys.LOCAL_INIT_OP, _default_local_init_op)

    def init_saver(self, saver: Any = USE_DEFAULT) -> None:
        self.saver: Any = self._resolve(saver, ops.GraphKeys.SAVERS, _default_saver)

    def init_summary_op(self, summary_op: Any = USE_DEFAULT) -> None:
        self.summary_op: Any = self._resolve(summary_op, ops.GraphKeys.SUMMARY_OP, summary.merge_all)

    def init_global_step(self, global_step: Any = USE_DEFAULT) -> None:
        make = self._methods._default_global_step_tensor
        self.global_step: Any = self._resolve(global_step, ops.GraphKeys.GLOBAL_STEP, make)

    def _resolve(self, given: Any, collection: str, make: Callable[[], Any]) -> Any:
        """Returns an element: the argument, a collection's first one, or a new one that is added to it."""
        if given is not USE_DEFAULT:
            return given
        element = self._methods._get_first_op_from_collection(collection)
        if element is None:
            element = make()
            if element is not None:
                ops.add_to_collection(collection, element)
        return element

    def first_of_collection(self, key: str) -> Any:
        """Returns the first element of a collection of the default graph, or None."""
        collected = ops.get_collection(key)
        if len(collected) > 1:
            logging.info("Found %d %s operations. Returning the first one.", len(collected), key)
        return next(iter(collected), None)

    def default_global_step(self) -> Any:
        """Returns the default graph's integer tensor with the name of the global step, or None."""
        try:
            tensor = ops.get_default_graph().get_tensor_by_name("global_step:0")
        except KeyError:
            return None
        if tensor.dtype.base_dtype in (dtypes.int32, dtypes.int64):
            return tensor
        logging.warning("Found 'global_step' is not an int type: %s", tensor.dtype)
        return None

    def check(self, own_manager: bool, is_chief: bool, writes: bool) -> None:
        """Rejects elements that the sessions would refuse later, before any file or thread is created."""
        used = []
        if own_manager:
            used += ["ready_op", "ready_for_local_init_op", "local_init_op"] + ["init_op"] * bool(is_chief)
        if writes:
            used += ["summary_op", "global_step"]
            check_saver(self.graph, self.saver)
        for name in used:
            element = getattr(self, name)
            if element is not None:
                check_fetchable(self.graph, name, element)


def _default_local_init_op() -> Any:
    return control_flow_ops.group(variables.local_variables_initializer(), lookup_ops.tables_initializer())


def _default_saver() -> Any:
    return saver_mod.Saver() if variables.global_variables() else None
