"""Monitors: what training called before there were hooks. `Experiment` takes them among its `train_monitors`."""

from tensorflow.python.training.basic_session_run_hooks import NanLossDuringTrainingError

from fastsup.compat.contrib.learn.monitors.base import BaseMonitor, EveryN
from fastsup.compat.contrib.learn.monitors.defaults import get_default_monitors
from fastsup.compat.contrib.learn.monitors.saving import CheckpointSaver, ExportMonitor, StepCounter, SummarySaver
from fastsup.compat.contrib.learn.monitors.stopping import NanLoss, StopAtStep
from fastsup.compat.contrib.learn.monitors.validation import ValidationMonitor
from fastsup.compat.contrib.learn.monitors.values import CaptureVariable, GraphDump, LoggingTrainable, PrintTensor
from fastsup.experiment.monitor_hooks import RunHookAdapterForMonitors, replace_monitors_with_hooks

__all__ = [
    "BaseMonitor",
    "CaptureVariable",
    "CheckpointSaver",
    "EveryN",
    "ExportMonitor",
    "GraphDump",
    "LoggingTrainable",
    "NanLoss",
    "NanLossDuringTrainingError",
    "PrintTensor",
    "RunHookAdapterForMonitors",
    "StepCounter",
    "StopAtStep",
    "SummarySaver",
    "ValidationMonitor",
    "get_default_monitors",
    "replace_monitors_with_hooks",
]


def __dir__() -> list[str]:
    return sorted(__all__)
