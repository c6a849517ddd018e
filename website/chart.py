"""The chart of the cost of a step against the number of hooks, from what benchmarks/hook_counts.py has measured."""

from __future__ import annotations

from typing import Any

from website import svg

_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 235, 50, 60
_STYLES = {
    ("TensorFlow", "StopAtStepHook"): ("#c4622d", ""),
    ("TensorFlow", "a hook in Python"): ("#c4622d", "6 4"),
    ("fastsup", "a hook in Python"): ("#2f6f4f", "6 4"),
    ("fastsup", "StopAtStepHook"): ("#2f6f4f", ""),
}


def draw(measured: dict[str, Any]) -> str:
    """The chart.

    Args:
      measured: the JSON of `python -m benchmarks.hook_counts`.
    """
    lines = {(line["library"], line["hook"]): line["microseconds"] for line in measured["lines"]}
    counts = [int(count) for count in next(iter(lines.values()))]
    highest = max(value for line in lines.values() for value in line.values())
    unit = next(unit for unit in (10, 20, 50, 100, 200, 500, 1000) if highest / unit <= 8)
    top = unit * -(-highest // unit)

    def at(count: float, value: float) -> tuple[float, float]:
        return (
            _LEFT + (_WIDTH - _LEFT - _RIGHT) * count / counts[-1],
            _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top,
        )

    shapes = [svg.text(_LEFT, 28, "A small step against the number of hooks: microseconds", 15, weight="bold")]
    for mark in range(0, int(top) + 1, unit):
        (x0, y), (x1, _) = at(0, mark), at(counts[-1], mark)
        shapes.append(svg.line([(x0, y), (x1, y)], "#d9dee3"))
        shapes.append(svg.text(x0 - 8, y + 4, f"{mark:,}", 12, anchor="end"))
    below = _HEIGHT - _BOTTOM + 18
    # No room for 1 and 2.
    marked = [count for count in counts if count not in (1, 2)]
    shapes += [svg.text(at(count, 0)[0], below, str(count), 12, anchor="middle") for count in marked]
    shapes.append(svg.text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - _BOTTOM + 36, "hooks, alongside the default ones",
                           12, anchor="middle"))  # fmt: skip
    labels = []
    for name, (colour, dash) in _STYLES.items():
        points = [at(int(count), value) for count, value in lines[name].items()]
        shapes.append(svg.line(points, colour, 2, dash))
        shapes += [svg.dot(x, y, colour) for x, y in points]
        last = lines[name][str(counts[-1])]
        labels.append((points[-1][1], f"{name[0]}, {name[1]}: {last:,.3g}", colour))
    y = float("-inf")
    for wanted, label, colour in sorted(labels):
        y = max(wanted, y + 17)  # Two labels don't lie upon each other.
        shapes.append(svg.text(_WIDTH - _RIGHT + 10, y + 4, label, 12, colour))
    machine = measured["machine"]
    said = f"{machine['processor']}, {machine['cores']} cores; Python {machine['python']}, TensorFlow "
    shapes.append(
        svg.text(
            _LEFT,
            _HEIGHT - 8,
            f"{said}{machine['tensorflow']}; {machine['date'][:10]}, load {machine['load']:.0f}",
            11,
            "#52606d",
        )
    )
    return svg.document(_WIDTH, _HEIGHT, "Microseconds per step against the number of hooks", shapes)
