"""The hook that writes summaries, with a writer of the program's."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from fastsup.common.errors import writing_files
from fastsup.loop.numbers import Values, check_values, named_numbers
from fastsup.loop.periodic import PeriodicHook

Write = Callable[[str, float, int], Any]


class SummaryHook(PeriodicHook):
    """Writes the numbers of the result at intervals.

    Args:
      writer: the result of `tf.summary.create_file_writer`; an object with a method `add_scalar(name, value, step)`,
        such as PyTorch's SummaryWriter; or a function of name, value and step.
      every_steps: a summary is written at the global steps that are multiples of this number, or None.
      every_secs: seconds between two summaries, or None. With both intervals, the one that passes first counts; with
        neither, a summary is written every 100 steps.
      values: function that takes the result and returns a number, which is named "loss", or a mapping of names to
        numbers. None if the result is such itself.

    Raises:
      TypeError: `writer` isn't one of the three, `values` can't be called, or an interval isn't a number.
      ValueError: an interval isn't positive.
      ImportError: `writer` is one of tf.summary, and TensorBoard isn't installed.
    """

    def __init__(
        self,
        writer: Any,
        every_steps: int | None = None,
        every_secs: float | None = None,
        values: Values | None = None,
    ) -> None:
        super().__init__(100 if every_steps is None and every_secs is None else every_steps, every_secs)
        self._write = _writing(writer)
        self._flush = getattr(writer, "flush", None)
        self._values = check_values(values)

    def act(self, loop: Any) -> None:
        for name, number in named_numbers(self._values(loop.result)).items():
            self._write(name, number, loop.global_step)

    def end(self, loop: Any) -> None:
        if self._flush is not None:
            with writing_files():
                self._flush()

    def on_error(self, loop: Any, error: BaseException) -> None:
        # The last summaries help to explain the error.
        self.end(loop)


def _writing(writer: Any) -> Write:
    """Returns the function that writes one number."""
    if callable(getattr(writer, "add_scalar", None)):
        return lambda name, value, step: writer.add_scalar(name, value, step)
    if callable(getattr(writer, "as_default", None)):
        from tensorflow import summary

        if find_spec("tensorboard") is None:
            # TensorFlow says so when the first summary is written: the steps before would be lost.
            raise ImportError(
                "A writer of tf.summary needs TensorBoard, which isn't installed: pip install tensorboard."
            )

        def write(name: str, value: float, step: int) -> None:
            with writing_files(), writer.as_default():
                summary.scalar(name, value, step)

        return write
    if not callable(writer):
        raise TypeError(
            "writer must be a writer of tf.summary, have a method add_scalar(name, value, step), or be a function of "
            f"these, got {writer!r}"
        )
    return lambda name, value, step: writer(name, value, step)
