"""`fastsup.function` where TensorFlow has several devices: the same results on the same devices, none read early."""

from __future__ import annotations

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
        memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(json.dumps([step.lifted, float(total), wrong, memory]))
"""
)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_read_before_it_is_written(run: Callable[..., Any], seed: int) -> None:
    """A thousand calls whose work is late in the stream, read after some of them."""
    program = LATE.replace("CALLS", "1000").replace("SEED", str(seed))
    lifted, total, wrong, memory = run(program, delay_us=300)
    assert lifted
    assert wrong == []
    assert total == 256.0 * 1000
    # KiB. After a warm-up, calls leave nothing behind.
    assert memory[-1] - memory[2] < 10_000


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
v = tf.Variable(1.0)
messages = []

def error_of(function, *args):
    try:
        function(*args)
    except (tf.errors.OpError, RuntimeError) as error:
        return type(error).__name__, str(error)
    return "", ""

def scatter(x):
    tf.raw_ops.ResourceScatterUpdate(resource=v.handle, indices=[0], updates=x)
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
print(json.dumps(messages))
"""
)


def test_bad_input(run: Callable[..., Any]) -> None:
    missing, mixed, index = run(BAD)
    assert missing == [True, True]
    assert mixed[0] == "UnimplementedError"
    assert "can't run a step on several devices" in mixed[1]
    assert index == ["InvalidArgumentError", "InvalidArgumentError", True, True]


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
loop.run()
session = fastsup.train.monitored_function(step, hooks=[fastsup.train.StopAtStepHook(last_step=30)])
with session:
    while not session.should_stop():
        values = session()
print(json.dumps([step.lifted, weights.numpy().tolist(), float(values["loss"]), weights.device[-13:]]))
"""
)


def test_loops_and_sessions_of_functions(run: Callable[..., Any]) -> None:
    lifted, weights, loss, device = run(LOOP, delay_us=100)
    assert lifted
    assert weights == [80.0] * 4
    assert loss == 320.0
    assert device == "ACCELERATOR:0"


TWO_CPUS = (
    """
import json
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
"""
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
