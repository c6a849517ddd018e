"""The fake accelerator itself: it computes what the CPU does, its memory isn't the host's, and its streams are late."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

TRAIN = """
def losses(device):
    with tf.device(device):
        x = tf.constant(np.random.default_rng(0).normal(size=(32, 8)), tf.float32)
        labels = tf.constant(np.arange(32) % 3)
        weights = tf.Variable(np.random.default_rng(1).normal(size=(8, 3)), dtype=tf.float32)
        bias = tf.Variable(np.zeros(3), dtype=tf.float32)

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                logits = tf.nn.bias_add(tf.matmul(x, weights), bias)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            for variable, gradient in zip((weights, bias), tape.gradient(loss, (weights, bias))):
                variable.assign_sub(0.5 * gradient)
            return loss

        made = [step() for _ in range(5)]
    assert {loss.device.partition("task:0")[2] for loss in made} == {"/device:" + device.upper()}
    return [float(loss) for loss in made]

print(json.dumps([losses(device) for device in ("cpu:0", "accelerator:0", "accelerator:1")]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("delay_us", [0, 300])
def test_it_trains_as_the_cpu_does(run: Callable[..., Any], delay_us: int) -> None:
    by_cpu, *by_accelerators = run(TRAIN, devices=2, delay_us=delay_us)
    assert by_cpu[-1] < by_cpu[0]
    for losses in by_accelerators:
        assert losses == pytest.approx(by_cpu, rel=1e-5)


FIT = """
import keras
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(3)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
history = model.fit(x, (x.sum(axis=1) > 0).astype("int64"), epochs=3, batch_size=16, verbose=0).history["loss"]
print(json.dumps([history, model.layers[0].kernel.value.device[-13:]]))
"""


def test_keras_trains_on_it(run: Callable[..., Any]) -> None:
    losses, device = run(FIT)
    assert losses[-1] < losses[0]
    assert device == "ACCELERATOR:0"


READ = """
import ctypes
library = ctypes.CDLL(os.environ["ACCELERATOR_LIBRARY"])
library.accelerator_memory_take.restype = ctypes.c_void_p
print(json.dumps(tf.config.list_logical_devices("ACCELERATOR")[0].name), flush=True)
ctypes.string_at(library.accelerator_memory_take(0, 64), 1)
"""


def test_the_host_cannot_read_its_memory(run: Callable[..., Any]) -> None:
    run(READ, code=-signal.SIGSEGV)


LATE = """
with tf.device("accelerator:0"):
    x = tf.constant([1.0, 2.0])
    x.numpy()
    started = time.monotonic()
    y = x + x
    returned = time.monotonic() - started
    y.numpy()
    print(json.dumps([returned, time.monotonic() - started]))
"""


@pytest.mark.slow
def test_a_call_returns_before_its_turn_in_the_stream(run: Callable[..., Any]) -> None:
    returned, read = run(LATE, delay_us=1_500_000)
    assert returned < 1.5 <= read
