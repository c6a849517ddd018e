"""The charts of the documents, from what the benchmarks have measured."""

from __future__ import annotations

import io
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks import peer_table

__all__ = ["hook_counts", "peers_chart"]

_OURS, _OTHERS = "#2f6f4f", "#c4622d"
_SETTINGS = {
    # Texts stay texts, and the same numbers give the same file.
    "svg.fonttype": "none",
    "svg.hashsalt": "fastsup",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#d9dee3",
}


def hook_counts(measured: dict[str, Any]) -> str:
    """The cost of a step against the number of hooks, as SVG.

    Args:
      measured: the JSON of `python -m benchmarks.hook_counts`.
    """
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(8, 4.4), layout="constrained")
        axes = figure.subplots()
        for line in measured["lines"]:
            micros = {int(count): value for count, value in line["microseconds"].items()}
            last = max(micros)
            axes.plot(
                micros.keys(),
                micros.values(),
                marker="o",
                markersize=4,
                color=_OURS if line["library"] == "fastsup" else _OTHERS,
                linestyle="--" if "Python" in line["hook"] else "-",
                label=f"{line['library']}, {line['hook']}: {_written(micros[last])} with {last}",
            )
        axes.set_xlabel("hooks, alongside the default ones")
        axes.set_ylim(bottom=0)
        axes.grid(axis="y")
        axes.legend(frameon=False)
        return _svg(figure, "A small step against the number of hooks: microseconds", measured)


def peers_chart(measured: dict[str, Any], workload: str = "tiny") -> str:
    """The smallest step in the loops of several libraries, as SVG.

    Args:
      measured: the JSON of `python -m benchmarks --peers`.
      workload: the workload that it shows.
    """
    felt = peer_table.medians_of(peer_table.from_json(measured)[workload])
    micros = {title: 1e6 * run.step_secs for title, run in felt.items()}
    titles = sorted(micros, key=micros.__getitem__, reverse=True)
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(8, 0.9 + 0.24 * len(titles)), layout="constrained")
        axes = figure.subplots()
        colours = [_OURS if "fastsup" in title else _OTHERS for title in titles]
        drawn = axes.barh(titles, [micros[title] for title in titles], color=colours)
        axes.bar_label(drawn, [_written(micros[title]) for title in titles], padding=4)
        axes.set_xscale("log")
        axes.margins(x=0.12, y=0.01)
        axes.grid(axis="x")
        axes.xaxis.set_major_formatter("{x:g}")
        title = f"A step of {peer_table.WORKLOADS[workload]}: microseconds, on a logarithmic scale"
        return _svg(figure, title, measured)


def _written(micros: float) -> str:
    return f"{micros:,.0f}" if micros >= 100 else f"{micros:.3g}"


def _svg(figure: Figure, title: str, measured: dict[str, Any]) -> str:
    """A chart with its title, machine and date, as SVG."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
    machine = measured["machine"]
    figure.supxlabel(
        f"{machine['processor']}, {machine['cores']} cores; {machine['date'][:10]}", x=0.01, ha="left", fontsize=8
    )
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")), facecolor="white")
    return file.getvalue()
