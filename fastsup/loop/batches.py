"""Batches for a loop: data that is iterated several times, and steps that take the next batch."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fastsup.core.checks import check_plain_function, check_takes, suggest_keywords
from fastsup.steps.batch_call import BatchCall, check_position

__all__ = ["Epochs", "bind_batches", "has_batches"]

_logger = logging.getLogger("fastsup")


def has_batches(data: Any) -> bool:
    """Returns True for an iterable whose members may be batches, which excludes strings and dicts."""
    return isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping)


class Epochs:
    """Batches from data that is iterated repeatedly, such as a PyTorch `DataLoader` or a list of batches.

        def shuffled(epoch):
            order = np.random.default_rng(epoch).permutation(len(x))
            return [(x[rows], y[rows]) for rows in np.array_split(order, 50)]

        batches = Epochs(shuffled, 20)

    The object is an iterator. A `Checkpoints` can save its position. To resume from a position, it reads the current
    epoch's batches up to that position again. These batches are the same if the data returns them in the same order, as
    the function above does. A PyTorch `DataLoader` with `shuffle=True` doesn't: pass a function that creates the loader
    with the epoch as the seed.

    Args:
      data: an iterable that can be iterated several times; or a function that takes the epoch's number, counted from 0,
        and returns an iterable of the epoch's batches.
      epochs: number of times, or None for no limit.

    Attributes:
      batches_per_epoch: the length of `data`, or of the function's result for epoch 0; None if it has no length.
      position: number of batches returned so far.

    Raises:
      TypeError: If `data` is an iterator, or neither an iterable nor a function, or `epochs` isn't an integer.
      ValueError: If `epochs` isn't positive.
    """

    @suggest_keywords
    def __init__(self, data: Iterable[Any] | Callable[[int], Iterable[Any]], epochs: int | None = None) -> None:
        is_function = callable(data) and not isinstance(data, Iterable)
        if is_function:
            check_takes("data", data, "the number of the epoch")
        elif not has_batches(data) or isinstance(data, Iterator):
            raise TypeError(
                f"data must be an iterable that can be iterated several times, got {data!r:.200}. Pass a list of "
                "batches or a DataLoader."
            )
        if epochs is not None:
            if isinstance(epochs, bool) or not hasattr(epochs, "__index__"):
                raise TypeError(f"epochs must be an integer or None, got {epochs!r}.")
            if epochs < 1:
                raise ValueError(f"epochs must be positive, got {epochs!r}.")
        source: Any = data
        self._batches_of: Callable[[int], Any] = source if is_function else lambda epoch: source
        self._name = getattr(data, "__name__", type(data).__name__)
        self._sampler = _random_sampler_of(data)
        self._has_fixed_length = not is_function
        self._epochs = epochs
        self._iterator: Iterator[Any] | None = None
        self._epoch, self._batch = 0, 0
        self.position = 0
        first = self._batches_of(0)
        if is_function and not isinstance(first, Iterable):
            raise TypeError(f"data must return an iterable of batches, got {first!r:.200} from {data!r} for epoch 0.")
        try:
            self.batches_per_epoch: int | None = len(first)
        except TypeError:
            self.batches_per_epoch = None

    def __repr__(self) -> str:
        return f"<fastsup.loop.Epochs of {self._name}, at batch {self._batch} of epoch {self._epoch}>"

    @property
    def epoch(self) -> int:
        """Number of completed epochs."""
        return self._epoch

    def __iter__(self) -> Epochs:
        return self

    def __next__(self) -> Any:
        """Returns the next batch.

        Raises:
          StopIteration: If all epochs are complete, or the data has no batch.
        """
        # The checkpoint may come from a run with more epochs.
        if self._epochs is not None and self._epoch >= self._epochs:
            raise StopIteration
        if self._iterator is None:
            self._iterator = iter(self._batches_of(self._epoch))
            for _ in range(self._batch):
                next(self._iterator, None)
        try:
            batch = next(self._iterator)
        except StopIteration:
            if not self._batch:
                if self.batches_per_epoch == 0:
                    _logger.warning("data has no batches, got an empty %s: no step is run.", self._name)
                elif self._epochs is not None:
                    _logger.warning(
                        "The data ended before epoch %d of %d: %s had no batches left. A generator can be iterated "
                        "over only once: pass a function that returns a new one for each epoch.",
                        self._epoch + 1,
                        self._epochs,
                        self._name,
                    )
                raise
            self._end_epoch()
            return next(self)
        self._batch += 1
        self.position += 1
        if self._batch == self.batches_per_epoch:
            self._end_epoch()
        return batch

    def _end_epoch(self) -> None:
        self._epoch += 1
        self._batch = 0
        self._iterator = None

    def state_dict(self) -> dict[str, int]:
        """Returns the position, to save in a checkpoint."""
        return {"epoch": self._epoch, "batch": self._batch, "position": self.position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Resumes from a saved position.

        Args:
          state: the result of `state_dict`.

        Raises:
          ValueError: If the position is that of other batches.
        """
        check_position(state, ("epoch", "batch", "position"), "fastsup.loop.Epochs")
        self._epoch, self._batch, self.position = state["epoch"], state["batch"], state["position"]
        self._iterator = None
        at_epoch, length = self.position - self._batch, self.batches_per_epoch
        if self._has_fixed_length and length is not None and at_epoch != self._epoch * length:
            _logger.warning(
                "%s has %d batches per epoch, but in the checkpoint %d epochs had %d batches: it was saved with other "
                "data. Hooks with every_epochs are due at other batches. To train on other data from its first batch, "
                "use another directory.",
                self._name,
                length,
                self._epoch,
                at_epoch,
            )
        sampler = self._sampler
        # A generator is in its first state only in epoch 0 of a new process.
        if sampler is not None and self._batch and (self._epoch or getattr(sampler, "generator", None) is None):
            self._sampler = None
            _logger.warning(
                "%s shuffles in another order after a restart, so the rest of epoch %d may repeat rows and skip "
                "others. Pass a function of the epoch's number instead: lambda epoch: DataLoader(..., shuffle=True, "
                "generator=torch.Generator().manual_seed(epoch)).",
                self._name,
                self._epoch,
            )


