"""The names of phases that several modules use."""

from __future__ import annotations

__all__ = [
    "BATCH_CALLS",
    "BETWEEN",
    "BY_TENSORFLOW",
    "BY_TENSORFLOW_EAGERLY",
    "BY_TENSORFLOW_FUNCTION",
    "FEED_CONVERSION",
    "FETCHES",
    "FETCH_CONVERSION",
    "FUNCTION_ROLE",
    "HOOK_DISPATCH",
    "INPUT_TRACES",
    "INPUT_WAIT",
    "IN_A_THREAD",
    "KERAS_STEPS",
    "LIFTING",
    "LISTENER",
    "LOGS",
    "MADE_AGAIN",
    "OPEN_INPUT",
    "PASS_EPOCHS",
    "PASS_FUNCTIONS",
    "PASS_LOOP",
    "PASS_SETUP",
    "PLAN_MAKING",
    "SAVE",
    "STEP_FETCH",
    "TRACING",
    "WAIT_FOR_CALLBACKS",
    "WEIGHTS",
]

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
# Ends the detail of a trace of a new function, where one of its name was traced before.
MADE_AGAIN = "made again"
OPEN_INPUT = "open input"
INPUT_WAIT = "wait for input"
# For callbacks that Keras has handed to a thread.
WAIT_FOR_CALLBACKS = "wait for callbacks"
# Keras's methods that are one batch each.
BATCH_CALLS = ("train_on_batch", "test_on_batch", "predict_on_batch")
# The two: a call of each is a step.
KERAS_STEPS = (*PASS_FUNCTIONS, *BATCH_CALLS)
# A model's weights as arrays.
WEIGHTS = "weights to Python"
# A trace of a `fastsup.function` becomes a separate graph.
LIFTING = "lifting"
# The detail of calls of a `fastsup.function` that TensorFlow runs begins with this.
BY_TENSORFLOW = "by TensorFlow"
# What runs the function of a pass: TensorFlow's own call of a function, or Python, operation by operation.
BY_TENSORFLOW_FUNCTION = "TensorFlow"
BY_TENSORFLOW_EAGERLY = "run eagerly"
# The detail of traces of functions in a dataset.
INPUT_TRACES = "of tf.data's functions"
# The role of the calls of a `fastsup.function`, in place of that of a session.
FUNCTION_ROLE = "call"
# Ends the owner of what a callback does in a thread that Keras has given it.
IN_A_THREAD = ", in a thread"
