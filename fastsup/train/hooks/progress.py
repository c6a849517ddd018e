"""ProgressHook: shows the progress of a session, as a bar in a terminal or as lines in any other stream."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

import numpy as np
from tensorflow.python.framework import ops, tensor_util
from tensorflow.python.training import basic_session_run_hooks, evaluation, session_run_hook, training_util

from fastsup.common.progress_display import Display, check_display_arguments, open_display
from fastsup.core.checks import check_interval
from fastsup.core.clock import now
from fastsup.train.hooks.global_step_hook import GlobalStepHook

__all__ = ["ProgressHook", "hooks_with_progress"]

# Seconds after which fetched numbers are so old that the last step shows them with the step that they are of.
_FRESH_SECS = 1.0


class _DisplayState:
    """The display and the values on it. The hook itself doesn't hold them: its attributes invalidate its schedule."""

    def __init__(self) -> None:
        self.display: Display | None = None
        self.step = 0
        self.time = 0.0
        self.numbers = ""


class ProgressHook(GlobalStepHook, session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Shows the global step, the rate of steps, tensors and the remaining time.

    In a terminal the hook shows a bar, if rich is installed; elsewhere it writes a line every ten seconds. In an
    evaluation it counts batches. The end is that of the session's `StopAtStepHook`, or the number of batches of the
    evaluation. If the session has neither, and in TensorFlow's sessions, the hook shows no end unless `total` is given.

    Args:
      tensors: scalars to show, such as the loss: a dictionary from names to tensors, or an iterable of tensors; tensors
        may be given by name. The runs that update the display fetch them.
      total: global step at which training ends; in an evaluation the number of batches. None: the session's end.
      every_secs: seconds between two updates. None: 0.1 for a bar, 10 for lines.
      file: text stream to write to. None: `sys.stderr`.

    Raises:
      ValueError: `every_secs` or `total` isn't positive.
      TypeError: `tensors` are no tensors, `every_secs` is no number, `total` no integer, or `file` no stream.
    """

    def __init__(
        self,
        tensors: Mapping[str, Any] | Iterable[Any] | None = None,
        total: int | None = None,
        every_secs: float | None = None,
        file: TextIO | None = None,
    ) -> None:
        check_display_arguments(total, file)
        if every_secs is not None:
            check_interval("every_secs", every_secs)
        self._tensors = _by_name(tensors)
        self._total = total
        self._every_secs = every_secs
        self._file = file
        self._ends: list[Any] = []
        self._next_time = -math.inf
        self._shown = _DisplayState()

    def know_hooks(self, hooks: list[Any]) -> None:
        """Finds the hooks that end the session. The session calls this after the hooks' `begin`.

        Args:
          hooks: all hooks of the session.
        """
        kinds = basic_session_run_hooks.StopAtStepHook, evaluation._StopAfterNEvalsHook
        self._ends = [hook for hook in hooks if isinstance(hook, kinds)]

    def begin(self) -> None:
        """Finds the tensors in the graph."""
        graph = ops.get_default_graph()
        self._fetches = {
            name: graph.as_graph_element(tensor, allow_operation=False) for name, tensor in self._tensors.items()
        }
        # The global step doesn't move in an evaluation, which is known by this collection.
        self._evaluates = bool(graph.get_collection(ops.GraphKeys.EVAL_STEP))
        self._global_step_tensor = None if self._evaluates else training_util.get_global_step(graph)
        if self._global_step_tensor is not None:
            self._global_step_tensor = training_util._get_or_create_global_step_read(graph)
        self._ends = []

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Reads the step that the session starts from."""
        self._close_display()
        self._shown = _DisplayState()
        # Runs of this session.
        self._iter_count = 0
        if self._global_step_tensor is not None:
            self._shown.step = int(session.run(self._global_step_tensor))
        # The first run opens the display: the session calls `end` or `on_error` for every end after that.
        self._next_time = -math.inf

    def before_run(self, run_context: Any) -> Any:
        """Requests the tensors, if the display is due."""
        self._should_trigger = now() >= self._next_time
        if not self._should_trigger:
            return None
        if self._shown.display is None:
            self._open()
            return None
        return session_run_hook.SessionRunArgs(self._fetches) if self._fetches else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Updates the display, if it is due."""
        self._iter_count += 1
        if not self._should_trigger or self._shown.display is None:
            return
        # The first run has only opened the display: there is no rate yet.
        if self._next_time != -math.inf:
            if self._fetches:
                self._shown.numbers = ", ".join(f"{name} {_text(value)}" for name, value in run_values.results.items())
            self._update(self._step(run_context.session))
        self._wait()

    def end(self, session: Any) -> None:
        """Shows the last step and closes the display."""
        shown = self._shown
        # A session in another process may be gone already.
        if shown.display is not None and not getattr(session, "sess_str", b""):
            step = self._iter_count if self._global_step_tensor is None else int(session.run(self._global_step_tensor))
            if step > shown.step:
                if shown.numbers and now() - shown.time > _FRESH_SECS:
                    shown.numbers += f" at {'batch' if self._evaluates else 'step'} {shown.step}"
                self._update(step)
        self._close_display()

    def on_error(self, run_context: Any, exception: BaseException) -> None:
        """Closes the display, which restores the terminal."""
        self._close_display()

    def _before_close(self) -> None:
        self._close_display()

    def _schedule(self, run: int, step_read: Any) -> bool:
        if self._next_time == -math.inf:
            self.due_every_run()
        else:
            self.due_at_time(self._next_time)
        return True

    def _sync(self, skipped_runs: int, previous_step: int) -> None:
        self._iter_count += skipped_runs

    def _step(self, session: Any) -> int:
        """Returns the global step after the run; in an evaluation the number of runs."""
        if self._global_step_tensor is None:
            return int(self._iter_count)
        return int(self._step_after_run(session))

    def _end_step(self) -> int | None:
        """Returns the step at which the session ends; None if it is unknown."""
        if self._total is not None:
            return self._total
        ends = [getattr(hook, "_num_evals" if self._evaluates else "_last_step", None) for hook in self._ends]
        return min((int(end) for end in ends if end is not None and math.isfinite(end)), default=None)

    def _open(self) -> None:
        shown = self._shown
        label = "evaluating" if self._evaluates else "step"
        shown.display = open_display(self._file, shown.step, self._end_step(), label)
        shown.time = now()

    def _update(self, step: int) -> None:
        shown, time = self._shown, now()
        if shown.display is None:
            return
        # The clock may be set back, and another process may restore an earlier step.
        rate = max(step - shown.step, 0) / max(time - shown.time, 1e-9)
        shown.display.show(step, self._end_step(), rate, shown.numbers)
        shown.step, shown.time = step, time

    def _wait(self) -> None:
        if self._shown.display is not None:
            secs = self._shown.display.every_secs if self._every_secs is None else self._every_secs
            # Setting the attribute makes the session compute the schedule again.
            self._next_time = now() + secs

    def _close_display(self) -> None:
        display, self._shown.display = self._shown.display, None
        if display is not None:
            display.close()


def _by_name(tensors: Any) -> dict[str, Any]:
    """Returns a dictionary from the names to show to the tensors."""
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
    """Adds a `ProgressHook` to a session's hooks.

    Args:
      progress: whether to add the hook.
      hooks: the session's hooks.

    Returns:
      `hooks`; or a list of them and a `ProgressHook`, if `progress` is True and `hooks` has no such hook.

    Raises:
      TypeError: `progress` isn't a bool.
    """
    if not isinstance(progress, bool):
        raise TypeError(f"progress must be True or False, got {progress!r}. For a ProgressHook of your own use hooks.")
    if not progress:
        return hooks
    hooks = list(hooks)
    return hooks if any(isinstance(hook, ProgressHook) for hook in hooks) else [*hooks, ProgressHook()]
