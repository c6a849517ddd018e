"""Names that NumPy and Python's standard library had when older programs were written.

The NumPy and Python versions that TensorFlow 2.16 and later need lack these names.
"""

from __future__ import annotations

import ast
import base64
import builtins
import collections
import collections.abc
import fractions
import functools
import inspect
import math
import time
import unittest
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy

__all__ = [
    "numpy_names",
    "python_names",
]

# Aliases of Python's types, which NumPy 1.24 removed.
_OF_PYTHON = ("bool", "complex", "float", "int", "object", "str")
# Names that NumPy 2.0 to 2.4 removed, with the names that exist in all versions.
_RENAMED = {
    "Inf": "inf",
    "Infinity": "inf",
    "NaN": "nan",
    "PINF": "inf",
    "alltrue": "all",
    "bool8": "bool_",
    "bytes0": "bytes_",
    "cfloat": "complex128",
    "clongfloat": "clongdouble",
    "complex_": "complex128",
    "cumproduct": "cumprod",
    "float_": "float64",
    "infty": "inf",
    "int0": "intp",
    "longcomplex": "clongdouble",
    "longfloat": "longdouble",
    "mat": "asmatrix",
    "object0": "object_",
    "product": "prod",
    "round_": "round",
    "row_stack": "vstack",
    "singlecomplex": "complex64",
    "sometrue": "any",
    "str0": "str_",
    "string_": "bytes_",
    "typeDict": "sctypeDict",
    "uint0": "uintp",
    "unicode_": "str_",
    "void0": "void",
}
# Names that NumPy 2.0 moved from the main module to another one.
_ELSEWHERE = {
    "AxisError": "exceptions",
    "ComplexWarning": "exceptions",
    "DTypePromotionError": "exceptions",
    "DataSource": "lib.npyio",
    "ModuleDeprecationWarning": "exceptions",
    "RankWarning": "exceptions",
    "TooHardError": "exceptions",
    "VisibleDeprecationWarning": "exceptions",
    "byte_bounds": "lib.array_utils",
    "compare_chararrays": "char",
}


def _in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Tests for each element of an array whether another array contains it. Returns a flat array of bools."""
    return numpy.isin(numpy.ravel(ar1), ar2, assume_unique=assume_unique, invert=invert)


def _asfarray(a: Any, dtype: Any = numpy.float64) -> Any:
    """Converts to an array of floats or complex numbers."""
    return numpy.asarray(a, dtype if numpy.issubdtype(dtype, numpy.inexact) else numpy.float64)


def _obj2sctype(rep: Any, default: Any = None) -> Any:
    """Returns the scalar type of an array, a type or the name of a type, or `default` for anything else."""
    if isinstance(rep, type) and issubclass(rep, numpy.generic):
        return rep
    try:
        return (rep.dtype if isinstance(rep, numpy.ndarray) else numpy.dtype(rep)).type
    except TypeError:
        return default


def _issubsctype(arg1: Any, arg2: Any) -> bool:
    return issubclass(_obj2sctype(arg1), _obj2sctype(arg2))


def _issubclass(arg1: Any, arg2: Any) -> bool:
    """Like `issubclass`, but returns False for a value that isn't a class."""
    try:
        return issubclass(arg1, arg2)
    except TypeError:
        return False


def _sctype2char(sctype: Any) -> str:
    found = _obj2sctype(sctype)
    if found is None:
        raise ValueError(f"unrecognized type: {sctype!r} has no scalar type.")
    return str(numpy.dtype(found).char)


def _sctypes() -> dict[str, list[Any]]:
    """Returns lists of scalar types by kind, each from small to large."""
    names = {
        "int": ("int8", "int16", "int32", "int64"),
        "uint": ("uint8", "uint16", "uint32", "uint64"),
        "float": ("float16", "float32", "float64", "longdouble"),
        "complex": ("complex64", "complex128", "clongdouble"),
    }
    by_kind: dict[str, list[Any]] = {kind: [numpy.dtype(name).type for name in of] for kind, of in names.items()}
    return {**by_kind, "others": [bool, object, bytes, str, numpy.void]}


def _maximum_sctype(t: Any) -> Any:
    """Returns the largest scalar type of the same kind as a type."""
    found = _obj2sctype(t)
    for types in list(_sctypes().values())[:4]:
        if found in types:
            return types[-1]
    return found


