"""The attributes of a Supervisor, and TensorFlow's private methods. Each leads to the part that has it."""

from __future__ import annotations

from typing import Any

from fastsup.common.parts import PartAttribute, part_method
from fastsup.train.session import session_manager as session_manager_mod

__all__ = ["SupervisorForwards"]


class SupervisorForwards:
    """What programs read, assign and override in a Supervisor besides its public methods."""

    _executor: str
    _is_chief: bool
    _local_init_run_options: Any
    _recovery_wait_secs: float
    _save_model_secs: float | None
    _save_summaries_secs: float | None
    _coord: Any
    _session_manager: Any

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

    @property
    def is_chief(self) -> bool:
        """True if this is the chief."""
        return self._is_chief

    @property
    def coord(self) -> Any:
        """The Coordinator of the services' threads. A program's own threads may use it too."""
        return self._coord

    @property
    def session_manager(self) -> Any:
        """The SessionManager that makes the sessions."""
        return self._session_manager

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

    @property
    def summary_writer(self) -> Any:
        """The chief's writer of events, or None."""
        return self._summary_writer

    @property
    def save_summaries_secs(self) -> float | None:
        """Seconds between two summaries. None if this isn't the chief."""
        return self._save_summaries_secs

    @property
    def save_model_secs(self) -> float | None:
        """Seconds between two checkpoints. None if this isn't the chief."""
        return self._save_model_secs

    @property
    def save_path(self) -> Any:
        """The path of the checkpoints, without the step. None without a `logdir`."""
        return self._save_path

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
