"""The rooms of the package, from the bottom up: a module imports from its own room and from those below, not above.

The arrows are read from the sources, Python and Cython alike, with the imports inside functions.
"""

from __future__ import annotations

import re
from pathlib import Path

import fastsup

# From the bottom up. The rooms of one line don't know each other. A module that other folders of its folder stand on
# is a room of its own.
LAYERS = (
    ("fastsup.core",),
    ("fastsup.common", "fastsup.runtime.graph", "fastsup.train.run_snapshot"),
    ("fastsup.runtime",),
    ("fastsup.checkpoint", "fastsup.events", "fastsup.cluster", "fastsup.eager"),
    ("fastsup.steps",),
    ("fastsup.loop", "fastsup.train.schedule", "fastsup.cluster.collective"),
    ("fastsup.train.hooks",),
    ("fastsup.train.engine",),
    ("fastsup.train.session",),
    ("fastsup.train.supervisor",),
    ("fastsup.train",),
    ("fastsup.estimator.config", "fastsup.estimator.inputs"),
    ("fastsup.estimator.export", "fastsup.estimator.collective"),
    ("fastsup.estimator.model",),
    ("fastsup.estimator.hooks", "fastsup.estimator.jobs", "fastsup.estimator.serving"),
    ("fastsup.estimator.canned",),
    ("fastsup.estimator",),
    ("fastsup.experiment",),
    ("fastsup.contrib.alternatives",),
    ("fastsup.contrib.learn",),
    ("fastsup.contrib",),
    ("fastsup.profile.recording",),
    ("fastsup.profile.recording.watch", "fastsup.profile.numbers"),
    ("fastsup.profile.advice",),
    ("fastsup.profile",),
    ("fastsup.keras",),
    ("fastsup.compat",),
    ("fastsup",),
)
HEIGHTS = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}

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


def test_no_arrow_points_upwards() -> None:
    arrows = [(module, other) for module in SOURCES for other in imported_by(module)]
    rooms = [(room_of(module), room_of(other)) for module, other in arrows]
    upwards = [
        f"{module} imports {other}: {there} isn't below {here}"
        for (module, other), (here, there) in zip(arrows, rooms, strict=True)
        if there != here and HEIGHTS[there] >= HEIGHTS[here]
    ]
    assert upwards == []


def test_the_arrows_are_found() -> None:
    assert {"fastsup.core.schedule", "fastsup.runtime.runner"} <= imported_by("fastsup.train.schedule")
    assert "fastsup.runtime.session" in imported_by("fastsup")


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
