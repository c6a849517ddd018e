"""The names of phases that several modules use."""

from __future__ import annotations

__all__ = [
    "BETWEEN", "FEED_CONVERSION", "FETCHES", "FETCH_CONVERSION", "HOOK_DISPATCH", "INPUT_WAIT", "LISTENER", "LOGS",
    "OPEN_INPUT", "PASS_EPOCHS", "PASS_FUNCTIONS", "PASS_LOOP", "PASS_SETUP", "PLAN_MAKING", "SAVE", "STEP_FETCH",
    "TRACING", "WAIT_FOR_CALLBACKS",
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
# Of a pass, a call that makes all steps itself: its own code before the first epoch, between epochs, around batches.
PASS_SETUP = "setup"
PASS_EPOCHS = "between epochs"
PASS_LOOP = "Keras's loop"
# What a pass calls for each batch.
PASS_FUNCTIONS = ("train_function", "test_function", "predict_function")
# Logs as Python's numbers, for callbacks: it waits until the batch is done.
LOGS = "logs to Python"
# A function is traced to a graph.
TRACING = "tracing"
OPEN_INPUT = "open input"
INPUT_WAIT = "wait for input"
# For callbacks that Keras has handed to a thread.
WAIT_FOR_CALLBACKS = "wait for callbacks"
