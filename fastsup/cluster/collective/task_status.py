"""What a task of a job of collectives tells the others about itself."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

__all__ = ["ENDED", "FAILED", "JOINING", "LEFT", "TRAINING", "TaskStatus"]

# The phases of a training, for one task. It has left when it has seen that the leader has ended.
JOINING, TRAINING, ENDED, LEFT, FAILED = "joining", "training", "ended", "left", "failed"


@dataclasses.dataclass
class TaskStatus:
    """The status of a task, as the status board has it.

    Args:
      process: random name of the process. A task that was started again has another one.
      training: number of the training, counted from 1 in each process: an Estimator may train several times.
      phase: one of the five phases.
      beat: number that grows as long as the process lives.
      checkpoint: name of the newest checkpoint that the task has found; empty if there is none.
      runs: number of runs of the training step that have ended.
      members: of the leader: the processes that train together, by task. Empty until all are there.
      stop_after: number of runs after which the task wants all to stop; None as long as it doesn't.
      stop_reason: why it wants that.
      stop_signal: number of the signal that it has got, or 0.
      knows_stop: the smallest `stop_after` that the task knows of, its own or another one's.
      save_after: of the leader: number of runs after which all take part in a save; 0 as long as there is none.
      knows_save: the `save_after` that the task knows of.
      error: why the task has failed.
    """

    process: str
    training: int
    phase: str = JOINING
    beat: int = 0
    checkpoint: str = ""
    runs: int = 0
    members: dict[str, str] = dataclasses.field(default_factory=dict)
    stop_after: int | None = None
    stop_reason: str = ""
    stop_signal: int = 0
    knows_stop: int | None = None
    save_after: int = 0
    knows_save: int = 0
    error: str = ""

    def to_text(self) -> str:
        """The status as text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> TaskStatus:
        """The status that a text has.

        Args:
          text: what `to_text` has returned.
        """
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields)
