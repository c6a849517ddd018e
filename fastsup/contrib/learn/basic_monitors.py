"""The base classes of monitors, and monitors that log or keep the values of steps, or end training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks

from fastsup.experiment.monitor_hooks import output_key

__all__ = [
    "BaseMonitor",
    "CaptureVariable",
    "EveryN",
    "GraphDump",
    "LoggingTrainable",
    "NanLoss",
    "PrintTensor",
    "StopAtStep",
    "extract_output",
]


def extract_output(outputs: Any, request: Any) -> Any:
    """Returns the value from `step_end`'s outputs for a tensor or name that `step_begin` returned."""
    key = output_key(request)
    return outputs[key] if key in outputs else outputs[request.name]


class BaseMonitor:
    """Callbacks before and after each training step. A `tf.compat.v1.train.SessionRunHook` can do more.

    Steps are numbered from 1, epochs from 0. A method that is called out of order, or with a number out of range,
    raises ValueError.
    """

    def __init__(self) -> None:
        self._begun = False
        self._current_epoch: int | None = None
        self._current_step: Any = None
        self._max_steps: int | None = None
        self._estimator: Any = None

    @property
    def run_on_all_workers(self) -> bool:
        """True for a monitor that runs on each worker, False for one that runs only on the chief."""
        return False

    def set_estimator(self, estimator: Any) -> None:
        """Sets the Estimator that is trained. Raises ValueError for None."""
        if estimator is None:
            raise ValueError("Missing estimator.")
        self._estimator = estimator

    def begin(self, max_steps: int | None = None) -> None:
        """Called before training, with the model's graph as the default graph.

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
        """Called before an epoch by trainers that have epochs."""
        if self._current_epoch is not None:
            raise ValueError("epoch_begin called twice without epoch_end.")
        if epoch < 0:
            raise ValueError(f"Invalid epoch {epoch}.")
        self._current_epoch = epoch

    def epoch_end(self, epoch: int) -> None:
        """Called after an epoch by trainers that have epochs."""
        if self._current_epoch != epoch:
            raise ValueError(f"epoch_end expected {self._current_epoch} but got {epoch}.")
        self._current_epoch = None

    def step_begin(self, step: Any) -> list[Any]:
        """Called before a step.

        Returns:
          Additional tensors, or their names, that the step should compute.
        """
        if step < 0 or (self._max_steps is not None and step > self._max_steps):
            raise ValueError(f"Invalid step {step}.")
        self._current_step = step
        return []

    def step_end(self, step: Any, output: Any) -> Any:
        """Called after a successful step.

        Args:
          step: number of the step.
          output: dictionary from the tensors or names that `step_begin` returned to their values.

        Returns:
          True to end training.
        """
        if self._current_step != step:
            raise ValueError(f"step_end expected {self._current_step} but got {step}.")
        self._current_step = None
        return False

    def post_step(self, step: Any, session: Any) -> None:
        """Called after `step_end` of all monitors, with a session in which the monitor can run operations."""


class EveryN(BaseMonitor):
    """A monitor that acts in the first steps and then every n steps. Subclasses override the `every_n_...` methods.

    A subclass that overrides another method must also call the base class's method.

    Args:
      every_n_steps: number of steps between two actions.
      first_n_steps: number of steps at the start in which the monitor always acts.
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
        """Called after `every_n_step_end`, and at the end of training unless the monitor acted in the last step."""

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
        """Calls `every_n_post_step` unless the monitor acted in the last step. See `BaseMonitor.end`."""
        super().end(session=session)
        if self._last_successful_step != self._last_active_step:
            self.every_n_post_step(self._last_successful_step, session)


