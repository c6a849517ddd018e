"""The loaders of the import hook."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["AfterExecution", "Existing", "Made"]


class AfterExecution(Loader):
    """A module's own loader, with a call after it.

    Args:
      loader: the loader.
      then: function of the module's name.
    """

    def __init__(self, loader: Any, then: Callable[[str], None]) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        spec: Any = module.__spec__
        spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then(spec.name)


class Existing(Loader):
    """A loader whose result is a module that exists.

    Args:
      find: function that returns the module.
      placed: dictionary that gets the module, by the name under which it is imported.
    """

    def __init__(self, find: Callable[[], ModuleType], placed: dict[str, ModuleType]) -> None:
        self._find, self._placed = find, placed

    def create_module(self, spec: ModuleSpec) -> None:
        del spec

    def exec_module(self, module: ModuleType) -> None:
        self._placed[module.__name__] = sys.modules[module.__name__] = self._find()


class Made(Loader):
    """Makes a module.

    Args:
      make: function of the module's name that returns the module.
      placed: dictionary that gets the module, by its name.
    """

    def __init__(self, make: Callable[[str], ModuleType], placed: dict[str, ModuleType]) -> None:
        self._make, self._placed = make, placed

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._make(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        self._placed[module.__name__] = module
