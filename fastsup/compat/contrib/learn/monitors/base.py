"""The base classes of monitors."""

from __future__ import annotations

from typing import Any

from fastsup.experiment.monitor_hooks import output_key

__all__ = ["BaseMonitor", "EveryN", "extract_output"]


def extract_output(outputs: Any, request: Any) -> Any:
    """The value of a tensor that a monitor has asked for.

    Args:
      outputs: what `step_end` was given.
      request: the tensor or its name, as `step_begin` has returned it.
    """
    key = output_key(request)
    return outputs[key] if key in outputs else outputs[request.name]


class BaseMonitor:
    """What is called before and after each step of training. A hook, `tf.compat.v1.train.SessionRunHook`, does more.

    Steps are numbered from 1, epochs from 0. A method that is called out of turn, or with a number out of range, raises
    a ValueError.
    """

    def __init__(self) -> None:
        self._begun = False
        self._current_epoch: int | None = None
        self._current_step: Any = None
        self._max_steps: int | None = None
        self._estimator: Any = None

    @property
    def run_on_all_workers(self) -> bool:
        """True for a monitor of each worker, False for one of the chief."""
        return False

    def set_estimator(self, estimator: Any) -> None:
        """Tells the monitor which Estimator is trained. None raises a ValueError."""
        if estimator is None:
            raise ValueError("Missing estimator.")
        self._estimator = estimator

    def begin(self, max_steps: int | None = None) -> None:
        """Called before training, with the graph of the model as the default one.

        Args:
          max_steps: the step at which training ends, or None.
        """
        if self._begun:
            raise ValueError("begin called twice without end.")
        self._max_steps = max_steps
        self._begun = True

    def end(self, session: Any = None) -> None:
        """Called after training."""
        if not self._begun:
            raise ValueError("end called without begin.")
        self._max_steps = None
        self._begun = False

    def epoch_begin(self, epoch: int) -> None:
        """Called before an epoch, by trainers that have epochs."""
        if self._current_epoch is not None:
            raise ValueError("epoch_begin called twice without epoch_end.")
        if epoch < 0:
            raise ValueError(f"Invalid epoch {epoch}.")
        self._current_epoch = epoch

    def epoch_end(self, epoch: int) -> None:
        """Called after an epoch."""
        if self._current_epoch != epoch:
            raise ValueError(f"epoch_end expected {self._current_epoch} but got {epoch}.")
        self._current_epoch = None

    def step_begin(self, step: Any) -> list[Any]:
        """Called before a step.

        Returns:
          Tensors, or their names, that the step shall compute too.
        """
        if step < 0 or (self._max_steps is not None and step > self._max_steps):
            raise ValueError(f"Invalid step {step}.")
        self._current_step = step
        return []

    def step_end(self, step: Any, output: Any) -> Any:
        """Called after a step that hasn't failed.

        Args:
          step: number of the step.
          output: dictionary from what `step_begin` has returned to values.

        Returns:
          True to end training.
        """
        if self._current_step != step:
            raise ValueError(f"step_end expected {self._current_step} but got {step}.")
        self._current_step = None
        return False

    def post_step(self, step: Any, session: Any) -> None:
        """Called after `step_end` of all monitors, with the session for runs of the monitor's own."""


class EveryN(BaseMonitor):
    """A monitor that acts in the first steps, and then in each n-th. Subclasses override the methods `every_n_...`.

    A subclass that overrides another method calls that of its base too.

    Args:
      every_n_steps: number of steps from one action to the next.
      first_n_steps: number of the last step up to which the monitor acts in each.
    """

    def __init__(self, every_n_steps: int = 100, first_n_steps: int = 1) -> None:
        super().__init__()
        self._every_n_steps = every_n_steps
        self._first_n_steps = first_n_steps
        self._last_successful_step: Any = None
        self._last_active_step: Any = 0
        self._every_n_step_begin_called = False

    def every_n_step_begin(self, step: Any) -> list[Any]:
        """Called before a step in which the monitor acts. See `step_begin`."""
        return []

    def every_n_step_end(self, step: Any, outputs: Any) -> Any:
        """Called after a step in which the monitor acts. See `step_end`."""
        return False

    def every_n_post_step(self, step: Any, session: Any) -> None:
        """Called after `every_n_step_end`, and at the end of training if the last step wasn't one to act in."""

    def step_begin(self, step: Any) -> list[Any]:
        """Calls `every_n_step_begin` if the monitor acts in the step. See `BaseMonitor.step_begin`."""
        super().step_begin(step)
        self._every_n_step_begin_called = bool(
            step <= self._first_n_steps
            or step >= self._every_n_steps + self._last_active_step
            or step == self._max_steps
        )
        return self.every_n_step_begin(step) if self._every_n_step_begin_called else []

    def step_end(self, step: Any, output: Any) -> Any:
        """Calls `every_n_step_end` if the monitor acts in the step. See `BaseMonitor.step_end`."""
        super().step_end(step, output)
        return self.every_n_step_end(step, output) if self._every_n_step_begin_called else False

    def post_step(self, step: Any, session: Any) -> None:
        """Calls `every_n_post_step` if the monitor acts in the step. See `BaseMonitor.post_step`."""
        super().post_step(step, session)
        if self._every_n_step_begin_called:
            self.every_n_post_step(step, session)
            self._last_active_step = step
        self._last_successful_step = step

    def end(self, session: Any = None) -> None:
        """Calls `every_n_post_step` if the last step wasn't one to act in. See `BaseMonitor.end`."""
        super().end(session=session)
        if self._last_successful_step != self._last_active_step:
            self.every_n_post_step(self._last_successful_step, session)
