"""Hooks for `StepLoop`, around any step function: TensorFlow, JAX, PyTorch, NumPy or plain Python.

They don't need TensorFlow. A loop calls its hooks in the order of its list, and session hooks after all others. With a
`NanGuardHook` in front of a `CheckpointHook`, no checkpoint contains NaN.
"""

from fastsup.common.errors import NoIntactCheckpointError
from fastsup.core import Hook, NativeHook
from fastsup.loop.batches import Epochs
from fastsup.loop.checkpoint import CheckpointHook
from fastsup.loop.checkpoint_folder import SavedCheckpoint
from fastsup.loop.checkpoints import Checkpoints
from fastsup.loop.evaluation import EarlyStoppingHook, EvaluateHook
from fastsup.loop.metrics import MeansHook, OpenTelemetryHook, PrometheusHook, SummaryHook, named_numbers
from fastsup.loop.nan_guard import NanGuardHook, NanResultError
from fastsup.loop.periodic import PeriodicHook, StopAtStepHook, StopWhenHook, TimeLimitHook, every
from fastsup.loop.progress import ProgressHook
from fastsup.loop.step_loop import StepLoop
from fastsup.loop.training import train
from fastsup.loop.writers import CsvWriter, JsonLinesWriter, TensorBoardWriter

__all__ = [
    "CheckpointHook",
    "Checkpoints",
    "CsvWriter",
    "EarlyStoppingHook",
    "Epochs",
    "EvaluateHook",
    "Hook",
    "JsonLinesWriter",
    "MeansHook",
    "NanGuardHook",
    "NanResultError",
    "NativeHook",
    "NoIntactCheckpointError",
    "OpenTelemetryHook",
    "PeriodicHook",
    "ProgressHook",
    "PrometheusHook",
    "SavedCheckpoint",
    "StepLoop",
    "StopAtStepHook",
    "StopWhenHook",
    "SummaryHook",
    "TensorBoardWriter",
    "TimeLimitHook",
    "every",
    "named_numbers",
    "train",
]


def __dir__() -> list[str]:
    return sorted(__all__)
