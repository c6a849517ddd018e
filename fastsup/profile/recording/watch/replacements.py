"""Replaces attributes of other libraries while a profiler is on, as soon as the libraries are imported."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

__all__ = ["Replacement", "Replacements"]

# The owner of an attribute, its name, and a function from its value to the replacement.
Replacement = tuple[Any, str, Callable[[Any], Any]]
_ABSENT = object()


class Replacements:
    """Replaces attributes between `start` and `stop`. Both may be called several times; the last `stop` restores them.

    Args:
      of_modules: dictionary from module names to functions of the module that return the replacements.
    """

    def __init__(self, of_modules: Mapping[str, Callable[[ModuleType], Iterator[Replacement]]]) -> None:
        self._of_modules = of_modules
        self._lock = threading.RLock()
        self._users = 0
        # For each replaced attribute: its owner, its name, and the owner's own value.
        self._replaced: list[tuple[Any, str, Any]] = []
        self._finders: list[_AfterImport] = []

    def start(self) -> None:
        """Replaces attributes, now or as soon as the program imports a module."""
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            for name in self._of_modules:
                if name in sys.modules:
                    self._replace(name)
                else:
                    self._finders.append(_AfterImport(name, self._replace))
            sys.meta_path[:0] = self._finders

    def stop(self) -> None:
        """Restores the attributes, unless another caller of `start` still needs the replacements."""
        with self._lock:
            self._users -= 1
            if self._users > 0:
                return
            for finder in self._finders:
                if finder in sys.meta_path:
                    sys.meta_path.remove(finder)
            self._finders = []
            while self._replaced:
                owner, name, own = self._replaced.pop()
                if own is _ABSENT:
                    delattr(owner, name)
                else:
                    setattr(owner, name, own)

    def _replace(self, module: str) -> None:
        with self._lock:
            if not self._users:
                return
            for owner, name, made_of in self._of_modules[module](sys.modules[module]):
                original = getattr(owner, name, _ABSENT)
                if original is not _ABSENT:
                    self._replaced.append((owner, name, vars(owner).get(name, _ABSENT)))
                    setattr(owner, name, made_of(original))


class _AfterImport(MetaPathFinder, Loader):
    """Calls a function after the first import of a module.

    Args:
      name: name of the module.
      then: function of the name.
    """

    def __init__(self, name: str, then: Callable[[str], None]) -> None:
        self._name, self._then = name, then
        self._loader: Any = None
        self._is_imported = False
        # The threads that are searching with the other finders.
        self._asking: set[int] = set()

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Finds the module with the other finders until it is imported. A program may also only search for it."""
        thread = threading.get_ident()
        if name != self._name or self._is_imported or thread in self._asking:
            return None
        self._asking.add(thread)
        try:
            spec = find_spec(name)
        finally:
            self._asking.discard(thread)
        if spec is None or spec.loader is None:
            return None
        self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Creates the module with its own loader."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Runs the module's code, and then the function."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._is_imported = True
        self._then(self._name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
