"""Experiment, which trains and evaluates an Estimator, and ExportStrategy, a named function that exports it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.util import function_utils

from fastsup.experiment.arguments import (
    as_predicate,
    check_functions,
    check_hooks,
    check_listeners,
    check_seconds,
    check_steps,
    is_core_estimator,
)
from fastsup.experiment.evaluation import Evaluation, has_reached
from fastsup.experiment.training import EvalAndExportListener, EvaluateNewCheckpointHook, Training
from fastsup.train import CheckpointSaverHook

__all__ = [
    "Experiment",
    "ExportStrategy",
    "as_export_strategies",
]


class _ExportStrategy(NamedTuple):
    name: Any
    export_fn: Any
    strip_default_attrs: Any


class ExportStrategy(_ExportStrategy):
    """A named function that exports an Estimator.

    Args:
      name: name of the directory under `export` for the exports.
      export_fn: function of the first two to five of (estimator, export_path, checkpoint_path, eval_result,
        strip_default_attrs). The last three are passed by name.
      strip_default_attrs: value of the argument with that name.
    """

    __slots__ = ()

    def __new__(
        cls, name: str, export_fn: Callable[..., Any], strip_default_attrs: bool | None = None
    ) -> ExportStrategy:
        return super().__new__(cls, name, export_fn, strip_default_attrs)

    def export(self, estimator: Any, export_path: Any, checkpoint_path: Any = None, eval_result: Any = None) -> Any:
        """Exports an Estimator.

        Args:
          estimator: the Estimator.
          export_path: directory for the export.
          checkpoint_path: path of the checkpoint to export. If None, exports the newest one.
          eval_result: metrics of this checkpoint.

        Returns:
          The result of `export_fn`: the path of the exported directory.

        Raises:
          ValueError: If `export_fn` has an argument eval_result but no argument checkpoint_path.
        """
        arguments = function_utils.fn_args(self.export_fn)
        named: dict[str, Any] = {}
        if "checkpoint_path" in arguments:
            named["checkpoint_path"] = checkpoint_path
        if "eval_result" in arguments:
            if "checkpoint_path" not in arguments:
                raise ValueError("An export_fn accepting eval_result must also accept checkpoint_path.")
            named["eval_result"] = eval_result
        if "strip_default_attrs" in arguments:
            named["strip_default_attrs"] = self.strip_default_attrs
        return self.export_fn(estimator, export_path, **named)


def as_export_strategies(values: Any) -> tuple[ExportStrategy, ...]:
    """Checks the export strategies given for an argument, and returns them as a tuple."""
    if not values:
        return ()
    if isinstance(values, ExportStrategy):
        return (values,)
    try:
        found = tuple(values)
    except TypeError:
        found = (values,)
    for value in found:
        if not isinstance(value, ExportStrategy):
            raise ValueError(
                "`export_strategies` must be an ExportStrategy, an iterable of ExportStrategy, or `None`, found "
                f"{value}."
            )
    return found


_DEFAULT_STEPS_PER_ITERATION = 1000


class Experiment(Training, Evaluation):
    """Trains and evaluates an Estimator, in a single process or as a task of a cluster.

    The constructor doesn't call its function arguments.

    Args:
      estimator: `Estimator`, or an older estimator with `fit` and `evaluate`.
      train_input_fn: function that returns the training data. None for a task that doesn't train.
      eval_input_fn: function that returns the evaluation data, which must end if eval_steps is None. None for a task
        that doesn't evaluate.
      eval_metrics: dictionary from names to metric functions, for an older estimator. None for an `Estimator`, whose
        model_fn defines the metrics.
      train_steps: global step at which training ends. If None, training ends with the data.
      eval_steps: number of batches to evaluate. If None, evaluates until the data ends.
      train_monitors: iterable of hooks, and monitors of `fastsup.contrib.learn`, for training.
      eval_hooks: iterable of hooks for evaluation.
      local_eval_frequency: min_eval_frequency for `local_run`. If None, evaluates only after training.
      eval_delay_secs: seconds to wait before evaluation starts. If None, uses 0.
      continuous_eval_throttle_secs: minimum seconds from the start of one evaluation to the start of the next, for
        `continuous_eval`.
      min_eval_frequency: minimum global steps between evaluations, for `train_and_evaluate`. If 0, evaluates only
        after training. If None, uses 1, or 1000 for a model_dir on GCS.
      delay_workers_by_global_step: Whether to delay workers until a global step instead of for a time.
      export_strategies: an `ExportStrategy`, an iterable of them, or None.
      train_steps_per_iteration: steps to train between evaluations, for `continuous_train_and_eval`. If None, uses
        a tenth of train_steps, or 1000.
      checkpoint_and_export: Whether `train_and_evaluate` evaluates and exports each checkpoint when it is saved.
        min_eval_frequency then has no effect.
      saving_listeners: iterable of `CheckpointSaverListener`s, for an `Estimator`.
      check_interval_secs: minimum seconds between checks for a new checkpoint, for `train_and_evaluate`.

    Raises:
      ValueError: If an argument has the wrong type, or contradicts another.
    """

    def __init__(
        self,
        estimator: Any,
        train_input_fn: Any,
        eval_input_fn: Any,
        eval_metrics: Any = None,
        train_steps: int | None = None,
        eval_steps: int | None = 100,
        train_monitors: Iterable[Any] | None = None,
        eval_hooks: Iterable[Any] | None = None,
        local_eval_frequency: int | None = None,
        eval_delay_secs: float | None = 120,
        continuous_eval_throttle_secs: float | None = 60,
        min_eval_frequency: int | None = None,
        delay_workers_by_global_step: bool = False,
        export_strategies: Any = None,
        train_steps_per_iteration: int | None = None,
        checkpoint_and_export: bool = False,
        saving_listeners: Iterable[Any] | None = None,
        check_interval_secs: float | None = 5,
    ) -> None:
        is_core = is_core_estimator(estimator, eval_metrics)
        check_functions(train_input_fn=train_input_fn, eval_input_fn=eval_input_fn)
        check_steps(True, train_steps=train_steps, eval_steps=eval_steps)
        check_steps(False, local_eval_frequency=local_eval_frequency, min_eval_frequency=min_eval_frequency)
        if train_steps_per_iteration is not None and not isinstance(train_steps_per_iteration, int):
            raise ValueError(f"`train_steps_per_iteration` must be an integer. Got {train_steps_per_iteration!r}.")
        check_steps(True, train_steps_per_iteration=train_steps_per_iteration)
        check_seconds(
            eval_delay_secs=eval_delay_secs,
            continuous_eval_throttle_secs=continuous_eval_throttle_secs,
            check_interval_secs=check_interval_secs,
        )
        self._is_core_estimator = is_core
        self._estimator = estimator
        self._train_input_fn = train_input_fn
        self._eval_input_fn = eval_input_fn
        self._eval_metrics = eval_metrics
        self._train_steps = train_steps
        self._eval_steps = eval_steps
        self._train_monitors = check_hooks("train_monitors", train_monitors, is_core, monitors=True)
        self._eval_hooks = check_hooks("eval_hooks", eval_hooks, is_core)
        self._local_eval_frequency = local_eval_frequency
        self._eval_delay_secs = eval_delay_secs or 0
        self._continuous_eval_throttle_secs = continuous_eval_throttle_secs or 0
        if min_eval_frequency is None:
            min_eval_frequency = 1000 if str(estimator.model_dir).startswith("gs://") else 1
        self._min_eval_frequency: int | None = min_eval_frequency
        self._delay_workers_by_global_step = delay_workers_by_global_step
        self._export_strategies = as_export_strategies(export_strategies)
        self._train_steps_per_iteration = train_steps_per_iteration
        self._checkpoint_and_export = checkpoint_and_export
        self._saving_listeners = check_listeners(saving_listeners, is_core)
        self._check_interval_secs = check_interval_secs

    @property
    def estimator(self) -> Any:
        """The Estimator."""
        return self._estimator

    @property
    def eval_metrics(self) -> Any:
        """The metric functions for an older estimator, or None."""
        return self._eval_metrics

    @property
    def train_steps(self) -> int | None:
        """The global step at which training ends, or None."""
        return self._train_steps

    @property
    def eval_steps(self) -> int | None:
        """The number of batches to evaluate, or None."""
        return self._eval_steps

    def reset_export_strategies(self, new_export_strategies: Any = None) -> Any:
        """Replaces the export strategies.

        Args:
          new_export_strategies: an `ExportStrategy`, an iterable of them, or None.

        Returns:
          The previous export strategies as a tuple.
        """
        old, self._export_strategies = self._export_strategies, as_export_strategies(new_export_strategies)
        return old

    def train_and_evaluate(self) -> tuple[Any, Any]:
        """Trains, and evaluates during and after training.

        During training, evaluates a new checkpoint once min_eval_frequency steps have passed. If checkpoint_and_export
        is True and the configuration saves checkpoints, evaluates and exports each checkpoint when it is saved.

        Returns:
          The metrics of the last evaluation, and the list of the export strategies' results.

        Raises:
          ValueError: If the experiment has no eval_input_fn.
        """
        self._require_eval_input_fn()
        monitors = self._train_monitors
        listener = self._intermediate_export()
        extra: list[Any] = []
        if listener is not None:
            config = self._estimator.config
            extra = [
                CheckpointSaverHook(
                    self._estimator.model_dir,
                    save_secs=config.save_checkpoints_secs,
                    save_steps=config.save_checkpoints_steps,
                    listeners=[listener],
                )
            ]
        elif self._min_eval_frequency:
            # With the name None, the evaluation's events go to `eval`.
            extra = [
                EvaluateNewCheckpointHook(
                    functools.partial(self._call_evaluate, name=None),
                    self._estimator.model_dir,
                    self._min_eval_frequency,
                    self._check_interval_secs,
                )
            ]
        self._train_monitors = monitors + extra
        try:
            self.train(delay_secs=0)
        finally:
            self._train_monitors = monitors
        if listener is not None and listener.eval_result is not None:
            return listener.eval_result, listener.export_results
        eval_result = self._call_evaluate(name=None)
        return eval_result, self._export(eval_result)

    def _intermediate_export(self) -> EvalAndExportListener | None:
        config = self._estimator.config
        if not self._checkpoint_and_export or not (config.save_checkpoints_secs or config.save_checkpoints_steps):
            return None
        return EvalAndExportListener(self._call_evaluate, self._export, self._estimator.model_dir)

    def local_run(self) -> tuple[Any, Any]:
        """Runs `train_and_evaluate` with local_eval_frequency instead of min_eval_frequency.

        Returns:
          The metrics of the last evaluation, and the list of the export strategies' results.

        Raises:
          ValueError: If the experiment has no eval_input_fn.
        """
        frequency, self._min_eval_frequency = self._min_eval_frequency, self._local_eval_frequency
        try:
            return self.train_and_evaluate()
        finally:
            self._min_eval_frequency = frequency

    def continuous_train_and_eval(self, continuous_eval_predicate_fn: Any = None) -> tuple[Any, Any]:
        """Repeats training for train_steps_per_iteration steps, evaluating and exporting, until train_steps is reached.

        Args:
          continuous_eval_predicate_fn: function of `eval_results`, and optionally of `checkpoint_path`, that returns
            False to stop. Called before each iteration, with None the first time.

        Returns:
          The metrics of the last evaluation, and the list of the export strategies' results.

        Raises:
          ValueError: If the predicate isn't callable, or the experiment has no eval_input_fn.
        """
        self._require_eval_input_fn()
        predicate = as_predicate(continuous_eval_predicate_fn)
        steps = self._train_steps_per_iteration
        if steps is None and self._train_steps is not None:
            steps = max(1, int(self._train_steps / 10))
        elif steps is None:
            steps = _DEFAULT_STEPS_PER_ITERATION
        eval_result = export_results = path = None
        while predicate(eval_result, path):
            if has_reached(self._train_steps, eval_result):
                logging.info("Stop training model as max steps reached")
                break
            logging.info("Training model for %s steps", steps)
            self._call_train(steps=steps, hooks=self._train_monitors)
            logging.info("Evaluating model now.")
            path = checkpoint_management.latest_checkpoint(self._estimator.model_dir)
            eval_result = self._call_evaluate(name="one_pass", checkpoint_path=path)
            export_results = self._export(eval_result)
        return eval_result, export_results

    def test(self) -> Any:
        """Trains one step, evaluates one batch without eval_hooks, and exports.

        Returns:
          Dictionary from metric names to values.

        Raises:
          ValueError: If the experiment has no eval_input_fn.
        """
        self._require_eval_input_fn()
        self._call_train(steps=1, hooks=self._train_monitors)
        eval_result = self._call_evaluate(steps=1, name="one_pass", hooks=None)
        self._export(eval_result)
        return eval_result
