"""Calls a step function with a batch. This module doesn't need TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastsup.core.errors import add_note

__all__ = ["BatchCall", "as_arguments"]


def as_arguments(batch: Any) -> tuple[Any, ...]:
    """Converts a batch, or its structure of specs, to arguments. A tuple or a list becomes several arguments."""
    return tuple(batch) if type(batch) in (tuple, list) else (batch,)


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
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                # The call itself failed, not the function.
                add_note(
                    error,
                    "The step is called with the next batch: a tuple or a list gives an argument for each of its "
                    "parts, and any other batch is one argument.",
                )
            raise

    def __repr__(self) -> str:
        return f"<fastsup.bind_batches of {self.step!r} and {self.batches!r}>"
