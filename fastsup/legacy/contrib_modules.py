"""Makes the modules of `tensorflow.contrib`. What is in them is looked up when a program asks for it."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from types import ModuleType
from typing import Any

from fastsup.experiment.absent_contrib_names import alternative_to
from fastsup.legacy.absent_module import GUIDE, HelpfulModule
from fastsup.legacy.contrib_names import LIBRARIES, LIBRARY_MODULES, MODULES

__all__ = ["CONTRIB", "ContribModule", "is_package", "library_module", "missing_module", "own_name"]

CONTRIB = "tensorflow.contrib"
_SLIM = "tf_slim"
_INSTALL_SLIM = f"it is in the package {_SLIM}: pip install {_SLIM}."
_ENDED = "tf.contrib ended with TensorFlow 1, and fastsup has the parts of it that train."


def own_name(fullname: str) -> str | None:
    """The name of a module without "tensorflow.contrib."; None for a module that isn't made here.

    Args:
      fullname: name of the module.
    """
    name = fullname.removeprefix(CONTRIB).lstrip(".")
    return name if name in MODULES else None


def is_package(name: str) -> bool:
    """Whether a module has modules in it. `name` is its own name."""
    return any(other.startswith(f"{name}.".lstrip(".")) for other in (*MODULES, *LIBRARY_MODULES) if other)


def _has_slim() -> bool:
    return importlib.util.find_spec(_SLIM) is not None


def library_module(fullname: str) -> str | None:
    """The module of another library that a module of `tensorflow.contrib` is now.

    Args:
      fullname: name of the module.

    Returns:
      The name of the library's module; None if there is none.
    """
    name = fullname.removeprefix(f"{CONTRIB}.")
    for ours in sorted(LIBRARY_MODULES, key=len, reverse=True):
        if f"{name}.".startswith(f"{ours}.") and name not in MODULES:
            theirs = LIBRARY_MODULES[ours] + name[len(ours) :]
            if not _has_slim():
                return None
            try:
                return theirs if importlib.util.find_spec(theirs) else None
            except ModuleNotFoundError:
                return None
    return None


def missing_module(fullname: str) -> ModuleNotFoundError:
    """The error for a module of `tensorflow.contrib` that isn't there.

    Args:
      fullname: name of the module.
    """
    return ModuleNotFoundError(
        f"No module named {fullname!r}: {_why_absent(fullname.removeprefix(f'{CONTRIB}.'))} {GUIDE}", name=fullname
    )


def _why_absent(name: str) -> str:
    """A sentence about a name without "tf.contrib."."""
    known = alternative_to(name)
    if known is not None:
        return known
    if any(f"{name}.".startswith(f"{module}.") for module in (*LIBRARY_MODULES, *LIBRARIES)):
        return f"neither fastsup nor the package {_SLIM} has it." if _has_slim() else _INSTALL_SLIM
    return _ENDED


def _resolved(path: str) -> Any:
    if path.startswith("tf."):
        interface = importlib.import_module("tensorflow.compat.v1")
        return functools.reduce(getattr, path.split(".")[1:], interface)
    module, _, name = path.rpartition(".")
    found = importlib.import_module(module)
    return getattr(found, name) if hasattr(found, name) else importlib.import_module(path)


class ContribModule(HelpfulModule):
    """A module of `tensorflow.contrib`.

    Args:
      fullname: its name.
    """

    def __init__(self, fullname: str) -> None:
        name = own_name(fullname)
        assert name is not None
        shown = f"tf.contrib.{name}".rstrip(".")
        vars(self)["_own_name"] = name
        super().__init__(fullname, f"The names of {shown}, as far as they are there.", shown)
        self.__all__ = sorted(MODULES[name])

    def _lookup(self, name: str) -> Any:
        own = f"{self._own_name}.{name}".lstrip(".")
        path = MODULES[self._own_name].get(name)
        if path is not None and (_has_slim() or not path.startswith(f"{_SLIM}.")):
            found = _resolved(path)
        elif own in MODULES or library_module(f"{CONTRIB}.{own}") is not None:
            found = importlib.import_module(f"{CONTRIB}.{own}")
        else:
            found = self._of_library(name)
        # What `fastsup.install` puts in its place later is found in the module's dictionary.
        vars(self)[name] = found
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        # The import of a module hides no name of the table: `arg_scope` is a function, in a module of its name.
        if not (isinstance(value, ModuleType) and name in MODULES[self._own_name]):
            super().__setattr__(name, value)

    def _of_library(self, name: str) -> Any:
        if not name.startswith("_"):
            for library in LIBRARIES.get(self._own_name, ()) if _has_slim() else ():
                module = importlib.import_module(library)
                if hasattr(module, name):
                    return getattr(module, name)
        why = _why_absent(f"{self._own_name}.{name}".lstrip("."))
        raise AttributeError(f"{self._shown_name} has no {name}: {why} {GUIDE}", name=name)

    def __dir__(self) -> list[str]:
        prefix = f"{self._own_name}.".lstrip(".")
        inner = {
            other[len(prefix) :].partition(".")[0]
            for other in (*MODULES, *LIBRARY_MODULES)
            if other.startswith(prefix) and other != self._own_name
        }
        return sorted({*self.__all__, *inner} - {""})
