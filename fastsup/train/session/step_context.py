"""StepContext: the argument of a step function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.training import monitored_session as tf_monitored_session

__all__ = ["StepContext"]


class StepContext(tf_monitored_session._MonitoredSession.StepContext):  # type: ignore[misc]
    """The argument of a step function, see `run_step_fn`.

    Args:
      session: the session below all hooks.
      run_with_hooks_fn: function that runs a step with hooks.
    """

    def __init__(self, session: Any, run_with_hooks_fn: Callable[..., Any]) -> None:
        self._session = session
        self._run_with_hooks_fn = run_with_hooks_fn

    @property
    def session(self) -> Any:
        """The session below all hooks: its runs call no hook."""
        return self._session

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        """Runs a step with hooks. Takes the arguments of `MonitoredSession.run`, and returns its result."""
        return self._run_with_hooks_fn(*args, **kwargs)

    def request_stop(self) -> None:
        """Ends the step function and the loop.

        Raises:
          StopIteration: always.
        """
        raise StopIteration("step_fn has requested the iterations to stop.")
