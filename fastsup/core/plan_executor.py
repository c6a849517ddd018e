"""The executor in which a session runs a combination of fetches and feeds. Sessions report it, profiles show it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PlanExecutor"]


class PlanExecutor(NamedTuple):
    """The executor of one combination of fetches and feeds that a session has compiled.

    Args:
      fetches: names of the tensors that are fetched and of the operations that are run, including those of hooks.
      feeds: names of the tensors that are fed.
      executor: the current mode: "thread_pool", "inline" or "single_threaded".
      on_trial: True while the choice between executors is open: during a trial, and until the first one begins.
      seconds: median seconds of a run in that mode in its trial; None if no run was timed.
    """

    fetches: tuple[str, ...]
    feeds: tuple[str, ...]
    executor: str
    on_trial: bool
    seconds: float | None
