"""Checkpoints, by whatever saves them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fastsup.loop.periodic import PeriodicHook


class CheckpointHook(PeriodicHook):
    """Saves at intervals, and at the end of the loop.

    A loop that ends with an error saves nothing more: what it would save may be what the error is about.

    Args:
      save: a callable that takes the global step; or a `tf.train.CheckpointManager`, or whatever else has its
        `save(checkpoint_number=...)`.
      every_steps: a checkpoint is saved at the global steps that are multiples of this number, or None.
      every_secs: seconds between two checkpoints, or None. With both, the first that comes counts.
      save_at_end: whether to save after the last step, if that isn't saved yet.

    Raises:
      TypeError: `save` is neither of these, or an interval isn't a number.
      ValueError: an interval isn't positive, or neither is given.
    """

    def __init__(
        self,
        save: Callable[[int], Any] | Any,
        every_steps: int | None = None,
        every_secs: float | None = None,
        save_at_end: bool = True,
    ) -> None:
        super().__init__(every_steps, every_secs)
        self._save = save if callable(save) else _saver_of(save)
        self._save_at_end = save_at_end
        self.last_saved_step: int | None = None

    def begin(self, loop: Any) -> None:
        self.last_saved_step = None
        super().begin(loop)

    def act(self, loop: Any) -> None:
        self._save(loop.global_step)
        self.last_saved_step = loop.global_step

    def end(self, loop: Any) -> None:
        if self._save_at_end and loop.global_step != self.last_saved_step:
            self.act(loop)


def _saver_of(manager: Any) -> Callable[[int], Any]:
    save = getattr(manager, "save", None)
    if not callable(save):
        raise TypeError(f"save must be a callable or have a method save(checkpoint_number=...), got {manager!r}")
    if not _takes_checkpoint_number(save):
        raise TypeError(
            f"save must be a callable or have a method save(checkpoint_number=...), got {manager!r}, whose save "
            "doesn't take checkpoint_number. For a tf.train.Checkpoint pass tf.train.CheckpointManager(checkpoint, "
            "directory, max_to_keep=5); for any other object pass a function of the global step that saves it."
        )
    # A manager of TensorFlow's may have an interval of its own; when to save is decided here.
    checks_interval = getattr(manager, "checkpoint_interval", None) is not None
    options = {"check_interval": False} if checks_interval else {}
    return lambda step: manager.save(checkpoint_number=step, **options)


def _takes_checkpoint_number(save: Callable[..., Any]) -> bool:
    """Whether a method takes the argument `checkpoint_number`; True for a method whose arguments aren't known."""
    try:
        arguments = inspect.signature(save).parameters
    except (TypeError, ValueError):
        return True
    takes_any_name = any(argument.kind is argument.VAR_KEYWORD for argument in arguments.values())
    return takes_any_name or "checkpoint_number" in arguments
