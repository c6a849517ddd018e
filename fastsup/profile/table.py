"""The table of a profile, 80 columns wide: the head, a line per hook and phase of each session, and the timeline.

A name that is longer than its column has its own line, above its numbers. rich's tables can't do that: they would break
each long name in a column of 18 characters next to nine columns of numbers. rich therefore only styles the lines.
"""

from __future__ import annotations

import os
import textwrap
from typing import TextIO

from fastsup.profile.histogram import as_lines
from fastsup.profile.numbers import SessionPart, count, duration, hooks_among, percent
from fastsup.profile.recording.statistics import SESSION
from fastsup.profile.report import Report, Row

__all__ = ["WIDTH", "Line", "as_text", "lines_of", "print_lines", "print_table", "runs"]

WIDTH = 80
_SHOWN_END = 0.001
_COLUMNS = (("calls", 6), ("total", 8), ("share", 6), ("mean", 8), ("p50", 7), ("p95", 7), ("p99", 7), ("max", 7),
            ("step", 7))  # fmt: skip
_FIRST = WIDTH - sum(width for _, width in _COLUMNS)

# A line with its style, as rich names it.
Line = tuple[str, str]


def _line(first: str, *values: str) -> str:
    cells = [value.rjust(width) for value, (_, width) in zip(values, _COLUMNS[: len(values)], strict=True)]
    if cells:
        cells[0] = values[0].rjust(_FIRST + _COLUMNS[0][1] - max(len(first), _FIRST))
    return (first.ljust(_FIRST) + "".join(cells)).rstrip()


def _row(name: str, row: Row) -> str:
    times = row.times
    estimate = "" if row.basis == "measured" else "~"
    quantiles = ["" if ns is None else duration(ns) for ns in (times.p50_ns, times.p95_ns, times.p99_ns, times.max_ns)]
    return _line(
        name,
        count(times.calls),
        estimate + duration(times.total_ns),
        percent(row.share),
        estimate + duration(times.mean_ns),
        *quantiles,
        "" if times.max_step is None else count(times.max_step, 6),
    )


def _cut(name: str) -> str:
    """Shortens a name to one line. Keeps its end, because that distinguishes two hooks with the same class."""
    half = WIDTH // 2
    return name if len(name) <= WIDTH else f"{name[: half - 1]}…{name[-half:]}"


def _is_shown(row: Row) -> bool:
    """Returns True if a row has a line. Every hook has an `end`, which is shown only if it takes long."""
    return row.phase != "end" or row.share >= _SHOWN_END


def _rows(report: Report, indent: str, row: Row) -> list[Line]:
    """Returns the line of a row, or two lines if its name doesn't fit into the first column."""
    about = f"{indent}{report.shown(row)}"
    # A name may extend into the next column, as far as the number of calls leaves room.
    if len(about) < _FIRST or (not row.detail and len(about) + len(count(row.times.calls)) < _FIRST + _COLUMNS[0][1]):
        return [(_row(about, row), "")]
    return [(_cut(about), ""), (_row("", row), "")]


def _total(name: str, ns: int, report: Report, style: str) -> list[Line]:
    """Returns the line of a name with a sum, or two lines if they don't fit into one."""
    numbers = duration(ns).rjust(8) + percent(report.share(ns)).rjust(6)
    place = _FIRST + _COLUMNS[0][1]
    if len(name) < place:
        return [(name.ljust(place) + numbers, style)]
    return [(_cut(name), style), (" " * place + numbers, style)]


def _of_session(report: Report, name: str, style_first: bool) -> list[Line]:
    """Returns the lines of a session: its hooks, and its own phases."""
    rows = report.rows_of(name)
    lines: list[Line] = []
    for number, (owner, total, of_hook) in enumerate(hooks_among(rows)):
        lines += _total(owner, total, report, "bold yellow" if style_first and number == 0 else "bold")
        for row in filter(_is_shown, of_hook):
            lines += _rows(report, "  ", row)
        within = sum(part.total_ns for part in report.opened_by(name, owner))
        if within:
            lines += _total("  with its evaluations", total + within, report, "")
    own = [row for row in rows if not row.is_hook]
    if own or not name:
        lines.append((_of_no_hook(report, name), "bold"))
    for row in own:
        lines += _rows(report, " ", row)
    return lines


def _of_no_hook(report: Report, name: str) -> str:
    """Returns the owner's name for rows without a hook: a session's, by name, or all sessions'."""
    for part in report.sessions:
        if part.name == name and (part.is_pass or part.is_function):
            return "Keras" if part.is_pass else "function"
    return "session" if name or not report.sessions else "all sessions"


