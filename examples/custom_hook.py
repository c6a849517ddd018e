"""Two hooks of one's own.

A `SessionRunHook` is TensorFlow's: it is called before and after every step, may ask for values of it, and runs in
TensorFlow's sessions too. A `fastsup.core.Hook` says when it is next due and costs nothing on all the other steps;
`fastsup.core.StepLoop` calls it, around any function that does a step. No TensorFlow is needed for that.

    python examples/custom_hook.py
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow.compat.v1 as tf

from fastsup import train
from fastsup.core import Hook, StepLoop


class StopBelowHook(train.SessionRunHook):
    """Requests a stop as soon as a tensor is below a threshold."""

    def __init__(self, tensor: Any, threshold: float) -> None:
        self._tensor, self._threshold = tensor, threshold
        self.steps = 0

    def before_run(self, run_context: Any) -> Any:
        return train.SessionRunArgs(self._tensor)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.steps += 1
        if run_values.results < self._threshold:
            run_context.request_stop()


def train_until_good() -> None:
    """Python hook: minimises a sum of squares until it is small."""
    with tf.Graph().as_default():
        weights = tf.get_variable("weights", initializer=[5.0, -3.0, 1.0])
        loss = tf.reduce_sum(tf.square(weights))
        train_op = tf.train.GradientDescentOptimizer(0.01).minimize(loss, tf.train.get_or_create_global_step())
        hook = StopBelowHook(loss, 0.001)
        with train.MonitoredTrainingSession(hooks=[hook]) as session:
            session.run_loop(train_op)
    print(f"loss below 0.001 after {hook.steps} steps")


class ReportHook(Hook):
    """Prints what the step function returned, every so many steps."""

    def __init__(self, every_n_steps: int) -> None:
        self._every_n_steps = every_n_steps

    def begin(self, loop: Any) -> None:
        self.due_at_step(self._every_n_steps)

    def after_step(self, loop: Any, value: float) -> None:
        print(f"step {loop.global_step:>6,}   error {value:.4f}")
        self.due_at_step(loop.global_step + self._every_n_steps)


def learn_online() -> None:
    """Native hook: a linear model that learns from one sample at a time, in NumPy."""
    random = np.random.default_rng(0)
    true_weights = np.array([1.0, -2.0, 3.0])
    weights = np.zeros(3)

    def step() -> float:
        sample = random.normal(size=3)
        error = sample @ (weights - true_weights)
        weights[:] -= 0.01 * error * sample
        return float(abs(error))

    StepLoop(step, hooks=[ReportHook(every_n_steps=250)], max_steps=1000).run()
    print(f"weights {weights.round(3)}")


if __name__ == "__main__":
    train_until_good()
    learn_online()
