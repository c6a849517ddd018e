"""What of its graph a Supervisor uses: what it was given, else what the graph has collected, else what it makes."""

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


class SupervisorElements:
    """The operations, tensors and the saver of a Supervisor. Made in the default graph."""

    # For an argument whose default is to be used, also where it's passed by position.
    USE_DEFAULT = 0

    _graph: ops.Graph
    _is_chief: bool
    _logdir: Any

    @property
    def init_op(self) -> Any:
        """The operation that initialises the model, or None."""
        return self._init_op

    @property
    def init_feed_dict(self) -> Any:
        """The feeds for `init_op`, or None."""
        return self._init_feed_dict

    @property
    def ready_op(self) -> Any:
        """The tensor that tells whether the model is ready, or None."""
        return self._ready_op

    @property
    def ready_for_local_init_op(self) -> Any:
        """The tensor that tells whether `local_init_op` can be run, or None."""
        return self._ready_for_local_init_op

    @property
    def summary_op(self) -> Any:
        """The operation that gives the summary, or None."""
        return self._summary_op

    @property
    def global_step(self) -> Any:
        """The tensor or variable that counts the steps, or None."""
        return self._global_step

    @property
    def saver(self) -> Any:
        """The Saver of the checkpoints, or None."""
        return self._saver

    def _get_first_op_from_collection(self, key: str) -> Any:
        elements = ops.get_collection(key)
        if len(elements) > 1:
            logging.info("Found %d %s operations. Returning the first one.", len(elements), key)
        return elements[0] if elements else None

    def _default_element(self, key: str, make: Callable[[], Any]) -> Any:
        element = self._get_first_op_from_collection(key)
        if element is None:
            element = make()
            if element is not None:
                ops.add_to_collection(key, element)
        return element

    def _init_ready_op(self, ready_op: Any = USE_DEFAULT, ready_for_local_init_op: Any = USE_DEFAULT) -> None:
        if ready_op is SupervisorElements.USE_DEFAULT:
            ready_op = self._default_element(ops.GraphKeys.READY_OP, variables.report_uninitialized_variables)
        self._ready_op = ready_op
        if ready_for_local_init_op is SupervisorElements.USE_DEFAULT:
            ready_for_local_init_op = self._get_first_op_from_collection(ops.GraphKeys.READY_FOR_LOCAL_INIT_OP)
        self._ready_for_local_init_op = ready_for_local_init_op

    def _init_init_op(self, init_op: Any = USE_DEFAULT, init_feed_dict: Any = None) -> None:
        if init_op is SupervisorElements.USE_DEFAULT:
            init_op = self._default_element(ops.GraphKeys.INIT_OP, variables.global_variables_initializer)
        self._init_op = init_op
        self._init_feed_dict = init_feed_dict

    def _init_local_init_op(self, local_init_op: Any = USE_DEFAULT) -> None:
        def initialize_variables_and_tables() -> Any:
            return control_flow_ops.group(variables.local_variables_initializer(), lookup_ops.tables_initializer())

        if local_init_op is SupervisorElements.USE_DEFAULT:
            local_init_op = self._default_element(ops.GraphKeys.LOCAL_INIT_OP, initialize_variables_and_tables)
        self._local_init_op = local_init_op

    def _init_saver(self, saver: Any = USE_DEFAULT) -> None:
        def save_all_variables() -> Any:
            return saver_mod.Saver() if variables.global_variables() else None

        if saver is SupervisorElements.USE_DEFAULT:
            saver = self._default_element(ops.GraphKeys.SAVERS, save_all_variables)
        self._saver = saver

    def _init_summary_op(self, summary_op: Any = USE_DEFAULT) -> None:
        if summary_op is SupervisorElements.USE_DEFAULT:
            summary_op = self._default_element(ops.GraphKeys.SUMMARY_OP, summary.merge_all)
        self._summary_op = summary_op

    def _init_global_step(self, global_step: Any = USE_DEFAULT) -> None:
        if global_step is SupervisorElements.USE_DEFAULT:
            global_step = self._default_element(ops.GraphKeys.GLOBAL_STEP, self._default_global_step_tensor)
        self._global_step = global_step

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
        """Refuses what the sessions would refuse later, before there is a file or a thread."""
        given = {}
        if own_manager:
            given["ready_op"] = self._ready_op
            given["ready_for_local_init_op"] = self._ready_for_local_init_op
            given["local_init_op"] = self._local_init_op
            if self._is_chief:
                given["init_op"] = self._init_op
        if self._logdir:
            given["summary_op"] = self._summary_op
            given["global_step"] = self._global_step
            check_saver(self._graph, self._saver)
        for name, element in given.items():
            if element is not None:
                check_fetchable(self._graph, name, element)
