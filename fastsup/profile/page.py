"""A profile as one HTML page that loads nothing else: costs, the histogram of step times, the slowest steps."""

from __future__ import annotations

import json
from html import escape
from math import log10
from typing import Any

from fastsup.profile.export import as_dict
from fastsup.profile.histogram import Histogram
from fastsup.profile.numbers.quantities import count as as_count
from fastsup.profile.numbers.quantities import duration, percent
from fastsup.profile.numbers.rows import hooks_among
from fastsup.profile.recording.recorder import Recorder
from fastsup.profile.recording.statistics import SESSION
from fastsup.profile.report import Report, Row
from fastsup.profile.table import as_text

__all__ = ["as_html", "as_html_part"]

_WIDTH = 900
_LABELS = 230
_BARS = 60
_CHARACTER = 7.5  # The width of a character in the drawings.
_COLOURS = {
    "before_run": "#f58518", "after_run": "#4c78a8", "after_step": "#4c78a8", "fetches": "#e45756", "save": "#72b7b2",
    "listener": "#54a24b", "summary": "#b279a2", "end": "#9d755d", "runtime": "#6a51a3", "feed conversion": "#d6a5c9",
    "fetch conversion": "#d67195", "plan making": "#ff9da6", "global step": "#b79a20", "step read": "#8c8b2b",
    "device": "#3f8f6b", "between steps": "#79706e", "hook dispatch": "#ffbe7d", "profiler": "#bab0ac",
    "unaccounted": "#c9c2b2", "import": "#79706e", "build": "#ff9da6", "open": "#b79a20", "train": "#6a51a3",
    "run": "#6a51a3", "evaluate": "#54a24b", "predict": "#d6a5c9", "listeners": "#54a24b", "program": "#bab0ac",
}  # fmt: skip
_OTHER = "#888"
_SLOW_STEPS = 8

# Of the page alone, and of what a notebook shows, too.
_PAGE_STYLE = """
body { max-width: 940px; margin: 2em auto; padding: 0 1em; color: #222; background: #fff; }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #ddd; } }
"""
_STYLE = """
.fastsup { font: 15px/1.45 system-ui, sans-serif; }
.fastsup h1 { font-size: 1.4em; } .fastsup h2 { font-size: 1.1em; margin-top: 2em; }
.fastsup svg { width: 100%; height: auto; } .fastsup svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
.fastsup svg text.inside { fill: #fff; } .fastsup svg text.title { font-weight: bold; }
.fastsup .head { color: #777; font-size: 13px; } .fastsup .axis { stroke: #888; stroke-width: 1; }
.fastsup pre { overflow-x: auto; font-size: 12.5px; line-height: 1.2; }
.fastsup .advice { background: #fff4d6; color: #222; padding: .6em 1em; }
.fastsup .phase { white-space: nowrap; margin-right: 1em; }
.fastsup .phase i { display: inline-block; width: .9em; height: .9em; margin-right: .4em; }
@media (prefers-color-scheme: dark) { .fastsup .advice { background: #3a3218; color: #ddd; } }
"""


def as_html(report: Report, recorder: Recorder) -> str:
    """Returns the page.

    Args:
      report: the report.
      recorder: the recorder of the report, for the slowest steps.
    """
    # "</script>" in a name would end the block of data.
    data = json.dumps(as_dict(report)).replace("<", "\\u003c")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>fastsup profile</title>
<style>{_PAGE_STYLE}</style>
</head>
<body>
{as_html_part(report, recorder)}
<script type="application/json" id="profile">{data}</script>
</body>
</html>
"""


def as_html_part(report: Report, recorder: Recorder) -> str:
    """Returns the contents of the page as a part of another one, such as a notebook. Arguments as for `as_html`."""
    median = f": the median step takes {duration(report.step_time.p50_ns)}" if report.step_time.p50_ns else ""
    return f"""<div class="fastsup">
