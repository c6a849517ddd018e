"""The versions of TensorFlow whose memory fastsup reads and whose C++ functions it calls: those that were tried.

Both depend on how TensorFlow was compiled, which no interface promises.
"""

from __future__ import annotations

import os
import re

__all__ = ["ANY_VERSION", "TRIED_VERSIONS", "is_tried", "untried_reason"]

TRIED_VERSIONS = ("2.16", "2.17", "2.18", "2.19", "2.20", "2.21", "2.22")
# Environment variable that lets fastsup use a newer version that wasn't tried, as far as its self-test passes.
ANY_VERSION = "FASTSUP_ANY_TENSORFLOW"


def is_tried(version: str) -> bool:
    """Whether a version of TensorFlow is one that was tried.

    Args:
      version: TensorFlow's version, such as "2.21.0".
    """
    return ".".join(map(str, _numbers_of(version))) in TRIED_VERSIONS


def untried_reason(version: str) -> str:
    """Says why a version of TensorFlow isn't used.

    Args:
      version: TensorFlow's version, such as "2.21.0".

    Returns:
      The reason; an empty string if the version was tried, or is newer and the user has asked to use it, by
      FASTSUP_ANY_TENSORFLOW=1.
    """
    is_newer = _numbers_of(version) > _numbers_of(TRIED_VERSIONS[-1])
    if is_tried(version) or (is_newer and os.environ.get(ANY_VERSION) == "1"):
        return ""
    reason = f"TensorFlow {version} isn't one of the versions that were tried: {', '.join(TRIED_VERSIONS)}"
    if is_newer:
        reason += f". With {ANY_VERSION}=1 in the environment it is used if the self-test passes"
    return reason


def _numbers_of(version: str) -> tuple[int, ...]:
    """The first two numbers of a version: (2, 21) for "2.21.0-rc1"; none if it has another form."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return tuple(map(int, found.groups())) if found else ()
