"""The import hook of an installation: modules that TensorFlow has no more, and copies of its interface.

TensorFlow's interface exists several times. `tf.compat.v1` and `tensorflow.compat.v2.compat.v1` are two modules, and
some copies are made when a program imports them.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

__all__ = ["CONTRIB", "ImportHook", "is_interface"]

CONTRIB = (
    "tf.contrib ended with TensorFlow 1. Of its names, fastsup.experiment has Experiment, ExportStrategy and "
    "learn_runner; there are no others yet. See docs/migrating.md."
)

_INTERFACE = re.compile(r"tensorflow(?:\._api\.v2)?(?:\.compat\.v[12])*")
_ESTIMATOR = re.compile(rf"(?:{_INTERFACE.pattern})\.estimator(?P<module>\..+)?")
# What of fastsup imports TensorFlow.
_OVER_TENSORFLOW = frozenset(
    f"fastsup.{room}" for room in ("checkpoint", "cluster", "estimator", "events", "experiment", "runtime", "train")
)


def is_interface(name: str) -> bool:
    """Whether a module is TensorFlow's public interface, or a copy of it."""
    return _INTERFACE.fullmatch(name) is not None


class _AfterExecution(Loader):
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


class _Existing(Loader):
    """A loader whose result is a module that exists.

    Args:
      find: function that returns the module.
    """

    def __init__(self, find: Callable[[], ModuleType]) -> None:
        self._find = find

    def create_module(self, spec: ModuleSpec) -> None:
        del spec

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = self._find()


class _Made(Loader):
    """Makes a module of tensorflow_estimator."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        from fastsup.legacy.estimator_modules import make_module

        return make_module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        from fastsup.legacy.estimator_modules import fill_module

        fill_module(module)


class ImportHook(MetaPathFinder):
    """Finds the modules of tensorflow_estimator, and reports each new copy of TensorFlow's interface.

    Args:
      imported: function that is called with the name of the copy.
    """

    def __init__(self, imported: Callable[[str], None]) -> None:
        self._imported = imported

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of a module; None for a module that other finders find."""
        library = fullname.partition(".")[0]
        if library in ("tensorflow", "tensorflow_estimator"):
            return self._find(fullname, path, target)
        if fullname in _OVER_TENSORFLOW and "tensorflow" not in sys.modules:
            # Before the module is executed: the installation imports the whole module.
            try:
                importlib.import_module("tensorflow")
            except ModuleNotFoundError as error:
                if error.name != "tensorflow":
                    raise
                return None  # fastsup.runtime raises the error that says what to install.
            if fullname in sys.modules:
                existing = sys.modules[fullname]
                return spec_from_loader(fullname, _Existing(lambda: existing), is_package=True)
        return None

    def _find(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        if is_interface(fullname):
            return self._own(fullname, path, target)
        if fullname.startswith("tensorflow.contrib"):
            raise ModuleNotFoundError(f"No module named {fullname!r}: {CONTRIB}", name=fullname)
        if ".estimator" not in fullname and not fullname.startswith("tensorflow_estimator"):
            return None
        # Only now, since it imports TensorFlow.
        from fastsup.legacy import estimator_modules as modules

        copy = _ESTIMATOR.fullmatch(fullname)
        name = modules.canonical_name(f"{modules.API}{copy['module'] or ''}" if copy else fullname)
        if name is None:
            return None
        package = modules.is_package(name)
        if name == fullname:
            return spec_from_loader(fullname, _Made(), is_package=package)
        return spec_from_loader(fullname, _Existing(lambda: importlib.import_module(name)), is_package=package)

    def _own(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        """TensorFlow's own specification, with a loader that reports the end of the import."""
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if finder is self or find_spec is None else find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _AfterExecution(spec.loader, self._imported)
                return spec
        return None
