"""A hook that reads the global step in each run."""

from __future__ import annotations

from typing import Any

from tensorflow.python.training import session_run_hook, training_util

__all__ = ["GlobalStepReader"]


class GlobalStepReader(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Base of hooks whose `after_run` gets the global step, as `run_values.results`."""

    _global_step_tensor: Any

    def begin(self) -> None:
        """Finds the tensor of the global step, which is None if the graph has no global step."""
        self._global_step_tensor = training_util._get_or_create_global_step_read()

    def before_run(self, run_context: Any) -> Any:
        """Requests the global step."""
        return session_run_hook.SessionRunArgs(self._global_step_tensor)
