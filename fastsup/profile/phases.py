"""The names of phases that several modules use."""

from __future__ import annotations

__all__ = ["BETWEEN", "FEED_CONVERSION", "FETCHES", "FETCH_CONVERSION", "LISTENER", "PLAN_MAKING", "SAVE", "STEP_FETCH"]

FETCHES = "fetches"
# Fetched by the session, for hooks that count by it and aren't called in the run.
STEP_FETCH = "global step"
BETWEEN = "between steps"
PLAN_MAKING = "plan making"
FEED_CONVERSION = "feed conversion"
FETCH_CONVERSION = "fetch conversion"
SAVE = "save"
LISTENER = "listener"
