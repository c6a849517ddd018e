"""The modules of `tensorflow.contrib`, made of the tables of their names."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from fastsup.common.absent_names import absent_module_error, alternative_to
from fastsup.compat.contrib.absent_names import ALTERNATIVES
from fastsup.compat.contrib_names import LIBRARIES, LIBRARY_MODULES, MODULES
from fastsup.compat.lazy_module import GUIDE, LazyModule

__all__ = ["CONTRIB", "is_package", "library_module", "make_module", "missing_module", "own_name"]

CONTRIB = "tensorflow.contrib"
_SLIM = "tf_slim"


def own_name(fullname: str) -> str | None:
    """The name of a module without "tensorflow.contrib."; None for a module that isn't made here.

    Args:
      fullname: name of the module.
    """
    name = fullname.removeprefix(CONTRIB).lstrip(".")
    return name if name in MODULES else None


def is_package(name: str) -> bool:
    """Whether a module has modules in it. `name` is its own name."""
    return bool(_modules_in(name))


def _modules_in(name: str) -> set[str]:
    prefix = f"{name}.".lstrip(".")
    others = (other for other in (*MODULES, *LIBRARY_MODULES) if other and other.startswith(prefix))
    return {other[len(prefix) :].partition(".")[0] for other in others}


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
            try:
                return theirs if _has_slim() and importlib.util.find_spec(theirs) else None
            except ModuleNotFoundError:
                return None
    return None


def missing_module(fullname: str) -> ModuleNotFoundError:
    """The error for a module of `tensorflow.contrib` that isn't there.

    Args:
      fullname: name of the module.
    """
    return absent_module_error(fullname, _why_absent(fullname.removeprefix(f"{CONTRIB}.")))


def _why_absent(name: str) -> str:
    """A sentence about a name without "tf.contrib."."""
    why = alternative_to(name, ALTERNATIVES)
    if why is None and any(f"{name}.".startswith(f"{module}.") for module in (*LIBRARY_MODULES, *LIBRARIES)):
        why = f"it is in the package {_SLIM}: pip install {_SLIM}."
        if _has_slim():
            why = f"neither fastsup nor the package {_SLIM} has it."
    return f"{why or 'tf.contrib ended with TensorFlow 1, and fastsup has the parts of it that train.'} {GUIDE}"


def make_module(fullname: str) -> LazyModule:
    """A new module.

    Args:
      fullname: its name.
    """
    name = own_name(fullname)
    assert name is not None
    names = (
        MODULES[name]
        if _has_slim()
        else {short: path for short, path in MODULES[name].items() if not path.startswith(f"{_SLIM}.")}
    )
    prefix = f"{name}.".lstrip(".")

    def find(short: str) -> Any:
        path = f"{CONTRIB}.{prefix}{short}"
        if own_name(path) is not None or library_module(path) is not None:
            return importlib.import_module(path)
        libraries = LIBRARIES.get(name, ()) if _has_slim() and not short.startswith("_") else ()
        modules = (importlib.import_module(library) for library in libraries)
        return next((getattr(module, short) for module in modules if hasattr(module, short)), None)

    shown = f"tf.contrib.{name}".rstrip(".")
    return LazyModule(fullname, shown, names, find, lambda short: _why_absent(prefix + short), _modules_in(name))
