"""ProfilerHook: writes Chrome traces of single runs."""

from __future__ import annotations

from typing import Any

from tensorflow.python.training import basic_session_run_hooks as tf_hooks

from fastsup.core import SecondOrStepTimer
from fastsup.events.summary_buffer import flush_summaries
from fastsup.train.hooks.global_step_hook import NextStepHook, check_one_interval, compiled_timer

__all__ = ["ProfilerHook"]


class ProfilerHook(NextStepHook, tf_hooks.ProfilerHook):  # type: ignore[misc]
    """Writes a Chrome trace (`timeline-<step>.json`) every N steps or seconds.

    Args:
      save_steps: global steps between two traces; or
      save_secs: seconds between two traces. Exactly one of the two.
      output_dir: directory of the traces. Defaults to the current one.
      show_dataflow: whether arrows connect the producers and consumers of tensors.
      show_memory: whether the trace shows the sizes and lifetimes of tensors.

    Raises:
      TypeError: an interval isn't a number.
      ValueError: both or neither of `save_steps` and `save_secs` were given.
    """

    _NAME = "ProfilerHook"
    _schedule = NextStepHook._schedule
    _file_writer: Any
    _request_summary: bool

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
    ) -> None:
        check_one_interval(save_steps=save_steps, save_secs=save_secs)
        SecondOrStepTimer(save_secs, save_steps)  # Refuses both or neither, before any file is made.
        super().__init__(save_steps, save_secs, output_dir, show_dataflow, show_memory)
        self._timer: Any = compiled_timer(self._timer)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._request_summary:
            flush_summaries(self._file_writer)
        super().after_run(run_context, run_values)