<style>{_STYLE}</style>
<h1>{report.steps} steps in {duration(report.wall_ns)}{median}</h1>
<p class="head">{"<br>".join(map(escape, report.head.lines()))}</p>
<p class="advice">{"<br>".join(map(escape, report.advice().splitlines()))}</p>
<h2>Where the time goes</h2>
<p>{_legend(report)}</p>
{_costs(report)}
<h2>How long steps take</h2>
<p>The duration of a step from left to right; how many steps took it, upwards. Both in powers of ten.</p>
{_histogram(report)}
{_timeline_of_program(report)}
<h2>The slowest steps</h2>
<p>Each on its own scale. The parts without a colour are the session layer itself.</p>
{_timelines(recorder)}
<h2>Numbers</h2>
<pre>{escape(as_text(report))}</pre>
</div>"""


def _colour(phase: str) -> str:
    return _COLOURS.get(phase, _OTHER)


def _legend(report: Report) -> str:
    phases = dict.fromkeys(row.phase for row in report.rows)
    return "".join(
        f'<span class="phase"><i style="background: {_colour(phase)}"></i>{escape(phase)}</span> ' for phase in phases
    )


def _svg(height: float, parts: list[str], label: str) -> str:
    inside = "\n".join(parts)
    return f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">\n{inside}\n</svg>'


def _rect(x: float, y: float, width: float, height: float, colour: str, title: str) -> str:
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.5):.2f}" height="{height:.2f}" fill="{colour}">'
        f"<title>{escape(title)}</title></rect>"
    )


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    return f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'


# A name, its nanoseconds, and its phases with their nanoseconds.
_Bar = tuple[str, int, list[tuple[str, int]]]


def _costs(report: Report) -> str:
    """For each session, a bar for each hook, made of its phases, and one for each phase of the session."""
    groups = [(part.name, _bars(report, report.rows_of(part.name))) for part in report.sessions]
    rest = _bars(report, report.rows_of(""))
    rest += [("profiler", report.profiler_ns, [("profiler", report.profiler_ns)])]
    rest += [("unaccounted", report.unaccounted_ns, [("unaccounted", report.unaccounted_ns)])]
    groups.append(("all sessions" if groups else "", rest))
    longest = max(max(total for _, bars in groups for _, total, _ in bars), 1)
    parts = []
    y = 0.0
    for title, bars in groups:
        if title:
            parts.append(_text(0, y + 15, title, kind="title"))
            y += 24
        for name, total, phases in bars:
            x = float(_LABELS)
            parts.append(_text(_LABELS - 8, y + 15, _short(name), "end"))
            for phase, ns in phases:
                width = max(ns, 0) / longest * (_WIDTH - _LABELS - 130)
                parts.append(_rect(x, y + 2, width, 18, _colour(phase), f"{name}, {phase}: {duration(max(ns, 0))}"))
                x += width
            parts.append(_text(x + 6, y + 15, f"{duration(max(total, 0))} {percent(report.share(max(total, 0)))}"))
            y += 24
    return _svg(y, parts, "cost of each hook")


def _bars(report: Report, rows: list[Row]) -> list[_Bar]:
    bars: list[_Bar] = []
    for name, total, of_hook in hooks_among(rows):
        bars.append((name, total, [(row.phase, row.times.total_ns) for row in of_hook]))
    for row in rows:
        if not row.is_hook:
            executor = report.executor_of(row)
            name = (f"{row.phase} {row.detail}".rstrip() + (f": {executor}" if executor else ""))[:200]
            bars.append((name, row.times.total_ns, [(row.phase, row.times.total_ns)]))
    return bars


def _short(name: str) -> str:
    return name if len(name) <= 32 else name[:31] + "…"


def _histogram(report: Report) -> str:
    if not report.step_buckets:
        return "<p>No steps.</p>"
    histogram = Histogram(report.step_buckets, _BARS)
    begin, base = 60.0, 170.0  # The origin of the axes.
    length = _WIDTH - begin - 20
    width, parts = length / _BARS, []
    for number, (count, height) in enumerate(zip(histogram.counts, histogram.heights(), strict=True)):
        if count:
            shortest, longest = (histogram.at((number + i) / _BARS) for i in (0, 1))
            title = f"{count} steps of {duration(shortest)} to {duration(longest)}"
            bar = (begin + number * width, base - 160 * height, width - 1, 160 * height)
            parts.append(_rect(*bar, _COLOURS["after_run"], title))
    parts += [_axis(begin, base, begin + length, base), _axis(begin, base - 160, begin, base)]
    for ns in histogram.ticks():
        x = begin + histogram.place(ns) * length
        parts += [_axis(x, base, x, base + 5), _text(x, base + 18, duration(ns), "middle")]
    tallest = max(histogram.counts)
    for count in sorted({1, *(10**n for n in range(1, 20) if 10**n < tallest)}):
        y = base - 160 * (log10(count) + 0.3) / (log10(tallest) + 0.3)
        parts += [_axis(begin - 5, y, begin, y), _text(begin - 8, y + 4, as_count(count), "end")]
    parts += [_text(begin + length, base + 34, "duration of a step", "end"), _text(begin + 6, 12, "steps")]
    return _svg(base + 42, parts, "histogram of step times")


def _axis(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="axis" x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}"></line>'


def _timeline_of_program(report: Report) -> str:
    """A bar for each phase of the whole program."""
    whole = sum(ns for _, ns, _ in report.timeline)
    if not whole:
        return ""
    parts = []
    for number, (phase, ns, _) in enumerate(report.timeline):
        y, width = 24.0 * number, ns / whole * (_WIDTH - _LABELS - 130)
        parts.append(_text(_LABELS - 8, y + 15, phase, "end"))
        parts.append(_rect(_LABELS, y + 2, width, 18, _colour(phase), f"{phase}: {duration(ns)}"))
        parts.append(_text(_LABELS + width + 6, y + 15, f"{duration(ns)} {percent(ns / whole)}"))
    drawing = _svg(24 * len(parts) / 3, parts, "phases of the program")
    return f"<h2>The whole program: {duration(whole)}</h2>\n{drawing}"


def _timelines(recorder: Recorder) -> str:
    parts: list[str] = []
    shown = recorder.slow_steps()[:_SLOW_STEPS]
    for number, slow in enumerate(shown):
        y = 40.0 * number
        parts.append(_text(0, y + 14, f"step {slow['step']}: {duration(slow['duration_ns'])}"))
        parts.append(_rect(_LABELS, y + 2, _WIDTH - _LABELS, 30, "#8884", f"step {slow['step']}"))
        parts += _timeline(slow, y)
    if not shown:
        return "<p>No steps.</p>"
    return _svg(40 * len(shown), parts, "timelines of the slowest steps")


def _timeline(slow: dict[str, Any], y: float) -> list[str]:
    start, length = slow["spans"][0]["start_ns"], max(slow["duration_ns"], 1)
    parts = []
    # A nested span ended before the span around it. It is drawn after that one, and lower.
    spans = sorted(slow["spans"][1:], key=lambda span: (span["start_ns"], -span["duration_ns"]))
    ends: list[int] = []
    for number, span in enumerate(spans):
        while ends and span["start_ns"] >= ends[-1]:
            ends.pop()
        depth = min(len(ends), 3)
        ends.append(span["start_ns"] + span["duration_ns"])
        x = _LABELS + (span["start_ns"] - start) / length * (_WIDTH - _LABELS)
        width = span["duration_ns"] / length * (_WIDTH - _LABELS)
        title = f"{span['owner']}, {span['phase']}: {duration(span['duration_ns'])}"
        parts.append(_rect(x, y + 2 + 7 * depth, width, 30 - 7 * depth, _colour(span["phase"]), title))
        # The colours tell phases apart. The hook's name is written where there is room and no nested span.
        name = span["phase"] if span["owner"] == SESSION else span["owner"]
        is_innermost = number + 1 == len(spans) or spans[number + 1]["start_ns"] >= ends[-1]
        if is_innermost and width > _CHARACTER * (len(name) + 1):
            parts.append(_text(x + 4, y + 22, name, kind="inside"))
    return parts
