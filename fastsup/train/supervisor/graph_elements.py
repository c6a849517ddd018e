"""The graph elements of a Supervisor: given as arguments, found in the graph's collections, or made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.framework import dtypes, ops
from tensorflow.python.ops import control_flow_ops, lookup_ops, variables
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary import summary
from tensorflow.python.training import saver as saver_mod

from fastsup.train.supervisor.arguments import check_fetchable, check_saver

__all__ = ["USE_DEFAULT", "GraphElements"]

# Stands for an argument that was left out. It is TensorFlow's value, so it can also be passed by position.
USE_DEFAULT = 0


class GraphElements:
    """The operations, tensors and saver of a Supervisor. Each `init_` method sets one or two of them.

    Args:
      graph: the graph of the sessions.
      methods: the Supervisor, whose methods that find an element a subclass may override.
    """

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
        """Returns an element: the argument, else the first of a collection, else a new one, which joins the collection.

        Args:
          given: the argument, or USE_DEFAULT.
          collection: key of the collection in the default graph.
          make: function that makes the element, or returns None.
        """
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
        """Returns the integer tensor of the default graph that has the name of the global step, or None."""
        try:
            tensor = ops.get_default_graph().get_tensor_by_name("global_step:0")
        except KeyError:
            return None
        if tensor.dtype.base_dtype in (dtypes.int32, dtypes.int64):
            return tensor
        logging.warning("Found 'global_step' is not an int type: %s", tensor.dtype)
        return None

    def check(self, own_manager: bool, is_chief: bool, writes: bool) -> None:
        """Refuses elements that the sessions would refuse later, before any file or thread is made.

        Args:
          own_manager: whether the Supervisor has made its SessionManager, which then runs the elements.
          is_chief: whether it also runs `init_op`.
          writes: whether checkpoints and summaries are written.
        """
        used = []
        if own_manager:
            used += ["ready_op", "ready_for_local_init_op", "local_init_op"] + ["init_op"] * is_chief
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
