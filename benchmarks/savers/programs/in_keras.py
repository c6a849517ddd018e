"""Keras's callbacks. A step is a batch, and an epoch has five: each callback saves at the end of an epoch.

The loss is such that each step adds 1 to each weight.
"""

import contextlib
import functools
import os

import keras
import numpy
from job import EVERY, SIZE


class _Interrupted(Exception):
    """The training is interrupted in an epoch, as by the end of a job's time."""


class _Steps(keras.callbacks.Callback):
    """Says what has happened. It stands after the callback that saves.

    Args:
      job: the run.
      first_epoch: the epoch that the program lets the training begin with.
    """

    def __init__(self, job, first_epoch):
        super().__init__()
        self._job = job
        self._first_epoch = first_epoch

    def on_train_begin(self, logs=None):
        # A callback that restores has set the model's number; it goes before the program's.
        first_epoch = getattr(self.model, "_initial_epoch", None) or self._first_epoch
        self._job.started(EVERY * first_epoch, self.model.get_weights()[0])

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 == EVERY:
            return
        self._job.rested()
        if int(self.model.optimizer.iterations) == self._job.last:
            raise _Interrupted

    def on_epoch_end(self, epoch, logs=None):
        self._job.returned(int(self.model.optimizer.iterations))
        self._job.rested()


def _new_model():
    model = keras.Sequential([keras.Input((SIZE,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    # The error of a target that is never reached: its gradient is -1 for each weight.
    model.compile(optimizer=keras.optimizers.SGD(1.0), loss="mae", jit_compile=False)
    return model


def _fit(job, model, saver):
    first_epoch = int(model.optimizer.iterations) // EVERY
    with contextlib.suppress(_Interrupted):
        model.fit(
            numpy.ones((EVERY, SIZE), "float32"),
            numpy.full((EVERY, 1), 1e9, "float32"),
            batch_size=1,
            epochs=-(-job.last // EVERY),
            initial_epoch=first_epoch,
            callbacks=[saver, _Steps(job, first_epoch)],
            verbose=0,
        )


def weights(job):
    """`ModelCheckpoint(save_weights_only=True)`: one file, as in its documentation; `load_weights` at the start."""
    path = os.path.join(job.folder, "checkpoint.weights.h5")
    model = _new_model()
    if os.listdir(job.folder):
        model.load_weights(path)
    _fit(job, model, keras.callbacks.ModelCheckpoint(path, save_weights_only=True))


def model(job):
    """`ModelCheckpoint`: one file with the whole model, as in its documentation; `load_model` at the start."""
    path = os.path.join(job.folder, "checkpoint.model.keras")
    model = keras.models.load_model(path) if os.listdir(job.folder) else _new_model()
    _fit(job, model, keras.callbacks.ModelCheckpoint(path))


def models(job):
    """The same, with a file for each epoch: `load_model` of the newest, as in Keras's guide to training."""
    paths = [os.path.join(job.folder, name) for name in os.listdir(job.folder)]
    model = keras.models.load_model(max(paths, key=os.path.getctime)) if paths else _new_model()
    _fit(job, model, keras.callbacks.ModelCheckpoint(os.path.join(job.folder, "model-{epoch:03d}.keras")))


def backup(job, double=False):
    """`BackupAndRestore`, which keeps its file at the end."""
    saver = keras.callbacks.BackupAndRestore(job.folder, double_checkpoint=double, delete_checkpoint=False)
    _fit(job, _new_model(), saver)


PROGRAMS = {
    "keras_weights": weights,
    "keras_model": model,
    "keras_models": models,
    "keras_backup": backup,
    "keras_double_backup": functools.partial(backup, double=True),
}
