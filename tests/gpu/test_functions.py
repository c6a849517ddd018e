"""`fastsup.function` where TensorFlow has several devices: the same results on the same devices, none read early."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

COMMON = """
import fastsup
tf.autograph.set_verbosity(0)

def lift(function, **options):
    return fastsup.function(function, fallback="raise", **options)

def tell(result):
    tensors = tf.nest.flatten(result, expand_composites=True)
    return [(t.dtype.name, t.device, t.backing_device, str(t.numpy())) for t in tensors]
"""

PLACES = (
    COMMON
    + """
a, n = tf.constant(1.0), tf.constant(2)
v = tf.Variable(1.0)
with tf.device("cpu:0"):
    c, cv, cn = tf.constant(3.0), tf.Variable(1.0), tf.Variable(1, dtype=tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), -1)
kept = tf.constant([1.0, 2.0])

def on(device, function):
    def placed(*args):
        with tf.device(device):
            return function(*args)
    return placed

@tf.function
def inner(x):
    return v * x

cases = {
    "an argument on the CPU": (lambda x: x + 1.0, (c,)),
    "an argument on the accelerator": (lambda x: x + 1.0, (a,)),
    "the argument itself": (lambda x: x, (c,)),
    "the argument itself, on the accelerator": (lambda x: x, (a,)),
    "an operation on the CPU": (on("cpu:0", lambda x: x + 1.0), (a,)),
    "an operation on the accelerator": (on("accelerator:0", lambda x: x * 2.0), (c,)),
    "both": (lambda x, y: (on("cpu:0", tf.add)(x, y), on("accelerator:0", tf.multiply)(x, y)), (a, c)),
    "int32, which the host keeps": (lambda x: x + 1, (n,)),
    "int32 on the CPU": (on("cpu:0", lambda x: x + 1), (n,)),
    "a shape": (lambda x: tf.shape(x), (a,)),
    "a string": (lambda x: tf.strings.as_string(x), (a,)),
    "a condition": (lambda x: tf.cond(x > 0.0, lambda: x + 1.0, lambda: x - 1.0), (a,)),
    "a variable of the CPU": (lambda x: cv.assign_add(x), (c,)),
    "a variable of the CPU, fed from the accelerator": (lambda x: cv.assign_add(x), (a,)),
    "a variable of the accelerator": (lambda x: v.assign_add(x), (c,)),
    "an integer variable": (lambda: cn.assign_add(1), ()),
    "variables as arguments": (lambda a, b: (a + b, a.assign_add(b)), (v, cv)),
    "another order of them": (lambda a, b: (a + b, a.assign_add(b)), (cv, v)),
    "one variable twice": (lambda a, b: a.assign_add(b), (v, v)),
    "a captured tensor": (lambda x: kept * x, (a,)),
    "a function in it": (lambda x: inner(x) + inner(x + 1.0), (a,)),
    "a table": (lambda x: table.lookup(tf.strings.as_string(tf.cast(x, tf.int32))), (a,)),
    "a structure": (lambda x: {"x": x, "y": cv + x, "n": cn + 1, "s": tf.shape(x)}, (a,)),
    "an array": (lambda x: x * 2.0, (np.ones(3, np.float32),)),
    "a number": (lambda x: x * 2.0, (4.0,)),
}
different = []
for scope in (None, "cpu:0", "accelerator:0", "accelerator:1"):
    for name, (function, args) in cases.items():
        with tf.device(scope):
            made = []
            for step in (tf.function(function), lift(function)):
                v.assign(1.0), cv.assign(1.0), cn.assign(1)
                made.append([tell(step(*args)) for _ in range(3)])
            if made[0] != made[1] or not step.lifted:
                different.append([str(scope), name, *made])
print(json.dumps([len(cases), different]))
"""
)


def test_results_are_where_tensorflow_has_them(run: Callable[..., Any]) -> None:
    count, different = run(PLACES, devices=2)
    assert count == 25
    assert different == []


TURNS = (
    COMMON
    + """
with tf.device("cpu:0"):
    on_cpu = tf.constant([1.0, 2.0])