def _find_common_type(array_types: Iterable[Any], scalar_types: Iterable[Any]) -> Any:
    """Returns the common type of arrays and scalars: the arrays', unless a scalar is of a larger kind."""
    arrays, scalars = ([numpy.dtype(each) for each in types] for types in (array_types, scalar_types))
    if not arrays or not scalars:
        together = arrays or scalars
        return numpy.result_type(*together) if together else None
    array, scalar = numpy.result_type(*arrays), numpy.result_type(*scalars)
    order = "buifc"
    if array.kind in order and scalar.kind in order and order.index(scalar.kind) > order.index(array.kind):
        return scalar
    return array if array.kind in order and scalar.kind in order else numpy.result_type(array, scalar)


class _ByType(dict[Any, Any]):
    """A dictionary whose keys are scalar types. It also accepts values that stand for a type."""

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(_obj2sctype(key))


def _cast(kind: Any) -> Callable[[Any], Any]:
    return lambda x: numpy.asarray(x).astype(kind)


def _recfromtxt(fname: Any, **kwargs: Any) -> Any:
    return numpy.genfromtxt(fname, **{"dtype": None, **kwargs}).view(numpy.recarray)


def _recfromcsv(fname: Any, **kwargs: Any) -> Any:
    return _recfromtxt(fname, **{"case_sensitive": "lower", "names": True, "delimiter": ",", **kwargs})


def _functions() -> dict[str, Any]:
    """Returns functions and tables for the names that NumPy replaced without another name."""
    types = [kind for kinds in _sctypes().values() for kind in map(_obj2sctype, kinds)]
    return {
        "NINF": -numpy.inf,
        "NZERO": -0.0,
        "PZERO": 0.0,
        "asfarray": _asfarray,
        "asscalar": lambda a: a.item(),
        "cast": _ByType({kind: _cast(kind) for kind in types}),
        "fastCopyAndTranspose": lambda a: numpy.array(a.T),
        "find_common_type": _find_common_type,
        "in1d": _in1d,
        "issctype": lambda rep: isinstance(rep, (type, numpy.dtype)) and _obj2sctype(rep) not in (None, numpy.object_),
        "issubclass_": _issubclass,
        "issubsctype": _issubsctype,
        "long": int,
        "math": math,
        "maximum_sctype": _maximum_sctype,
        "msort": functools.partial(numpy.sort, axis=0),
        "nbytes": _ByType({kind: numpy.dtype(kind).itemsize for kind in types}),
        "obj2sctype": _obj2sctype,
        "recfromcsv": _recfromcsv,
        "recfromtxt": _recfromtxt,
        "safe_eval": ast.literal_eval,
        "sctype2char": _sctype2char,
        "sctypes": _sctypes(),
        "unicode": str,
    }


def numpy_names() -> list[tuple[Any, str, Any]]:
    """Returns tuples of module, name and former value, for the names that the installed NumPy lacks."""
    names = {name: getattr(builtins, name) for name in _OF_PYTHON}
    names.update((name, getattr(numpy, now)) for name, now in _RENAMED.items())
    names.update(_functions())
    for name, module in _ELSEWHERE.items():
        place = functools.reduce(lambda found, part: getattr(found, part, None), module.split("."), numpy)
        if hasattr(place, name):
            names[name] = getattr(place, name)
    if not hasattr(numpy, "trapz"):
        names["trapz"] = numpy.trapezoid
    # Don't use `hasattr`, because NumPy warns about some of these names.
    return [(numpy, name, value) for name, value in names.items() if name not in vars(numpy)]


# Names that Python 3.10 removed.
_COLLECTIONS = (
    "Awaitable ByteString Callable Container Coroutine Generator Hashable ItemsView Iterable Iterator KeysView Mapping "
    "MappingView MutableMapping MutableSequence MutableSet Reversible Sequence Set Sized ValuesView"
)
# Names that Python 3.12 removed.
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
    """The result type of `inspect.getargspec`, which Python 3.11 removed."""

    args: Any
    varargs: Any
    keywords: Any
    defaults: Any


def getargspec(func: Any) -> ArgSpec:
    """Returns the names and default values of a function's parameters.

    Args:
      func: the function.

    Returns:
      Its `ArgSpec`.

    Raises:
      TypeError: If `func` isn't a Python function.
      ValueError: If `func` has keyword-only parameters or annotations. Use `inspect.getfullargspec` for these.
    """
    spec = inspect.getfullargspec(func)
    if spec.kwonlyargs or spec.annotations:
        raise ValueError(
            "Function has keyword-only parameters or annotations, use inspect.signature() API which can support them"
        )
    return ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)


def python_names() -> list[tuple[Any, str, Any]]:
    """Returns tuples of module or class, name and former value, for the names that this Python lacks."""
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
