"""ProgressHook, which shows the progress of a session as a bar in a terminal, or as lines in other streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TextIO

import numpy as np
from tensorflow.python.framework import ops, tensor_util

from fastsup.core.clock import steady
from fastsup.loop.progress import ProgressHook as LoopProgressHook
from fastsup.train.hooks.adapted_hook import AdaptedHook, SessionLoop

__all__ = ["ProgressHook", "hooks_with_progress"]

# Seconds after which fetched numbers are so old that the last line shows them with their own step.
_FRESH_SECS = 1.0


class _SessionProgress(LoopProgressHook):
    """Shows the tensors that the session fetches, which may belong to an earlier step than the last one."""

    def _numbers(self, loop: Any) -> str:
        if not isinstance(loop, SessionLoop):
            return super()._numbers(loop)
        if not loop.result:
            return ""
        numbers = ", ".join(f"{name} {_text(value)}" for name, value in loop.result.items())
        if loop.result_step != loop.global_step and steady() - self._shown_time > _FRESH_SECS:
            numbers += f" at {'batch' if loop.evaluates else 'step'} {loop.result_step}"
        return numbers


class ProgressHook(AdaptedHook):
    """Shows the global step, the rate of steps, tensors and the remaining time.

    In a terminal, the hook shows a bar if rich is installed. Otherwise it writes a line every ten seconds. In an
    evaluation, it counts batches. The end comes from the session's `StopAtStepHook`, or from the evaluation's number of
    batches. In other sessions and in TensorFlow's, pass `total` to show an end.

    Args:
      tensors: scalars to show, such as the loss: a dictionary from names to tensors, or an iterable of tensors. A
        tensor can also be given by name. The runs that update the display fetch the tensors. A `StepLoop` doesn't show
        them.
      total: global step at which training ends, or number of batches in an evaluation. Defaults to the session's end.
      every_secs: seconds between updates. If None, 0.1 for a bar and 10 for lines.
      file: text stream to write to. If None, `sys.stderr`.

    Raises:
      ValueError: If `every_secs` or `total` isn't positive.
      TypeError: If `tensors` aren't tensors, `every_secs` isn't a number, `total` isn't an integer, or `file` isn't a
        stream.
    """

    def __init__(
        self,
        tensors: Mapping[str, Any] | Iterable[Any] | None = None,
        total: int | None = None,
        every_secs: float | None = None,
        file: TextIO | None = None,
    ) -> None:
        super().__init__(_SessionProgress(total, every_secs, file))
        self._tensors = _by_name(tensors)

    def begin(self) -> None:
        """Finds the tensors in the graph."""
        graph = ops.get_default_graph()
        fetches = {
            name: graph.as_graph_element(tensor, allow_operation=False) for name, tensor in self._tensors.items()
        }
        self.loop_hook.fetches = fetches or None
        super().begin()


def _by_name(tensors: Any) -> dict[str, Any]:
    """Returns a dictionary from the displayed names to the tensors."""
    if tensors is None:
        return {}
    if isinstance(tensors, Mapping):
        return dict(tensors)
    if isinstance(tensors, str | bytes) or tensor_util.is_tf_type(tensors) or not isinstance(tensors, Iterable):
        raise TypeError(
            "tensors must be a dictionary from names to tensors, an iterable of tensors, or None; got "
            f"{tensors!r}. Pass {{'loss': loss}} for the tensor loss."
        )
    return {str(getattr(tensor, "name", tensor)): tensor for tensor in tensors}


def _text(value: Any) -> str:
    value = np.asarray(value)
    if value.size == 1 and np.issubdtype(value.dtype, np.number):
        return f"{value.item():.6g}"
    return " ".join(str(value).split())


def hooks_with_progress(progress: Any, hooks: Any) -> Any:
    """Adds a `ProgressHook` to a session's hooks."""
    if not isinstance(progress, bool):
        raise TypeError(f"progress must be True or False, got {progress!r}. To pass your own ProgressHook, use hooks.")
    if not progress:
        return hooks
    hooks = list(hooks)
    return hooks if any(map(_shows_progress, hooks)) else [*hooks, ProgressHook()]


def _shows_progress(hook: Any) -> bool:
    return isinstance(hook.loop_hook if isinstance(hook, AdaptedHook) else hook, LoopProgressHook)
