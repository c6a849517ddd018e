"""The part of an Experiment that evaluates and exports, once or continuously."""

from __future__ import annotations

import functools
import os
from typing import Any

from tensorflow.python.util import compat

from fastsup.cluster.peer_liveness import peer_liveness_of
from fastsup.experiment.arguments import as_predicate, check_seconds
from fastsup.experiment.continuous_eval import evaluate_continuously, log_and_sleep

__all__ = ["Evaluation"]


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
          delay_secs: seconds to wait first. None: eval_delay_secs.
          name: name of the evaluation. None: "one_pass".

        Returns:
          Dictionary from names of metrics to values.

        Raises:
          ValueError: delay_secs isn't a number of seconds.
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
        """Evaluates and exports each new checkpoint, until a checkpoint of train_steps was evaluated.

        Args:
          delay_secs: seconds to wait first. None: eval_delay_secs.
          throttle_delay_secs: minimum seconds from the start of one evaluation to the start of the next. None:
            continuous_eval_throttle_secs.
          evaluate_checkpoint_only_once: True to evaluate a checkpoint only once.
          continuous_eval_predicate_fn: function of `eval_results`, or of that and an argument named `checkpoint_path`,
            that returns False to stop. Called before each attempt: first with None, then with the last metrics, or with
            {} if there was nothing to evaluate.
          name: name of the evaluation.

        Raises:
          ValueError: the predicate isn't callable, or a delay isn't a number of seconds.
          tf.errors.DeadlineExceededError: no task that trains is alive.
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
          ValueError: the predicate isn't callable, or a delay isn't a number of seconds.
          tf.errors.DeadlineExceededError: no task that trains is alive.
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
        # Never None, with which the predicate is called before the first evaluation.
        eval_result = self._call_evaluate(input_fn=input_fn, name=name, checkpoint_path=path) or {}
        if export:
            self._export(eval_result, checkpoint_path=path)
        return eval_result

    def _require_eval_input_fn(self) -> None:
        """Raises before training, rather than in the evaluation that follows, if eval_input_fn is missing."""
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