def _begin(report: Report) -> list[Line]:
    left_out = f" ({report.skipped_steps} left out before)" if report.skipped_steps else ""
    begun = f"{report.steps} step{'' if report.steps == 1 else 's'}{left_out} in {duration(report.wall_ns)}"
    steps = report.step_time
    if steps.p50_ns is None or steps.p99_ns is None or not report.steps:
        lines = [begun]
    else:
        of_a_step = (
            f"a step: mean {duration(steps.mean_ns)}, p50 {duration(steps.p50_ns)}, p99 {duration(steps.p99_ns)}"
        )
        whole = f"{begun}; {of_a_step}"
        lines = [whole] if len(whole) <= WIDTH else [f"{begun};", of_a_step]
    head = [part for line in report.head.lines() for part in _wrapped(line)]
    return [(line, "bold") for line in lines] + [(line, "dim") for line in head]


def runs(part: SessionPart) -> str:
    """Formats the number of a session's runs: "100 runs", "100 batches" for a pass, "100 calls" for a function.

    Args:
      part: the session.
    """
    one, several = ("batch", "batches") if part.is_pass else ("call", "calls") if part.is_function else ("run", "runs")
    return f"{count(part.runs)} {one if part.runs == 1 else several}"


def _recorded(report: Report) -> list[Line]:
    lines: list[Line] = [("", ""), (_line("", *[name for name, _ in _COLUMNS]), "dim")]
    for number, part in enumerate(report.sessions):
        times = f", {part.sessions} times" if part.sessions > 1 else ""
        lines += _total(f"{part.name}{times}: {runs(part)}", part.total_ns, report, "bold underline")
        if part.within is not None and part.within[1] != SESSION:
            lines.append((_cut(f"in {part.within[1]}, {part.within[2]}"), "dim"))
        lines += _of_session(report, part.name, number == 0)
    lines += _of_session(report, "", not report.sessions)
    for name, ns in (("profiler", report.profiler_ns), ("unaccounted", report.unaccounted_ns)):
        lines.append((_line(f" {name}", "", duration(max(ns, 0)), percent(report.share(max(ns, 0)))), ""))
    lines.append((_line("wall", "", duration(report.wall_ns), percent(1.0)), "bold"))
    bases = {row.basis for row in report.rows}
    if "compared" in bases or "counted" in bases:
        lines.append(("~ is an estimate: how much longer a run with these fetches takes than one without", "dim"))
    if "counted" in bases:
        lines.append(("  (if all runs have them: the time to fetch the values, but not to compute them)", "dim"))
    if report.step_buckets:
        lines += [("", ""), ("how long steps take (height: how many, in powers of ten)", "bold")]
        lines += [(line, "") for line in as_lines(report.step_buckets, WIDTH)]
    return lines


def _timeline(report: Report) -> list[Line]:
    whole = sum(ns for _, ns, _ in report.timeline)
    if not whole:
        return []
    lines: list[Line] = [("", ""), (_line("whole program", "", duration(whole), percent(1.0)), "bold")]
    for phase, ns, times in report.timeline:
        lines.append((_line(f" {phase}", count(times) if times else "", duration(ns), percent(ns / whole)), ""))
    return lines


def lines_of(report: Report) -> list[Line]:
    """Returns the lines of the table, each with its style.

    Args:
      report: the report.
    """
    lines = _begin(report) + (_recorded(report) if report.steps or report.sessions else []) + _timeline(report)
    if len(lines) > 1 and report.steps:
        lines.append(("", ""))
    return lines + [(line, "yellow") for cost in report.advice().splitlines() for line in _wrapped(cost)]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False)


def as_text(report: Report) -> str:
    """Returns the table as plain text, without a line break at the end.

    Args:
      report: the report.
    """
    return "\n".join(line for line, _ in lines_of(report))


def print_table(report: Report, file: TextIO) -> None:
    """Prints the table, with colors if `file` is a terminal and rich is installed.

    Args:
      report: the report.
      file: text stream.
    """
    print_lines(lines_of(report), file)


def print_lines(lines: list[Line], file: TextIO) -> None:
    """Prints lines, in their styles if `file` is a terminal and rich is installed.

    Args:
      lines: the lines.
      file: text stream.
    """
    if file.isatty() and not os.environ.get("NO_COLOR"):
        try:
            from rich.console import Console
            from rich.text import Text
        except ImportError:
            pass
        else:
            console = Console(file=file, width=WIDTH, highlight=False)
            for line, style in lines:
                console.print(Text(line, style=style))
            return
    text = "\n".join(line for line, _ in lines)
    encoding = getattr(file, "encoding", None) or "utf-8"
    # In an encoding without µ, a question mark is printed.
    file.write(text.encode(encoding, "replace").decode(encoding) + "\n")
    file.flush()
