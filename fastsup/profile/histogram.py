"""The histogram of step times, with columns of equal width on a logarithmic axis. Also available as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, floor, log10

from fastsup.profile.numbers import duration

__all__ = ["Histogram", "as_lines"]

# Bars with heights in eighths of a line.
_BLOCKS = " ▁▂▃▄▅▆▇█"


class Histogram:
    """Counts of durations in columns.

    Args:
      buckets: list of (from, to, count), in nanoseconds and in order, with at least one element.
      columns: number of columns.
    """

    def __init__(self, buckets: Sequence[tuple[int, int, int]], columns: int) -> None:
        self.low: float = log10(max(buckets[0][0], 1))
        self.high: float = max(log10(max(buckets[-1][1], 1)), self.low + 0.1)
        self.counts: list[int] = [0] * columns
        for start, end, count in buckets:
            place = self.place(max((start + end) / 2, 1))
            self.counts[min(max(int(place * columns), 0), columns - 1)] += count

    def place(self, ns: float) -> float:
        """Returns the position of a duration (in nanoseconds) on the axis, from 0 to 1."""
        return (log10(ns) - self.low) / (self.high - self.low)

    def at(self, place: float) -> float:
        """Returns the duration in nanoseconds at a position on the axis, from 0 to 1."""
        return float(10 ** (self.low + (self.high - self.low) * place))

    def heights(self) -> list[float]:
        """Returns the heights of the columns, from 0 to 1, on a logarithmic scale on which a count of 1 is visible."""
        tallest = log10(max(self.counts)) + 0.3
        return [(log10(count) + 0.3) / tallest if count else 0.0 for count in self.counts]

    def ticks(self) -> list[float]:
        """Returns round durations along the axis in nanoseconds, or the axis's ends if there are fewer than two."""
        exponents = range(floor(self.low), ceil(self.high) + 1)
        for steps in ((1,), (1, 3), (1, 2, 5), range(1, 10)):
            ticks = _within(self.low, self.high, (step * 10.0**exponent for exponent in exponents for step in steps))
            if len(ticks) >= 3:
                return ticks
        return ticks if len(ticks) >= 2 else [10**self.low, 10**self.high]


def _within(low: float, high: float, durations: Iterable[float]) -> list[float]:
    return [ns for ns in durations if low <= log10(ns) <= high]


def as_lines(buckets: Sequence[tuple[int, int, int]], width: int) -> list[str]:
    """Returns the histogram as lines of text: the columns, the axis and its labels.

    Args:
      buckets: as for `Histogram`.
      width: number of characters per line.
    """
    histogram = Histogram(buckets, width)
    columns = "".join(_BLOCKS[ceil(height * (len(_BLOCKS) - 1))] for height in histogram.heights())
    axis, labels = ["─"] * width, [" "] * width
    free_from = 0
    for ns in histogram.ticks():
        at = min(int(histogram.place(ns) * width), width - 1)
        label = duration(ns).replace(".00", "").replace(".0", "")
        start = min(max(at - len(label) // 2, 0), width - len(label))
        if start < free_from:
            continue
        axis[at] = "┴"
        labels[start : start + len(label)] = label
        free_from = start + len(label) + 1
    return [columns.rstrip(), "".join(axis), "".join(labels).rstrip()]
