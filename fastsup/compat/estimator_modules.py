"""The modules of `tf.estimator` and of the package tensorflow_estimator 2.15, made of the tables of their names.

The canned models and heads, and the modules that hold them, come from the archive when a program uses them.
"""

from __future__ import annotations

from typing import Any

from fastsup.common.absent_names import alternative_to
from fastsup.compat.estimator_names import ALIASES, API_V1, API_V2, MODULES, OF_ARCHIVE, PYTHON, TPU_ONLY
from fastsup.compat.lazy_module import GUIDE, LazyModule
from fastsup.estimator.absent_names import ALTERNATIVES
from fastsup.estimator.canned.archive import absence, is_installed, model_file
from fastsup.estimator.canned.loader import model_module
from fastsup.estimator.canned.names import EXPERIMENTAL, V1, V2, canned_object

__all__ = ["archived_module", "canonical_name", "is_package", "make_module"]

_NO_TPU = f"TPUs aren't supported. TPUEstimator trains on CPU and GPU with use_tpu=False. {GUIDE}"
# The models of public modules.
_CANNED = {API_V1: V1, API_V2: V2, f"{API_V1}.experimental": EXPERIMENTAL}


def archived_module(name: str) -> str | None:
    """The module of the archive that a name means, by its name there; None if it means none.

    Args:
      name: a canonical name.
    """
    if not name.startswith(f"{PYTHON}.") or (name in MODULES and name not in OF_ARCHIVE):
        return None
    short = name.removeprefix(f"{PYTHON}.")
    if short in ("canned", "head"):
        return None
    return short if is_installed() and model_file(short) is not None else None


def canonical_name(name: str) -> str | None:
    """The module that a name means, by its own name; None if it isn't one of these.

    Args:
      name: full name of a module.
    """
    changed = True
    while changed:
        changed = False
        for alias, target in ALIASES.items():
            if f"{name}.".startswith(f"{alias}."):
                name, changed = target + name[len(alias) :], True
                break
    return name if name in MODULES or archived_module(name) is not None else None


def is_package(name: str) -> bool:
    """Whether a module has modules in it. `name` is its own name."""
    archived = archived_module(name)
    if archived is not None:
        found = model_file(archived)
        return found is not None and found[1]
    return any(other.startswith(f"{name}.") for other in (*MODULES, *ALIASES))


def make_module(name: str) -> LazyModule:
    """A new module.

    Args:
      name: its own name.
    """
    shown = name.replace(API_V1, "tf.estimator").replace(API_V2, "tf.estimator")
    models = _CANNED.get(name, {})
    # A module of fastsup that the archive has as well, such as `canned.optimizers`, has the other names from there.
    short = name.removeprefix(f"{PYTHON}.")
    with_archive = short != name and is_installed() and model_file(short) is not None

    def find(missing: str) -> Any:
        if missing in models:
            return canned_object(shown, missing, models)
        return getattr(model_module(short), missing, None) if with_archive else None

    def alternative(missing: str) -> str | None:
        if name in TPU_ONLY:
            return _NO_TPU
        reason = absence() if name in OF_ARCHIVE else None
        return alternative_to(missing, ALTERNATIVES) if reason is None else f"{reason} {GUIDE}"

    return LazyModule(name, shown, MODULES[name], find, alternative, models if is_installed() else ())