with tf.device("accelerator:0"):
    on_first = tf.constant([10.0, 20.0])
with tf.device("accelerator:1"):
    on_second = tf.constant([100.0, 200.0])
step = lift(lambda x: x + 1.0)
reference = tf.function(lambda x: x + 1.0)
made = []
for _ in range(3):
    for scope in (None, "cpu:0", "accelerator:1"):
        for x in (on_cpu, on_first, on_second):
            with tf.device(scope):
                made.append(tell(step(x)) == tell(reference(x)))
print(json.dumps([all(made), len(made), len(step._entries), step.experimental_get_tracing_count(), step.lifted]))
"""
)


def test_calls_on_several_devices_in_turns(run: Callable[..., Any]) -> None:
    """One trace, and a lifted graph for each scope and each device of the argument."""
    assert run(TURNS, devices=2) == [True, 27, 9, 1, True]


LATE = (
    COMMON
    + """
import resource
weights, steps = tf.Variable(tf.zeros([256])), tf.Variable(0, dtype=tf.int64)
with tf.device("cpu:0"):
    host_steps = tf.Variable(0, dtype=tf.int64)

@lift
def step(x):
    weights.assign_add(x)
    with tf.device("cpu:0"):
        host_steps.assign_add(1)
    return tf.reduce_sum(weights), steps.assign_add(1), host_steps + 0

x = tf.ones([256])
wrong, memory = [], []
for number in range(1, CALLS + 1):
    total, count, host_count = step(x)
    if number % 7 == SEED % 7 or number % 50 == 0:
        found = [float(total), int(count), int(host_count), float(weights[3])]
        if found != [256.0 * number, number, number, float(number)]:
            wrong.append([number, *found])
    if number % 100 == 0:
        weights.numpy()
        on_device = tf.config.experimental.get_memory_info("ACCELERATOR:0")["current"]
        memory.append([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, on_device])
print(json.dumps([step.lifted, float(total), wrong, memory]))
"""
)


@pytest.mark.parametrize("seed", range(1, 21 if os.environ.get("FASTSUP_DEVICES") == "long" else 2))
def test_nothing_is_read_before_it_is_written(run: Callable[..., Any], seed: int) -> None:
    """A thousand calls whose work is late in the stream, read after some of them."""
    program = LATE.replace("CALLS", "1000").replace("SEED", str(seed))
    lifted, total, wrong, memory = run(program, delay_us=300, seed=seed)
    assert lifted
    assert wrong == []
    assert total == 256.0 * 1000
    # After a warm-up, calls leave nothing behind: neither in KiB of the host, nor in bytes of the device.
    assert memory[-1][0] - memory[2][0] < 10_000
    assert memory[-1][1] - memory[2][1] < 10_000


EARLY = (
    COMMON
    + """
weights = tf.Variable(tf.zeros([4]))
step = lift(lambda x: weights.assign_add(x))
x = tf.ones([4])
step(x).numpy()
step(x).numpy()
started = time.monotonic()
result = step(x)
returned = time.monotonic() - started
value = result.numpy().tolist()
print(json.dumps([step.lifted, value, returned, time.monotonic() - started]))
"""
)


@pytest.mark.slow
def test_a_call_does_not_wait_for_the_device(run: Callable[..., Any]) -> None:
    lifted, value, returned, read = run(EARLY, delay_us=500_000)
    assert lifted
    assert value == [3.0] * 4
    assert returned < 0.5 <= read


BAD = (
    COMMON
    + """
import ctypes
v = tf.Variable(1.0)
messages = []

def error_of(function, *args):
    try:
        function(*args)
    except (tf.errors.OpError, RuntimeError) as error:
        return type(error).__name__, str(error)
    return "", ""

def scatter(x):
    tf.raw_ops.ResourceScatterMul(resource=v.handle, indices=[0], updates=x)
    return x

def mixed(x):
    with tf.device("cpu:0"):
        y = x + 1.0
    return y * v

def indexed(i):
    with tf.device("cpu:0"):
        return tf.gather(tf.ones([3]), i)

