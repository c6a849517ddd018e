"""Estimators: that of TensorFlow 2.15 and fastsup's. One call of `train` runs in a thread, and waits between slices."""

import tempfile
import threading

import tensorflow as tf
from in_graphs import inputs, loss_of, train_op_of

__all__ = ["PEERS"]

tf1 = tf.compat.v1


class Slices(tf1.train.SessionRunHook):
    """Lets so many steps pass at a time."""

    def __init__(self):
        self.left, self.ended = 0, False
        self.allowed, self.done = threading.Semaphore(0), threading.Semaphore(0)

    def after_create_session(self, session, coord):
        """Waits for the first slice."""
        self.allowed.acquire()

    def after_run(self, run_context, run_values):
        """Counts a step, and waits for the next slice after the last one of a slice."""
        self.left -= 1
        if self.left == 0:
            self.done.release()
            self.allowed.acquire()
        if self.ended:
            run_context.request_stop()

    def run(self, steps):
        """Lets so many steps pass, and returns when they have."""
        self.left = steps
        self.allowed.release()
        self.done.acquire()


class EstimatorLoop:
    """An Estimator.

    Args:
      workload: the workload.
      library: the module with Estimator.
    """

    def __init__(self, workload, library):
        self._folder = tempfile.TemporaryDirectory()
        self._workload = workload

        def model_fn(features, labels, mode):
            loss = loss_of(workload, features)
            return library.EstimatorSpec(mode, loss=loss, train_op=train_op_of(workload, loss))

        tf1.logging.set_verbosity(tf1.logging.WARN)
        estimator = library.Estimator(model_fn, self._folder.name)
        self._slices = Slices()
        self._thread = threading.Thread(
            target=lambda: estimator.train(self._input_fn, hooks=[self._slices]), name="train", daemon=True
        )
        self._thread.start()

    def _input_fn(self):
        data = inputs(self._workload)
        if data is None:
            return tf.data.Dataset.from_tensors((0.0, 0.0)).repeat()
        return data.map(lambda *batch: (batch, 0))

    def run(self, steps):
        """Trains so many steps."""
        self._slices.run(steps)

    def close(self):
        """Ends the training, which writes the last checkpoint."""
        self._slices.ended = True
        self._slices.left = -1
        self._slices.allowed.release()
        self._thread.join()
        self._folder.cleanup()


def _fastsup(workload):
    from fastsup import estimator

    return EstimatorLoop(workload, estimator)


PEERS = {"tensorflow": lambda workload: EstimatorLoop(workload, tf1.estimator), "fastsup": _fastsup}
