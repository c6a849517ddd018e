"""`--fail-above`: limits on what hooks, callbacks and phases may cost, for tests of a program's speed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from fastsup.profile.numbers.quantities import percent
from fastsup.profile.numbers.rows import LOOP
from fastsup.profile.report import Report

__all__ = ["ALL_HOOKS", "Limit", "broken", "limit_of"]

# The name of all hooks and callbacks together.
ALL_HOOKS = "hooks"
_LIMIT = re.compile(r"(.*\S)\s+([0-9]+(?:\.[0-9]+)?)\s*%")


class Limit(NamedTuple):
    """A limit on a cost.

    Attributes:
      name: class of a hook or callback, name of a phase, or "hooks" for all hooks and callbacks together.
      share: the most that it may be of the time, 0 to 1.
    """

    name: str
    share: float


def limit_of(text: str) -> Limit:
    """Reads a limit.

    Args:
      text: name and per cent: "ModelCheckpoint 5%".

    Raises:
      ValueError: it isn't that.
    """
    found = _LIMIT.fullmatch(text.strip())
    if found is None or float(found[2]) > 100:
        raise ValueError(f"a limit is a name and per cent, such as 'ModelCheckpoint 5%', got {text!r}")
    return Limit(found[1], float(found[2]) / 100)


def broken(report: Report, limits: Iterable[Limit]) -> list[str]:
    """Compares a report with limits.

    Args:
      report: the report.
      limits: the limits.

    Returns:
      A sentence for each limit that is exceeded.
    """
    found = []
    for limit in limits:
        share = report.share(_total(report, limit.name))
        if share > limit.share:
            found.append(f"{limit.name} takes {percent(share)} of the time, more than {percent(limit.share)}.")
    return found


def _total(report: Report, name: str) -> int:
    """The nanoseconds of all rows of a name in the threads of the loops."""
    return sum(
        row.times.total_ns
        for row in report.rows
        if row.thread == LOOP
        and ((row.is_hook and name in (ALL_HOOKS, row.owner, row.owner.partition(" #")[0])) or row.phase == name)
    )
