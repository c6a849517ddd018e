"""What modules of tensorflow_estimator have beside the classes of `tf.estimator`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["AVERAGE_LOSS_METRIC_KEY", "LOSS_METRIC_KEY", "estimator_export"]

LOSS_METRIC_KEY = "loss"
AVERAGE_LOSS_METRIC_KEY = "average_loss"


def estimator_export(*names: str, **names_by_version: Any) -> Callable[[Any], Any]:
    """A decorator that does nothing: it marked what the public interface had.

    Args:
      *names: the public names.
      **names_by_version: the public names in a version.
    """
    del names, names_by_version
    return lambda exported: exported
