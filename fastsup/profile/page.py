"""A profile as a single HTML page without external resources: costs, histogram of step times, slowest steps.

All drawings are HTML elements, whose position is a percentage of the surrounding element.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from html import escape
from math import log10
from typing import Any

from fastsup.profile.export import as_dict
from fastsup.profile.histogram import Histogram
from fastsup.profile.numbers import count as as_count
from fastsup.profile.numbers import duration, hooks_among, percent
from fastsup.profile.recording.recorder import Recorder
from fastsup.profile.recording.statistics import SESSION
from fastsup.profile.report import Report, Row
from fastsup.profile.table import as_text

__all__ = ["as_html", "as_html_part"]

_COLUMNS = 60  # Number of columns in the histogram.
# The colors of the phases in most programs with sessions. Other phases get the next of the remaining colors, in order.
_COLOURS = {
    "before_run": "#f58518", "after_run": "#4c78a8", "fetches": "#e45756", "save": "#72b7b2", "listener": "#54a24b",
    "summary": "#b279a2", "end": "#9d755d", "runtime": "#6a51a3", "between steps": "#79706e", "profiler": "#bab0ac",
    "unaccounted": "#c9c2b2",
}  # fmt: skip
_OTHERS = (
    "#6a51a3", "#4c78a8", "#f58518", "#e45756", "#54a24b", "#3f8f6b", "#b79a20", "#b279a2", "#d6a5c9", "#9d755d",
    "#8c8b2b", "#ff9da6", "#72b7b2", "#ffbe7d", "#d67195",
)  # fmt: skip
_SLOW_STEPS = 8

# The styles for the page only, and the styles for both the page and the notebook.
_PAGE_STYLE = """
body { max-width: 940px; margin: 2em auto; padding: 0 1em; color: #222; background: #fff; }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #ddd; } }
"""
_STYLE = """
.fastsup { font: 15px/1.45 system-ui, sans-serif; }
.fastsup h1 { font-size: 1.4em; } .fastsup h2 { font-size: 1.1em; margin-top: 2em; }
.fastsup .head { color: #777; font-size: 13px; }
.fastsup pre { overflow-x: auto; font-size: 12.5px; line-height: 1.2; }
.fastsup .advice { background: #fff4d6; color: #222; padding: .6em 1em; }
.fastsup .phase { white-space: nowrap; margin-right: 1em; }
.fastsup .phase i { display: inline-block; width: .9em; height: .9em; margin-right: .4em; }
.fastsup table { width: 100%; border-spacing: 0 4px; font-size: 12px; }
.fastsup th { width: 18em; max-width: 18em; font-weight: normal; text-align: right; padding-right: .6em; }
.fastsup th, .fastsup .step i { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.fastsup caption { text-align: left; font-weight: bold; } .fastsup .bar { display: flex; padding-right: 10em; }
.fastsup .bar i { height: 18px; min-width: 1px; flex-shrink: 0; }
.fastsup .bar span { padding-left: .5em; white-space: nowrap; margin-right: -10em; }
.fastsup .histogram { position: relative; height: 160px; margin: 1.5em 0 4em 5em; font-size: 12px; }
.fastsup .histogram { border: solid #888; border-width: 0 0 1px 1px; } .fastsup .histogram * { position: absolute; }
.fastsup .histogram i { bottom: 0; } .fastsup .histogram b { font-weight: normal; white-space: nowrap; }
.fastsup .across { top: 100%; padding-top: 3px; transform: translateX(-50%); }
.fastsup .across::before { content: ""; top: 0; left: 50%; height: 4px; border-left: 1px solid #888; }
.fastsup .across::before, .fastsup .up::after { position: absolute; }
.fastsup .up { right: 100%; padding-right: 8px; transform: translateY(50%); }
.fastsup .up::after { content: ""; right: 0; top: 50%; width: 5px; border-top: 1px solid #888; }
.fastsup .step { position: relative; height: 30px; background: #8884; overflow: hidden; }
.fastsup .step i { position: absolute; bottom: 0; min-width: 1px; font-style: normal; line-height: 16px; color: #fff; }
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
    colours = _colours(report)
    median = f": the median step takes {duration(report.step_time.p50_ns)}" if report.step_time.p50_ns else ""
    return f"""<div class="fastsup">
<style>{_STYLE}</style>
<h1>{report.steps} steps in {duration(report.wall_ns)}{median}</h1>
<p class="head">{"<br>".join(map(escape, report.head.lines()))}</p>
<p class="advice">{"<br>".join(map(escape, report.advice().splitlines()))}</p>
<h2>Where the time goes</h2>
<p>{_legend(report, colours)}</p>
{_costs(report, colours)}
<h2>How long steps take</h2>
<p>The duration of a step from left to right; how many steps took it, upwards. Both in powers of ten.</p>
{_histogram(report)}
{_timeline_of_program(report, colours)}
<h2>The slowest steps</h2>
<p>Each on its own scale. The parts without a color are the session layer itself.</p>
{_timelines(recorder, colours)}
<h2>Numbers</h2>
<pre>{escape(as_text(report))}</pre>
</div>"""


def _colours(report: Report) -> dict[str, str]:
    """Returns the color of each phase. The phases that take the most time have distinct colors."""
    times = Counter({phase: ns for phase, ns, _ in report.timeline})
    for row in report.rows:
        times[row.phase] += row.times.total_ns
    taken = {_COLOURS.get(phase) for phase in times}
    others = itertools.chain((colour for colour in _OTHERS if colour not in taken), _more_colours())
    return _COLOURS | {phase: next(others) for phase, _ in times.most_common() if phase not in _COLOURS}


def _more_colours() -> Iterator[str]:
    """Yields colors without end, each different from earlier ones, for programs with many phases."""
    for number in itertools.count():
        # Steps of the golden angle spread any number of hues.
        yield f"hsl({number * 137.508 % 360:.1f} {(65, 35)[number % 2]}% {(38, 60, 50)[number % 3]}%)"


def _legend(report: Report, colours: dict[str, str]) -> str:
    phases = dict.fromkeys(row.phase for row in report.rows)
    return "".join(
        f'<span class="phase"><i style="background: {colours[phase]}"></i>{escape(phase)}</span> ' for phase in phases
    )


def _part(colour: str, title: str, text: str = "", **place: str) -> str:
    """Returns a rectangle with a tooltip and a text. `place` contains its position as CSS properties."""
    style = "".join(f"{name}:{value};" for name, value in place.items())
    return f'<i style="{style}background:{colour}" title="{escape(title)}">{escape(text)}</i>'


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.3f}%"


# The name of a bar, its nanoseconds, and its phases with their nanoseconds.
_Bar = tuple[str, int, list[tuple[str, int]]]


def _costs(report: Report, colours: dict[str, str]) -> str:
    """Returns a bar for each hook, divided into phases, and one for each phase, grouped by session."""
    groups = [(part.name, _bars(report, report.rows_of(part.name))) for part in report.sessions]
    rest = _bars(report, report.rows_of(""))
    rest += [("profiler", report.profiler_ns, [("profiler", report.profiler_ns)])]
    rest += [("unaccounted", report.unaccounted_ns, [("unaccounted", report.unaccounted_ns)])]
    groups.append(("all sessions" if groups else "", rest))
    longest = max(max(total for _, bars in groups for _, total, _ in bars), 1)
    return "".join(_table(title, bars, longest, report.wall_ns, colours) for title, bars in groups)


def _table(title: str, bars: list[_Bar], longest: int, whole: int, colours: dict[str, str]) -> str:
    """Returns bars below each other.

    Args:
      title: heading, or "".
      bars: the bars.
      longest: nanoseconds of a bar with the full width.
      whole: nanoseconds that are 100 percent.
      colours: the color of each phase.
    """
    rows = []
    for name, total, phases in bars:
        parts = "".join(
            _part(colours[phase], f"{name}, {phase}: {duration(max(ns, 0))}", width=_percent(max(ns, 0), longest))
            for phase, ns in phases
        )
        sum_of_them = f"{duration(max(total, 0))} {percent(max(total, 0) / max(whole, 1))}"
        rows.append(
            f'<tr><th scope="row" title="{escape(name)}">{escape(name)}</th>'
            f'<td class="bar">{parts}<span>{sum_of_them}</span></td></tr>'
        )
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return f"<table>{caption}\n" + "\n".join(rows) + "\n</table>\n"


def _bars(report: Report, rows: list[Row]) -> list[_Bar]:
    bars: list[_Bar] = []
    for name, total, of_hook in hooks_among(rows):
        bars.append((name, total, [(row.phase, row.times.total_ns) for row in of_hook]))
    for row in rows:
        if not row.is_hook:
            name = report.shown(row)[:200]
            bars.append((name, row.times.total_ns, [(row.phase, row.times.total_ns)]))
    return bars


def _histogram(report: Report) -> str:
    if not report.step_buckets:
        return "<p>No steps.</p>"
    histogram = Histogram(report.step_buckets, _COLUMNS)
    parts = []
    for number, (count, height) in enumerate(zip(histogram.counts, histogram.heights(), strict=True)):
        if count:
            shortest, longest = (histogram.at((number + i) / _COLUMNS) for i in (0, 1))
            title = f"{count} steps of {duration(shortest)} to {duration(longest)}"
            place = {"left": _percent(number, _COLUMNS), "width": _percent(0.93, _COLUMNS)}
            parts.append(_part(_COLOURS["after_run"], title, height=_percent(height, 1), **place))
    parts += [
        f'<b class="across" style="left:{_percent(histogram.place(ns), 1)}">{duration(ns)}</b>'
        for ns in histogram.ticks()
    ]
    tallest = max(histogram.counts)
    for count in sorted({1, *(10**n for n in range(1, 20) if 10**n < tallest)}):
        up = _percent(log10(count) + 0.3, log10(tallest) + 0.3)
        parts.append(f'<b class="up" style="bottom:{up}">{as_count(count)}</b>')
    parts.append('<b style="right:0;top:calc(100% + 1.6em)">duration of a step</b>')
    parts.append('<b style="right:calc(100% + 8px);top:-1.6em">steps</b>')
    drawn = "\n".join(parts)
    return f'<div class="histogram" role="img" aria-label="histogram of step times">\n{drawn}\n</div>'


def _timeline_of_program(report: Report, colours: dict[str, str]) -> str:
    """Returns a bar for each phase of the whole program."""
    whole = sum(ns for _, ns, _ in report.timeline)
    if not whole:
        return ""
    bars = [(phase, ns, [(phase, ns)]) for phase, ns, _ in report.timeline]
    return f"<h2>The whole program: {duration(whole)}</h2>\n{_table('', bars, whole, whole, colours)}"


def _timelines(recorder: Recorder, colours: dict[str, str]) -> str:
    shown = recorder.slow_steps()[:_SLOW_STEPS]
    if not shown:
        return "<p>No steps.</p>"
    rows = [
        f'<tr><th scope="row">step {slow["step"]}: {duration(slow["duration_ns"])}</th>'
        f'<td><div class="step">{_timeline(slow, colours)}</div></td></tr>'
        for slow in shown
    ]
    return "<table>\n" + "\n".join(rows) + "\n</table>"


def _timeline(slow: dict[str, Any], colours: dict[str, str]) -> str:
    start, length = slow["spans"][0]["start_ns"], max(slow["duration_ns"], 1)
    parts = []
    # A nested span ended before the span around it. It is drawn later, on top and with a smaller height.
    spans = sorted(slow["spans"][1:], key=lambda span: (span["start_ns"], -span["duration_ns"]))
    ends: list[int] = []
    for number, span in enumerate(spans):
        while ends and span["start_ns"] >= ends[-1]:
            ends.pop()
        height = f"{30 - 7 * min(len(ends), 3)}px"
        ends.append(span["start_ns"] + span["duration_ns"])
        title = f"{span['owner']}, {span['phase']}: {duration(span['duration_ns'])}"
        # Colors distinguish phases. The name is written if there is room, where no nested span covers it.
        name = span["phase"] if span["owner"] == SESSION else span["owner"]
        is_innermost = number + 1 == len(spans) or spans[number + 1]["start_ns"] >= ends[-1]
        place = {"left": _percent(span["start_ns"] - start, length), "width": _percent(span["duration_ns"], length)}
        colour = colours.get(span["phase"], _OTHERS[0])
        parts.append(_part(colour, title, name if is_innermost else "", height=height, **place))
    return "".join(parts)
