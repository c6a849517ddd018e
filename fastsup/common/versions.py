"""Versions of installed packages, and the TensorFlow versions with which fastsup was tested."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec

__all__ = [
    "ANY_VERSION",
    "SUPPORTED_VERSIONS",
    "TENSORFLOWS",
    "is_supported",
    "tensorflow_version",
    "unsupported_reason",
    "version_of",
]

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
    """Returns the version of the imported TensorFlow, or otherwise of the installed one, or None."""
    imported = getattr(sys.modules.get("tensorflow"), "__version__", None)
    return imported or next(filter(None, map(version_of, _tensorflow_distributions())), None)


def _tensorflow_distributions() -> Iterator[str]:
    yield from TENSORFLOWS
    # A vendor's build may have another name. Finding it takes long.
    if find_spec("tensorflow") is not None:
        yield from metadata.packages_distributions().get("tensorflow", ())


# The versions whose memory fastsup reads, and whose C++ functions it calls. Both depend on how TensorFlow was compiled,
# and aren't part of a stable interface.

SUPPORTED_VERSIONS = ("2.16", "2.17", "2.18", "2.19", "2.20", "2.21", "2.22")
# Environment variable that allows a newer, untested version if its self-test passes.
ANY_VERSION = "FASTSUP_ANY_TENSORFLOW"


def is_supported(version: str) -> bool:
    """Returns True if a version of TensorFlow is a tested one.

    Args:
      version: TensorFlow's version, such as "2.21.0".
    """
    return ".".join(map(str, _numbers_of(version))) in SUPPORTED_VERSIONS


def unsupported_reason(version: str) -> str:
    """Returns the reason why a version of TensorFlow isn't used.

    Args:
      version: TensorFlow's version, such as "2.21.0".

    Returns:
      The reason, or "" if the version is tested, or if it is newer and the user has allowed it with
      FASTSUP_ANY_TENSORFLOW=1.
    """
    is_newer = _numbers_of(version) > _numbers_of(SUPPORTED_VERSIONS[-1])
    if is_supported(version) or (is_newer and os.environ.get(ANY_VERSION) == "1"):
        return ""
    reason = f"TensorFlow {version} isn't one of the tested versions: {', '.join(SUPPORTED_VERSIONS)}"
    if is_newer:
        reason += f". With {ANY_VERSION}=1 in the environment, it is used if the self-test passes"
    return reason


def _numbers_of(version: str) -> tuple[int, ...]:
    """Returns the first two numbers of a version, such as (2, 21) for "2.21.0-rc1", or () if it has another form."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return tuple(map(int, found.groups())) if found else ()
