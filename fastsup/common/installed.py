"""Which packages are installed, in which versions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec

__all__ = ["TENSORFLOWS", "tensorflow_version", "version_of"]

# TensorFlow is distributed under several names.
TENSORFLOWS = ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-rocm")


def version_of(name: str) -> str | None:
    """Returns the installed version of a distribution, or None.

    Args:
      name: name of the distribution.
    """
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def tensorflow_version() -> str | None:
    """Returns the version of the imported TensorFlow, or else of the installed one, or None."""
    imported = getattr(sys.modules.get("tensorflow"), "__version__", None)
    return imported or next(filter(None, map(version_of, _tensorflow_distributions())), None)


def _tensorflow_distributions() -> Iterator[str]:
    yield from TENSORFLOWS
    # A vendor's build may have another name. Finding it takes long.
    if find_spec("tensorflow") is not None:
        yield from metadata.packages_distributions().get("tensorflow", ())