theirs, ours = error_of(tf.function(scatter), tf.ones([1])), error_of(lift(scatter), tf.ones([1]))
messages.append([theirs[0] == ours[0], theirs[1].splitlines()[0] == ours[1].splitlines()[0]])
messages.append(error_of(lift(mixed, executor="single_threaded"), tf.ones([])))
theirs, ours = error_of(tf.function(indexed), tf.constant(7)), error_of(lift(indexed), tf.constant(7))
messages.append([theirs[0], ours[0], "indices = 7" in theirs[1], "indices = 7" in ours[1]])

@tf.function(jit_compile=True)
def compiled(x):
    return x * 2.0

def compiled_in_part(x):
    return compiled(x) + mixed(x)

theirs, ours = tf.function(compiled_in_part), fastsup.function(compiled_in_part, fallback="silent")
messages.append([error_of(theirs, tf.ones([]))[0], error_of(ours, tf.ones([]))[0], ours.why_not_lifted])

number = tf.cast(tf.constant(3.0), tf.int32)
ours = fastsup.function(lambda n: n + 1, executor="inline", fallback="silent")
messages.append([number.backing_device[-13:], int(ours(number)), int(ours(number)), ours.why_not_lifted])

def large(n):
    return tf.reduce_sum(tf.fill([n, 1 << 20], 1.0))

theirs, ours = tf.function(large), lift(large)
found = [error_of(step, tf.constant(600)) for step in (theirs, ours)]
messages.append([name for name, _ in found] + ["600,1048576" in text for _, text in found])
messages[-1] += [float(step(tf.constant(1))) for step in (theirs, ours)] + [ours.lifted]

def add(x):
    return v.assign_add(x)

theirs, ours = tf.function(add), lift(add)
theirs(1.0), ours(1.0)
ctypes.CDLL(os.environ["ACCELERATOR_LIBRARY"]).accelerator_go_away()
messages.append([error_of(lambda: step(1.0).numpy()) for step in (theirs, ours)] + [ours.lifted])
print(json.dumps(messages))
"""
)


def test_bad_input(run: Callable[..., Any]) -> None:
    missing, mixed, index, compiled, int32, large, gone = run(BAD)
    assert missing == [True, True]
    assert mixed[0] == "UnimplementedError"
    assert "can't run a step on several devices" in mixed[1]
    assert index == ["InvalidArgumentError", "InvalidArgumentError", True, True]
    assert compiled[:2] == ["InvalidArgumentError"] * 2  # The fake accelerator has no XLA.
    assert compiled[2].startswith("XLA compiles it or a part of it")
    assert int32[:3] == ["ACCELERATOR:0", 4, 4]
    assert int32[3].startswith("one of its arguments is a tensor of int32 in the memory of")
    assert large == ["ResourceExhaustedError"] * 2 + [True] * 2 + [2.0**20] * 2 + [True]
    theirs, ours, is_lifted = gone
    assert is_lifted
    assert ours == theirs
    # From TensorFlow 2.22 on, it passes on what the device has said.
    import tensorflow as tf

    passes_on = tuple(map(int, tf.__version__.split(".")[:2])) >= (2, 22)
    text = "the fake accelerator has gone away" if passes_on else "PluggableDevice SyncAll failed."
    assert ours == ["InternalError", text]


FIT = (
    COMMON
    + """
import keras
from fastsup.keras import accelerate

def fitted(is_accelerated, policy):
    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_global_policy(policy)
    model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(3, dtype="float32")])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    if is_accelerated:
        accelerate(model, fallback="raise")
    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    y = (x.sum(axis=1) > 0).astype("int64")
    losses = model.fit(x, y, epochs=3, batch_size=16, verbose=0).history["loss"]
    return losses, model.evaluate(x, y, verbose=0), model.predict(x, verbose=0)[0].tolist()

print(json.dumps([[fitted(False, policy), fitted(True, policy)] for policy in ("float32", "mixed_float16")]))
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("delay_us", [0, 300])
def test_keras_fits_the_same_model(run: Callable[..., Any], delay_us: int) -> None:
    for theirs, ours in run(FIT, delay_us=delay_us):
        assert ours == theirs


