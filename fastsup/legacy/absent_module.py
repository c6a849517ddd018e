"""Modules whose absent names say where to go instead, by attribute and by `from ... import`."""

from __future__ import annotations

import opcode
import sys
from collections.abc import Callable, Iterable
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
      find: function that returns the object of a name which is made at its first use. It raises AttributeError with the
        reason where it can't, and returns None for any other name.
      findable: the names that `find` knows, for `dir()`.
    """

    def __init__(
        self,
        name: str,
        doc: str,
        shown_name: str,
        missing: str | None = None,
        find: Callable[[str], Any] = lambda name: None,
        findable: Iterable[str] = (),
    ) -> None:
        super().__init__(name, doc)
        self._shown_name, self._missing, self._find, self._findable = shown_name, missing, find, tuple(findable)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name)
        try:
            return self._lookup(name)
        except AttributeError as error:
            caller = sys._getframe(1)
            if caller.f_lasti >= 0 and caller.f_code.co_code[caller.f_lasti] == _IMPORT_FROM:
                # Of an AttributeError the import statement would only say that the name can't be imported.
                raise ImportError(str(error), name=self.__name__) from None
            raise

    def _lookup(self, name: str) -> Any:
        """The value of a name that isn't in the module's dictionary. Raises AttributeError if there is none."""
        found = self._find(name)
        if found is not None:
            setattr(self, name, found)
            return found
        if self._missing is None:
            raise absent_name_error(self._shown_name, name)
        raise AttributeError(f"{self._shown_name} has no {name}: {self._missing} {GUIDE}", name=name)

    def __dir__(self) -> list[str]:
        return sorted({name for name in (*self.__dict__, *self._findable) if not name.startswith("_")})
