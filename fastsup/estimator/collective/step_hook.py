"""The hook that tells a membership when a training step begins and ends, and stops with the other tasks."""

from __future__ import annotations

import signal
from typing import Any

from tensorflow.python.training import session_run_hook

from fastsup.cluster.collective.membership import Membership
from fastsup.estimator.collective.stop_signals import StopSignals

__all__ = ["CollectiveStepHook"]


class CollectiveStepHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Goes before all other hooks, so that their own work after a step counts as none that waits for other tasks.

    Args:
      membership: this task's part in the training.
      signals: the signals that this task gets.
    """

    def __init__(self, membership: Membership, signals: StopSignals) -> None:
        self._membership = membership
        self._signals = signals
        self._asked = False

    def before_run(self, run_context: Any) -> None:
        """Begins a step."""
        del run_context
        self._membership.begin_wait()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Ends a step. Requests a stop if it was the last one of all tasks."""
        del run_values
        if self._membership.end_step():
            run_context.request_stop()
        elif self._signals.number and not self._asked:
            self._asked = True
            number = self._signals.number
            self._membership.ask_stop(f"it has got {signal.Signals(number).name}", number)
