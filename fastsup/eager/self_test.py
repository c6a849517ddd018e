"""The self-test of the C++ binding, run by `python -m fastsup.eager.self_test` in its own process, which may crash."""

from __future__ import annotations

import resource
import sys
import threading
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from fastsup.eager import tf_abi
from fastsup.eager.eager_session import has_callbacks, settings
from fastsup.eager.function import Function
from fastsup.eager.function import function as lift


def _check(holds: Any, subject: str) -> None:
    if not holds:
        raise AssertionError(f"self-test: {subject}")


def _lifted(function: Any) -> Function:
    lifted: Function = lift(tf.function(function), executor="inline", fallback="raise")
    return lifted


def run() -> None:
    """Runs lifted functions that use every part of the C++ binding.

    Raises:
      AssertionError: If a result differs from TensorFlow's.
    """
    here = context.context()
    with tf.device("CPU:0"), context.execution_mode(context.ASYNC):
        _check(settings(here)[0] and "CPU:0" in settings(here)[1], "the device of a thread")
        _check(settings(here)[2], "the executor of a thread")
    with tf.Graph().as_default():
        _check(not settings(here)[0], "the mode of a thread")
    _check(settings(here) == (True, "", False), "a thread without settings")
    here.add_op_callback(_check)
    _check(has_callbacks(here), "a thread's callbacks")
    here.remove_op_callback(_check)
    _check(not has_callbacks(here), "a thread without callbacks")

    weights = tf.Variable(np.arange(10, dtype=np.float32), name="weights")

    def step(x: Any, scale: float = 0.5) -> Any:
        weights.assign_sub(scale * x)
        return {"loss": tf.reduce_sum(weights), "none": None, "x": x}

    lifted = _lifted(step)
    ones = tf.ones([10])
    for executor in ("inline", "thread_pool", "single_threaded"):
        each = lift(lifted.original, executor=executor, fallback="raise")
        for _ in range(50):
            before = float(tf.reduce_sum(weights))
            result = each(ones)
            _check(float(result["loss"]) == before - 5.0, f"a variable, {executor}")
            _check(result["none"] is None and bool(tf.reduce_all(result["x"] == ones)), "the structure of results")
        _check(each.lifted, f"lifting with {executor}")
    squares = _lifted(lambda x: tf.reduce_sum(3.0 * x * x))
    _check(float(squares(ones)) == 30.0 and squares.lifted, "a result")
    with tf.GradientTape() as tape:
        tape.watch(ones)
        loss = squares(ones)
    _check(float(tape.gradient(loss, ones)[0]) == 6.0, "gradients through a lifted function")
    with tf.autodiff.ForwardAccumulator(ones, ones) as accumulator:
        loss = squares(ones)
    _check(float(accumulator.jvp(loss)) == 60.0, "a forward accumulator")

    shapes = _lifted(lambda x: tf.shape(x) + 0)
    for rank in range(6):
        _check(shapes(tf.zeros([2] * rank)).numpy().tolist() == [2] * rank, "shapes")
    words = _lifted(lambda x: tf.strings.join([x, "!"]))
    _check(words(tf.constant(["a", "b" * 100])).numpy().tolist() == [b"a!", b"b" * 100 + b"!"], "strings")
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), -1)
    look_up = _lifted(lambda x: table.lookup(x))
    _check(look_up(tf.constant(["b", "c"])).numpy().tolist() == [2, -1], "tables")
    numbers = iter(tf.data.Dataset.range(5))
    take = _lifted(lambda iterator: next(iterator))
    _check([int(take(numbers)) for _ in range(5)] == [0, 1, 2, 3, 4], "iterators")
    try:
        take(numbers)
        _check(False, "the end of an iterator")
    except tf.errors.OutOfRangeError as error:
        _check("End of sequence" in str(error), "the text of an error")

    def count() -> None:
        for _ in range(300):
            adding()

    total = tf.Variable(0)
    adding = _lifted(lambda: total.assign_add(1))
    adding()
    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _check(int(total) == 1201, "threads")
    for _ in range(20):
        _lifted(lambda x: x * 2.0)(ones)


def _is_about_the_machine(error: BaseException | None) -> bool:
    """Returns True if an error or its cause is about memory, threads, files or imports."""
    while error is not None:
        if isinstance(error, MemoryError | OSError | ImportError | tf.errors.ResourceExhaustedError):
            return True
        if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def main() -> None:
    """Opens the C++ binding, runs the test, and reports the result, except after a signal or a fault of the machine."""
    # Write no core file, because a crash is one of the possible outcomes.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Use only the CPU, because the machine's other devices don't matter here.
    tf.config.set_visible_devices(tf.config.list_physical_devices("CPU"))
    context.ensure_initialized()
    tf_abi.report(tf_abi.BEGUN)
    try:
        reason = tf_abi.open_untested()
        if not reason:
            tf_abi._outcome = ""
            run()
    except Exception as error:
        if _is_about_the_machine(error):
            raise
        reason = f"{type(error).__name__}: {error}"
    tf_abi.report(tf_abi.FAILED if reason else tf_abi.PASSED, reason)
    sys.exit(1 if reason else 0)


if __name__ == "__main__":
    main()
