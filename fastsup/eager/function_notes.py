"""What becomes of the functions of `fastsup.function` in a program that is watched, for `python -m fastsup doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["FunctionNote"]


@dataclass
class FunctionNote:
    """One ConcreteFunction: its executor, or why it isn't lifted.

    Args:
      name: the function's name.
      executor: the mode that runs it; "auto" during its trial.
      seconds: seconds that a call takes, as "auto" has measured them; None if it has measured none.
      why_not_lifted: why it isn't lifted; "" for one that is.
      is_compiled: whether XLA compiles it as a whole.
    """

    name: str
    executor: str = "auto"
    seconds: float | None = None
    why_not_lifted: str = ""
    is_compiled: bool = False

    def take_choice(self, trial: Any) -> None:
        """Takes the executor that a trial has chosen."""
        self.executor, self.seconds = str(trial.executor), trial.seconds
