"""Modules whose absent names say where to go instead, by attribute and by `from ... import`."""

from __future__ import annotations

import opcode
import sys
from types import ModuleType
from typing import Any

from fastsup.estimator.absent_names import absent_name_error

__all__ = ["GUIDE", "HelpfulModule"]

GUIDE = "See docs/migrating.md."

_IMPORT_FROM = opcode.opmap["IMPORT_FROM"]


class HelpfulModule(ModuleType):
    """A module that was made here and has no file.

    Args:
      name: its name.
      doc: its documentation.
      shown_name: the name that errors give it.
      missing: sentence for every name that it lacks. None: one that depends on the name.
    """

    def __init__(self, name: str, doc: str, shown_name: str, missing: str | None = None) -> None:
        super().__init__(name, doc)
        self._shown_name, self._missing = shown_name, missing

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name)
        if self._missing is None:
            error = absent_name_error(self._shown_name, name)
        else:
            error = AttributeError(f"{self._shown_name} has no {name}: {self._missing} {GUIDE}", name=name)
        caller = sys._getframe(1)
        if caller.f_lasti >= 0 and caller.f_code.co_code[caller.f_lasti] == _IMPORT_FROM:
            # Of an AttributeError the import statement would only say that the name can't be imported.
            raise ImportError(str(error), name=self.__name__)
        raise error

    def __dir__(self) -> list[str]:
        return sorted(name for name in self.__dict__ if not name.startswith("_"))
