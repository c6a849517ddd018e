"""TensorFlow's private attributes and methods of a Supervisor. Each leads to the part that has it."""

from __future__ import annotations

from typing import Any

from fastsup.common.part_attribute import PartAttribute
from fastsup.train.session import session_manager as session_manager_mod
from fastsup.train.supervisor.graph_elements import (
    USE_DEFAULT,
    GraphElements,
    default_global_step,
    first_of_collection,
)

__all__ = ["SupervisorForwards"]


class SupervisorForwards:
    """What programs read, assign and override in a Supervisor besides its public interface."""

    _elements: GraphElements
    _checkpoints: Any
    _event_log: Any
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

    def _init_ready_op(self, ready_op: Any = USE_DEFAULT, ready_for_local_init_op: Any = USE_DEFAULT) -> None:
        self._elements.resolve(ready_op=ready_op, ready_for_local_init_op=ready_for_local_init_op)

    def _init_init_op(self, init_op: Any = USE_DEFAULT, init_feed_dict: Any = None) -> None:
        self._elements.resolve(init_op=init_op)
        self._elements.init_feed_dict = init_feed_dict

    def _init_local_init_op(self, local_init_op: Any = USE_DEFAULT) -> None:
        self._elements.resolve(local_init_op=local_init_op)

    def _init_saver(self, saver: Any = USE_DEFAULT) -> None:
        self._elements.resolve(saver=saver)

    def _init_summary_op(self, summary_op: Any = USE_DEFAULT) -> None:
        self._elements.resolve(summary_op=summary_op)

    def _init_global_step(self, global_step: Any = USE_DEFAULT) -> None:
        self._elements.resolve(global_step=global_step)

    def _get_first_op_from_collection(self, key: str) -> Any:
        return first_of_collection(key)

    def _default_global_step_tensor(self) -> Any:
        return default_global_step()

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

    def _save(self, sess: Any, saver: Any, save_path: Any, global_step: Any = None) -> Any:
        """Saves a checkpoint. Each one of this Supervisor is saved by this method, which TensorFlow doesn't have."""
        return self._checkpoints.save(sess, saver, save_path, global_step)

    def _write_graph(self) -> None:
        self._event_log.write_graph()
