"""Keras's fit on any backend, with one step or a hundred in each execution; and fastsup's, which is TensorFlow's."""

import keras
import numpy as np
from workloads import BATCH, BUCKETS, CATEGORIES, EMBEDDING, MATMULS, SIZE, digits, wide_and_deep

__all__ = ["PEERS"]


class Square(keras.layers.Layer):
    """(w - 3)^2 of ten numbers."""

    def build(self, shape):
        """Makes the weights."""
        self.w = self.add_weight(shape=(10,), initializer="ones")

    def call(self, x):
        """The sum, once for each row."""
        return keras.ops.sum(keras.ops.square(self.w - 3.0)) + 0.0 * x


class Products(keras.layers.Layer):
    """So many products of matrices."""

    def __init__(self, count):
        super().__init__()
        self._count = count

    def build(self, shape):
        """Makes the weights."""
        self.w = self.add_weight(shape=(SIZE, SIZE), initializer="identity")

    def call(self, x):
        """A number that depends on them, once for each row."""
        product = self.w
        for _ in range(self._count):
            product = keras.ops.matmul(product, self.w)
        return keras.ops.sum(keras.ops.stop_gradient(product) * self.w) * 1e-9 + 0.0 * x


def _model(workload):
    layers = keras.layers
    if workload == "digits":
        model = keras.Sequential([keras.Input([64]), layers.Dense(32, "relu"), layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return model, loss, digits()
    if workload == "wide_and_deep":
        categories, numbers = keras.Input([CATEGORIES], dtype="int32"), keras.Input([8])
        columns = [categories[:, place] for place in range(CATEGORIES)]
        deep = layers.Concatenate()([numbers, *(layers.Embedding(BUCKETS, EMBEDDING)(ids) for ids in columns)])
        wide = [layers.Embedding(BUCKETS, 1, embeddings_initializer="zeros")(ids) for ids in columns]
        deep = layers.Dense(32, "relu")(layers.Dense(64, "relu")(deep))
        outputs = layers.Add()([layers.Dense(1)(deep), *wide])
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        data = wide_and_deep()
        return keras.Model([categories, numbers], outputs), loss, ((data[0], data[1]), data[2][:, None])
    layer = Square() if workload == "tiny" else Products(MATMULS[workload])
    model = keras.Sequential([keras.Input([1]), layer])
    zeros = np.zeros((4096, 1), np.float32)
    return model, lambda y, predicted: keras.ops.mean(predicted), (zeros, zeros)


class Fit:
    """Keras's fit.

    Args:
      workload: the workload.
      executions: steps in each execution.
      accelerated: whether fastsup runs the steps.
      compiled: whether XLA compiles them; the batches then come from arrays, epoch after epoch.
    """

    def __init__(self, workload, executions, accelerated=False, compiled=False):
        self._model, loss, (x, y) = _model(workload)
        adagrad = workload == "wide_and_deep"
        optimizer = keras.optimizers.Adagrad(0.05) if adagrad else keras.optimizers.SGD(0.1)
        self._model.compile(optimizer, loss, steps_per_execution=executions, jit_compile=compiled or "auto")
        if accelerated:
            import fastsup

            fastsup.keras.accelerate(self._model, fallback="raise")
        self.steps_at_once = executions
        self._batch = BATCH.get(workload, 1)
        self._arrays = (x, y) if compiled else None
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(4096, seed=0).repeat()
            self._data = data.batch(self._batch, drop_remainder=True).prefetch(2)
        else:
            self._data = self._batches(x, y)

    def _batches(self, x, y):
        random = np.random.default_rng(0)
        while True:
            order = random.permutation(4096)
            for start in range(0, 4096 - self._batch + 1, self._batch):
                rows = order[start : start + self._batch]
                yield (tuple(part[rows] for part in x) if isinstance(x, tuple) else x[rows]), y[rows]

    def run(self, steps):
        """Trains so many steps; a first one is a whole execution."""
        if self._arrays is not None:
            per_epoch = 4096 // self._batch
            x, y = self._arrays
            if steps < per_epoch:
                rows = steps * self._batch
                x, y = (tuple(part[:rows] for part in x) if isinstance(x, tuple) else x[:rows]), y[:rows]
            self._model.fit(x, y, batch_size=self._batch, epochs=max(1, round(steps / per_epoch)), verbose=0)
            return
        steps = max(steps, self.steps_at_once)
        self._model.fit(self._data, steps_per_epoch=steps, verbose=0)

    def close(self):
        """Nothing to write."""


PEERS = {
    "1": lambda workload: Fit(workload, 1),
    "100": lambda workload: Fit(workload, 100),
    "compiled": lambda workload: Fit(workload, 1, compiled=True),
    "fastsup_compiled": lambda workload: Fit(workload, 1, accelerated=True, compiled=True),
    "fastsup": lambda workload: Fit(workload, 1, accelerated=True),
}
