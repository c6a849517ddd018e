"""Determines which callbacks inspect a model between batches, and what they read."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import keras

from fastsup.keras.interrupts import DroppedInterrupt

# Keras's function for flattening. Up to Keras 3.0, it is in the package dm-tree.
_tree: Any = keras.tree if hasattr(keras, "tree") else importlib.import_module("tree")

__all__ = [
    "CallInTurn",
    "KerasCallback",
    "batch_methods",
    "batches_until_look",
    "flat_callbacks",
    "looks_between_batches",
    "reads_logs",
]

# The batch methods of these callbacks read only the batch's logs.
_READ_LOGS = (
    keras.callbacks.ProgbarLogger,
    keras.callbacks.TerminateOnNaN,
    keras.callbacks.TensorBoard,
)
# Batch methods of these callbacks save the model after each `save_freq` batches, unless they save at the end of epochs.
_SAVE = (keras.callbacks.ModelCheckpoint, keras.callbacks.BackupAndRestore)
# Keras's count of the batches since the last save.
_COUNT = "_batches_seen_since_last_saving"
_NO_METHOD = keras.callbacks.Callback.on_batch_begin


if TYPE_CHECKING:
    KerasCallback = object  # Keras's classes are untyped.
else:
    KerasCallback = keras.callbacks.Callback


class CallInTurn(KerasCallback):
    """Makes Keras call per-batch callbacks in the training thread. Another thread would cost more than a small step.

    Keras does this if any callback doesn't allow calls from another thread.

    Args:
      dropped: the interrupt that may have been dropped.
    """

    #: With an empty name, the callback is excluded from profiles, because it takes almost no time.
    profile_name = ""

    def __init__(self, dropped: DroppedInterrupt) -> None:
        super().__init__()
        self._dropped = dropped

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Raises a dropped interrupt."""
        self._dropped.check()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Raises a dropped interrupt."""
        self._dropped.check()

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        """Raises a dropped interrupt."""
        self._dropped.check()


def flat_callbacks(callbacks: Any) -> list[Any]:
    """Returns the callbacks of `fit` as a list.

    Args:
      callbacks: its argument: None, a callback, a structure of them, or a `CallbackList`.
    """
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return list(callbacks.callbacks)
    # Flatten the structure as Keras does. Keras reports a member that isn't a callback.
    return list(_tree.flatten(callbacks)) if callbacks else []


def batch_methods(callback: Any, kind: str) -> list[str]:
    """Returns the names of a callback's per-batch methods that do something.

    Args:
      callback: the callback.
      kind: "train", "test" or "predict".
    """
    names = [f"on_{kind}_batch_begin", f"on_{kind}_batch_end"]
    names += ["on_batch_begin", "on_batch_end"] if kind == "train" else []
    # An object may lack these methods. Keras then refuses it.
    return [name for name in names if not hasattr(getattr(callback, name, _NO_METHOD), "_is_default")]


def looks_between_batches(callbacks: Iterable[Any], kind: str) -> str:
    """Returns the name of a callback that may inspect or change the model after each batch, or "".

    Args:
      callbacks: the callbacks.
      kind: "train", "test" or "predict".
    """
    for callback in callbacks:
        # With this setting, TensorBoard measures the time of each batch.
        if type(callback) in _READ_LOGS and not getattr(callback, "write_steps_per_second", False):
            continue
        if type(callback) in _SAVE and (callback.save_freq == "epoch" or hasattr(callback, _COUNT)):
            continue
        if batch_methods(callback, kind) and _batch_freq(callback) == 1:
            return type(callback).__name__
    return ""


def batches_until_look(callbacks: Iterable[Any], kind: str, batch: int) -> int | None:
    """Returns the number of batches until a callback inspects the model, or None if none will.

    Args:
      callbacks: the callbacks, none of which inspects each batch.
      kind: "train", "test" or "predict".
      batch: the number of the next batch in its epoch, from 0.
    """
    left = []
    for callback in callbacks:
        if type(callback) in _SAVE:
            if kind == "train" and callback.save_freq != "epoch":
                left.append(max(callback.save_freq - getattr(callback, _COUNT), 1))
        elif type(callback) not in _READ_LOGS and batch_methods(callback, kind):
            frequency = _batch_freq(callback)
            left.append(frequency - batch % frequency)
    return min(left, default=None)


def _batch_freq(callback: Any) -> int:
    """Returns the number of batches between a callback's inspections of the model: its attribute `batch_freq`, or 1."""
    frequency = getattr(callback, "batch_freq", 1)
    if isinstance(frequency, bool) or not isinstance(frequency, int) or frequency < 1:
        raise ValueError(
            f"batch_freq of the callback {type(callback).__name__} must be a positive integer, got {frequency!r}."
        )
    return frequency


def reads_logs(callbacks: Iterable[Any], kind: str) -> bool:
    """Returns True if a callback may read the logs of each batch, even if it reads the model only every Nth batch.

    Args:
      callbacks: the callbacks.
      kind: "train", "test" or "predict".
    """
    return any(type(callback) not in _SAVE and batch_methods(callback, kind) for callback in callbacks)
