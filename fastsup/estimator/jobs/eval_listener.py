"""Listeners around evaluations: the user's, and the one that evaluates when a checkpoint is saved."""

from __future__ import annotations

from typing import Any

from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks

from fastsup.common import stop_signals
from fastsup.estimator.jobs.eval_result import EvalResult, EvalStatus

__all__ = ["ContinuousEvalListener", "NewCheckpointListenerForEvaluate"]


class ContinuousEvalListener:
    """Base of listeners that decide, around each evaluation, whether evaluation goes on."""

    def before_eval(self) -> bool:
        """Called before each evaluation.

        Returns:
          False to skip this evaluation and all further ones.
        """
        return True

    def after_eval(self, eval_result: EvalResult) -> bool:
        """Called after each evaluation.

        Args:
          eval_result: outcome of the evaluation.

        Returns:
          False to skip all further evaluations.
        """
        return True


class NewCheckpointListenerForEvaluate(basic_session_run_hooks.CheckpointSaverListener):  # type: ignore[misc]
    """Evaluates after a checkpoint is saved, unless the throttle says no, and always after the last one.

    Args:
      evaluator: `Evaluator` to call.
      eval_throttle_secs: minimum seconds from one evaluation to the next.
      continuous_eval_listener: `ContinuousEvalListener` that decides whether evaluation goes on.
      eval_throttle_steps: minimum global steps from one evaluation to the next, or None.
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
        # Both are set when training begins.
        self._timer: Any = None
        self._awaits_first_save = False
        self.eval_result: Any = None
        self.export_results: Any = None

    @property
    def has_begun(self) -> bool:
        """True if training has begun. A model that had reached `max_steps` before isn't trained."""
        return self._timer is not None

    def begin(self) -> None:
        """Starts the throttle."""
        self._awaits_first_save = True
        self._timer = basic_session_run_hooks.SecondOrStepTimer(every_secs=self._eval_throttle_secs)

    def after_save(self, session: Any, global_step_value: Any) -> bool | None:
        """Evaluates the checkpoint, or logs the reason why not.

        Args:
          session: session of the training.
          global_step_value: global step of the checkpoint.

        Returns:
          True to stop training; None to go on.
        """
        if stop_signals.received():
            return None  # `end` follows, and logs it.
        listener = self._continuous_eval_listener
        if self._awaits_first_save:
            skip_reason: str | None = (
                f"Skip the eval of the checkpoint of step {global_step_value}: it is from before the first step of "
                "this training."
            )
            self._awaits_first_save = False
        elif listener.before_eval():
            skip_reason = self._throttle_reason(global_step_value)
        else:
            logging.info(
                "Exiting training and evaluation loop, as requested by _ContinuousEvalListener.before_eval."
            )  # fmt: skip
            return True
        if skip_reason is not None:
            logging.info(skip_reason)
            return None
        self._evaluate(global_step_value)
        if listener.after_eval(self.eval_result):
            return None
        logging.info("Exiting evaluation, as requested by _ContinuousEvalListener.after_eval.")
        return True

    def _throttle_reason(self, step: Any) -> str | None:
        """The reason why the checkpoint of a step comes too soon, or None."""
        if not self._timer.should_trigger_for_step(step):
            return (
                f"Skip the current checkpoint eval due to throttle secs ({self._eval_throttle_secs} secs). Step "
                f"{step}; a smaller EvalSpec.throttle_secs evaluates more often."
            )
        last_step = self._timer.last_triggered_step()
        if not self._eval_throttle_steps or last_step is None or step - last_step >= self._eval_throttle_steps:
            return None
        return (
            f"Skip the current checkpoint eval due to throttle steps ({self._eval_throttle_steps} steps). Step "
            f"{step}, the last one evaluated was {last_step}; a smaller EvalSpec.throttle_steps evaluates more often."
        )

    def end(self, session: Any, global_step_value: Any) -> None:
        """Evaluates the last checkpoint, unless it was evaluated when it was saved, or a signal ends the program."""
        if self._timer.last_triggered_step() == global_step_value:
            return
        if stop_signals.received():
            # There is time for the checkpoint, not for an evaluation.
            logging.info(f"Skip the eval of the checkpoint of step {global_step_value}: a signal ends the training.")
        else:
            self.evaluate_last(global_step_value)

    def evaluate_last(self, global_step_value: Any) -> None:
        """Evaluates the last checkpoint, unless the `ContinuousEvalListener` refuses.

        Args:
          global_step_value: global step of the checkpoint.
        """
        listener = self._continuous_eval_listener
        if listener.before_eval():
            self._evaluate(global_step_value)
            listener.after_eval(self.eval_result)

    def _evaluate(self, step: Any) -> None:
        if self.has_begun:
            self._timer.update_last_triggered_step(step)
        result, exported = self._evaluator.evaluate_and_export()
        self.eval_result, self.export_results = result, exported
        if result.status != EvalStatus.EVALUATED:
            # Impossible in training, which ends with a new checkpoint.
            raise RuntimeError(f"There was no new checkpoint after the training. Eval status: {result.status}")
