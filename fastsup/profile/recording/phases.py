"""The names of phases that several modules use."""

from __future__ import annotations

__all__ = [
    "BETWEEN", "FEED_CONVERSION", "FETCHES", "FETCH_CONVERSION", "HOOK_DISPATCH", "LISTENER", "PLAN_MAKING", "SAVE",
    "STEP_FETCH",
]  # fmt: skip

FETCHES = "fetches"
# Fetched by the session, for hooks that count by it and aren't called in the run.
STEP_FETCH = "global step"
BETWEEN = "between steps"
# What the session does itself in a run that calls hooks.
HOOK_DISPATCH = "hook dispatch"
PLAN_MAKING = "plan making"
FEED_CONVERSION = "feed conversion"
FETCH_CONVERSION = "fetch conversion"
SAVE = "save"
LISTENER = "listener"
