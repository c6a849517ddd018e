"""Evaluator: evaluates the newest checkpoint, and exports what the exporters want."""

from __future__ import annotations

import os
import time
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.util import compat

from fastsup.estimator.jobs.deleted_checkpoint import step_in_name, with_newer_if_deleted
from fastsup.estimator.jobs.eval_result import EvalResult, EvalStatus
from fastsup.estimator.jobs.specs import assert_eval_spec

__all__ = ["Evaluator"]

_WARNING_SECS = 600
_NOT_TRAINED = "Estimator is not trained yet. Will start an evaluation when a checkpoint is ready."
_NOTHING_NEW = (
    "No new checkpoint ready for evaluation. Skip the current evaluation pass as evaluation results are expected to be "
    "same for the same checkpoint."
)
_SAVE_MORE = "RunConfig's save_checkpoints_steps and save_checkpoints_secs say how often there is one."


class Evaluator:
    """Evaluates the newest checkpoint, and exports what the exporters want.

    Args:
      estimator: the `Estimator`.
      eval_spec: `EvalSpec`: how to evaluate.
      max_training_steps: `TrainSpec.max_steps`, or None.

    Raises:
      TypeError: eval_spec is something else.
    """

    def __init__(self, estimator: Any, eval_spec: Any, max_training_steps: int | None) -> None:
        assert_eval_spec(eval_spec)
        self._estimator = estimator
        self._eval_spec = eval_spec
        self._is_final_export_triggered = False
        self._previous_ckpt_path: Any = None
        self._last_warning_time: float = 0
        self._max_training_steps = max_training_steps

    @property
    def is_final_export_triggered(self) -> bool:
        """Whether the exporters have been told that an export is the final one."""
        return self._is_final_export_triggered

    def evaluate_and_export(self, throttle_steps: int | None = None) -> tuple[EvalResult, list[Any]]:
        """Evaluates the newest checkpoint, if it hasn't been, and calls the exporters.

        Args:
          throttle_steps: global steps at least from the last evaluated checkpoint to this one, unless it is of the
            last training step. None: any number.

        Returns:
          An `EvalResult`, and what the exporters have returned.

        Raises:
          TypeError or ValueError: what `Estimator.evaluate` has returned is no dictionary, or lacks the global step.
        """
        _, outcome = with_newer_if_deleted(
            self._estimator.latest_checkpoint(),
            self._estimator.latest_checkpoint,
            lambda path: self._evaluate_and_export(path, throttle_steps),
        )
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _evaluate_and_export(self, path: Any, throttle_steps: int | None) -> tuple[EvalResult, list[Any]] | Exception:
        if not path:
            self._log_skipped(_NOT_TRAINED, _SAVE_MORE)
            return EvalResult(status=EvalStatus.MISSING_CHECKPOINT), []
        if path == self._previous_ckpt_path:
            self._log_skipped(_NOTHING_NEW, _SAVE_MORE)
            return EvalResult(status=EvalStatus.NO_NEW_CHECKPOINT), []
        if throttle_steps and self._comes_too_soon(path, throttle_steps):
            return EvalResult(status=EvalStatus.THROTTLED), []
        metrics = self._estimator.evaluate(
            input_fn=self._eval_spec.input_fn,
            steps=self._eval_spec.steps,
            name=self._eval_spec.name,
            checkpoint_path=path,
            hooks=self._eval_spec.hooks,
        )
        try:
            result = EvalResult(status=EvalStatus.EVALUATED, metrics=metrics, checkpoint_path=path)
        except (TypeError, ValueError) as error:
            return error  # Raised by the caller: another checkpoint wouldn't help.
        is_final = bool(
            self._max_training_steps and result.metrics[ops.GraphKeys.GLOBAL_STEP] >= self._max_training_steps
        )
        exported = self._export_eval_result(result, is_final)
        if is_final:
            logging.debug("Calling exporter with the `is_the_final_export=True`.")
            self._is_final_export_triggered = True
        self._last_warning_time = 0
        self._previous_ckpt_path = path
        return result, exported

    def _comes_too_soon(self, path: Any, throttle_steps: int) -> bool:
        step, previous = step_in_name(path), step_in_name(self._previous_ckpt_path)
        if step is None or previous is None or not 0 <= step - previous < throttle_steps:
            return False
        if self._max_training_steps and step >= self._max_training_steps:
            return False
        logging.info(
            f"Skip the current checkpoint eval due to throttle steps ({throttle_steps} steps). Step {step}, the last "
            f"one evaluated was {previous}; a smaller EvalSpec.throttle_steps evaluates more often."
        )
        return True

    def _log_skipped(self, message: str, remedy: str) -> None:
        """One line for each evaluation skipped, a warning every ten minutes."""
        now = time.time()
        if now - self._last_warning_time > _WARNING_SECS:
            logging.warning(f"{message} {remedy}")
            self._last_warning_time = now
        else:
            logging.info(f"{message} {remedy}")

    def _export_eval_result(self, eval_result: EvalResult, is_the_final_export: bool) -> list[Any]:
        return [
            exporter.export(
                estimator=self._estimator,
                # Of whatever stands for an estimator and an exporter: they may only look like them.
                export_path=os.path.join(
                    compat.as_str_any(self._estimator.model_dir), "export", compat.as_str_any(exporter.name)
                ),
                checkpoint_path=eval_result.checkpoint_path,
                eval_result=eval_result.metrics,
                is_the_final_export=is_the_final_export,
            )
            for exporter in self._eval_spec.exporters
        ]
