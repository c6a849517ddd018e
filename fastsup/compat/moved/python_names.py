"""Names that Python's own library had when the programs were written. TensorFlow 2.16 and later need a newer Python."""

from __future__ import annotations

import base64
import collections
import collections.abc
import fractions
import inspect
import math
import time
import unittest
from typing import Any, NamedTuple

__all__ = ["python_names"]

# Gone with Python 3.10.
_COLLECTIONS = (
    "Awaitable ByteString Callable Container Coroutine Generator Hashable ItemsView Iterable Iterator KeysView Mapping "
    "MappingView MutableMapping MutableSequence MutableSet Reversible Sequence Set Sized ValuesView"
)
# Gone with Python 3.12.
_OF_TEST_CASE = {
    "assertAlmostEquals": "assertAlmostEqual",
    "assertEquals": "assertEqual",
    "assertNotAlmostEquals": "assertNotAlmostEqual",
    "assertNotEquals": "assertNotEqual",
    "assertNotRegexpMatches": "assertNotRegex",
    "assertRaisesRegexp": "assertRaisesRegex",
    "assertRegexpMatches": "assertRegex",
    "assert_": "assertTrue",
    "failUnless": "assertTrue",
}


class ArgSpec(NamedTuple):
    """What `inspect.getargspec` returned until Python 3.11."""

    args: Any
    varargs: Any
    keywords: Any
    defaults: Any


def getargspec(func: Any) -> ArgSpec:
    """The names and default values of a function's parameters.

    Args:
      func: the function.

    Returns:
      Its `ArgSpec`.

    Raises:
      TypeError: it isn't a Python function.
      ValueError: it has keyword-only parameters or annotations. `inspect.getfullargspec` takes these.
    """
    spec = inspect.getfullargspec(func)
    if spec.kwonlyargs or spec.annotations:
        raise ValueError(
            "Function has keyword-only parameters or annotations, use inspect.signature() API which can support them"
        )
    return ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)


def python_names() -> list[tuple[Any, str, Any]]:
    """The names that this Python lacks: for each the module or class, the name, and what it stood for."""
    names: list[tuple[Any, str, Any]] = [
        (inspect, "ArgSpec", ArgSpec),
        (inspect, "getargspec", getargspec),
        (time, "clock", time.perf_counter),
        (fractions, "gcd", math.gcd),
        (base64, "encodestring", base64.encodebytes),
        (base64, "decodestring", base64.decodebytes),
    ]
    abstract = vars(collections.abc)
    names += [(collections, name, abstract[name]) for name in _COLLECTIONS.split() if name in abstract]
    names += [(unittest.TestCase, name, getattr(unittest.TestCase, now)) for name, now in _OF_TEST_CASE.items()]
    return [(owner, name, value) for owner, name, value in names if name not in vars(owner)]
