"""The names of phases that several files of the profile know by name."""

from __future__ import annotations

__all__ = ["BETWEEN", "FEED_CONVERSION", "FETCHES", "FETCH_CONVERSION", "LISTENER", "PLAN_MAKING", "SAVE", "STEP_FETCH"]

FETCHES = "fetches"
# The session's own: for hooks that are left out of a run and count by it.
STEP_FETCH = "global step"
BETWEEN = "between steps"
PLAN_MAKING = "plan making"
FEED_CONVERSION = "feed conversion"
FETCH_CONVERSION = "fetch conversion"
SAVE = "save"
LISTENER = "listener"
