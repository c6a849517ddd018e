"""Evaluator, which evaluates the newest checkpoint and calls the exporters. One graph can serve all checkpoints."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, TypeVar

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.eager import context
from tensorflow.python.framework import errors, ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import evaluation
from tensorflow.python.util import compat

from fastsup.checkpoint.directory import step_of
from fastsup.core.clock import steady
from fastsup.core.timeline import phase
from fastsup.estimator.jobs.eval_listener import EvalResult, EvalStatus
from fastsup.estimator.jobs.specs import assert_eval_spec
from fastsup.estimator.model.estimator import EstimatorV1

__all__ = [
    "EvaluationGraph",
    "Evaluator",
    "EvaluatorPacing",
    "evaluate_or_newer",
    "step_in_name",
]

_Result = TypeVar("_Result")


def evaluate_or_newer(path: Any, latest: Callable[[], Any], evaluate: Callable[[Any], _Result]) -> tuple[Any, _Result]:
    """Evaluates a checkpoint, or a newer one if the checkpoint is deleted during the evaluation.

    Each repetition logs a warning. This repeats as long as training replaces all kept checkpoints before an evaluation
    has restored one. It ends with training at the latest, because the last checkpoint isn't deleted.
    """
    while True:
        try:
            return path, evaluate(path)
        except (errors.OpError, ValueError) as error:  # noqa: PERF203
            newer = latest() if _names_checkpoint(error, path) and _is_gone(path) else None
            if not newer or newer == path or _is_older(newer, path):
                raise
            logging.warning(
                "The checkpoint %s was deleted while it was being evaluated (%s). Evaluating %s instead. A larger "
                "RunConfig.keep_checkpoint_max keeps checkpoints longer. "
                "See `python -m fastsup docs dropin#estimator`.",
                path,
                type(error).__name__,
                newer,
            )
            path = newer


def step_in_name(path: Any) -> int | None:
    """Returns the global step in the name of a checkpoint, or None if the name has none."""
    return step_of(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else None


def _is_older(path: Any, other: Any) -> bool:
    step, other_step = step_in_name(path), step_in_name(other)
    return step is not None and other_step is not None and step < other_step


def _names_checkpoint(error: Exception, path: Any) -> bool:
    """Returns True if an error's message contains the checkpoint's path, as the error of a failed restore does."""
    return isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path) in str(error)


def _is_gone(path: Any) -> bool:
    return not checkpoint_management.checkpoint_exists_internal(os.fsdecode(path))


class EvaluationGraph:
    """Evaluates several checkpoints in a graph that is built once, so that input_fn and model_fn are called once.

    Each evaluation has its own session and calls the hooks as `Estimator.evaluate` does.
    """

    def __init__(
        self, estimator: Any, input_fn: Callable[..., Any], steps: int | None, hooks: tuple[Any, ...], name: str | None
    ) -> None:
        self._estimator = estimator
        self._input_fn = input_fn
        self._hooks = [*hooks, *estimator._convert_eval_steps_to_hooks(steps)]
        self._output_dir = estimator.eval_dir(name)
        # The graph and the arguments for `Estimator._evaluate_run`. None until the graph is built.
        self._built: tuple[Any, dict[str, Any]] | None = None

    def evaluate(self, checkpoint_path: str) -> dict[str, Any]:
        """Evaluates a checkpoint, writes the metrics and returns them.

        Builds the graph again after an error, or if hooks added variables to it.
        """
        strategy = self._estimator._eval_distribution
        built, self._built = self._built, None
        graph = ops.Graph() if built is None else built[0]
        scope = strategy.scope() if strategy else contextlib.nullcontext()
        with phase("evaluate"), context.graph_mode(), graph.as_default(), scope:
            if built is None:
                built = graph, self._build(checkpoint_path)
            variables = _variables_of(graph)
            found: dict[str, Any] = self._estimator._evaluate_run(
                checkpoint_path=checkpoint_path, output_dir=self._output_dir, **built[1]
            )
            if _variables_of(graph) == variables:
                self._built = built
            return found

    def _build(self, checkpoint_path: str) -> dict[str, Any]:
        scaffold, update_op, metrics, hooks = self._estimator._evaluate_build_graph(
            self._input_fn, self._hooks, checkpoint_path
        )
        evaluation._get_or_create_eval_step()  # Every evaluation has this variable.
        return {"scaffold": scaffold, "update_op": update_op, "eval_dict": metrics, "all_hooks": hooks}


def _variables_of(graph: Any) -> list[int]:
    """Returns the numbers of global and local variables in a graph."""
    return [
        len(graph.get_collection_ref(name)) for name in (ops.GraphKeys.GLOBAL_VARIABLES, ops.GraphKeys.LOCAL_VARIABLES)
    ]


# Seconds between attempts of an evaluator without a throttle that finds no new checkpoint.
_POLL_SECS = 0.2
_NO_THROTTLE_WARNING = (
    "EvalSpec.throttle_secs is set as 0. This might overload the job before finding (next) new checkpoint. Please "
    "consider to increase it."
)


class EvaluatorPacing:
    """Decides how long an evaluator waits for its next attempt, and when it has been idle for too long.

    All times are in seconds, from `fastsup.core.clock.steady`.
    """

    def __init__(self, eval_spec: Any) -> None:
        self._eval_spec = eval_spec
        # The time when the last attempt that found a new checkpoint ended, or when the first attempt that found none
        # started.
        self._idle_since: float | None = None

    def is_idle_too_long(self, result: EvalResult, start: float, now: float) -> bool:
        """Returns True if there has been no new checkpoint for `EvalSpec.idle_timeout_secs`."""
        if result.status not in (EvalStatus.MISSING_CHECKPOINT, EvalStatus.NO_NEW_CHECKPOINT):
            self._idle_since = now
            return False
        if self._idle_since is None:
            self._idle_since = start
        timeout_secs = self._eval_spec.idle_timeout_secs
        if timeout_secs is None or now - self._idle_since < timeout_secs:
            return False
        logging.warning(
            "Exiting evaluation, there has been no new checkpoint for %f secs (EvalSpec.idle_timeout_secs=%s).",
            now - self._idle_since,
            timeout_secs,
        )
        return True

    def secs_to_next_attempt(self, result: EvalResult, start: float, now: float, throttle_secs: float) -> float:
        """Returns the seconds until the next attempt, at the end of the throttle or of the idle timeout."""
        wait_secs = throttle_secs - (now - start)
        if wait_secs <= 0 and result.status != EvalStatus.EVALUATED:
            if throttle_secs == 0:
                logging.warning(_NO_THROTTLE_WARNING)
            wait_secs = _POLL_SECS
        if self._idle_since is not None and self._eval_spec.idle_timeout_secs is not None:
            wait_secs = min(wait_secs, self._idle_since + self._eval_spec.idle_timeout_secs - now)
        return wait_secs


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
_REMEDY = "RunConfig's save_checkpoints_steps and save_checkpoints_secs set how often checkpoints are saved."


class Evaluator:
    """Evaluates the newest checkpoint and calls the exporters."""

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
        """Evaluates the newest checkpoint unless it was already evaluated, and calls the exporters.

        `throttle_steps` is the minimum number of global steps since the last evaluated checkpoint. It doesn't apply to
        the last training step. Returns the outcome, and the list of the exporters' results.
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
        """Evaluates a checkpoint. Returns an error about invalid metrics, which a newer checkpoint would also have."""
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
        """Returns the status of a skipped checkpoint after logging the reason, or None for a checkpoint to evaluate."""
        if not path:
            status = EvalStatus.MISSING_CHECKPOINT
        elif path == self._previous_path:
            status = EvalStatus.NO_NEW_CHECKPOINT
        else:
            return EvalStatus.THROTTLED if throttle_steps and self._is_throttled(path, throttle_steps) else None
        # Warn every ten minutes. Log the other lines at INFO.
        log, now = logging.info, steady()
        if now - self._last_warning_time > _WARNING_SECS:
            log, self._last_warning_time = logging.warning, now
        log(f"{_SKIPPED[status]} {_REMEDY}")
        return status

    def _is_throttled(self, path: Any, throttle_steps: int) -> bool:
        """Returns True if too few steps have passed since the last evaluated checkpoint. Logs the reason."""
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
        # Convert the names, because lookalikes of estimators and exporters may use bytes.
        model_dir, name = compat.as_str_any(self._estimator.model_dir), compat.as_str_any(exporter.name)
        return exporter.export(
            estimator=self._estimator,
            export_path=os.path.join(model_dir, "export", name),
            checkpoint_path=result.checkpoint_path,
            eval_result=result.metrics,
            is_the_final_export=is_final,
        )