def _random_sampler_of(data: Any) -> Any:
    """Returns the sampler of a PyTorch `DataLoader` that draws rows at random; None for any other data."""
    for owner in (getattr(data, "batch_sampler", None), data):
        sampler = getattr(owner, "sampler", None)
        if any(kind.__name__.endswith("RandomSampler") for kind in type(sampler).__mro__):
            return sampler
    return None


def bind_batches(step: Callable[..., Any], batches: Iterable[Any], /, *args: Any, **kwargs: Any) -> Any:
    """Binds batches to a step function, for use in a `StepLoop`.

        StepLoop(fastsup.bind_batches(train_step, fastsup.ArrayBatches((x, y), 32, shuffle=True)), max_steps=1000).run()

    Each step takes the next batch outside the step function, so XLA can compile the step function (`jit_compile=True`),
    and the loop can run many steps in one compiled call. The loop ends when the batches do. It needs no TensorFlow.

    Args:
      step: the step function: a `fastsup.function`, a `tf.function`, or any callable.
      batches: a `fastsup.ArrayBatches`, a `tf.data.Dataset`, a `fastsup.loop.Epochs`, or any iterable of batches.
      *args: positional arguments that come before those of the batch.
      **kwargs: keyword arguments.

    Returns:
      A callable without arguments, which calls `step(*args, *batch, **kwargs)` for a batch that is a tuple or a list,
      and `step(*args, batch, **kwargs)` for any other.

    Raises:
      TypeError: If `step` can't be called, or `batches` can't be iterated over, or is a string or a dictionary.
    """
    check_plain_function("step", step)
    if not has_batches(batches):
        raise TypeError(
            "batches must be a fastsup.ArrayBatches, a tf.data.Dataset or another iterable of batches, got "
            f"{batches!r:.200}."
        )
    kind: type[BatchCall] = BatchCall
    if "tensorflow" in sys.modules:
        from fastsup.steps.bind import BatchStep as kind
    return kind(step, iter(batches), args, kwargs)
