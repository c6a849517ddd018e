"""Modules that have no file: made of a table of names, and `tensorflow` as a program of TensorFlow 1 knows it."""

from __future__ import annotations

import functools
import importlib
import opcode
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from fastsup.common.absent_names import absent_name_error

__all__ = [
    "GUIDE",
    "LazyModule",
    "TF1Module",
    "names_of",
]

GUIDE = "See `python -m fastsup docs migrating`."

_IMPORT_FROM = opcode.opmap["IMPORT_FROM"]


def names_of(place: str, names: str) -> dict[str, str]:
    """Returns the paths of the objects in one module, by their names.

    Args:
      place: path of the module. "tf" stands for `tf.compat.v1`.
      names: the names, with spaces between them.
    """
    return {name: f"{place}.{name}" for name in names.split()}


def _object_at(path: str) -> Any:
    if path.startswith("tf."):
        return functools.reduce(getattr, path.split(".")[1:], importlib.import_module("tensorflow.compat.v1"))
    module, _, name = path.rpartition(".")
    found = importlib.import_module(module)
    return getattr(found, name) if hasattr(found, name) else importlib.import_module(path)


class LazyModule(ModuleType):
    """A module that was made here and has no file.

    Args:
      name: its name.
      shown_name: the name that errors give it.
      names: its names, each with the path of its object. An empty path: a module in this one.
      find: function that returns the object of any other name, or None. It raises AttributeError with the reason where
        an object can't be made.
      alternative: function of a missing name that returns what to use in its place, a sentence, or None.
      findable: names for `dir()` that `find` knows.
    """

    def __init__(
        self,
        name: str,
        shown_name: str,
        names: Mapping[str, str],
        find: Callable[[str], Any],
        alternative: Callable[[str], str | None],
        findable: Iterable[str] = (),
    ) -> None:
        super().__init__(name, f"The names of {shown_name}, as far as they are there.")
        vars(self)["_names"] = names
        self._shown_name, self._find, self._alternative = shown_name, find, alternative
        self._findable = tuple(findable)
        self.__all__ = sorted(short for short in names if not short.startswith("_"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise absent_name_error(self.__name__, name)
        try:
            found = self._found(name)
        except AttributeError as error:
            caller = sys._getframe(1)
            if caller.f_lasti >= 0 and caller.f_code.co_code[caller.f_lasti] == _IMPORT_FROM:
                # Of an AttributeError the import statement would only say that the name can't be imported.
                raise ImportError(str(error), name=self.__name__) from None
            raise
        # What `fastsup.install` puts in its place later is found in the module's dictionary.
        vars(self)[name] = found
        return found

    def _found(self, name: str) -> Any:
        if name in self._names:
            path = self._names[name]
            return _object_at(path) if path else importlib.import_module(f"{self.__name__}.{name}")
        found = self._find(name)
        if found is None:
            raise absent_name_error(self._shown_name, name, self._alternative(name))
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        # The import of a module hides no name of the table: `arg_scope` is a function, in a module of its name.
        if not (isinstance(value, ModuleType) and name in self._names):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({name for name in (*vars(self), *self._names, *self._findable) if not name.startswith("_")})


class TF1Module(ModuleType):
    """The module.

    Args:
      tensorflow: TensorFlow itself.
    """

    def __init__(self, tensorflow: ModuleType) -> None:
        super().__init__("tensorflow", tensorflow.__doc__)
        v1 = tensorflow.compat.v1
        self.__dict__.update(
            __file__=tensorflow.__file__,
            __spec__=tensorflow.__spec__,
            __loader__=tensorflow.__loader__,
            __package__="tensorflow",
            __path__=[*tensorflow.__path__, *v1.__path__],
            __version__=v1.__version__,
            __all__=[name for name in dir(v1) if not name.startswith("_")],
            _v1=v1,
        )

    def __getattr__(self, name: str) -> Any:
        if name == "contrib":
            # Made by the import hook. The import sets the attribute.
            return importlib.import_module("tensorflow.contrib")
        try:
            return getattr(self.__dict__["_v1"], name)
        except AttributeError:
            # `tf.python`, `tf.core`: the interface hides them, imports of what is in them need them.
            submodule = sys.modules.get(f"tensorflow.{name}")
            if submodule is None:
                raise AttributeError(f"module 'tensorflow' has no attribute {name!r}", name=name) from None
            return submodule

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__["__all__"], "__version__"})