class StopAtStep(BaseMonitor):
    """Ends training after a number of steps, or at a step.

    Args:
      num_steps: number of steps. Exclusive with `last_step`.
      last_step: global step of the last step.

    Raises:
      ValueError: If both arguments or neither are given.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        super().__init__()
        if num_steps is None and last_step is None:
            raise ValueError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise ValueError("Only one of num_steps or last_step can be specified.")
        self._num_steps: Any = num_steps
        self._last_step: Any = last_step

    @property
    def run_on_all_workers(self) -> bool:
        """True, because each worker ends."""
        return True

    def step_begin(self, step: Any) -> list[Any]:
        """Finds the last step, before the first one."""
        super().step_begin(step)
        if self._last_step is None:
            self._last_step = step + self._num_steps - 1
        return []

    def step_end(self, step: Any, output: Any) -> bool:
        """Ends training after the last step."""
        super().step_end(step, output)
        return bool(step >= self._last_step)


class NanLoss(EveryN):
    """Ends training or raises an error when the loss is NaN.

    Args:
      loss_tensor: the loss, a scalar tensor.
      every_n_steps: number of steps between checks.
      fail_on_nan_loss: Whether to raise an error. If False, logs a warning and ends training.
    """

    def __init__(self, loss_tensor: Any, every_n_steps: int = 100, fail_on_nan_loss: bool = True) -> None:
        super().__init__(every_n_steps=every_n_steps)
        self._loss_tensor = loss_tensor
        self._fail_on_nan_loss = fail_on_nan_loss

    def every_n_step_begin(self, step: Any) -> list[Any]:
        """Requests the loss."""
        return [self._loss_tensor]

    def every_n_step_end(self, step: Any, outputs: Any) -> bool | None:
        """Checks the loss.

        Raises:
          NanLossDuringTrainingError: If the loss is NaN and `fail_on_nan_loss` is True.
        """
        if not np.isnan(extract_output(outputs, self._loss_tensor)):
            return None
        message = "Model diverged with loss = NaN."
        if self._fail_on_nan_loss:
            logging.error(message)
            raise basic_session_run_hooks.NanLossDuringTrainingError
        logging.warning(message)
        return True


def _listed(names: Mapping[str, str], outputs: Any) -> str:
    return ", ".join(f"{tag} = {outputs[name]}" for tag, name in names.items() if name in outputs)


class PrintTensor(EveryN):
    """Logs the values of tensors. `every_n` and `first_n` are the step counts of `EveryN`.

    Args:
      tensor_names: names of tensors, or a dictionary from labels for the log to these names.
    """

    def __init__(self, tensor_names: Mapping[str, str] | Iterable[str], every_n: int = 100, first_n: int = 1) -> None:
        super().__init__(every_n, first_n)
        self._tensor_names = (
            dict(tensor_names) if isinstance(tensor_names, Mapping) else {name: name for name in tensor_names}
        )

    def every_n_step_begin(self, step: Any) -> list[Any]:
        """Requests the tensors."""
        return list(self._tensor_names.values())

    def every_n_step_end(self, step: Any, outputs: Any) -> None:
        """Logs the values."""
        logging.info("Step %d: %s", step, _listed(self._tensor_names, outputs))


class LoggingTrainable(EveryN):
    """Logs the values of the trainable variables. `every_n` and `first_n` are as for `PrintTensor`.

    Args:
      scope: pattern for the start of the variables' names, or None for all variables.
    """

    def __init__(self, scope: str | None = None, every_n: int = 100, first_n: int = 1) -> None:
        super().__init__(every_n, first_n)
        self._scope = scope
        self._names: dict[str, str] = {}

    def every_n_step_begin(self, step: Any) -> list[Any]:
        """Requests the variables."""
        for variable in ops.get_collection(ops.GraphKeys.TRAINABLE_VARIABLES, scope=self._scope):
            if variable.name not in self._names:
                self._names[variable.name] = _tensor_of(variable).name
        return list(self._names.values())

    def every_n_step_end(self, step: Any, outputs: Any) -> None:
        """Logs the values."""
        logging.info("Logging Trainable: Step %d: %s", step, _listed(self._names, outputs))


def _tensor_of(variable: Any) -> Any:
    """Returns an existing tensor with the variable's value, because a session's graph can't grow."""
    element = getattr(variable, "_graph_element", None)
    return variable.value() if element is None else element


class CaptureVariable(EveryN):
    """Stores the values of a tensor. `every_n` and `first_n` are as for `PrintTensor`.

    Args:
      var_name: name of the tensor, such as "weights:0".
    """

    def __init__(self, var_name: str, every_n: int = 100, first_n: int = 1) -> None:
        super().__init__(every_n, first_n)
        self._var_name = var_name
        self._var_values: dict[Any, Any] = {}

    @property
    def values(self) -> dict[Any, Any]:
        """The values by step number."""
        return self._var_values

    def every_n_step_begin(self, step: Any) -> list[Any]:
        """Requests the tensor."""
        return [self._var_name]

    def every_n_step_end(self, step: Any, outputs: Any) -> None:
        """Stores the value."""
        self._var_values[step] = extract_output(outputs, self._var_name)


class GraphDump(BaseMonitor):
    """Stores the values of nearly all tensors in each step, which is expensive.

    Args:
      ignore_ops: types of operations to skip. If None, skips `IGNORE_OPS`.
    """

    IGNORE_OPS = ["Const", "Assign", "Identity", "Placeholder", "RandomUniform", "Cast", "RestoreSlice"]  # noqa: RUF012

    def __init__(self, ignore_ops: list[str] | None = None) -> None:
        super().__init__()
        self._ignore_ops = ignore_ops or GraphDump.IGNORE_OPS
        self._data: dict[Any, Any] = {}
        self._tensors: list[Any] = []

    def begin(self, max_steps: int | None = None) -> None:
        """Selects the tensors."""
        super().begin(max_steps=max_steps)
        self._tensors = []
        for operation in ops.get_default_graph().get_operations():
            if operation.type in self._ignore_ops:
                continue
            logging.info("op=%s name=%s.", operation.type, operation.name)
            # The handle of a variable or a dataset has no value.
            if operation.outputs and operation.outputs[0].dtype.name not in ("resource", "variant"):
                self._tensors.append(operation.outputs[0])

    def step_begin(self, step: Any) -> list[Any]:
        """Requests the tensors."""
        super().step_begin(step)
        return [tensor.name for tensor in self._tensors]

    def step_end(self, step: Any, output: Any) -> None:
        """Stores the values."""
        super().step_end(step, output)
        self._data[step] = output

    @property
    def data(self) -> dict[Any, Any]:
        """The values: for each step, a dictionary from names of tensors to values."""
        return self._data

    def compare(self, other_dump: GraphDump, step: Any, atol: float = 1e-06) -> tuple[list[Any], dict[Any, Any]]:
        """Compares the values with those of another monitor.

        Args:
          other_dump: the other monitor.
          step: the step to compare.
          atol: largest difference at which arrays are treated as equal.

        Returns:
          The names of equal values, and a dictionary from the names of different values to their difference (if they
          are arrays) or to the two values.

        Raises:
          ValueError: If the other monitor lacks a name at that step.
        """
        matched: list[Any] = []
        others: dict[Any, Any] = {}
        theirs = other_dump.data.get(step, {})
        for name, value in self.data.get(step, {}).items():
            if name not in theirs:
                raise ValueError(f"{name} missing at step {step}.")
            other = theirs[name]
            if isinstance(value, str | bytes):
                continue
            is_array = isinstance(value, np.ndarray) and value.dtype.kind in "biufc"
            if np.allclose(value, other, atol=atol) if is_array else bool(np.all(value == other)):
                matched.append(name)
            else:
                others[name] = value - other if is_array else (value, other)
        return matched, others
