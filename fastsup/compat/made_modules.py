"""Modules without files: modules created from a table of names, and `tensorflow` as in TensorFlow 1."""

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
    """Returns a dictionary from the names in one module to the paths of their objects.

    Args:
      place: path of the module. "tf" stands for `tf.compat.v1`.
      names: the names, separated by spaces.
    """
    return {name: f"{place}.{name}" for name in names.split()}


def _object_at(path: str) -> Any:
    if path.startswith("tf."):
        return functools.reduce(getattr, path.split(".")[1:], importlib.import_module("tensorflow.compat.v1"))
    module, _, name = path.rpartition(".")
    found = importlib.import_module(module)
    return getattr(found, name) if hasattr(found, name) else importlib.import_module(path)


class LazyModule(ModuleType):
    """A module that is created here and has no file.

    Args:
      name: the module's name.
      shown_name: the module's name in error messages.
      names: dictionary from names in the module to the paths of their objects. An empty path stands for a submodule.
      find: function that returns the object for any other name, or None. If an object can't be created, it raises
        AttributeError with the reason.
      alternative: function of a missing name that returns a sentence about what to use instead, or None.
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
                # After an AttributeError, the import statement would report only that the name can't be imported.
                raise ImportError(str(error), name=self.__name__) from None
            raise
        # Later replacements by `fastsup.install` are made in the module's dictionary.
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
        # An import of a submodule must not hide a name in the table: `arg_scope` is a function in a module of that
        # name.
        if not (isinstance(value, ModuleType) and name in self._names):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({name for name in (*vars(self), *self._names, *self._findable) if not name.startswith("_")})


class TF1Module(ModuleType):
    """The module `tensorflow` with TensorFlow 1's names.

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
            # The import hook creates the module, and the import sets the attribute.
            return importlib.import_module("tensorflow.contrib")
        try:
            return getattr(self.__dict__["_v1"], name)
        except AttributeError:
            # The interface hides `tf.python` and `tf.core`, but imports of their submodules need them.
            submodule = sys.modules.get(f"tensorflow.{name}")
            if submodule is None:
                raise AttributeError(f"module 'tensorflow' has no attribute {name!r}", name=name) from None
            return submodule

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__["__all__"], "__version__"})
