"""Loads the modules of the archive that hold models, on fastsup's classes.

The modules import `tensorflow` and modules of `tensorflow_estimator` by their names. Each gets its own
`__import__`, which finds other modules under these names. So nothing of TensorFlow is changed for other code, and the
package tensorflow_estimator as it is installed, which current TensorFlow can't import, is never imported.
"""

from __future__ import annotations

import builtins
import importlib.util
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

from fastsup.estimator.canned.archive import model_file
from fastsup.estimator.canned.keras_2 import tensorflow_with_keras_2
from fastsup.estimator.canned.keras_3_objects import accepting_keras_3, refusing_keras_3
from fastsup.estimator.canned.our_modules import OUR_MODULES

__all__ = ["model_module"]

_ARCHIVE = "tensorflow_estimator.python.estimator"
# A module of the archive is found under this name in `sys.modules`, for what looks up the module of a class.
_PREFIX = f"{__package__}.archived"

# What functions of the archive get, by their modules.
_ADDITIONS: dict[str, dict[str, Any]] = {
    "canned.optimizers": {"get_optimizer_instance_v2": accepting_keras_3},
    "keras_lib": {"model_to_estimator": refusing_keras_3},
}

_lock = threading.RLock()


def _import(
    name: str,
    globals: dict[str, Any] | None = None,
    locals: dict[str, Any] | None = None,
    fromlist: tuple[str, ...] | None = (),
    level: int = 0,
) -> Any:
    """The `__import__` of the modules of the archive."""
    if level == 0 and name == "tensorflow":
        return tensorflow_with_keras_2()
    if level == 0 and (name == _ARCHIVE or name.startswith(_ARCHIVE + ".")):
        module = name[len(_ARCHIVE) + 1 :]
        if module in OUR_MODULES or not _is_package(module):
            return _found(module)
        return SimpleNamespace(**{short: _found(f"{module}.{short}".lstrip(".")) for short in fromlist or ()})
    return builtins.__import__(name, globals, locals, fromlist or (), level)


def _is_package(name: str) -> bool:
    if not name or any(ours.startswith(f"{name}.") for ours in OUR_MODULES):
        return True
    file = model_file(name)
    return file is not None and file[1]


def _found(name: str) -> Any:
    return OUR_MODULES[name] if name in OUR_MODULES else model_module(name)


def model_module(name: str) -> ModuleType:
    """A module of the archive. It is loaded at the first call, once per process.

    Args:
      name: its name below `tensorflow_estimator.python.estimator`, such as "canned.dnn".

    Raises:
      ImportError: the archive has no such module or isn't installed, or tf_keras isn't for this TensorFlow.
    """
    full_name = f"{_PREFIX}.{name}"
    with _lock:
        module = sys.modules.get(full_name)
        if module is not None:
            return module
        found = model_file(name)
        if found is None:
            raise ModuleNotFoundError(f"No module named {_ARCHIVE + '.' + name!r}", name=f"{_ARCHIVE}.{name}")
        file, is_package = found
        spec = importlib.util.spec_from_file_location(
            full_name, file, submodule_search_locations=[] if is_package else None
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import}
        sys.modules[full_name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[full_name]
            raise
        for function, addition in _ADDITIONS.get(name, {}).items():
            setattr(module, function, addition(getattr(module, function)))
        return module
