"""Modules that TensorFlow and tf_keras have moved, where programs and libraries look for them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

__all__ = ["forget_moved_modules", "moved_spec"]

_TRACKING = "tensorflow.python.training.tracking"
_LEGACY_LAYERS = "tf_keras.legacy_tf_layers"

# Where a module was, and where it is. An empty string: a package that is no more, whose modules are elsewhere.
_MOVED = {
    _TRACKING: "",
    f"{_TRACKING}.base": "tensorflow.python.trackable.base",
    f"{_TRACKING}.data_structures": "tensorflow.python.trackable.data_structures",
    f"{_TRACKING}.graph_view": "tensorflow.python.checkpoint.graph_view",
    f"{_TRACKING}.layer_utils": "tensorflow.python.trackable.layer_utils",
    f"{_TRACKING}.python_state": "tensorflow.python.trackable.python_state",
    f"{_TRACKING}.resource": "tensorflow.python.trackable.resource",
    f"{_TRACKING}.tracking": "tensorflow.python.trackable.autotrackable",
    f"{_TRACKING}.util": "tensorflow.python.checkpoint.checkpoint",
    # TensorFlow itself imports this one where it was.
    _LEGACY_LAYERS: "",
    **{
        f"{_LEGACY_LAYERS}.{name}": f"tf_keras.src.legacy_tf_layers.{name}"
        for name in ("base", "convolutional", "core", "normalization", "pooling", "variable_scope_shim")
    },
}


class _Package(ModuleType):
    """A package whose modules are elsewhere."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "A package that was moved.")
        self.__path__: list[str] = []


class _Moved(Loader):
    """A loader whose result is the module that was moved, or a package."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None if _MOVED[spec.name] else _Package(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        place = _MOVED[module.__name__]
        if place:
            sys.modules[module.__name__] = importlib.import_module(place)


def moved_spec(fullname: str, is_there: Callable[[], bool]) -> ModuleSpec | None:
    """The specification of a module that was moved.

    Args:
      fullname: the name under which it is imported.
      is_there: function that tells whether the module is found under that name.

    Returns:
      The specification; None for any other module, and in a version that has the module where it was.
    """
    if fullname not in _MOVED or is_there():
        return None
    return spec_from_loader(fullname, _Moved(), is_package=not _MOVED[fullname])


def forget_moved_modules() -> None:
    """Takes the modules out of where they were."""
    for name, place in _MOVED.items():
        module = sys.modules.get(name)
        if not isinstance(module, _Package) and (module is None or module is not sys.modules.get(place)):
            continue
        del sys.modules[name]
        parent, _, child = name.rpartition(".")
        # The import of a submodule has set an attribute of its package.
        vars(sys.modules.get(parent, module)).pop(child, None)
