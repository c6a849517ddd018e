"""Accelerates the fit, evaluate and predict of Keras models, and profiles them."""

from __future__ import annotations

# If TensorFlow isn't installed, the error of this import names the missing extra.
import fastsup.runtime as _runtime  # noqa: F401

try:
    import keras as _keras  # noqa: F401
except ModuleNotFoundError as _error:
    if _error.name != "keras":
        raise
    raise ModuleNotFoundError(
        "fastsup.keras needs Keras 3, which isn't installed. Install it: pip install 'keras>=3'. fastsup's TensorFlow "
        "extras, such as 'fastsup[cpu]', also install it.",
        name="keras",
    ) from None

from fastsup.keras.accelerate import accelerate
from fastsup.keras.profiler_callback import ProfilerCallback
from fastsup.keras.report import FunctionReport, Report, report

__all__ = ["FunctionReport", "ProfilerCallback", "Report", "accelerate", "report"]


def __dir__() -> list[str]:
    return sorted(__all__)
