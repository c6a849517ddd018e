"""An epoch of batches of arrays, in an order that is given, as what Keras's loops take for an iterator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsup.steps.array_batches import ArrayBatches

__all__ = ["Epoch", "NextBatch", "OrderedBatches"]


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


class NextBatch:
    """Stands for the next batch of an epoch, in a loop that takes each batch and hands it to the model's function.

    Args:
      epoch: the epoch, from which the function takes it.
    """

    def __init__(self, epoch: Epoch) -> None:
        self.epoch: Epoch = epoch


class Epoch:
    """What Keras takes for the iterator of an epoch.

    Args:
      batches: the batches.
      next_order: function that draws the order of the rows.
      gives_batches: False for an iterator of as many `NextBatch` as there are batches.
    """

    def __init__(
        self, batches: OrderedBatches, next_order: Callable[[], NDArray[np.int64]], gives_batches: bool = True
    ) -> None:
        self._batches, self._next_order = batches, next_order
        self._has_begun = False
        self._left = None if gives_batches else batches.batches_per_epoch

    def __iter__(self) -> Epoch:
        return self

    def __next__(self) -> Any:
        """The next batch, or what stands for it."""
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise StopIteration
            return NextBatch(self)
        if not self._has_begun:
            self.begin()
        return next(self._batches)

    def begin(self) -> OrderedBatches:
        """Draws the order of the rows. Returns the batches."""
        self._has_begun = True
        self._batches.begin(self._next_order())
        return self._batches
