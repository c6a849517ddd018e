"""`--fail-above`: limits on the cost of hooks, callbacks and phases, for tests of a program's speed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from fastsup.profile.numbers import LOOP, Row
from fastsup.profile.recording.statistics import SESSION
from fastsup.profile.report import Report

__all__ = ["ALL_HOOKS", "Limit", "broken", "hook_names", "limit_of", "unknown"]

# The name that stands for all hooks and callbacks together.
ALL_HOOKS = "hooks"
_ALL = (ALL_HOOKS, "callbacks")
_LIMIT = re.compile(r"(.*\S)\s+([0-9]+(?:\.[0-9]+)?)\s*%")


class Limit(NamedTuple):
    """A limit on a cost.

    Attributes:
      name: class of a hook or callback, name of a phase, name of a row without a hook as in the table, or "hooks" for
        all hooks and callbacks together.
      share: maximum share of the time, from 0 to 1.
    """

    name: str
    share: float


def limit_of(text: str) -> Limit:
    """Parses a limit.

    Args:
      text: name and percentage, such as "ModelCheckpoint 5%".

    Raises:
      ValueError: If the text has another form.
    """
    found = _LIMIT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"a limit is a name and a percentage (0 to 100), such as 'ModelCheckpoint 5%', got {text!r}")
    if float(found[2]) > 100:
        raise ValueError(f"a limit is at most 100%, got {text!r}")
    return Limit(found[1], float(found[2]) / 100)


def broken(report: Report, limits: Iterable[Limit]) -> list[str]:
    """Compares a report with limits.

    Args:
      report: the report.
      limits: the limits.

    Returns:
      A sentence for each exceeded limit.
    """
    found = []
    for limit in limits:
        share = report.share(_total(report, limit.name))
        if share > limit.share:
            found.append(f"{limit.name} takes {100 * share:.3g}% of the time, more than {100 * limit.share:.3g}%.")
    return found


def hook_names(report: Report) -> list[str]:
    """Returns the names of a report's hooks and callbacks, without the numbers of hooks with the same class.

    Args:
      report: the report.
    """
    return list(dict.fromkeys(row.owner.partition(" #")[0] for row in report.rows if row.is_hook))


def unknown(report: Report, limits: Iterable[Limit]) -> list[str]:
    """Returns the names of limits that match no row of a report.

    Args:
      report: the report.
      limits: the limits.
    """
    return [limit.name for limit in limits if limit.name not in _ALL and not _rows_meant(report, limit.name)]


def _numbered(owner: str) -> str:
    """Returns the name of one of several hooks, with its number. A profile shows the first one without a number."""
    return owner if " #" in owner else f"{owner} #1"


def _is_hook_meant(name: str, owner: str) -> bool:
    return owner != SESSION and name in (*_ALL, owner, _numbered(owner), owner.partition(" #")[0])


def _rows_meant(report: Report, name: str) -> list[Row]:
    """Returns the rows that a limit's name refers to."""
    return [
        row
        for row in report.rows
        if _is_hook_meant(name, row.owner) or row.phase == name or (not row.is_hook and report.shown(row) == name)
    ]


def _total(report: Report, name: str) -> int:
    """Returns the nanoseconds of all rows with a name in the loops' threads, including what the named hook opens."""
    opened = [part for part in report.sessions if part.within is not None and _is_hook_meant(name, part.within[1])]
    in_loops = [row for row in _rows_meant(report, name) if row.thread == LOOP]
    return sum(part.total_ns for part in opened) + sum(row.times.total_ns for row in in_loops)
