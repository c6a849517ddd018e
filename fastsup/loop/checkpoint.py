"""The hook that saves checkpoints, with a function or manager of the program's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fastsup.loop.periodic import PeriodicHook


class CheckpointHook(PeriodicHook):
    """Saves checkpoints at intervals, and at the end of the loop.

    A loop that ends with an error saves no last checkpoint: the error may come from the values that it would save.

    Args:
      save: function of the global step; or a `tf.train.CheckpointManager`, or another object with a method
        `save(checkpoint_number=...)`.
      every_steps: a checkpoint is saved at the global steps that are multiples of this number, or None.
      every_secs: seconds between two checkpoints, or None. With both intervals, the one that passes first counts.
      save_at_end: whether to save after the last step, if no checkpoint of that step exists.

    Attributes:
      last_saved_step: global step of the last checkpoint of this run, or None.

    Raises:
      TypeError: `save` can't be called and has no such method, or an interval isn't a number.
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
    # A CheckpointManager with an interval of its own would skip checkpoints that are due here.
    checks_interval = getattr(manager, "checkpoint_interval", None) is not None
    options = {"check_interval": False} if checks_interval else {}
    return lambda step: manager.save(checkpoint_number=step, **options)


def _takes_checkpoint_number(save: Callable[..., Any]) -> bool:
    """Returns True if a method takes the argument `checkpoint_number`, or if its arguments aren't known."""
    try:
        arguments = inspect.signature(save).parameters
    except (TypeError, ValueError):
        return True
    takes_any_name = any(argument.kind is argument.VAR_KEYWORD for argument in arguments.values())
    return takes_any_name or "checkpoint_number" in arguments
