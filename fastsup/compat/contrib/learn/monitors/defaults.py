"""The monitors that most trainings have."""

from __future__ import annotations

from typing import Any

from fastsup.compat.contrib.learn.monitors.saving import SummarySaver
from fastsup.compat.contrib.learn.monitors.values import PrintTensor

__all__ = ["get_default_monitors"]


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
