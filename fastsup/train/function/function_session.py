"""The session that runs a lifted step for a monitored function."""

from __future__ import annotations

from typing import Any

from fastsup.eager.devices import OverEagerContext
from fastsup.eager.eager_session import SESSION_TARGET
from fastsup.eager.lift import LiftedGraph
from fastsup.runtime.executor import config_for
from fastsup.runtime.session import Session

__all__ = ["FunctionSession"]


class FunctionSession(OverEagerContext, Session):
    """A `fastsup.Session` over the eager context's devices, and so over the variables of eager code.

    Args:
      lifted: the LiftedGraph.
      executor: the executor mode.
    """

    def __init__(self, lifted: LiftedGraph, executor: str) -> None:
        config = config_for(executor, lifted.graph, "", lifted.session_config(single_threaded=False))
        super().__init__(SESSION_TARGET, lifted.graph, config, executor)
        # Its devices are in this process: from here on it is as one that was given no target.
        self._target: Any = ""
