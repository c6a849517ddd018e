"""The hook that writes summaries."""

from __future__ import annotations

from typing import Any

from tensorflow.python.training import basic_session_run_hooks as tf_hooks

from fastsup.events.summary_buffer import buffer_for, hand_over
from fastsup.train.hooks.global_step_hook import NextStepHook, check_one_interval, own_timer

__all__ = ["SummarySaverHook"]


class SummarySaverHook(NextStepHook, tf_hooks.SummarySaverHook):  # type: ignore[misc]
    """Writes summaries every N steps or seconds.

    Args:
      save_steps: global steps between two summaries; or
      save_secs: seconds between two summaries. Exactly one of the two.
      output_dir: directory for the event file; or
      summary_writer: `tf.compat.v1.summary.FileWriter` to use.
      scaffold: `Scaffold` whose summary_op to fetch; or
      summary_op: string tensor with a serialised Summary, or a list of them. Exactly one of the two.

    Raises:
      ValueError: both or neither of a pair.
    """

    _summary_writer: Any

    def after_run(self, run_context: Any, run_values: Any) -> None:
        summaries = run_values.results.get("summary")
        buffer = buffer_for(self._summary_writer) if self._may_collect else None
        if buffer is None or not summaries or self._next_step is None:
            if summaries:
                hand_over(self._summary_writer)
            super().after_run(run_context, run_values)
            return
        global_step = self._step_after_run(run_context.session)
        self._timer.update_last_triggered_step(global_step)
        for summary in summaries:
            buffer.add(summary, global_step)
        self._next_step = global_step + 1

    def end(self, session: Any = None) -> None:
        hand_over(self._summary_writer)
        super().end(session)

    def _leave(self) -> None:
        hand_over(self._summary_writer)

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: Any = None,
        scaffold: Any = None,
        summary_op: Any = None,
    ) -> None:
        check_one_interval(save_steps=save_steps, save_secs=save_secs)
        super().__init__(save_steps, save_secs, output_dir, summary_writer, scaffold, summary_op)
        self._timer: Any = own_timer(self._timer)
        # Only a session that asks for the schedule also calls _leave().
        self._may_collect = False

    _NAME = "SummarySaverHook"

    def _schedule(self, run: int, step_read: Any) -> bool:
        self._may_collect = True
        if self._next_step is not None and self._get_summary_op() is None:
            return True  # Having said that the session has started, it has nothing to write.
        return super()._schedule(run, step_read)
