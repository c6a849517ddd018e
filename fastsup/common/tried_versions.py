"""The versions of TensorFlow whose memory fastsup reads and whose C++ functions it calls: those that were tried.

Both depend on how TensorFlow was compiled, which no interface promises.
"""

from __future__ import annotations

import os
import re

__all__ = ["ANY_VERSION", "TRIED_VERSIONS", "allows_untried", "is_tried", "untried_reason"]

TRIED_VERSIONS = ("2.16", "2.17", "2.18", "2.19", "2.20", "2.21")
# Environment variable that lets fastsup use a newer version that wasn't tried, as far as its self-test passes.
ANY_VERSION = "FASTSUP_ANY_TENSORFLOW"


def is_tried(version: str) -> bool:
    """Whether a version of TensorFlow is one that was tried.

    Args:
      version: TensorFlow's version, such as "2.21.0".
    """
    return ".".join(map(str, _numbers_of(version))) in TRIED_VERSIONS


def allows_untried(version: str) -> bool:
    """Whether the user has asked to use a version that wasn't tried, by FASTSUP_ANY_TENSORFLOW=1.

    Args:
      version: TensorFlow's version. One that is older than those that were tried is never allowed.
    """
    return _is_newer(version) and os.environ.get(ANY_VERSION) == "1"


def untried_reason(version: str) -> str:
    """Says why what depends on TensorFlow's memory can't be used with a version of it.

    Args:
      version: TensorFlow's version, such as "2.21.0".

    Returns:
      The reason; an empty string if the version was tried, or the user has asked to use it.
    """
    if is_tried(version) or allows_untried(version):
        return ""
    reason = f"TensorFlow {version} isn't one of the versions that were tried: {', '.join(TRIED_VERSIONS)}"
    if _is_newer(version):
        reason += f". With {ANY_VERSION}=1 in the environment it is used if the self-test passes"
    return reason


def _numbers_of(version: str) -> tuple[int, ...]:
    """The first two numbers of a version: (2, 21) for "2.21.0-rc1"; none if it has another form."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return tuple(map(int, found.groups())) if found else ()


def _is_newer(version: str) -> bool:
    return _numbers_of(version) > _numbers_of(TRIED_VERSIONS[-1])
