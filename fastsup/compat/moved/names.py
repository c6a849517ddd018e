"""Gives the modules of TensorFlow the names back that it has moved to others of its modules, at their first use."""

from __future__ import annotations

import functools
import importlib
import sys
from types import ModuleType
from typing import Any

from fastsup.compat.moved.modules import KERAS, KERAS_2
from fastsup.compat.moved.names_table import MOVED_NAMES

__all__ = ["PLACES", "MovedNames", "has_moved_names"]

_PREFIX = "tensorflow.python."


def _index() -> dict[str, dict[str, tuple[str, str]]]:
    """For each module, where its names are: a module and the name there."""
    index: dict[str, dict[str, tuple[str, str]]] = {}
    for old, places in MOVED_NAMES.items():
        found = index.setdefault(_PREFIX + old, {})
        for place, names in places.items():
            module = place if place.startswith("fastsup.") else _PREFIX + place
            for entry in names.split():
                name, _, other = entry.partition("=")
                found[name] = (module, other or name)
    return index


# For each module, where its names are now: a module, and the name there.
PLACES = _index()


def has_moved_names(name: str) -> bool:
    """Whether a module had names that are elsewhere now.

    Args:
      name: the module's full name.
    """
    return name in PLACES or f"{name}.".startswith(f"{KERAS}.")


def _attribute(module: str, name: str) -> Any:
    """An attribute of a module; None if there is no such module or attribute in this version of TensorFlow."""
    try:
        return getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError:
        return None


class MovedNames:
    """The names that were put back where they were."""

    def __init__(self) -> None:
        self._patched: list[ModuleType] = []
        self._added: list[tuple[ModuleType, str]] = []

    def patch_all(self) -> None:
        """Lets the modules that are imported find the names that they lack."""
        for name in [name for name in sys.modules if has_moved_names(name)]:
            self.patch(name)

    def patch(self, name: str) -> None:
        """Lets a module find the names that it lacks.

        Args:
          name: full name of the module, which is imported. The call does nothing for a module that is there under
            another name than its own, or that looks up its names itself.
        """
        module = sys.modules.get(name)
        if module is not None and module.__name__ == name and "__getattr__" not in vars(module):
            vars(module)["__getattr__"] = functools.partial(self._find, module)
            self._patched.append(module)

    def _find(self, module: ModuleType, name: str) -> Any:
        own = module.__name__
        found = None
        if not name.startswith("__"):
            if name in PLACES.get(own, {}):
                found = _attribute(*PLACES[own][name])
            elif f"{own}.".startswith(f"{KERAS}."):
                found = _attribute(KERAS_2 + own[len(KERAS) :], name)
        if found is None:
            raise AttributeError(f"module {own!r} has no attribute {name!r}", name=name, obj=module)
        vars(module)[name] = found
        self._added.append((module, name))
        return found

    def restore(self) -> None:
        """Removes the names again."""
        for module in self._patched:
            vars(module).pop("__getattr__", None)
        for module, name in self._added:
            vars(module).pop(name, None)
        self._patched.clear()
        self._added.clear()
