"""The import hook of an installation, for modules that TensorFlow no longer has, and copies of its interface.

TensorFlow's interface exists several times: `tf.compat.v1` and `tensorflow.compat.v2.compat.v1` are two modules. Some
copies are created only when a program imports them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

from fastsup.common.absent_names import absent_module_error
from fastsup.compat.moved_names import has_moved_names, place_of

__all__ = [
    "KERAS_TRAINER",
    "AfterExecution",
    "Existing",
    "ImportHook",
    "Made",
    "is_interface",
]


class AfterExecution(Loader):
    """Wraps a module's own loader, and calls a function after the module is executed."""

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
    """A loader that returns an existing module, and adds it to `placed` under the imported name."""

    def __init__(self, find: Callable[[], ModuleType], placed: dict[str, ModuleType]) -> None:
        self._find, self._placed = find, placed

    def create_module(self, spec: ModuleSpec) -> None:
        del spec

    def exec_module(self, module: ModuleType) -> None:
        self._placed[module.__name__] = sys.modules[module.__name__] = self._find()


class Made(Loader):
    """A loader that creates a module, and adds it to `placed`."""

    def __init__(self, make: Callable[[str], ModuleType], placed: dict[str, ModuleType]) -> None:
        self._make, self._placed = make, placed

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._make(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        self._placed[module.__name__] = module


_INTERFACE = re.compile(r"tensorflow(?:\._api\.v2)?(?:\.compat\.v[12])*")
_ESTIMATOR = re.compile(rf"(?P<interface>{_INTERFACE.pattern})\.estimator(?P<module>\..+)?")
_NO_EXAMPLES = (
    "it ended with TensorFlow 1. For tensorflow.examples.tutorials.mnist use tf.keras.datasets.mnist with tf.data. See "
    "`python -m fastsup docs migrating`."
)
# The folders of fastsup that import TensorFlow.
_OVER_TENSORFLOW = frozenset(
    f"fastsup.{room}"
    for room in (
        "checkpoint", "cluster", "contrib", "eager", "estimator", "events", "experiment", "keras", "runtime", "train",
    )
)  # fmt: skip


#: Module with the methods of Keras 3 models.
KERAS_TRAINER = "keras.src.trainers.trainer"


def is_interface(name: str) -> bool:
    """Returns True for TensorFlow's public interface, or a copy of it."""
    return _INTERFACE.fullmatch(name) is not None


class ImportHook(MetaPathFinder):
    """Finds the modules of tensorflow_estimator and tensorflow.contrib, and modules that TensorFlow moved.

    It reports the imports of copies of TensorFlow's interface, and of modules from which names were removed.
    """

    def __init__(self, imported: Callable[[str], None]) -> None:
        self._imported = imported
        # Whether `tensorflow` and `tensorflow.estimator` are TensorFlow 1's.
        self.tf1 = False
        # Whether Keras models are accelerated.
        self.keras = False
        # The modules imported by names that don't exist without the hook.
        self._placed: dict[str, ModuleType] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the specification of a module, or None for a module that other finders find."""
        library = fullname.partition(".")[0]

        def elsewhere() -> ModuleSpec | None:
            return self._elsewhere(fullname, path, target)

        if fullname == KERAS_TRAINER and self.keras:
            return self._reported(elsewhere())
        if library in ("tensorflow", "tf_keras"):
            place = place_of(fullname, lambda: elsewhere() is not None, self._placed)
            if place:
                return self._existing(fullname, functools.partial(importlib.import_module, place))
            if place is not None:
                return self._made(fullname, ModuleType, is_package=True)
            if has_moved_names(fullname) or is_interface(fullname):
                return self._reported(elsewhere())
            if f"{fullname}.".startswith("tensorflow.contrib."):
                return self._contrib(fullname)
            if fullname == "tensorflow.examples" and elsewhere() is None:
                raise absent_module_error(fullname, _NO_EXAMPLES)
        if library == "tensorflow_estimator" or (library == "tensorflow" and ".estimator" in fullname):
            return self._estimator(fullname)
        return self._over_tensorflow(fullname) if fullname in _OVER_TENSORFLOW else None

    def _reported(self, spec: ModuleSpec | None) -> ModuleSpec | None:
        """Changes a specification so that the module is reported after it is executed."""
        if spec is not None and spec.loader is not None:
            spec.loader = AfterExecution(spec.loader, self._imported)
        return spec

    def _contrib(self, fullname: str) -> ModuleSpec | None:
        """Returns a module of tensorflow.contrib. If it doesn't exist, the error names the replacement."""
        from fastsup.compat import contrib_modules as modules

        name = modules.own_name(fullname)
        if name is not None:
            return self._made(fullname, modules.make_module, modules.is_package(name))
        library = modules.library_module(fullname)
        if library is None:
            raise modules.missing_module(fullname)
        return self._existing(fullname, functools.partial(importlib.import_module, library), is_package=True)

    def _estimator(self, fullname: str) -> ModuleSpec | None:
        # Import these modules here, because they import TensorFlow.
        from fastsup.compat import estimator_modules as modules
        from fastsup.estimator.canned.archive import model_module

        copy = _ESTIMATOR.fullmatch(fullname)
        name = modules.canonical_name(f"{self.api_of(copy['interface'])}{copy['module'] or ''}" if copy else fullname)
        if name is None:
            return None
        archived, is_package = modules.archived_module(name), modules.is_package(name)
        if archived is not None:
            return self._existing(fullname, functools.partial(model_module, archived), is_package)
        if name != fullname:
            return self._existing(fullname, functools.partial(importlib.import_module, name), is_package)
        return self._made(fullname, modules.make_module, is_package)

    def _over_tensorflow(self, fullname: str) -> ModuleSpec | None:
        """Imports TensorFlow before a fastsup module is executed, because the installation needs all of TensorFlow."""
        if "tensorflow" not in sys.modules:
            try:
                importlib.import_module("tensorflow")
            except ModuleNotFoundError as error:
                if error.name != "tensorflow":
                    raise
                return None  # fastsup.runtime raises the error that names the package to install.
            if fullname in sys.modules:
                existing = sys.modules[fullname]
                return spec_from_loader(fullname, Existing(lambda: existing, {}), is_package=True)
        return None

    def api_of(self, interface: str) -> str:
        """Returns the name of the module for `estimator` in a copy of TensorFlow's interface."""
        from fastsup.compat.estimator_modules import API_V1, API_V2

        version = "1" if self.tf1 and interface == "tensorflow" else interface[-1]
        return API_V1 if version == "1" else API_V2

    def _existing(self, fullname: str, find: Callable[[], ModuleType], is_package: bool = False) -> ModuleSpec | None:
        return spec_from_loader(fullname, Existing(find, self._placed), is_package=is_package)

    def _made(self, fullname: str, make: Callable[[str], ModuleType], is_package: bool) -> ModuleSpec | None:
        return spec_from_loader(fullname, Made(make, self._placed), is_package=is_package)

    def _elsewhere(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        """Returns the specification from the first other finder that finds the module."""
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if finder is self or find_spec is None else find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None

    def remove_placed(self) -> None:
        """Removes the modules that other finders don't find."""
        for name, module in self._placed.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
            # The import of a submodule also set an attribute of its package.
            parent, _, child = name.rpartition(".")
            with contextlib.suppress(AttributeError, KeyError):
                if vars(sys.modules[parent])[child] is module:
                    delattr(sys.modules[parent], child)
        self._placed.clear()
