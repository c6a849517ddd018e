"""Names that NumPy had when the programs were written. TensorFlow 2.16 and later need a NumPy that lacks them."""

from __future__ import annotations

import builtins
from typing import Any

import numpy

__all__ = ["numpy_names"]

# Gone with NumPy 1.24: other names of Python's own types.
_OF_PYTHON = ("bool", "complex", "float", "int", "object", "str")
# Gone with NumPy 2.0 to 2.4, and what they are called in all versions.
_RENAMED = {
    "Inf": "inf",
    "Infinity": "inf",
    "NaN": "nan",
    "PINF": "inf",
    "alltrue": "all",
    "cfloat": "complex128",
    "complex_": "complex128",
    "cumproduct": "cumprod",
    "float_": "float64",
    "infty": "inf",
    "int0": "intp",
    "mat": "asmatrix",
    "object0": "object_",
    "product": "prod",
    "round_": "round",
    "row_stack": "vstack",
    "singlecomplex": "complex64",
    "sometrue": "any",
    "string_": "bytes_",
    "uint0": "uintp",
    "unicode_": "str_",
}


def _in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Whether each element of an array is in another one, as a flat array."""
    return numpy.isin(numpy.ravel(ar1), ar2, assume_unique=assume_unique, invert=invert)


def numpy_names() -> list[tuple[Any, str, Any]]:
    """The names that the installed NumPy lacks: for each the module, the name, and what it stood for."""
    names = {name: getattr(builtins, name) for name in _OF_PYTHON}
    names.update((name, getattr(numpy, now)) for name, now in _RENAMED.items())
    names.update(NINF=-numpy.inf, in1d=_in1d, long=int, unicode=str)
    if not hasattr(numpy, "trapz"):
        names["trapz"] = numpy.trapezoid
    # Not by `hasattr`: NumPy answers for some of them with a warning.
    return [(numpy, name, value) for name, value in names.items() if name not in vars(numpy)]
