"""Strategies that choose the exports to keep: the functions of `tensorflow_estimator.python.estimator.gc`.

A strategy is a function that takes a list of paths and returns the chosen ones in ascending order.
"""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from tensorflow.python.lib.io import file_io
from tensorflow.python.util import compat

__all__ = [
    "Path",
    "get_paths",
    "largest_export_versions",
    "mod_export_version",
    "negation",
    "one_of_every_n_export_versions",
    "union",
]


class Path(NamedTuple):
    """A path and its version.

    Args:
      path: the path.
      export_version: the version, an integer, or None if it has none.
    """

    path: Any
    export_version: Any


_Strategy = Callable[[list[Path]], list[Path]]


def largest_export_versions(n: int) -> _Strategy:
    """Returns a strategy that chooses the `n` largest versions. It skips paths without a version."""

    def keep(paths: list[Path]) -> list[Path]:
        versions = ((path.export_version, index) for index, path in enumerate(paths) if path.export_version is not None)
        return sorted(paths[index] for _, index in heapq.nlargest(n, versions))

    return keep


def one_of_every_n_export_versions(n: int) -> _Strategy:
    """Returns a strategy that chooses the largest version in each interval of `n` versions: 1 to n, n + 1 to 2 n, etc.

    Version 0 belongs to the first interval. The strategy skips paths without a version.
    """

    def keep(paths: list[Path]) -> list[Path]:
        largest: dict[int, Path] = {}
        for path in paths:
            if path.export_version is None:
                continue
            interval = math.floor((path.export_version - 1) / n) if path.export_version else 0
            best = largest.get(interval)
            if best is None or best.export_version < path.export_version:
                largest[interval] = path
        return sorted(largest.values())

    return keep


def mod_export_version(n: int) -> _Strategy:
    """Returns a strategy that chooses the versions that are multiples of `n`."""
    return lambda paths: sorted(
        path for path in paths if path.export_version is not None and path.export_version % n == 0
    )


def union(lf: _Strategy, rf: _Strategy) -> _Strategy:
    """Returns a strategy that chooses the paths that either of two strategies chooses."""
    return lambda paths: sorted({*lf(paths), *rf(paths)})


def negation(f: _Strategy) -> _Strategy:
    """Returns a strategy that chooses the paths that another strategy doesn't choose."""
    return lambda paths: sorted(set(paths).difference(f(paths)))


def get_paths(base_dir: Any, parser: Callable[[Path], Any]) -> list[Path]:
    """Returns the paths in a directory, in ascending order.

    Args:
      base_dir: the directory.
      parser: function of a `Path` without a version that returns a `Path` with a version, or None to skip the path.
    """
    found = []
    for name in file_io.list_directory(base_dir):
        path = parser(Path(os.path.join(compat.as_str_any(base_dir), compat.as_str_any(name).rstrip("/")), None))
        if path:
            found.append(path)
    return sorted(found)
