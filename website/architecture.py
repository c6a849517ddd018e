"""The picture of the folders, from the list of them in tests/test_layers.py."""

from __future__ import annotations

import ast
from pathlib import Path

from website import svg

ROOT = Path(__file__).parents[1]

# What each folder is for, as in docs/development.md.
PURPOSES = {
    "compat": "install(), run: what TensorFlow removed",
    "contrib": "the names of tf.contrib that train",
    "experiment": "Experiment, learn_runner",
    "estimator": "Estimator, train_and_evaluate",
    "train": "sessions, hooks, Supervisor",
    "checkpoint": "checkpoints",
    "events": "event files",
    "cluster": "servers, roles",
    "eager": "fastsup.function",
    "steps": "steps with batches, fused steps",
    "keras": "accelerate()",
    "runtime": "Session, plans, executors, step count",
    "loop": "StepLoop, its hooks",
    "common": "signals, back-off, files, kinds of errors",
    "core": "timer, hooks, step loop",
    "profile": "table, trace, page",
}
# From the top down. What stands in one row doesn't know each other.
ROWS = (
    ("contrib",),
    ("compat",),
    ("experiment",),
    ("estimator",),
    ("train",),
    ("loop", "keras"),
    ("steps",),
    ("checkpoint", "events", "cluster", "eager"),
    ("runtime",),
    ("common",),
    ("core",),
)
BESIDE = "profile"  # It records by the probe in core, and nothing else imports it.
WITHOUT_TENSORFLOW = {"core", "common", "loop"}

_WIDTH, _ROW, _GAP, _LEFT, _TOP = 760, 44, 8, 20, 20
_COLOURS = {True: ("#e3f2e6", "#3f8f5b"), False: ("#e8ecfa", "#4655b5")}


def rooms() -> set[str]:
    """The folders directly under fastsup, by the list that the tests check."""
    for statement in ast.parse((ROOT / "tests" / "test_layers.py").read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "LAYERS":
            layers = ast.literal_eval(statement.value)
            return {room.split(".")[1] for layer in layers for room in layer if "." in room}
    raise LookupError("tests/test_layers.py has no LAYERS")


def draw() -> str:
    """The picture.

    Raises:
      LookupError: a folder isn't in it, or is gone.
    """
    drawn = {room for row in ROWS for room in row} | {BESIDE}
    if drawn != rooms() or drawn != set(PURPOSES):
        raise LookupError(f"website/architecture.py and tests/test_layers.py differ in {sorted(drawn ^ rooms())}")
    shapes = []
    height = _TOP + (len(ROWS) + 1) * (_ROW + _GAP) + 40
    wide = _WIDTH - 2 * _LEFT - 170
    for number, row in enumerate(ROWS):
        y = _TOP + number * (_ROW + _GAP)
        each = (wide - _GAP * (len(row) - 1)) / len(row)
        for place, room in enumerate(row):
            shapes += _box(room, _LEFT + place * (each + _GAP), y, each, narrow=len(row) > 1)
    bottom = _TOP + len(ROWS) * (_ROW + _GAP)
    shapes.append(svg.rectangle(_LEFT, bottom, wide, _ROW, "#f3efe2", "#a58b3a"))
    shapes.append(svg.text(_LEFT + 12, bottom + 27, "csrc", weight="bold"))
    shapes.append(svg.text(_LEFT + 110, bottom + 27, "plain C without Python: clock, due positions, histogram, spans"))
    # TensorFlow, and the profile, at the side.
    side, top = _LEFT + wide + 14, _TOP
    reach = 8 * (_ROW + _GAP) - _GAP
    shapes.append(svg.rectangle(side, top, 156, reach, "#fbe9df", "#c4622d"))
    shapes.append(svg.text(side + 78, top + reach / 2 - 8, "TensorFlow", anchor="middle", weight="bold"))
    shapes.append(svg.text(side + 78, top + reach / 2 + 12, "Saver, Coordinator,", 12, anchor="middle"))
    shapes.append(svg.text(side + 78, top + reach / 2 + 28, "Scaffold, events, C++", 12, anchor="middle"))
    y = top + reach + _GAP
    shapes.append(svg.rectangle(side, y, 156, 3 * _ROW + 2 * _GAP, *_COLOURS[True]))
    shapes.append(svg.text(side + 78, y + 62, BESIDE, anchor="middle", weight="bold"))
    shapes.append(svg.text(side + 78, y + 82, PURPOSES[BESIDE], 12, anchor="middle"))
    legend = height - 18
    shapes.append(svg.text(_LEFT, legend, "● has compiled modules. Green: needs no TensorFlow. "
                           "A module imports from its own folder and from those below.", 12, "#52606d"))  # fmt: skip
    return svg.document(_WIDTH, height, "The folders of fastsup as a stack", shapes)


def _box(room: str, x: float, y: float, width: float, narrow: bool) -> list[str]:
    fill, stroke = _COLOURS[room in WITHOUT_TENSORFLOW]
    compiled = any((ROOT / "fastsup" / room).rglob("*.pyx"))
    name = room + (" ●" if compiled else "")
    shapes = [svg.rectangle(x, y, width, _ROW, fill, stroke)]
    if narrow:
        shapes.append(svg.text(x + width / 2, y + 19, name, anchor="middle", weight="bold"))
        shapes.append(svg.text(x + width / 2, y + 35, PURPOSES[room], 11, anchor="middle"))
    else:
        shapes.append(svg.text(x + 12, y + 27, name, weight="bold"))
        shapes.append(svg.text(x + 110, y + 27, PURPOSES[room]))
    return shapes
