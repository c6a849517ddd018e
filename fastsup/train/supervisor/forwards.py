"""The attributes of a Supervisor, and TensorFlow's private methods. Each leads to the part that has it."""

from __future__ import annotations

import operator
from typing import Any

from fastsup.common.parts import PartAttribute, part_method
from fastsup.train.session import session_manager as session_manager_mod

__all__ = ["SupervisorForwards"]


def _public(attribute: str) -> property:
    """Makes a property that reads an attribute."""
    return property(operator.attrgetter(attribute), doc="See the attributes of `Supervisor`.")


class SupervisorForwards:
    """What programs read, assign and override in a Supervisor besides its public methods."""

    _executor: str
    _is_chief: bool
    _local_init_run_options: Any
    _recovery_wait_secs: float

    _graph = PartAttribute("_elements", "graph")
    _ready_op = PartAttribute("_elements", "ready_op")
    _ready_for_local_init_op = PartAttribute("_elements", "ready_for_local_init_op")
    _init_op = PartAttribute("_elements", "init_op")
    _init_feed_dict = PartAttribute("_elements", "init_feed_dict")
    _local_init_op = PartAttribute("_elements", "local_init_op")
    _saver = PartAttribute("_elements", "saver")
    _summary_op = PartAttribute("_elements", "summary_op")
    _global_step = PartAttribute("_elements", "global_step")
    _summary_writer = PartAttribute("_event_log", "writer")
    _graph_added_to_summary = PartAttribute("_event_log", "has_graph")
    _async_save = PartAttribute("_checkpoints", "in_background")
    _save_path = PartAttribute("_checkpoints", "path")
    _init_fn = PartAttribute("_sessions", "init_fn")
    _stop_grace_secs = PartAttribute("_sessions", "stop_grace_secs")

    is_chief: property = _public("_is_chief")
    coord: property = _public("_coord")
    session_manager: property = _public("_session_manager")
    init_op: property = _public("_init_op")
    init_feed_dict: property = _public("_init_feed_dict")
    ready_op: property = _public("_ready_op")
    ready_for_local_init_op: property = _public("_ready_for_local_init_op")
    summary_op: property = _public("_summary_op")
    global_step: property = _public("_global_step")
    saver: property = _public("_saver")
    summary_writer: property = _public("_summary_writer")
    save_summaries_secs: property = _public("_save_summaries_secs")
    save_model_secs: property = _public("_save_model_secs")
    save_path: property = _public("_save_path")

    _init_ready_op = part_method("_elements", "init_ready_op")
    _init_init_op = part_method("_elements", "init_init_op")
    _init_local_init_op = part_method("_elements", "init_local_init_op")
    _init_saver = part_method("_elements", "init_saver")
    _init_summary_op = part_method("_elements", "init_summary_op")
    _init_global_step = part_method("_elements", "init_global_step")
    _get_first_op_from_collection = part_method("_elements", "first_of_collection")
    _default_global_step_tensor = part_method("_elements", "default_global_step")
    _write_graph = part_method("_event_log", "write_graph")
    # TensorFlow doesn't have it. Each checkpoint of a Supervisor is saved by this method.
    _save = part_method("_checkpoints", "save")

    def _init_session_manager(self, session_manager: Any = None) -> None:
        if session_manager is None:
            session_manager = session_manager_mod.SessionManager(
                graph=self._graph,
                ready_op=self._ready_op,
                ready_for_local_init_op=self._ready_for_local_init_op,
                local_init_op=self._local_init_op,
                local_init_run_options=self._local_init_run_options,
                recovery_wait_secs=self._recovery_wait_secs,
                executor=self._executor,
                _looks_early=True,
            )
        self._session_manager = session_manager

    def _verify_setup(self) -> None:
        # Each replica would have its own copy of a variable without a device.
        if self._is_chief:
            return
        for op in self._graph.get_operations():
            if op.type in ("Variable", "VariableV2") and not op.device:
                raise ValueError(f"When using replicas, all Variables must have their device set: {op}")
