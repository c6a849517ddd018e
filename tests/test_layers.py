"""The rooms of the package, from the bottom up: a module imports from its own room and from those below, not above.

The arrows are read from the sources, Python and Cython alike, with the imports inside functions.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fastsup

# From the bottom up. The rooms of one line don't know each other. A module that other folders of its folder stand on
# is a room of its own.
LAYERS = (
    ("fastsup.core",),
    ("fastsup.common", "fastsup.runtime.graph", "fastsup.train.run_snapshot"),
    ("fastsup.runtime", "fastsup.eager.devices"),
    ("fastsup.checkpoint", "fastsup.events", "fastsup.cluster", "fastsup.eager"),
    ("fastsup.steps",),
    ("fastsup.loop", "fastsup.train.schedule", "fastsup.cluster.collective"),
    ("fastsup.train.hooks",),
    ("fastsup.train.engine",),
    ("fastsup.train.session",),
    ("fastsup.train.supervisor", "fastsup.train.function"),
    ("fastsup.train",),
    ("fastsup.estimator.config", "fastsup.estimator.inputs"),
    ("fastsup.estimator.export", "fastsup.estimator.collective"),
    ("fastsup.estimator.model",),
    ("fastsup.estimator.hooks", "fastsup.estimator.jobs", "fastsup.estimator.serving"),
    ("fastsup.estimator.canned",),
    ("fastsup.estimator",),
    ("fastsup.experiment",),
    ("fastsup.compat.contrib.learn.monitors",),
    ("fastsup.compat.contrib.learn", "fastsup.compat.contrib.training"),
    ("fastsup.compat.contrib",),
    ("fastsup.compat.tpu", "fastsup.compat.moved"),
    ("fastsup.compat",),
    ("fastsup.contrib.learn",),
    ("fastsup.contrib",),
    ("fastsup.profile.recording",),
    ("fastsup.profile.recording.watch", "fastsup.profile.numbers"),
    ("fastsup.profile.advice",),
    ("fastsup.profile",),
    ("fastsup.keras",),
    ("fastsup",),
)
HEIGHTS = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}
MOST_ENTRIES = 20

ROOT = Path(fastsup.__file__).parent
IMPORT = re.compile(
    r"^[ \t]*(?:from[ ]+(fastsup[\w.]*)[ ]+c?import[ ]+(\([^)]*\)|[^#\n]*)|c?import[ ]+(fastsup[\w.]*))", re.MULTILINE
)


def sources() -> dict[str, list[Path]]:
    """The files of each module: a compiled one has several."""
    found: dict[str, list[Path]] = {}
    for path in sorted(ROOT.rglob("*")):
        if path.suffix in (".py", ".pyx", ".pxd"):
            name = ".".join(("fastsup", *path.relative_to(ROOT).with_suffix("").parts))
            found.setdefault(name.removesuffix(".__init__"), []).append(path)
    return found


SOURCES = sources()


def room_of(module: str) -> str:
    """The innermost room that a module is in."""
    while module not in HEIGHTS:
        module = module.rpartition(".")[0]
    return module


def imported_by(module: str) -> set[str]:
    """The modules that a module imports from."""
    found = set()
    for path in SOURCES[module]:
        for package, names, plain in IMPORT.findall(path.read_text()):
            for name in re.findall(r"(\w+)(?: as \w+)?", names) if package else []:
                submodule = f"{package}.{name}"
                found.add(submodule if submodule in SOURCES else package)
            # `import fastsup` alone is for the version and the folder: each import of a module runs that one first.
            if plain and plain != "fastsup":
                found.add(plain)
    return found - {module}


@pytest.mark.parametrize("module", SOURCES)
def test_no_arrow_points_upwards(module: str) -> None:
    room = room_of(module)
    for other in imported_by(module):
        target = room_of(other)
        same = target == room
        assert same or HEIGHTS[target] < HEIGHTS[room], f"{module} imports {other}: {target} isn't below {room}"


def test_the_arrows_are_found() -> None:
    assert {"fastsup.core.schedule", "fastsup.runtime.step_count"} <= imported_by("fastsup.train.schedule")
    assert "fastsup.runtime.session" in imported_by("fastsup")


def test_no_room_is_crowded() -> None:
    counts: dict[Path, set[str]] = {}
    for paths in SOURCES.values():
        for path in paths:
            counts.setdefault(path.parent, set()).add(path.stem)
    for folder in list(counts):
        if folder != ROOT:
            counts.setdefault(folder.parent, set()).add(folder.name)
    assert {str(folder): len(names) for folder, names in counts.items() if len(names) > MOST_ENTRIES} == {}


def test_every_room_has_its_place() -> None:
    rooms = {module for module, paths in SOURCES.items() if paths[-1].stem == "__init__"}
    assert rooms <= set(HEIGHTS) <= set(SOURCES)


def test_the_folders_of_the_page_on_architecture() -> None:
    """Each folder is there, above those that it imports from."""
    page = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
    table = page.split("<!-- folders: begin -->")[1].split("<!-- folders: end -->")[0]
    rows = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table.splitlines() if row.startswith("| `")]
    depths = {folder: depth for depth, folders in enumerate(rows) for folder in folders}
    assert set(depths) == {room.split(".")[1] for room in HEIGHTS if "." in room} | {"csrc"}
    arrows = {(module.split(".")[1], other.split(".")[1]) for module in SOURCES for other in imported_by(module)
              if min(module.count("."), other.count(".")) > 0}  # fmt: skip
    wrong = [(here, there) for here, there in arrows if depths.get(here, 0) > depths.get(there, 99)]
    assert wrong == []
