"""An epoch of batches of arrays, in an order that is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsup.steps.array_batches import ArrayBatches

__all__ = ["Epoch", "OrderedBatches"]


class OrderedBatches(ArrayBatches):
    """Batches of one epoch, in an order that is given."""

    def __init__(self, arrays: Any, batch_size: int) -> None:
        super().__init__(arrays, batch_size, shuffle=True, seed=0)
        self._given = np.arange(self.rows)

    def begin(self, order: NDArray[np.int64]) -> None:
        """Begins an epoch.

        Args:
          order: the numbers of the rows.
        """
        self._given = np.ascontiguousarray(order, np.int64)
        self.seed = (self.seed or 0) + 1  # Another order has another seed.
        self.position = 0

    def _order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        return self._given


class Epoch:
    """What Keras takes for the iterator of an epoch.

    Args:
      batches: the batches.
      next_order: function that draws the order of the rows.
    """

    def __init__(self, batches: OrderedBatches, next_order: Callable[[], NDArray[np.int64]]) -> None:
        self._batches, self._next_order = batches, next_order
        self._has_begun = False

    def __iter__(self) -> Epoch:
        return self

    def __next__(self) -> Any:
        """The next batch."""
        if not self._has_begun:
            self.begin()
        return next(self._batches)

    def begin(self) -> OrderedBatches:
        """Draws the order of the rows. Returns the batches."""
        self._has_begun = True
        self._batches.begin(self._next_order())
        return self._batches
