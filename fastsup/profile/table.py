"""The table: a line a hook and below it one a phase, then the session; 80 columns."""

from __future__ import annotations

import os
from typing import TextIO

from fastsup.profile.report import Report, Row, duration, percent

__all__ = ["as_text", "print_table"]

WIDTH = 80
_SHOWN_END = 0.001
_COLUMNS = (("calls", 6), ("total", 8), ("share", 6), ("mean", 8), ("p50", 7), ("p95", 7), ("p99", 7), ("max", 7),
            ("step", 7))  # fmt: skip
_FIRST = WIDTH - sum(width for _, width in _COLUMNS)


def _count(number: int, digits: int = 5) -> str:
    """A whole number in a few characters: "12345", "1.23M"."""
    if number < 10**digits:
        return str(number)
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit * 0.9995:
            scaled = number / unit
            return (f"{scaled:.0f}" if scaled >= 99.95 else f"{scaled:.3g}") + name
    return str(number)


def _line(first: str, *values: str) -> str:
    cells = [value.rjust(width) for value, (_, width) in zip(values, _COLUMNS[: len(values)], strict=True)]
    return (first.ljust(_FIRST) + "".join(cells)).rstrip()


def _row(name: str, row: Row) -> str:
    times = row.times
    estimate = "" if row.basis == "measured" else "~"
    quantiles = ["" if ns is None else duration(ns) for ns in (times.p50_ns, times.p95_ns, times.p99_ns, times.max_ns)]
    return _line(
        name,
        _count(times.calls),
        estimate + duration(times.total_ns),
        percent(row.share),
        estimate + duration(times.mean_ns),
        *quantiles,
        "" if times.max_step is None else _count(times.max_step, 6),
    )


def _cut(name: str) -> str:
    """A hook's name in one line. Its end stays, which tells two of one class apart."""
    half = WIDTH // 2
    return name if len(name) <= WIDTH else f"{name[: half - 1]}…{name[-half:]}"


def _is_shown(row: Row) -> bool:
    """Every hook has an end; only one that takes long is worth a line."""
    return row.phase != "end" or row.share >= _SHOWN_END


def _lines(report: Report) -> list[tuple[str, str]]:
    """The lines, each with its style."""
    steps = report.step_time
    left_out = f" ({report.skipped_steps} left out before)" if report.skipped_steps else ""
    begun = f"{report.steps} step{'' if report.steps == 1 else 's'}{left_out} in {duration(report.wall_ns)}"
    lines = [(begun, "bold")]
    if report.steps:
        assert steps.p50_ns is not None
        assert steps.p99_ns is not None
        of_a_step = (
            f"a step: mean {duration(steps.mean_ns)}, p50 {duration(steps.p50_ns)}, p99 {duration(steps.p99_ns)}"
        )
        whole = f"{begun}; {of_a_step}"
        lines = [(line, "bold") for line in ([whole] if len(whole) <= WIDTH else [f"{begun};", of_a_step])]
        lines += [("", ""), (_line("", *[name for name, _ in _COLUMNS]), "dim")]
        for number, (name, total, rows) in enumerate(report.hooks):
            numbers = duration(total).rjust(8) + percent(report.share(total)).rjust(6)
            place = _FIRST + _COLUMNS[0][1]
            style = "bold yellow" if number == 0 else "bold"
            if len(name) < place:
                lines.append((name.ljust(place) + numbers, style))
            else:
                lines += [(_cut(name), style), (" " * place + numbers, style)]
            lines += [(_row(f"  {row.phase}", row), "") for row in rows if _is_shown(row)]
        lines.append(("session", "bold"))
        lines += [(_row(f" {row.phase}", row), "") for row in report.session]
        for name, ns in (("profiler", report.profiler_ns), ("unaccounted", report.unaccounted_ns)):
            lines.append((_line(f" {name}", "", duration(max(ns, 0)), percent(report.share(max(ns, 0)))), ""))
        lines.append((_line("wall", "", duration(report.wall_ns), percent(1.0)), "bold"))
        bases = {row.basis for row in report.rows}
        if "compared" in bases or "counted" in bases:
            lines.append(("~ is an estimate: what a run with these fetches takes more than one without", "dim"))
        if "counted" in bases:
            lines.append(("  (where all runs have them: what so many values take, not what computes them)", "dim"))
        lines.append(("", ""))
    return lines + [(line, "yellow") for line in _wrapped(report.advice())]


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, WIDTH)


def as_text(report: Report) -> str:
    """The table as plain text, without a line break at the end."""
    return "\n".join(line for line, _ in _lines(report))


def print_table(report: Report, file: TextIO) -> None:
    """Prints the table: coloured by rich on a terminal, if it is installed; else plain.

    Args:
      report: the report.
      file: where to.
    """
    if file.isatty() and not os.environ.get("NO_COLOR"):
        try:
            from rich.console import Console
            from rich.text import Text
        except ImportError:
            pass
        else:
            console = Console(file=file, width=WIDTH, highlight=False)
            for line, style in _lines(report):
                console.print(Text(line, style=style))
            return
    text = as_text(report)
    encoding = getattr(file, "encoding", None) or "utf-8"
    # A terminal that can't say µ gets something in its place.
    file.write(text.encode(encoding, "replace").decode(encoding) + "\n")
    file.flush()
