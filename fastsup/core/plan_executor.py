"""In which executor a session runs a combination of fetches and feeds: told by sessions, shown by profiles."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PlanExecutor"]


class PlanExecutor(NamedTuple):
    """The executor of one combination of fetches and feeds that a session has compiled.

    Args:
      fetches: names of the tensors that are fetched and of the operations that are run, those of hooks included.
      feeds: names of the tensors that are fed.
      executor: the mode in use now: "thread_pool", "inline" or "single_threaded".
      on_trial: whether the choice between executors is still being made, or made again.
      seconds: median seconds that a run took in its trial in that mode; None if no run was timed.
    """

    fetches: tuple[str, ...]
    feeds: tuple[str, ...]
    executor: str
    on_trial: bool
    seconds: float | None
