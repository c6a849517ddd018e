"""The part of a report about a session, or about all sessions of one origin."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from fastsup.core.sessions import PlanExecutor
from fastsup.profile.recording.phases import FUNCTION_ROLE

__all__ = ["SessionPart", "names_of"]


@dataclass(frozen=True)
class SessionPart:
    """A session or loop; or several of one origin.

    Args:
      name: its name in the profile.
      kind: name of the call that opens it.
      role: "train", "evaluate" or "predict"; "run" if its purpose isn't known; "call" for a `fastsup.function`.
      place: file name and line of that call.
      sessions: number of sessions.
      runs: number of runs; of a pass, such as Keras's `fit`, of batches; of a function, of calls.
      total_ns: sum of its rows, in nanoseconds.
      within: the callback in which the sessions ran: (session, hook, phase, detail); None outside a callback.
      asked_executors: the executor modes of the sessions: those asked for, or those that `auto` has chosen for good.
      executors: the executors of its combinations of fetches and feeds.
      tensorflow_hooks: names of the classes among its hooks that are TensorFlow's own.
      operations_added: number of operations added to the graph while the session was open.
      is_pass: whether it is Keras's: a call that makes all steps itself, `fit`, `evaluate` or `predict`, or calls for
        one batch, such as `train_on_batch`.
    """

    name: str
    kind: str
    role: str
    place: str
    sessions: int
    runs: int
    total_ns: int
    within: tuple[str, str, str, str] | None = None
    asked_executors: tuple[str, ...] = ()
    executors: tuple[PlanExecutor, ...] = ()
    tensorflow_hooks: tuple[str, ...] = ()
    operations_added: int = 0
    is_pass: bool = False

    @property
    def is_function(self) -> bool:
        """Whether it is a `fastsup.function`, of which each call is a step."""
        return self.role == FUNCTION_ROLE

    def executor_of(self, detail: str) -> str:
        """Returns the executor of fetches: "inline", "inline or thread_pool", "inline, on trial"; "" if it isn't known.

        Args:
          detail: the fetches, as the row of the runtime describes them.
        """
        wanted = set(_names_in(detail))
        plans = [plan for plan in self.executors if plan.fetches == (detail,)]
        plans = plans or [
            plan for plan in self.executors if wanted <= {name.removesuffix(":0") for name in plan.fetches}
        ]
        if not wanted or not plans:
            known = self.asked_executors
            return known[0] if len(known) == 1 and known[0] != "auto" else ""
        modes = sorted({plan.executor for plan in plans})
        return " or ".join(modes) + (", on trial" if any(plan.on_trial for plan in plans) else "")


def _names_in(detail: str) -> list[str]:
    """The names of the elements in a description of fetches."""
    without_keys = re.sub(r"[^,\[\](){}]*: ", "", re.sub(r"… \d+ more", "", detail))
    return [name.strip() for name in re.split(r"[,\[\](){}]", without_keys) if name.strip()]


def names_of(recorded: list[dict[str, Any]]) -> list[str]:
    """Returns a different name for each session, in the order in which they were recorded.

    Args:
      recorded: the sessions, as `Recorder.described_sessions` returns them.
    """
    names: list[str] = []
    for session in recorded:
        kind, role, place = session["kind"], session["role"], session["place"]
        said = "" if role in ("run", FUNCTION_ROLE) or not kind or kind.rpartition(".")[2] == role else f" ({role})"
        name = f"{kind}{said}" + (f", {place}" if place else "")
        taken, number = name, 1
        while name and taken in names:
            number += 1
            taken = f"{name} #{number}"
        names.append(taken)
    return names
