"""Which callbacks look at a model between two batches, and what they read there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import keras

__all__ = ["CallInTurn", "batch_methods", "flat_callbacks", "looks_between_batches", "reads_logs"]

# Of these, batch methods read the logs of the batch alone.
_READ_LOGS = (
    keras.callbacks.ProgbarLogger,
    keras.callbacks.TerminateOnNaN,
    keras.callbacks.TensorBoard,
)
# Batch methods of these save the model, unless that is done at the end of epochs.
_SAVE = (keras.callbacks.ModelCheckpoint, keras.callbacks.BackupAndRestore)


if TYPE_CHECKING:
    _Callback = object  # Keras's classes have no known type.
else:
    _Callback = keras.callbacks.Callback


class CallInTurn(_Callback):
    """Has Keras call the callbacks of each batch itself: to hand them to a thread costs more than a small step.

    Keras does that as soon as one of them may not be called from another thread.
    """

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Does nothing."""

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Does nothing."""


def flat_callbacks(callbacks: Any) -> list[Any]:
    """The callbacks of `fit` as a list.

    Args:
      callbacks: its argument: None, a callback, a structure of them, or a `CallbackList`.
    """
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return list(callbacks.callbacks)
    return [callback for callback in keras.tree.flatten(callbacks) if callback is not None]


def batch_methods(callback: Any, kind: str) -> list[str]:
    """The names of a callback's methods that are called for each batch and do something.

    Args:
      callback: the callback.
      kind: "train" or "test".
    """
    names = [f"on_{kind}_batch_begin", f"on_{kind}_batch_end"]
    names += ["on_batch_begin", "on_batch_end"] if kind == "train" else []
    return [name for name in names if not hasattr(getattr(callback, name), "_is_default")]


def looks_between_batches(callbacks: Iterable[Any], kind: str) -> str:
    """The name of a callback that may look at the model between two batches, or change it; "" if there is none.

    Args:
      callbacks: the callbacks.
      kind: "train" or "test".
    """
    for callback in callbacks:
        # TensorBoard can measure the time of each batch.
        if type(callback) in _READ_LOGS and not getattr(callback, "write_steps_per_second", False):
            continue
        if type(callback) in _SAVE and callback.save_freq == "epoch":
            continue
        if batch_methods(callback, kind):
            return type(callback).__name__
    return ""


def reads_logs(callbacks: Iterable[Any], kind: str) -> bool:
    """Whether a callback reads the logs of each batch.

    Args:
      callbacks: the callbacks.
      kind: "train" or "test".
    """
    return any(type(callback) in _READ_LOGS and batch_methods(callback, kind) for callback in callbacks)
