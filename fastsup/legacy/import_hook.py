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

from fastsup.legacy.moved.modules import moved_spec
from fastsup.legacy.moved.names import has_moved_names

__all__ = ["ImportHook", "is_interface"]

_INTERFACE = re.compile(r"tensorflow(?:\._api\.v2)?(?:\.compat\.v[12])*")
_ESTIMATOR = re.compile(rf"(?P<interface>{_INTERFACE.pattern})\.estimator(?P<module>\..+)?")
# What of fastsup imports TensorFlow.
_OVER_TENSORFLOW = frozenset(
    f"fastsup.{room}"
    for room in (
        "checkpoint",
        "cluster",
        "contrib",
        "eager",
        "estimator",
        "events",
        "experiment",
        "keras",
        "runtime",
        "train",
    )
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
    """Makes a module.

    Args:
      make: function of the module's name that returns the module, still without its names.
      fill: function of the module that gives it its names.
    """

    def __init__(self, make: Callable[[str], ModuleType], fill: Callable[[ModuleType], None]) -> None:
        self._make, self._fill = make, fill

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._make(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        self._fill(module)


def _contrib_spec(fullname: str) -> ModuleSpec | None:
    """The specification of a module of tensorflow.contrib. Refuses one that isn't there, and says where to go."""
    from fastsup.legacy import contrib_modules as modules

    name = modules.own_name(fullname)
    if name is not None:
        loader = _Made(modules.ContribModule, lambda module: None)
        return spec_from_loader(fullname, loader, is_package=modules.is_package(name))
    library = modules.library_module(fullname)
    if library is None:
        raise modules.missing_module(fullname)
    return spec_from_loader(fullname, _Existing(lambda: importlib.import_module(library)), is_package=True)


class ImportHook(MetaPathFinder):
    """Finds the modules of tensorflow_estimator and tensorflow.contrib, and those that TensorFlow has moved.

    It reports the imports of copies of TensorFlow's interface, and of modules that lack names which they had.

    Args:
      imported: function that is called with the name of the module.
    """

    def __init__(self, imported: Callable[[str], None]) -> None:
        self._imported = imported
        # Whether `tensorflow` is TensorFlow 1's, and `tensorflow.estimator` too.
        self.tf1 = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of a module; None for a module that other finders find."""
        library = fullname.partition(".")[0]
        if library in ("tensorflow", "tf_keras"):
            moved = moved_spec(fullname, lambda: self._elsewhere(fullname, path, target) is not None)
            if moved is not None:
                return moved
            if has_moved_names(fullname):
                return self._own(fullname, path, target)
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
        if f"{fullname}.".startswith("tensorflow.contrib."):
            return _contrib_spec(fullname)
        if fullname == "tensorflow.examples" and self._elsewhere(fullname, path, target) is None:
            raise ModuleNotFoundError(
                "No module named 'tensorflow.examples': it ended with TensorFlow 1. For "
                "tensorflow.examples.tutorials.mnist use tf.keras.datasets.mnist with tf.data. See docs/migrating.md.",
                name=fullname,
            )
        if ".estimator" not in fullname and not fullname.startswith("tensorflow_estimator"):
            return None
        # Only now, since it imports TensorFlow.
        from fastsup.estimator.canned.loader import model_module
        from fastsup.legacy import estimator_modules as modules

        copy = _ESTIMATOR.fullmatch(fullname)
        name = modules.canonical_name(f"{self.api_of(copy['interface'])}{copy['module'] or ''}" if copy else fullname)
        if name is None:
            return None
        loader: Loader = _Made(modules.make_module, modules.fill_module)
        archived = modules.archived_module(name)
        if archived is not None:
            loader = _Existing(lambda: model_module(archived))
        elif name != fullname:
            loader = _Existing(lambda: importlib.import_module(name))
        return spec_from_loader(fullname, loader, is_package=modules.is_package(name))

    def api_of(self, interface: str) -> str:
        """Name of the module that `estimator` is in a copy of TensorFlow's interface.

        Args:
          interface: name of the copy, such as "tensorflow.compat.v1".
        """
        from fastsup.legacy.estimator_modules import API_V1, API_V2

        version = "1" if self.tf1 and interface == "tensorflow" else interface[-1]
        return API_V1 if version == "1" else API_V2

    def _own(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        """TensorFlow's own specification, with a loader that reports the end of the import."""
        spec = self._elsewhere(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _AfterExecution(spec.loader, self._imported)
        return spec

    def _elsewhere(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        """What the first of the other finders that knows the module says of it."""
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if finder is self or find_spec is None else find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None
