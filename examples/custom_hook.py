"""Two hooks of one's own.

A `SessionRunHook` is TensorFlow's: it is called before and after every step, may ask for values of it, and runs in
TensorFlow's sessions too. A `fastsup.core.Hook` says when it is next due and costs nothing on all the other steps. The
same object works in a session, which fetches tensors for it, and in a `fastsup.core.StepLoop` around any function that
does a step. No TensorFlow is needed for that.

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
    """A hook that is called in every step: minimises a sum of squares until it is small."""
    with tf.Graph().as_default():
        weights = tf.get_variable("weights", initializer=[5.0, -3.0, 1.0])
        loss = tf.reduce_sum(tf.square(weights))
        train_op = tf.train.GradientDescentOptimizer(0.01).minimize(loss, tf.train.get_or_create_global_step())
        hook = StopBelowHook(loss, 0.001)
        with train.MonitoredTrainingSession(hooks=[hook]) as session:
            session.run_loop(train_op)
    print(f"loss below 0.001 after {hook.steps} steps")


class ReportHook(Hook):
    """Prints a number at intervals of steps: what the step function returned, or in a session the value of a tensor."""

    def __init__(self, every_n_steps: int, tensor: Any = None) -> None:
        self._every_n_steps = every_n_steps
        self.fetches = tensor

    def begin(self, loop: Any) -> None:
        self.due_at_step(loop.global_step + self._every_n_steps)

    def after_step(self, loop: Any, value: float) -> None:
        print(f"step {loop.global_step:>6,}   error {value:.4f}")
        self.due_at_step(loop.global_step + self._every_n_steps)


def report_in_a_session() -> None:
    """The hook in a session: the loss is fetched in the steps in which the hook is due, and in no other."""
    with tf.Graph().as_default():
        weights = tf.get_variable("weights", initializer=[5.0, -3.0, 1.0])
        loss = tf.reduce_sum(tf.square(weights))
        train_op = tf.train.GradientDescentOptimizer(0.01).minimize(loss, tf.train.get_or_create_global_step())
        hooks = [ReportHook(50, loss), train.StopAtStepHook(150)]
        with train.MonitoredTrainingSession(hooks=hooks) as session:
            session.run_loop(train_op)


def learn_online() -> None:
    """The same hook without TensorFlow: a linear model that learns from one sample at a time, in NumPy."""
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
    report_in_a_session()
    learn_online()
