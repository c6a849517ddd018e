"""The table of the training programs."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.trainers.runs import Kills

__all__ = ["HEADINGS", "markdown", "row_of"]

HEADINGS = (
    "program",
    "lines",
    "µs per step",
    "first step, s",
    "steps lost by `kill -9`",
    "by SIGTERM",
    "resumes within an epoch",
    "early stopping's count",
    "best checkpoint",
)


def row_of(title: str, found: dict[str, Any]) -> list[str]:
    """A row.

    Args:
      title: the program's name.
      found: its figures: "lines", "step_secs", a list, and "kills"; or "failed".
    """
    if "failed" in found:
        return [title, str(found["lines"]), found["failed"], *[""] * (len(HEADINGS) - 3)]
    kills = Kills(**found["kills"])
    more = kills.evaluations[1] - kills.evaluations[0]
    best, after = kills.accuracies
    return [
        title,
        str(found["lines"]),
        f"{1e6 * median(found['step_secs']):,.0f}",
        f"{median(kills.first_step_secs):.1f}",
        " / ".join(f"{lost:,}" for lost in kills.lost),
        f"{kills.terminated[0] - kills.terminated[1]:,}",
        "yes" if kills.within_epoch else "no",
        "kept" if kills.count_is_kept else f"lost: {more:+.3g} evaluation{'' if abs(more) == 1 else 's'}",
        "kept" if kills.best_is_kept else f"lost: {best:.1f} → {after:.1f} %",
    ]


def markdown(results: dict[str, Any]) -> str:
    """The table in Markdown.

    Args:
      results: the figures of each program, by title.
    """
    rows = [row_of(title, found) for title, found in results.items()]
    lines = [f"| {' | '.join(HEADINGS)} |", "|---|" + "--:|" * 5 + "---|" * (len(HEADINGS) - 6)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
