"""Monitors that log or keep values of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging

from fastsup.compat.contrib.learn.monitors.base import BaseMonitor, EveryN, extract_output

__all__ = ["CaptureVariable", "GraphDump", "LoggingTrainable", "PrintTensor"]


def _listed(names: Mapping[str, str], outputs: Any) -> str:
    return ", ".join(f"{tag} = {outputs[name]}" for tag, name in names.items() if name in outputs)


class PrintTensor(EveryN):
    """Logs the values of tensors. `every_n` and `first_n` are the numbers of steps of `EveryN`.

    Args:
      tensor_names: names of tensors, or a dictionary from what the log calls them to their names.
    """

    def __init__(self, tensor_names: Mapping[str, str] | Iterable[str], every_n: int = 100, first_n: int = 1) -> None:
        super().__init__(every_n, first_n)
        self._tensor_names = (
            dict(tensor_names) if isinstance(tensor_names, Mapping) else {name: name for name in tensor_names}
        )

    def every_n_step_begin(self, step: Any) -> list[Any]:
        """Asks for the tensors."""
        return list(self._tensor_names.values())

    def every_n_step_end(self, step: Any, outputs: Any) -> None:
        """Logs the values."""
        logging.info("Step %d: %s", step, _listed(self._tensor_names, outputs))


class LoggingTrainable(EveryN):
    """Logs the values of the trainable variables. `every_n` and `first_n` are as for `PrintTensor`.

    Args:
      scope: pattern that the names of the variables begin with, or None for all.
    """

    def __init__(self, scope: str | None = None, every_n: int = 100, first_n: int = 1) -> None:
        super().__init__(every_n, first_n)
        self._scope = scope
        self._names: dict[str, str] = {}

    def every_n_step_begin(self, step: Any) -> list[Any]:
        """Asks for the variables."""
        for variable in ops.get_collection(ops.GraphKeys.TRAINABLE_VARIABLES, scope=self._scope):
            if variable.name not in self._names:
                self._names[variable.name] = _tensor_of(variable).name
        return list(self._names.values())

    def every_n_step_end(self, step: Any, outputs: Any) -> None:
        """Logs the values."""
        logging.info("Logging Trainable: Step %d: %s", step, _listed(self._names, outputs))


def _tensor_of(variable: Any) -> Any:
    """A tensor with the variable's value that is in the graph already: the graph of a session can't grow."""
    element = getattr(variable, "_graph_element", None)
    return variable.value() if element is None else element


class CaptureVariable(EveryN):
    """Keeps the values of a tensor. `every_n` and `first_n` are as for `PrintTensor`.

    Args:
      var_name: name of the tensor, such as "weights:0".
    """

    def __init__(self, var_name: str, every_n: int = 100, first_n: int = 1) -> None:
        super().__init__(every_n, first_n)
        self._var_name = var_name
        self._var_values: dict[Any, Any] = {}

    @property
    def values(self) -> dict[Any, Any]:
        """The values by the numbers of their steps."""
        return self._var_values

    def every_n_step_begin(self, step: Any) -> list[Any]:
        """Asks for the tensor."""
        return [self._var_name]

    def every_n_step_end(self, step: Any, outputs: Any) -> None:
        """Keeps the value."""
        self._var_values[step] = extract_output(outputs, self._var_name)


class GraphDump(BaseMonitor):
    """Keeps the values of nearly all tensors, in each step. It is expensive.

    Args:
      ignore_ops: types of operations to leave out. None: `IGNORE_OPS`.
    """

    IGNORE_OPS = ["Const", "Assign", "Identity", "Placeholder", "RandomUniform", "Cast", "RestoreSlice"]  # noqa: RUF012

    def __init__(self, ignore_ops: list[str] | None = None) -> None:
        super().__init__()
        self._ignore_ops = ignore_ops or GraphDump.IGNORE_OPS
        self._data: dict[Any, Any] = {}
        self._tensors: list[Any] = []

    def begin(self, max_steps: int | None = None) -> None:
        """Chooses the tensors."""
        super().begin(max_steps=max_steps)
        self._tensors = []
        for operation in ops.get_default_graph().get_operations():
            if operation.type in self._ignore_ops:
                continue
            logging.info("op=%s name=%s.", operation.type, operation.name)
            # The handle of a variable or of a dataset has no value.
            if operation.outputs and operation.outputs[0].dtype.name not in ("resource", "variant"):
                self._tensors.append(operation.outputs[0])

    def step_begin(self, step: Any) -> list[Any]:
        """Asks for the tensors."""
        super().step_begin(step)
        return [tensor.name for tensor in self._tensors]

    def step_end(self, step: Any, output: Any) -> None:
        """Keeps the values."""
        super().step_end(step, output)
        self._data[step] = output

    @property
    def data(self) -> dict[Any, Any]:
        """The values: for each step, a dictionary from names of tensors to values."""
        return self._data

    def compare(self, other_dump: GraphDump, step: Any, atol: float = 1e-06) -> tuple[list[Any], dict[Any, Any]]:
        """Compares the values with those of another monitor.

        Args:
          other_dump: the other one.
          step: the step to compare.
          atol: largest difference between arrays that counts as none.

        Returns:
          The names of equal values; and a dictionary from the names of others to their difference, an array, or to the
          two values.

        Raises:
          ValueError: the other monitor lacks a name at that step.
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
