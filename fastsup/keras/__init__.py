"""Keras models whose fit, evaluate and predict run their steps as `fastsup.function` does, and what these spend."""

from __future__ import annotations

from fastsup.keras.accelerate import accelerate
from fastsup.keras.profiler_callback import ProfilerCallback
from fastsup.keras.report import FunctionReport, Report, report

__all__ = ["FunctionReport", "ProfilerCallback", "Report", "accelerate", "report"]


def __dir__() -> list[str]:
    return sorted(__all__)
