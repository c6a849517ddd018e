"""What the profiler has recorded, as a table, files and a page; and the command line around it."""

from fastsup.profile.profiler import HookProfiler
from fastsup.profile.report import Report, Row

__all__ = ["HookProfiler", "Report", "Row"]


def __dir__() -> list[str]:
    return sorted(__all__)
