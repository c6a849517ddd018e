"""Evaluator: evaluates the newest checkpoint and calls the exporters."""

from __future__ import annotations

import os
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.util import compat

from fastsup.core.clock import steady
from fastsup.estimator.jobs.deleted_checkpoint import evaluate_or_newer, step_in_name
from fastsup.estimator.jobs.eval_result import EvalResult, EvalStatus
from fastsup.estimator.jobs.evaluation_graph import EvaluationGraph
from fastsup.estimator.jobs.specs import assert_eval_spec
from fastsup.estimator.model.estimator import EstimatorV1

__all__ = ["Evaluator"]

_WARNING_SECS = 600
_SKIPPED = {
    EvalStatus.MISSING_CHECKPOINT: (
        "Estimator is not trained yet. Will start an evaluation when a checkpoint is ready."
    ),
    EvalStatus.NO_NEW_CHECKPOINT: (
        "No new checkpoint ready for evaluation. Skip the current evaluation pass as evaluation results are expected "
        "to be same for the same checkpoint."
    ),
}
_REMEDY = "RunConfig's save_checkpoints_steps and save_checkpoints_secs say how often there is one."


class Evaluator:
    """Evaluates the newest checkpoint and calls the exporters.

    Args:
      estimator: the `Estimator`.
      eval_spec: `EvalSpec`.
      max_training_steps: `TrainSpec.max_steps`, or None.

    Raises:
      TypeError: eval_spec is no `EvalSpec`.
    """

    def __init__(self, estimator: Any, eval_spec: Any, max_training_steps: int | None) -> None:
        assert_eval_spec(eval_spec)
        self._estimator = estimator
        self._eval_spec = eval_spec
        self._max_training_steps = max_training_steps
        self._is_final_export_triggered = False
        self._previous_path: Any = None
        self._graph: EvaluationGraph | None = None
        self._last_warning_time: float = 0

    @property
    def is_final_export_triggered(self) -> bool:
        """True once the exporters were called with `is_the_final_export=True`."""
        return self._is_final_export_triggered

    def evaluate_and_export(self, throttle_steps: int | None = None) -> tuple[EvalResult, list[Any]]:
        """Evaluates the newest checkpoint, unless it was evaluated before, and calls the exporters.

        Args:
          throttle_steps: minimum global steps from the last evaluated checkpoint to this one, unless this one is of the
            last training step. None: no minimum.

        Returns:
          The outcome, and the list of the exporters' results.

        Raises:
          TypeError: the metrics that `Estimator.evaluate` has returned aren't a dictionary.
          ValueError: the metrics lack the global step.
        """
        _, outcome = evaluate_or_newer(
            self._estimator.latest_checkpoint(),
            self._estimator.latest_checkpoint,
            lambda path: self._evaluate_and_export(path, throttle_steps),
        )
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _evaluate_and_export(self, path: Any, throttle_steps: int | None) -> tuple[EvalResult, list[Any]] | Exception:
        """Evaluates a checkpoint. Returns invalid metrics as an error: a newer checkpoint would have the same."""
        skipped = self._skip_status(path, throttle_steps)
        if skipped is not None:
            return EvalResult(status=skipped), []
        spec = self._eval_spec
        metrics = self._evaluate(path)
        try:
            result = EvalResult(EvalStatus.EVALUATED, metrics, path)
        except (TypeError, ValueError) as error:
            return error
        is_final = self._is_last_step(metrics[ops.GraphKeys.GLOBAL_STEP])
        exported = [self._export(exporter, result, is_final) for exporter in spec.exporters]
        if is_final:
            logging.debug("Calling exporter with the `is_the_final_export=True`.")
            self._is_final_export_triggered = True
        self._last_warning_time = 0
        self._previous_path = path
        return result, exported

    def _evaluate(self, path: Any) -> Any:
        spec = self._eval_spec
        if not spec.keep_graph or not isinstance(self._estimator, EstimatorV1):
            return self._estimator.evaluate(
                input_fn=spec.input_fn, steps=spec.steps, name=spec.name, checkpoint_path=path, hooks=spec.hooks
            )
        if self._graph is None:
            self._graph = EvaluationGraph(self._estimator, spec.input_fn, spec.steps, spec.hooks, spec.name)
        return self._graph.evaluate(path)

    def _skip_status(self, path: Any, throttle_steps: int | None) -> str | None:
        """The status of a checkpoint that isn't evaluated, whose reason is logged; None for one to evaluate."""
        if not path:
            status = EvalStatus.MISSING_CHECKPOINT
        elif path == self._previous_path:
            status = EvalStatus.NO_NEW_CHECKPOINT
        else:
            return EvalStatus.THROTTLED if throttle_steps and self._is_throttled(path, throttle_steps) else None
        # A warning every ten minutes; between two warnings the line is logged at INFO.
        log, now = logging.info, steady()
        if now - self._last_warning_time > _WARNING_SECS:
            log, self._last_warning_time = logging.warning, now
        log(f"{_SKIPPED[status]} {_REMEDY}")
        return status

    def _is_throttled(self, path: Any, throttle_steps: int) -> bool:
        """True for a checkpoint that comes too soon after the last one evaluated. Logs the reason."""
        step, previous = step_in_name(path), step_in_name(self._previous_path)
        if step is None or previous is None or not 0 <= step - previous < throttle_steps or self._is_last_step(step):
            return False
        logging.info(
            f"Skip the current checkpoint eval due to throttle steps ({throttle_steps} steps). Step {step}, the last "
            f"one evaluated was {previous}; a smaller EvalSpec.throttle_steps evaluates more often."
        )
        return True

    def _is_last_step(self, step: Any) -> bool:
        return bool(self._max_training_steps and step >= self._max_training_steps)

    def _export(self, exporter: Any, result: EvalResult, is_final: bool) -> Any:
        # The names are converted because lookalikes of estimators and exporters may have bytes.
        model_dir, name = compat.as_str_any(self._estimator.model_dir), compat.as_str_any(exporter.name)
        return exporter.export(
            estimator=self._estimator,
            export_path=os.path.join(model_dir, "export", name),
            checkpoint_path=result.checkpoint_path,
            eval_result=result.metrics,
            is_the_final_export=is_final,
        )
