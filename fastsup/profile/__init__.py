"""Profiles as a table, as files and as a page; and the commands `python -m fastsup profile` and `doctor`."""

from fastsup.profile.profiler import HookProfiler
from fastsup.profile.report import Report, Row

__all__ = ["HookProfiler", "Report", "Row"]


def __dir__() -> list[str]:
    return sorted(__all__)
