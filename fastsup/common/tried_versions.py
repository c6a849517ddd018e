"""The versions of TensorFlow whose memory fastsup reads and whose C++ functions it calls: those that were tried.

Both depend on how TensorFlow was compiled, which no interface promises.
"""

from __future__ import annotations

__all__ = ["TRIED_VERSIONS", "untried_reason"]

TRIED_VERSIONS = ("2.16", "2.17", "2.18", "2.19", "2.20", "2.21")


def untried_reason(version: str) -> str:
    """Says why what depends on TensorFlow's memory can't be used with a version of it.

    Args:
      version: TensorFlow's version, such as "2.21.0".

    Returns:
      The reason; an empty string if the version is one that was tried.
    """
    if ".".join(version.split(".")[:2]) in TRIED_VERSIONS:
        return ""
    return f"TensorFlow {version} isn't one of the versions that were tried: {', '.join(TRIED_VERSIONS)}"
