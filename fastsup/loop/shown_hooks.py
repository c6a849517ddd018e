"""The hooks whose measurements a registry or a meter shows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from fastsup.loop.measuring_hook import MeasuringHook

__all__ = ["ShownHooks", "kept_by"]

_Kept = TypeVar("_Kept")
# The attribute of a registry or a meter that has what belongs to it: both go together.
_ATTRIBUTE = "_fastsup_shown"
_lock = threading.Lock()


class ShownHooks:
    """Hooks by their labels."""

    def __init__(self) -> None:
        self._hooks: dict[frozenset[tuple[str, str]], MeasuringHook] = {}

    def show(self, labels: dict[str, str], hook: MeasuringHook) -> None:
        """Shows the measurements of a hook from now on, in place of those of another one with the same labels."""
        # Another thread may go through the hooks now.
        self._hooks = {**self._hooks, frozenset(labels.items()): hook}

    def __iter__(self) -> Iterator[tuple[dict[str, str], MeasuringHook]]:
        return ((dict(labels), hook) for labels, hook in self._hooks.items())


def kept_by(owner: Any, make: Callable[[], _Kept]) -> _Kept:
    """What an object has once, made when it is first asked for.

    Args:
      owner: the object, which gets an attribute.
      make: makes it.
    """
    with _lock:
        kept: _Kept | None = getattr(owner, _ATTRIBUTE, None)
        if kept is None:
            kept = make()
            setattr(owner, _ATTRIBUTE, kept)
        return kept
