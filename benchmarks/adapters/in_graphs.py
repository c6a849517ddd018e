"""Sessions: TensorFlow's MonitoredTrainingSession and fastsup's, with their default hooks and a logging hook."""

import tempfile

import numpy as np
import tensorflow as tf
from workloads import BATCH, BUCKETS, CATEGORIES, EMBEDDING, MATMULS, SIZE, digits, glorot, wide_and_deep

__all__ = ["PEERS", "inputs", "loss_of", "train_op_of"]

tf1 = tf.compat.v1


def inputs(workload):
    """A tf.data.Dataset of the workload's batches, which doesn't end; None for a workload without data."""
    if workload not in BATCH:
        return None
    data = tf.data.Dataset.from_tensor_slices(digits() if workload == "digits" else wide_and_deep())
    return data.shuffle(4096, seed=0).repeat().batch(BATCH[workload], drop_remainder=True).prefetch(2)


def _weights(name, values):
    return tf1.get_variable(name, initializer=values, use_resource=True)


def loss_of(workload, batch):
    """The loss of a batch, a scalar tensor."""
    if workload == "tiny":
        return tf.reduce_sum(tf.square(_weights("w", np.linspace(1, 2, 10).astype(np.float32)) - 3.0))
    if workload in MATMULS:
        product = weights = _weights("w", np.eye(SIZE, dtype=np.float32))
        for _ in range(MATMULS[workload]):
            product = product @ weights
        return tf.reduce_sum(tf.stop_gradient(product) * weights) * 1e-9
    if workload == "digits":
        images, classes = batch
        hidden = tf.nn.relu(images @ _weights("w0", glorot(64, 32, 0)) + _weights("b0", np.zeros(32, np.float32)))
        logits = hidden @ _weights("w1", glorot(32, 10, 1)) + _weights("b1", np.zeros(10, np.float32))
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=classes, logits=logits))
    categories, numbers, labels = batch
    wide = []
    deep = [numbers]
    for place in range(CATEGORIES):
        wide.append(tf.gather(_weights(f"wide{place}", np.zeros(BUCKETS, np.float32)), categories[:, place]))
        table = _weights(f"table{place}", glorot(BUCKETS, EMBEDDING, place))
        deep.append(tf.gather(table, categories[:, place]))
    values = tf.concat(deep, 1)
    for place, (rows, columns) in enumerate(((values.shape[1], 64), (64, 32), (32, 1))):
        weights = _weights(f"w{place}", glorot(rows, columns, place))
        values = values @ weights + _weights(f"b{place}", np.zeros(columns, np.float32))
        values = tf.nn.relu(values) if columns > 1 else values
    logits = tf.squeeze(values, 1) + tf.add_n(wide)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


def train_op_of(workload, loss):
    """The operation that trains, and counts the step."""
    optimizer = (
        tf1.train.AdagradOptimizer(0.05) if workload == "wide_and_deep" else tf1.train.GradientDescentOptimizer(0.1)
    )
    return optimizer.minimize(loss, tf1.train.get_or_create_global_step())


class SessionLoop:
    """A monitored session.

    Args:
      workload: the workload.
      train: the module with the session layer.
      loop: whether the session has its own loop.
    """

    def __init__(self, workload, train, loop):
        self._folder = tempfile.TemporaryDirectory()
        self._loop = loop
        self._graph = tf.Graph()
        with self._graph.as_default():
            data = inputs(workload)
            loss = loss_of(workload, None if data is None else tf1.data.make_one_shot_iterator(data).get_next())
            self._train_op = train_op_of(workload, loss)
            hooks = [train.StopAtStepHook(last_step=10**12), train.LoggingTensorHook({"loss": loss}, every_n_iter=100)]
            tf1.logging.set_verbosity(tf1.logging.WARN)
            self._session = train.MonitoredTrainingSession(checkpoint_dir=self._folder.name, hooks=hooks)

    def run(self, steps):
        """Trains so many steps."""
        if self._loop:
            self._session.run_loop(self._train_op, steps=steps)
            return
        session, train_op = self._session, self._train_op
        for _ in range(steps):
            if session.should_stop():
                break
            session.run(train_op)

    def close(self):
        """Writes the last checkpoint."""
        with self._graph.as_default():
            self._session.close()
        self._folder.cleanup()


def _fastsup(workload):
    from fastsup import train

    return SessionLoop(workload, train, True)


PEERS = {"tensorflow": lambda workload: SessionLoop(workload, tf1.train, False), "fastsup": _fastsup}
