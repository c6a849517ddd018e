"""The steps that are measured. Each function builds a graph in the default graph and returns its step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.measure import NEVER

tf1 = tf.compat.v1


@dataclass(frozen=True)
class Step:
    """A step, and its hooks.

    Args:
      fetches: the fetches of a step.
      feed_dict: its feeds.
      hooks: function that takes a module with the names of `tf.compat.v1.train`, and returns hooks of that library.
    """

    fetches: Any
    feed_dict: dict[Any, Any] = field(default_factory=dict)
    hooks: Callable[[Any], Sequence[Any]] = lambda train: ()


def descend(loss: Any) -> Any:
    """The operation that does one step of gradient descent and counts it."""
    return tf1.train.GradientDescentOptimizer(0.01).minimize(loss, tf1.train.get_or_create_global_step())


def distance() -> Any:
    """A loss of ten weights. It pulls them away from 0: denormal numbers are slow."""
    weights = tf1.get_variable("weights", initializer=np.linspace(1, 2, 10, dtype=np.float32))
    return tf.reduce_sum(tf.square(weights - tf.constant(3.0)))


def regression(features: Any, targets: Any) -> Any:
    """The loss of a linear model with ten weights."""
    weights = tf1.get_variable("weights", [10, 1], initializer=tf1.ones_initializer())
    return tf.reduce_mean(tf.square(tf.squeeze(features @ weights, 1) - targets))


def samples(batches: int) -> tuple[np.ndarray, np.ndarray]:
    """Batches of 32 samples of ten features, and their targets."""
    random = np.random.default_rng(0)
    features = random.normal(size=(batches, 32, 10)).astype(np.float32)
    return features, features.sum(axis=2) + 1


def sgd() -> Step:
    return Step(descend(distance()))


def sgd_on_two_devices() -> Step:
    """The loss and its variable are on one device, the global step on another."""
    with tf.device("/cpu:1"):
        loss = distance()
    return Step(descend(loss))


def sgd_with_hooks() -> Step:
    loss = distance()
    return Step(
        descend(loss),
        hooks=lambda train: [
            train.StopAtStepHook(last_step=NEVER),
            train.LoggingTensorHook({"loss": loss}, every_n_iter=100),
        ],
    )


def sgd_with_summary() -> Step:
    loss = distance()
    tf1.summary.scalar("loss", loss)
    return Step(descend(loss), hooks=lambda train: [train.StopAtStepHook(last_step=NEVER)])


class GlobalStepHook(tf1.train.SessionRunHook):
    """A hook such as programs have: it requests the global step in every step."""

    def begin(self) -> None:
        self._global_step = tf1.train.get_global_step()
        self.last = 0

    def before_run(self, run_context: Any) -> Any:
        return tf1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.last = run_values.results


def sgd_with_16_python_hooks() -> Step:
    return Step(descend(distance()), hooks=lambda train: [GlobalStepHook() for _ in range(16)])


def tf_data() -> Step:
    dataset = tf.data.Dataset.from_tensor_slices(samples(64)).repeat()
    loss = regression(*tf1.data.make_one_shot_iterator(dataset).get_next())
    return Step([descend(loss), loss])


def feed_dict() -> Step:
    features = tf1.placeholder(tf.float32, [32, 10])
    targets = tf1.placeholder(tf.float32, [32])
    loss = regression(features, targets)
    feed = samples(1)
    return Step([descend(loss), loss], {features: feed[0][0], targets: feed[1][0]})


def one_feed() -> Step:
    targets = tf1.placeholder(tf.float32, [10])
    weights = tf1.get_variable("weights", [10], initializer=tf1.ones_initializer())
    train_op = descend(tf.reduce_sum(tf.square(weights - targets)))
    return Step(train_op, {targets: np.full(10, 3, np.float32)})


def dict_of_4() -> Step:
    loss = distance()
    weights = tf1.trainable_variables()[0]
    return Step({"loss": loss, "mean": tf.reduce_mean(weights), "largest": tf.reduce_max(weights), "weights": weights})


def computed(kilobytes: int) -> Step:
    """Fetches a value that the step computes."""
    values = tf1.get_variable("values", initializer=tf.ones([kilobytes * 256]))
    return Step(values + tf1.get_variable("one", initializer=1.0))


def variable(kilobytes: int) -> Step:
    """Fetches the value of a variable."""
    return Step(tf1.get_variable("values", initializer=tf.ones([kilobytes * 256])))


def counted(*matrices: Any) -> Any:
    """An operation that computes the matrices and counts the step.

    It reads a number of each matrix: TensorFlow would remove operations whose results aren't read.
    """
    kept = tf1.get_variable("kept", initializer=tf.zeros([len(matrices)]))
    return tf.group(
        tf1.assign(kept, tf.stack([matrix[0, 0] for matrix in matrices])),
        tf1.assign_add(tf1.train.get_or_create_global_step(), 1),
    )


def square_matrix(name: str, size: int) -> Any:
    initializer = tf1.random_normal_initializer(stddev=size**-0.5, seed=0)
    return tf1.get_variable(name, [size, size], initializer=initializer)


def four_chains() -> Step:
    ends = []
    for chain in range(4):
        matrix = square_matrix(f"matrix_{chain}", 256)
        product = matrix
        for _ in range(4):
            product = product @ matrix
        ends.append(product)
    return Step(counted(*ends))


def one_big_matmul() -> Step:
    matrix = square_matrix("matrix", 2048)
    return Step(counted(matrix @ matrix))


def cond_and_while() -> Step:
    loss = distance()
    even = tf.equal(tf1.train.get_or_create_global_step() % 2, 0)
    scaled = tf.cond(even, lambda: loss * 0.5, lambda: loss + 1.0)
    _, total = tf.while_loop(lambda i, _: i < 10, lambda i, total: (i + 1, total * 0.5 + 1.0), (0, scaled))
    return Step(descend(total))


def queue_runners() -> Step:
    features, targets = samples(1)
    queue = tf.queue.FIFOQueue(1024, [tf.float32, tf.float32], [[10], []])
    enqueue = queue.enqueue_many([tf.constant(features[0]), tf.constant(targets[0])])
    tf1.train.add_queue_runner(tf1.train.QueueRunner(queue, [enqueue] * 2))
    return Step(descend(regression(*queue.dequeue_many(32))))
