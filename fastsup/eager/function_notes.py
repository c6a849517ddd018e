"""The lifting status of a watched program's functions, for `python -m fastsup doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["FunctionNote"]


@dataclass
class FunctionNote:
    """One ConcreteFunction: its executor, or why it isn't lifted.

    Args:
      name: the function's name.
      executor: the mode that runs it, or "auto" during its trial.
      seconds: seconds per call, as "auto" measured them, or None.
      why_not_lifted: reason why it isn't lifted, or "".
      is_compiled: Whether XLA compiles it as a whole.
    """

    name: str
    executor: str = "auto"
    seconds: float | None = None
    why_not_lifted: str = ""
    is_compiled: bool = False

    def take_choice(self, trial: Any) -> None:
        """Records the executor that a trial chose."""
        self.executor, self.seconds = str(trial.executor), trial.seconds
