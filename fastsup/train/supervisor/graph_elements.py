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

__all__ = ["SupervisorElements"]

# Stands for an argument that was left out. It is TensorFlow's value, so it can also be passed by position.
USE_DEFAULT = 0


class SupervisorElements:
    """Base of Supervisor: its operations, tensors and saver."""

    USE_DEFAULT = USE_DEFAULT

    _graph: ops.Graph
    _is_chief: bool
    _logdir: Any

    # Each `_init_` method sets one element. TensorFlow's names and arguments, which a subclass may override.

    def _init_ready_op(self, ready_op: Any = USE_DEFAULT, ready_for_local_init_op: Any = USE_DEFAULT) -> None:
        self._ready_op = self._resolve(ready_op, ops.GraphKeys.READY_OP, variables.report_uninitialized_variables)
        self._ready_for_local_init_op = self._resolve(
            ready_for_local_init_op, ops.GraphKeys.READY_FOR_LOCAL_INIT_OP, lambda: None
        )

    def _init_init_op(self, init_op: Any = USE_DEFAULT, init_feed_dict: Any = None) -> None:
        self._init_op = self._resolve(init_op, ops.GraphKeys.INIT_OP, variables.global_variables_initializer)
        self._init_feed_dict = init_feed_dict

    def _init_local_init_op(self, local_init_op: Any = USE_DEFAULT) -> None:
        self._local_init_op = self._resolve(local_init_op, ops.GraphKeys.LOCAL_INIT_OP, _default_local_init_op)

    def _init_saver(self, saver: Any = USE_DEFAULT) -> None:
        self._saver = self._resolve(saver, ops.GraphKeys.SAVERS, _default_saver)

    def _init_summary_op(self, summary_op: Any = USE_DEFAULT) -> None:
        self._summary_op = self._resolve(summary_op, ops.GraphKeys.SUMMARY_OP, summary.merge_all)

    def _init_global_step(self, global_step: Any = USE_DEFAULT) -> None:
        self._global_step = self._resolve(global_step, ops.GraphKeys.GLOBAL_STEP, self._default_global_step_tensor)

    def _resolve(self, given: Any, collection: str, make: Callable[[], Any]) -> Any:
        """Returns an element: the argument, else the first of a collection, else a new one, which joins the collection.

        Args:
          given: the argument, or USE_DEFAULT.
          collection: key of the collection in the default graph.
          make: function that makes the element, or returns None.
        """
        if given is not USE_DEFAULT:
            return given
        element = self._get_first_op_from_collection(collection)
        if element is None:
            element = make()
            if element is not None:
                ops.add_to_collection(collection, element)
        return element

    def _get_first_op_from_collection(self, key: str) -> Any:
        collected = ops.get_collection(key)
        if len(collected) > 1:
            logging.info("Found %d %s operations. Returning the first one.", len(collected), key)
        return next(iter(collected), None)

    def _default_global_step_tensor(self) -> Any:
        try:
            tensor = ops.get_default_graph().get_tensor_by_name("global_step:0")
        except KeyError:
            return None
        if tensor.dtype.base_dtype in (dtypes.int32, dtypes.int64):
            return tensor
        logging.warning("Found 'global_step' is not an int type: %s", tensor.dtype)
        return None

    def _check_elements(self, own_manager: bool) -> None:
        """Refuses elements that the sessions would refuse later, before any file or thread is made.

        Args:
          own_manager: whether the Supervisor has made its SessionManager, which then runs the elements.
        """
        used = {}
        if own_manager:
            used["ready_op"] = self._ready_op
            used["ready_for_local_init_op"] = self._ready_for_local_init_op
            used["local_init_op"] = self._local_init_op
            if self._is_chief:
                used["init_op"] = self._init_op
        if self._logdir:
            used["summary_op"] = self._summary_op
            used["global_step"] = self._global_step
            check_saver(self._graph, self._saver)
        for name, element in used.items():
            if element is not None:
                check_fetchable(self._graph, name, element)

    @property
    def init_op(self) -> Any:
        """The operation that initialises the model, or None."""
        return self._init_op

    @property
    def init_feed_dict(self) -> Any:
        """The feeds of `init_op`, or None."""
        return self._init_feed_dict

    @property
    def ready_op(self) -> Any:
        """The tensor that is empty if the model is ready, or None."""
        return self._ready_op

    @property
    def ready_for_local_init_op(self) -> Any:
        """The tensor that is empty if the model is ready for `local_init_op`, or None."""
        return self._ready_for_local_init_op

    @property
    def summary_op(self) -> Any:
        """The operation that computes the summary, or None."""
        return self._summary_op

    @property
    def global_step(self) -> Any:
        """The tensor or variable that counts steps, or None."""
        return self._global_step

    @property
    def saver(self) -> Any:
        """The Saver of the checkpoints, or None."""
        return self._saver


def _default_local_init_op() -> Any:
    return control_flow_ops.group(variables.local_variables_initializer(), lookup_ops.tables_initializer())


def _default_saver() -> Any:
    return saver_mod.Saver() if variables.global_variables() else None
