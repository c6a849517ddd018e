"""TensorFlow's classes keep finding themselves by name when the name has another value.

`super(MonitoredSession, self)` and `_WrappedSession.__init__(self)` look up the name in the module when they are
called. After `install` the name is a class of fastsup. That class refuses an object of TensorFlow's own class, or of a
subclass that the program defined before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any

__all__ = ["own_globals"]


class _Globals(dict[str, Any]):
    """The globals of a function: some names with other values, the rest as the module has them now."""

    def __init__(self, module: dict[str, Any], own: dict[str, Any]) -> None:
        super().__init__(own)
        self["__builtins__"] = module["__builtins__"]
        self._module = module

    def __missing__(self, name: str) -> Any:
        return self._module[name]


def _with_globals(function: FunctionType, own: dict[str, Any]) -> FunctionType:
    copy = FunctionType(
        function.__code__,
        _Globals(function.__globals__, own),
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__, copy.__module__, copy.__doc__ = function.__qualname__, function.__module__, function.__doc__
    copy.__dict__.update(function.__dict__)
    return copy


def own_globals(kinds: Iterable[Any]) -> Iterator[tuple[type, str, FunctionType]]:
    """Copies of the methods that name their own class, or a base of the class, with separate globals.

    Args:
      kinds: TensorFlow's classes. Functions among them are skipped.

    Yields:
      A class, the name of a method, and its copy, which always finds the class and its bases.
    """
    for kind in kinds:
        if not isinstance(kind, type):
            continue
        family = {base.__name__: base for base in kind.__mro__ if base.__module__ == kind.__module__}
        for name, method in list(vars(kind).items()):
            if isinstance(method, FunctionType) and family.keys() & set(method.__code__.co_names):
                yield kind, name, _with_globals(method, family)
