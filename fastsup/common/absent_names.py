"""Errors for names that a module lacks, and tables of what takes the place of such names."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["absent_module_error", "absent_name_error", "alternative_to"]


def alternative_to(name: str, alternatives: Iterable[tuple[str, str]]) -> str | None:
    """What takes the place of a name.

    Args:
      name: the name.
      alternatives: pairs of a pattern of names and a sentence. The first pattern that matches is taken.

    Returns:
      The sentence; None if no pattern matches.
    """
    return next((sentence for pattern, sentence in alternatives if re.fullmatch(pattern, name)), None)


def absent_name_error(module: str, name: str, alternative: str | None = None) -> AttributeError:
    """The error for a name that a module lacks.

    Args:
      module: name of the module.
      name: the missing name.
      alternative: sentence that says what to use instead, or what to install. None: there is none.
    """
    if alternative is None:
        # Python adds the name and the module, and its traceback proposes a similar name of the module's.
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    return AttributeError(f"{module} has no {name}: {alternative}", name=name)


def absent_module_error(module: str, alternative: str) -> ModuleNotFoundError:
    """The error for a module that isn't there. The arguments are those of `absent_name_error`."""
    return ModuleNotFoundError(f"No module named {module!r}: {alternative}", name=module)
