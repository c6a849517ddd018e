"""The part of an Experiment that evaluates and exports, once or again and again."""

from __future__ import annotations

import functools
import os
from typing import Any

from tensorflow.python.util import compat

from fastsup.cluster.peer_liveness import trainers_of
from fastsup.experiment.arguments import as_predicate, check_seconds
from fastsup.experiment.continuous_eval import evaluate_continuously, wait

__all__ = ["Evaluating"]


class Evaluating:
    """Evaluates and exports an Estimator, by what an `Experiment` was given."""

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
          delay_secs: seconds to wait before. None: eval_delay_secs.
          name: name of the evaluation. None: "one_pass".

        Returns:
          The metrics.

        Raises:
          ValueError: delay_secs is no number of seconds.
        """
        check_seconds(delay_secs=delay_secs)
        wait("Waiting %d secs before starting eval.", self._eval_delay_secs if delay_secs is None else delay_secs)
        return self._call_evaluate(name=name or "one_pass")

    def continuous_eval(
        self,
        delay_secs: float | None = None,
        throttle_delay_secs: float | None = None,
        evaluate_checkpoint_only_once: bool = True,
        continuous_eval_predicate_fn: Any = None,
        name: str = "continuous",
    ) -> None:
        """Evaluates and exports each new checkpoint until one of train_steps was evaluated.

        Args:
          delay_secs: seconds to wait before. None: eval_delay_secs.
          throttle_delay_secs: seconds at least from the start of one evaluation to the start of the next. None:
            continuous_eval_throttle_secs.
          evaluate_checkpoint_only_once: whether a checkpoint is evaluated only once.
          continuous_eval_predicate_fn: function of `eval_results`, or of that and an argument of the name
            `checkpoint_path`, that says whether to go on. It is asked before each look: first with None, with {} where
            there was nothing to evaluate.
          name: name of the evaluation.

        Raises:
          ValueError: the predicate isn't callable, or a delay is no number of seconds.
          tf.errors.DeadlineExceededError: there is nobody left who trains.
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
        """As `continuous_eval`, on the training data and without exports."""
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
            trainers=trainers_of(self._estimator.config),
        )

    def _evaluate_and_export(self, input_fn: Any, name: str, export: bool, path: Any) -> Any:
        # Never None: that is what the predicate gets before the first evaluation.
        eval_result = self._call_evaluate(input_fn=input_fn, name=name, checkpoint_path=path) or {}
        if export:
            self._export(eval_result, checkpoint_path=path)
        return eval_result

    def _check_evaluates(self) -> None:
        """Refuses, before it trains, what could not evaluate after it."""
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
