"""Monitors: what training called before there were hooks. `Experiment` takes them among its `train_monitors`."""

from __future__ import annotations

from typing import Any

from tensorflow.python.training.basic_session_run_hooks import NanLossDuringTrainingError

from fastsup.contrib.learn.monitors.base import BaseMonitor, EveryN
from fastsup.contrib.learn.monitors.saving import CheckpointSaver, ExportMonitor, StepCounter, SummarySaver
from fastsup.contrib.learn.monitors.stopping import NanLoss, StopAtStep
from fastsup.contrib.learn.monitors.validation import ValidationMonitor
from fastsup.contrib.learn.monitors.values import CaptureVariable, GraphDump, LoggingTrainable, PrintTensor
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


def get_default_monitors(
    loss_op: Any = None,
    summary_op: Any = None,
    save_summary_steps: int = 100,
    output_dir: Any = None,
    summary_writer: Any = None,
) -> list[Any]:
    """The monitors that most trainings have.

    Args:
      loss_op: the loss, which a `PrintTensor` logs. None: none.
      summary_op: the serialised summary, which a `SummarySaver` writes. None: none.
      save_summary_steps: argument of the `SummarySaver`.
      output_dir: argument of the `SummarySaver`.
      summary_writer: argument of the `SummarySaver`.

    Returns:
      List of the monitors.
    """
    monitors: list[Any] = []
    if loss_op is not None:
        monitors.append(PrintTensor(tensor_names={"loss": loss_op.name}))
    if summary_op is not None:
        monitors.append(SummarySaver(summary_op, save_summary_steps, output_dir, summary_writer))
    return monitors


def __dir__() -> list[str]:
    return sorted(__all__)
