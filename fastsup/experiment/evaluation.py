"""The part of an Experiment that evaluates and exports, once or continuously."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.util import compat

from fastsup.cluster.job_completion import JobCompletionWatcher
from fastsup.cluster.peer_liveness import PeerLiveness, peer_liveness_of
from fastsup.core.clock import steady
from fastsup.estimator.jobs.evaluator import evaluate_or_newer
from fastsup.experiment.arguments import as_predicate, check_seconds

__all__ = [
    "Evaluation",
    "evaluate_continuously",
    "has_reached",
    "log_and_sleep",
]

_WARNING_SECS = 600


def log_and_sleep(message: str, seconds: float) -> None:
    """Logs a message with the seconds, and sleeps. Does nothing for 0 seconds or less."""
    if seconds > 0:
        logging.info(message, seconds)
        time.sleep(seconds)


def has_reached(train_steps: int | None, eval_result: Any) -> bool:
    """Returns True if the metrics belong to the global step at which training ends, or a later one."""
    global_step = eval_result.get(ops.GraphKeys.GLOBAL_STEP) if eval_result else None
    return bool(global_step and train_steps and global_step >= train_steps)


class _NothingToEvaluateLog:
    """Warns at most every ten minutes that there is no checkpoint to evaluate."""

    def __init__(self) -> None:
        self._last_warning_time: float = 0

    def warn(self, latest_path: Any) -> None:
        if steady() - self._last_warning_time <= _WARNING_SECS:
            return
        if latest_path:
            logging.warning("No new checkpoint ready for evaluation.")
        else:
            logging.warning("Estimator is not fitted yet. Will start an evaluation when a checkpoint is ready.")
        self._last_warning_time = steady()

    def reset(self) -> None:
        """Makes the next call of `warn` log."""
        self._last_warning_time = 0


def evaluate_continuously(
    evaluate: Callable[[Any], Any],
    model_dir: Any,
    train_steps: int | None,
    predicate: Callable[[Any, Any], Any],
    delay_secs: float,
    throttle_secs: float,
    only_once: bool,
    liveness: PeerLiveness,
) -> None:
    """Evaluates new checkpoints until training has ended or a predicate returns False.

    The predicate receives the metrics and path of the last checkpoint. The metrics are None before the first
    evaluation, and {} if nothing was evaluated.
    """

    def latest() -> Any:
        return checkpoint_management.latest_checkpoint(model_dir)

    watcher = JobCompletionWatcher(model_dir)
    log_and_sleep("Waiting %f secs before starting eval.", delay_secs)
    evaluated_path: Any = None
    result: Any = None
    log = _NothingToEvaluateLog()
    is_last = False
    while predicate(result, evaluated_path):
        if has_reached(train_steps, result):
            logging.info(
                "Exiting continuous eval, global_step=%s >= train_step=%s",
                result[ops.GraphKeys.GLOBAL_STEP],
                train_steps,
            )
            return
        if is_last:
            logging.info(
                "Exiting continuous eval, training has ended before train_steps=%s. See "
                "`python -m fastsup docs dropin#experiment-and-tfcontrib`.",
                train_steps,
            )
            return
        start = steady()
        # Read this before `latest`, which then returns the final checkpoint if training has ended.
        is_last = watcher.chief_has_ended()
        path = latest()
        if path and not (only_once and path == evaluated_path):
            evaluated_path, result = evaluate_or_newer(path, latest, evaluate)
            log.reset()
            liveness.record_alive()
        else:
            result = {}
            log.warn(path)
            if not is_last:
                liveness.check()
        if not is_last:
            log_and_sleep("Waiting %f secs before starting next eval run.", throttle_secs - (steady() - start))


class Evaluation:
    """The part of an `Experiment` that evaluates and exports."""

    _estimator: Any
    _is_core_estimator: bool
    _train_input_fn: Any
    _eval_input_fn: Any
    _eval_metrics: Any
    _eval_steps: int | None
    _eval_hooks: list[Any]
    _eval_delay_secs: float
    _continuous_eval_throttle_secs: float
    _train_steps: int | None
    _export_strategies: Any

    def evaluate(self, delay_secs: float | None = None, name: str | None = None) -> Any:
        """Evaluates once.

        Args:
          delay_secs: seconds to wait first. If None, uses eval_delay_secs.
          name: name of the evaluation. If None, uses "one_pass".

        Returns:
          Dictionary from metric names to values.

        Raises:
          ValueError: If delay_secs isn't a number of seconds.
        """
        check_seconds(delay_secs=delay_secs)
        log_and_sleep(
            "Waiting %d secs before starting eval.", self._eval_delay_secs if delay_secs is None else delay_secs
        )
        return self._call_evaluate(name=name or "one_pass")

    def continuous_eval(
        self,
        delay_secs: float | None = None,
        throttle_delay_secs: float | None = None,
        evaluate_checkpoint_only_once: bool = True,
        continuous_eval_predicate_fn: Any = None,
        name: str = "continuous",
    ) -> None:
        """Evaluates and exports each new checkpoint until a checkpoint of train_steps has been evaluated.

        Args:
          delay_secs: seconds to wait first. If None, uses eval_delay_secs.
          throttle_delay_secs: minimum seconds from the start of one evaluation to the start of the next. If None, uses
            continuous_eval_throttle_secs.
          evaluate_checkpoint_only_once: Whether to evaluate a checkpoint only once.
          continuous_eval_predicate_fn: function of `eval_results`, and optionally of an argument named
            `checkpoint_path`, that returns False to stop. Called before each attempt. `eval_results` is None the first
            time, then the last metrics, or {} if there was nothing to evaluate.
          name: name of the evaluation.

        Raises:
          ValueError: If the predicate isn't callable, or a delay isn't a number of seconds.
          tf.errors.DeadlineExceededError: If no training task is alive.
        """
        self._continuous_eval(
            self._eval_input_fn,
            name=name,
            delay_secs=delay_secs,
            throttle_delay_secs=throttle_delay_secs,
            evaluate_checkpoint_only_once=evaluate_checkpoint_only_once,
            continuous_eval_predicate_fn=continuous_eval_predicate_fn,
        )

    def continuous_eval_on_train_data(
        self,
        delay_secs: float | None = None,
        throttle_delay_secs: float | None = None,
        continuous_eval_predicate_fn: Any = None,
        name: str = "continuous_on_train_data",
    ) -> None:
        """Evaluates each new checkpoint on the training data, without exports. See `continuous_eval`.

        Args:
          name: name of the evaluation.

        Raises:
          ValueError: If the predicate isn't callable, or a delay isn't a number of seconds.
          tf.errors.DeadlineExceededError: If no training task is alive.
        """
        self._continuous_eval(
            self._train_input_fn,
            name=name,
            delay_secs=delay_secs,
            throttle_delay_secs=throttle_delay_secs,
            continuous_eval_predicate_fn=continuous_eval_predicate_fn,
            export=False,
        )

    def _continuous_eval(
        self,
        input_fn: Any,
        name: str,
        delay_secs: float | None,
        throttle_delay_secs: float | None,
        evaluate_checkpoint_only_once: bool = True,
        continuous_eval_predicate_fn: Any = None,
        export: bool = True,
    ) -> None:
        check_seconds(delay_secs=delay_secs, throttle_delay_secs=throttle_delay_secs)
        evaluate_continuously(
            functools.partial(self._evaluate_and_export, input_fn, name, export),
            self._estimator.model_dir,
            self._train_steps,
            predicate=as_predicate(continuous_eval_predicate_fn),
            delay_secs=self._eval_delay_secs if delay_secs is None else delay_secs,
            throttle_secs=self._continuous_eval_throttle_secs if throttle_delay_secs is None else throttle_delay_secs,
            only_once=evaluate_checkpoint_only_once,
            liveness=peer_liveness_of(self._estimator.config),
        )

    def _evaluate_and_export(self, input_fn: Any, name: str, export: bool, path: Any) -> Any:
        # Don't pass on None, which stands for the first call to the predicate.
        eval_result = self._call_evaluate(input_fn=input_fn, name=name, checkpoint_path=path) or {}
        if export:
            self._export(eval_result, checkpoint_path=path)
        return eval_result

    def _require_eval_input_fn(self) -> None:
        """Raises an error before training, instead of in the following evaluation, if eval_input_fn is missing."""
        if self._eval_input_fn is None:
            raise ValueError("`eval_input_fn` is None. Give the Experiment a function that returns the data.")

    def _call_evaluate(self, **arguments: Any) -> Any:
        defaults = {"input_fn": self._eval_input_fn, "steps": self._eval_steps, "hooks": self._eval_hooks}
        if not self._is_core_estimator:
            defaults["metrics"] = self._eval_metrics
        return self._estimator.evaluate(**{**defaults, "checkpoint_path": None, **arguments})

    def _export(self, eval_result: Any, checkpoint_path: Any = None) -> list[Any]:
        return [
            strategy.export(
                self._estimator,
                os.path.join(compat.as_str_any(self._estimator.model_dir), "export", strategy.name),
                checkpoint_path=checkpoint_path,
                eval_result=eval_result,
            )
            for strategy in self._export_strategies
        ]