LOOP = (
    COMMON
    + """
weights = tf.Variable(tf.zeros([4]))

@fastsup.function
def step():
    weights.assign_add(tf.ones([4]))
    return {"loss": tf.reduce_sum(weights)}

loop = fastsup.loop.StepLoop(step, max_steps=50, hooks=[fastsup.loop.NanGuardHook()])
seen = []

class Losses(tf.compat.v1.train.SessionRunHook):
    def before_run(self, run_context):
        return tf.compat.v1.train.SessionRunArgs("loss:0")

    def after_run(self, run_context, run_values):
        seen.append(float(run_values.results))

values = loop.run()
fastsup.loop.StepLoop(step, [Losses()], steps=30).run()
print(json.dumps([step.lifted, weights.numpy().tolist(), float(values["loss"]), weights.device[-13:], seen[-1]]))
"""
)


def test_loops_and_sessions_of_functions(run: Callable[..., Any]) -> None:
    lifted, weights, loss, device, last = run(LOOP, delay_us=100)
    assert lifted
    assert weights == [80.0] * 4
    assert (loss, last) == (200.0, 320.0)
    assert device == "ACCELERATOR:0"


PROFILED = (
    COMMON
    + """
weights = tf.Variable(tf.zeros([4]))
step = lift(lambda: weights.assign_add(tf.ones([4])))
step().numpy()
profiler = fastsup.HookProfiler()
fastsup.loop.StepLoop(step, max_steps=5, profiler=profiler).run()
with tf.Graph().as_default():
    fastsup.loop.StepLoop(int, max_steps=5, profiler=profiler).run()
found = [(row.times.max_ns, row.phase) for row in profiler.report().rows]
print(json.dumps({phase: longest for longest, phase in sorted(found)}))
"""
)


def test_the_profile_tells_the_devices_time_from_the_hosts(run: Callable[..., Any]) -> None:
    max_ns = run(PROFILED, delay_us=50_000)
    assert max_ns["runtime"] < 50e6 <= max_ns["device"]


SAVED = (
    COMMON
    + """
import tempfile
from fastsup.loop import CheckpointHook, NanGuardHook, NanResultError, StepLoop

def new_step(bad_at=10**9):
    weights, count = tf.Variable(tf.zeros([64])), tf.Variable(0, dtype=tf.int64)

    @fastsup.function(fallback="raise")
    def step():
        weights.assign_add(tf.ones([64]))
        total = tf.reduce_sum(weights)
        return {"loss": tf.where(count.assign_add(1) >= bad_at, total * np.nan, total)}

    return step, weights, tf.train.Checkpoint(weights=weights, count=count)

def values_of(folder):
    _, weights, checkpoint = new_step()
    found = {}
    for path in tf.train.get_checkpoint_state(folder).all_model_checkpoint_paths:
        checkpoint.restore(path)
        found[int(path.rpartition("-")[2])] = sorted(set(weights.numpy().tolist()))
    return found

def loop(folder, is_async, steps):
    step, weights, checkpoint = new_step()
    hook = CheckpointHook(checkpoint, every_steps=7, directory=folder, max_to_keep=20, async_save=is_async)
    StepLoop(step, [hook, NanGuardHook(every_steps=5)], steps=steps, resume_from=hook).run()
    assert step.lifted
    return float(weights[5])

found = []
for is_async in (False, True):
    folder = tempfile.mkdtemp()
    found.append([loop(folder, is_async, 20), loop(folder, is_async, 11), values_of(folder)])

step, _, _ = new_step(bad_at=13)
try:
    StepLoop(step, [NanGuardHook()], max_steps=50).run()
except NanResultError as error:
    found.append(str(error))
print(json.dumps(found))
"""
)


@pytest.mark.slow
def test_checkpoints_hold_the_step_that_they_name(run: Callable[..., Any]) -> None:
    """In the foreground and in the background, with work that is late in the stream; and what goes on from them."""
    *saved, message = run(SAVED, delay_us=100, seed=1)
    for first, second, values in saved:
        assert [first, second] == [20.0, 31.0]
        assert len(values) >= 5
        assert all(found == [float(step)] for step, found in values.items())
    assert message.startswith("NaN in the result of step 13")


