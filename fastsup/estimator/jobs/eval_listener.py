"""What goes on around an evaluation, and what evaluates after a checkpoint was saved."""

from __future__ import annotations

import time
from typing import Any

from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks, session_run_hook

from fastsup.estimator.jobs.eval_result import EvalResult, EvalStatus

__all__ = ["ContinuousEvalListener", "NewCheckpointListenerForEvaluate", "StopAtSecsHook"]


class ContinuousEvalListener:
    """Is asked before and after each evaluation whether to go on."""

    def before_eval(self) -> bool:
        """Called before an evaluation. False: it isn't made, and there is no further one."""
        return True

    def after_eval(self, eval_result: EvalResult) -> bool:
        """Called after an evaluation. False: there is no further one.

        Args:
          eval_result: what came of it, an `EvalResult`.
        """
        return True


class StopAtSecsHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Requests a stop some time after the session's begin.

    Args:
      stop_after_secs: seconds after which to stop.

    Raises:
      TypeError: it is no number.
    """

    def __init__(self, stop_after_secs: float) -> None:
        if not hasattr(stop_after_secs, "__float__"):
            raise TypeError(f"stop_after_secs must be a number of seconds, got {stop_after_secs!r}.")
        self._stop_after_secs = stop_after_secs
        self._start_time: Any = None

    def begin(self) -> None:
        """Takes the time that counts as the start."""
        self._start_time = time.time()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Requests a stop if it is time."""
        if time.time() - self._start_time >= self._stop_after_secs:
            run_context.request_stop()


class NewCheckpointListenerForEvaluate(basic_session_run_hooks.CheckpointSaverListener):  # type: ignore[misc]
    """Evaluates after a checkpoint was saved, and always after the last one.

    Args:
      evaluator: `Evaluator` that does it.
      eval_throttle_secs: seconds at least from one evaluation to the next.
      continuous_eval_listener: `ContinuousEvalListener` to ask whether to go on.
      eval_throttle_steps: global steps at least from one evaluation to the next, or None.
    """

    def __init__(
        self,
        evaluator: Any,
        eval_throttle_secs: float,
        continuous_eval_listener: Any,
        eval_throttle_steps: int | None = None,
    ) -> None:
        self._evaluator = evaluator
        self._eval_throttle_secs = eval_throttle_secs
        self._eval_throttle_steps = eval_throttle_steps
        self._continuous_eval_listener = continuous_eval_listener
        self._timer: Any = None
        self.eval_result: Any = None
        self.export_results: Any = None

    @property
    def has_begun(self) -> bool:
        """Whether there was any training to listen to."""
        return self._timer is not None

    def begin(self) -> None:
        """Called when training begins."""
        self._timer = basic_session_run_hooks.SecondOrStepTimer(every_secs=self._eval_throttle_secs)
        self._is_first_run = True

    def after_save(self, session: Any, global_step_value: Any) -> bool | None:
        """Evaluates if enough time and steps have passed. Returns True to stop training."""
        if self._is_first_run:
            self._is_first_run = False
            logging.info(
                "Skip the eval of the checkpoint of step %s: it is from before the first step of this training.",
                global_step_value,
            )
            return None
        if not self._continuous_eval_listener.before_eval():
            logging.info(
                "Exiting training and evaluation loop, as requested by _ContinuousEvalListener.before_eval."
            )  # fmt: skip
            return True
        if self._is_throttled(global_step_value):
            return None
        self._evaluate(global_step_value)
        if not self._continuous_eval_listener.after_eval(self.eval_result):
            logging.info("Exiting evaluation, as requested by _ContinuousEvalListener.after_eval.")
            return True
        return None

    def _is_throttled(self, global_step_value: Any) -> bool:
        if not self._timer.should_trigger_for_step(global_step_value):
            logging.info(
                f"Skip the current checkpoint eval due to throttle secs ({self._eval_throttle_secs} secs). Step "
                f"{global_step_value}; a smaller EvalSpec.throttle_secs evaluates more often."
            )
            return True
        last_step = self._timer.last_triggered_step() if self._eval_throttle_steps else None
        if last_step is not None and global_step_value - last_step < self._eval_throttle_steps:
            logging.info(
                f"Skip the current checkpoint eval due to throttle steps ({self._eval_throttle_steps} steps). Step "
                f"{global_step_value}, the last one evaluated was {last_step}; a smaller EvalSpec.throttle_steps "
                "evaluates more often."
            )
            return True
        return False

    def end(self, session: Any, global_step_value: Any) -> None:
        """Evaluates the last checkpoint if that hasn't been done."""
        if global_step_value != self._timer.last_triggered_step():
            self.evaluate_last(global_step_value)

    def evaluate_last(self, global_step_value: Any) -> None:
        """Evaluates the last checkpoint, unless the listener says not to.

        Args:
          global_step_value: its global step.
        """
        if self._continuous_eval_listener.before_eval():
            self._evaluate(global_step_value)
            self._continuous_eval_listener.after_eval(self.eval_result)

    def _evaluate(self, global_step_value: Any) -> None:
        if self._timer is not None:
            self._timer.update_last_triggered_step(global_step_value)
        self.eval_result, self.export_results = self._evaluator.evaluate_and_export()
        if self.eval_result.status != EvalStatus.EVALUATED:
            # Training always ends with a new checkpoint.
            raise RuntimeError(
                f"There was no new checkpoint after the training. Eval status: {self.eval_result.status}"
            )
