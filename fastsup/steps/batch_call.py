"""Calls a step function with a batch. This module doesn't need TensorFlow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fastsup.core.errors import add_note, is_from_call

__all__ = ["BatchCall", "as_arguments", "check_position"]


def as_arguments(batch: Any) -> tuple[Any, ...]:
    """Converts a batch, or its structure of specs, to arguments. A tuple or a list becomes several arguments."""
    return tuple(batch) if type(batch) in (tuple, list) else (batch,)


def check_position(state: Any, names: Collection[str], kind: str) -> None:
    """Rejects the saved position of batches of another kind.

    Args:
      state: the saved position.
      names: the names that the position of this kind of batches has.
      kind: the kind of batches, for the message.

    Raises:
      ValueError: If a name is missing.
    """
    if not isinstance(state, Mapping) or any(name not in state for name in names):
        raise ValueError(
            f"The checkpoint has the position of other batches, {state!r:.200}, than those of {kind}. Resume with the "
            "same kind of data, or use another directory."
        )


class BatchCall:
    """Calls a step function with the next batch. Its subclass `BatchStep` can run several steps in one call."""

    def __init__(self, step: Any, batches: Iterator[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.step = step
        self.batches = batches
        self.args = args
        self.kwargs = kwargs

    def __call__(self) -> Any:
        try:
            return self.step(*self.args, *as_arguments(next(self.batches)), **self.kwargs)
        except TypeError as error:
            if is_from_call(error):
                add_note(
                    error,
                    "The step is called with the next batch: a tuple or a list gives an argument for each of its "
                    "parts, and any other batch is one argument.",
                )
            raise

    def __repr__(self) -> str:
        return f"<fastsup.bind_batches of {self.step!r} and {self.batches!r}>"
