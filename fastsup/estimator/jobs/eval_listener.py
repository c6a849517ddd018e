"""Listeners around evaluations: the user's, which receives an EvalResult, and one that evaluates each checkpoint."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks

from fastsup.common import stop_signals

__all__ = [
    "ContinuousEvalListener",
    "EvalResult",
    "EvalStatus",
    "NewCheckpointListenerForEvaluate",
]


class EvalStatus:
    """Outcomes of an attempt to evaluate a checkpoint.

    - EVALUATED: a new checkpoint was evaluated.
    - MISSING_CHECKPOINT: the model directory has no checkpoint yet.
    - NO_NEW_CHECKPOINT: no checkpoint was saved since the last evaluation.
    - THROTTLED: the new checkpoint is fewer than `EvalSpec.throttle_steps` steps after the last evaluated one.
    """

    EVALUATED = "evaluated"
    MISSING_CHECKPOINT = "missing checkpoint"
    NO_NEW_CHECKPOINT = "no new checkpoint"
    THROTTLED = "throttled"


class _EvalResult(NamedTuple):
    status: Any
    metrics: Any
    checkpoint_path: Any


def _check_metrics(metrics: Any) -> None:
    """Rejects metrics that `Estimator.evaluate` can't have returned."""
    if metrics and not isinstance(metrics, dict):
        raise TypeError(f"`Estimator.evaluate` should return dict. Given {type(metrics)}.")
    if not metrics:
        raise ValueError("Internal error: `Estimator.evaluate` should never return empty metrics.")
    if ops.GraphKeys.GLOBAL_STEP not in metrics:
        raise ValueError(
            f"Internal error: `Estimator.evaluate` result should have `global_step` in result. Given {metrics}"
        )


class EvalResult(_EvalResult):
    """The outcome of an attempt to evaluate a checkpoint.

    Args:
      status: one of `EvalStatus`.
      metrics: dictionary that `Estimator.evaluate` returned. Only with status EVALUATED.
      checkpoint_path: path of the evaluated checkpoint. Only with status EVALUATED.

    Raises:
      ValueError: If metrics or checkpoint_path don't match the status, or the metrics lack the global step.
      TypeError: If metrics isn't a dictionary.
    """

    __slots__ = ()

    def __new__(cls, status: str, metrics: Any = None, checkpoint_path: Any = None) -> EvalResult:
        if status == EvalStatus.EVALUATED:
            _check_metrics(metrics)
            if not checkpoint_path:
                raise ValueError("Internal error: `checkpoint_path` should never be empty.")
        else:
            for name, label, value in (
                ("metrics", "metrics", metrics),
                ("checkpoint", "checkpoint_path", checkpoint_path),
            ):
                if value:
                    raise ValueError(
                        f"{name} must be `None` if status is not {EvalStatus.EVALUATED}; got status {status}, {label} "
                        f"{value}"
                    )
        return super().__new__(cls, status, metrics, checkpoint_path)


class ContinuousEvalListener:
    """Base of listeners that decide before and after each evaluation whether evaluation continues."""

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
    """Evaluates each saved checkpoint unless evaluations are throttled. Always evaluates the last one.

    Args:
      evaluator: `Evaluator` to call.
      eval_throttle_secs: minimum seconds from one evaluation to the next.
      continuous_eval_listener: `ContinuousEvalListener` that decides whether evaluation continues.
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
        # The next two attributes are set when training starts.
        self._timer: Any = None
        self._awaits_first_save = False
        self.eval_result: Any = None
        self.export_results: Any = None

    @property
    def has_begun(self) -> bool:
        """True if training has started. Training doesn't start if the model had already reached `max_steps`."""
        return self._timer is not None

    def begin(self) -> None:
        """Starts the throttle."""
        self._awaits_first_save = True
        self._timer = basic_session_run_hooks.SecondOrStepTimer(every_secs=self._eval_throttle_secs)

    def after_save(self, session: Any, global_step_value: Any) -> bool | None:
        """Evaluates the checkpoint, or logs why it is skipped.

        Args:
          session: session of the training.
          global_step_value: global step of the checkpoint.

        Returns:
          True to stop training, None to continue.
        """
        if stop_signals.received():
            return None  # `end` is called next, and logs the skip.
        listener = self._continuous_eval_listener
        if self._awaits_first_save:
            skip_reason: str | None = (
                f"Skip the eval of the checkpoint of step {global_step_value}: it precedes the first step of this "
                "training."
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
        """Returns the reason why a checkpoint is skipped as too recent, or None."""
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
            # There is time to save a checkpoint, but not to evaluate it.
            logging.info(
                f"Skip the eval of the checkpoint of step {global_step_value}: a signal is ending the training."
            )
        else:
            self.evaluate_last(global_step_value)

    def evaluate_last(self, global_step_value: Any) -> None:
        """Evaluates the last checkpoint unless the `ContinuousEvalListener` refuses.

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
            # This can't happen, because training ends with a new checkpoint.
            raise RuntimeError(f"There was no new checkpoint after the training. Eval status: {result.status}")
