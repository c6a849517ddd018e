"""The chart of the smallest step in the loops of several libraries, from what `benchmarks --peers` has measured."""

from __future__ import annotations

import math
from typing import Any

from benchmarks import peer_table
from website import svg

__all__ = ["draw"]

_WIDTH, _ROW, _TOP, _BOTTOM = 760, 22, 62, 40
_LEFT, _RIGHT = 330, 70
_OURS, _OTHERS = "#2f6f4f", "#c4622d"


def draw(measured: dict[str, Any], workload: str = "tiny") -> str:
    """The chart: a bar for each loop, on a logarithmic scale.

    Args:
      measured: the JSON of `python -m benchmarks --peers`.
      workload: the workload that it shows.
    """
    felt = peer_table.medians_of(peer_table.from_json(measured)[workload])
    micros = {title: 1e6 * run.step_secs for title, run in felt.items()}
    titles = sorted(micros, key=micros.__getitem__)
    lowest = math.floor(math.log10(micros[titles[0]]))
    highest = math.ceil(math.log10(micros[titles[-1]]))
    height = _TOP + _ROW * len(titles) + _BOTTOM

    def at(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (math.log10(value) - lowest) / (highest - lowest)

    title = f"A step of {peer_table.WORKLOADS[workload]}: microseconds"
    shapes = [svg.text(14, 28, title, 15, weight="bold")]
    for power in range(lowest, highest + 1):
        x = at(10**power)
        shapes.append(svg.line([(x, _TOP - 6), (x, height - _BOTTOM)], "#d9dee3"))
        shapes.append(svg.text(x, _TOP - 12, f"{10**power:,g}", 11, anchor="middle"))
    for number, name in enumerate(titles):
        y = _TOP + _ROW * number
        colour = _OURS if "fastsup" in name else _OTHERS
        shapes.append(svg.text(_LEFT - 8, y + 14, name, 12, anchor="end"))
        shapes.append(svg.rectangle(_LEFT, y + 3, max(at(micros[name]) - _LEFT, 2), _ROW - 7, colour, radius=2))
        shapes.append(svg.text(at(micros[name]) + 6, y + 14, f"{micros[name]:,.3g}", 12))
    machine = measured["machine"]
    said = f"{machine['processor']}, {machine['cores']} cores; {machine['date'][:10]}. The scale is logarithmic."
    shapes.append(svg.text(14, height - 12, said, 11, "#52606d"))
    return svg.document(_WIDTH, height, f"Microseconds per step in {len(titles)} loops", shapes)