TWO_CPUS_HEAD = """
import json
import numpy as np
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
"""

DISTRIBUTED = (
    COMMON
    + """
devices = ["DEVICE:0", "DEVICE:1"]
data = tf.data.Dataset.from_tensor_slices(np.arange(64, dtype=np.float32).reshape(16, 4)).batch(4).repeat()

def trained(kind, decorate):
    strategy = tf.distribute.OneDeviceStrategy(devices[1]) if kind == "one" else tf.distribute.MirroredStrategy(
        devices if kind == "both" else devices[:1])
    with strategy.scope():
        weights = tf.Variable(tf.ones([4]), aggregation=tf.VariableAggregation.MEAN)

    def replica(x):
        error = tf.reduce_sum(weights * x)
        weights.assign_sub(0.001 * tf.reduce_mean(x, axis=0))
        return error

    @decorate
    def step(x):
        return strategy.reduce("SUM", strategy.run(replica, args=(x,)), axis=None)

    @decorate
    def next_step(iterator):
        return strategy.reduce("SUM", strategy.run(replica, args=(next(iterator),)), axis=None)

    iterator = iter(strategy.experimental_distribute_dataset(data))
    x = tf.reshape(tf.range(16.0), [4, 4])
    made = [tell(step(x)) for _ in range(10)] + [tell(next_step(iterator)) for _ in range(10)]
    return made + [weights.numpy().tolist()], step, next_step

found = []
for kind in KINDS:
    expected, _, _ = trained(kind, tf.function)
    made, step, next_step = trained(kind, fastsup.function)
    found.append([kind, made == expected, step.lifted, next_step.lifted, next_step.why_not_lifted])
print(json.dumps(found))
"""
)


@pytest.mark.slow
def test_strategies(run: Callable[..., Any]) -> None:
    program = DISTRIBUTED.replace("DEVICE:", "ACCELERATOR:").replace("KINDS", '("one", "first")')
    assert run(program, devices=2) == [["one", True, True, True, ""], ["first", True, True, True, ""]]


@pytest.mark.slow
def test_strategies_on_cpus(processes: Any) -> None:
    """An iterator on the second device is a resource that no session is given."""
    program = DISTRIBUTED.replace("DEVICE:", "CPU:").replace("KINDS", '("one", "first", "both")')
    done = processes.python("-c", TWO_CPUS_HEAD + program)
    assert done.returncode == 0, done.stderr[-3000:]
    one, first, both = json.loads(done.stdout.splitlines()[-1])
    assert first == ["first", True, True, True, ""]
    for kind, found in (("one", one), ("both", both)):
        assert found[:4] == [kind, True, True, False]
        assert "one of its arguments is a resource on" in found[4]


TWO_CPUS = (
    TWO_CPUS_HEAD
    + COMMON
    + """
with tf.device("cpu:1"):
    second = tf.Variable([1.0, 2.0])
first = tf.Variable([1.0, 2.0])

def step(x):
    second.assign_add(x)
    with tf.device("cpu:1"):
        y = x * second
    return first.assign_add(y), y

made = []
for function in (tf.function(step), lift(step), lift(step, executor="inline")):
    first.assign([1.0, 2.0]), second.assign([1.0, 2.0])
    made.append([tell(function(tf.ones([2]))) for _ in range(20)])
alone = lift(lambda x: first.assign_sub(x))
alone(tf.ones([2]))
with tf.device("cpu:1"):
    elsewhere = lift(lambda x: second.assign_sub(x))
    elsewhere(tf.ones([2]))
print(json.dumps([made[1] == made[0], made[2] == made[0], alone.executor, elsewhere.executor]))
"""
)


def test_two_cpu_devices(processes: Any) -> None:
    done = processes.python("-c", TWO_CPUS)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == '[true, true, "single_threaded", "single_threaded"]'
