"""Hooks that stop training by what evaluations have found."""

from __future__ import annotations

import operator
import os
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from tensorflow.python.framework import dtypes, errors, ops
from tensorflow.python.lib.io import file_io
from tensorflow.python.ops import init_ops, state_ops, variable_scope
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary import summary_iterator
from tensorflow.python.training import session_run_hook, training_util

from fastsup.core import SecondOrStepTimer
from fastsup.estimator.config import distribution
from fastsup.estimator.model.estimator import check_estimator
from fastsup.train.hooks.global_step_hook import GlobalStepHook, check_one_interval

__all__ = [
    "make_early_stopping_hook",
    "read_eval_metrics",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]


def _stop_variable() -> Any:
    """The variable by which the chief tells the workers to stop."""
    with variable_scope.variable_scope("signal_early_stopping", reuse=variable_scope.AUTO_REUSE):
        return variable_scope.get_variable(
            "STOP",
            shape=[],
            dtype=dtypes.bool,
            initializer=init_ops.constant_initializer(False),
            collections=[ops.GraphKeys.GLOBAL_VARIABLES],
            trainable=False,
        )


class _StepReader(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """TensorFlow's protocol for a hook that acts on the global step after a run."""

    _global_step_tensor: Any

    def begin(self) -> None:
        self._global_step_tensor = training_util._get_or_create_global_step_read()

    def before_run(self, run_context: Any) -> Any:
        return session_run_hook.SessionRunArgs(self._global_step_tensor)


class _StopOnPredicateHook(GlobalStepHook, _StepReader):
    """Asks a function every N seconds or steps whether to stop, and tells the workers. For the chief.

    Args:
      should_stop_fn: function without arguments that returns whether to stop.
      run_every_secs: seconds between two questions; or
      run_every_steps: global steps between two questions. Exactly one of the two.

    Raises:
      TypeError: `should_stop_fn` can't be called, or an interval is no number.
      ValueError: both intervals or neither.
    """

    _NAME = "_StopOnPredicateHook"

    def __init__(
        self, should_stop_fn: Callable[[], Any], run_every_secs: float | None = 60, run_every_steps: int | None = None
    ) -> None:
        if not callable(should_stop_fn):
            raise TypeError("`should_stop_fn` must be callable.")
        self._should_stop_fn = should_stop_fn
        check_one_interval(run_every_secs=run_every_secs, run_every_steps=run_every_steps)
        try:
            self._timer: Any = SecondOrStepTimer(run_every_secs, run_every_steps)
        except ValueError as error:
            given = f"run_every_secs={run_every_secs!r}, run_every_steps={run_every_steps!r}"
            raise ValueError(f"{error} ({given})") from None
        self._stop_op: Any = None

    def begin(self) -> None:
        super().begin()
        self._stop_op = state_ops.assign(_stop_variable(), True)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        # As it was read beside the run: the step before it.
        global_step = run_values.results
        if self._timer.should_trigger_for_step(global_step):
            self._timer.update_last_triggered_step(global_step)
            if self._should_stop_fn():
                logging.info("Requesting early stopping at global step %d", global_step)
                run_context.session.run(self._stop_op)
                run_context.request_stop()

    def _schedule(self, run: int, step_read: Any) -> bool:
        self._decide_after_run()
        return self._counts(step_read) and bool(self._due_with_timer(self._timer))


class _CheckForStoppingHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Stops when the chief's hook says so. For the workers."""

    def begin(self) -> None:
        self._stop_var = _stop_variable()

    def before_run(self, run_context: Any) -> Any:
        return session_run_hook.SessionRunArgs(self._stop_var)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_values.results:
            logging.info("Early stopping requested, suspending run.")
            run_context.request_stop()


def make_early_stopping_hook(
    estimator: Any,
    should_stop_fn: Callable[[], Any],
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """A hook that stops training, in all tasks, when a function says so.

    Args:
      estimator: the `Estimator` that trains.
      should_stop_fn: function without arguments that returns whether to stop. The chief calls it.
      run_every_secs: seconds between two calls; or
      run_every_steps: global steps between two calls. Not both: pass `run_every_secs=None` with it.

    Raises:
      TypeError: `estimator` is no Estimator, or `should_stop_fn` can't be called.
      ValueError: both intervals, or neither.
    """
    check_estimator(estimator)
    if run_every_secs is not None and run_every_steps is not None:
        raise ValueError("Only one of `run_every_secs` and `run_every_steps` must be set.")
    if distribution.is_multi_worker(estimator.config.train_distribute):
        raise NotImplementedError("Early stopping with a strategy that spans several processes isn't supported.")
    if estimator.config.is_chief:
        return _StopOnPredicateHook(should_stop_fn, run_every_secs, run_every_steps)
    return _CheckForStoppingHook()


def _events(eval_dir: str) -> Iterator[Any]:
    """The events of a directory. Of a damaged file, those before the damage."""
    if not file_io.file_exists(eval_dir):
        return
    for path in file_io.get_matching_files(os.path.join(eval_dir, "events.out.tfevents.*")):
        try:
            yield from summary_iterator.summary_iterator(path)
        except errors.DataLossError as error:  # noqa: PERF203
            logging.warning(
                "Skipping rest of the file due to encountering data corruption error; file path: %s; original error "
                "raised by `tf.train.summary_iterator`: %s",
                path,
                error,
            )


def read_eval_metrics(eval_dir: str) -> OrderedDict[int, dict[str, float]]:
    """Reads the metrics of evaluations from their event files.

    Args:
      eval_dir: the directory, as `Estimator.eval_dir` gives it.

    Returns:
      Dictionary from global steps, in ascending order, to dictionaries from names to values.
    """
    found: dict[int, dict[str, float]] = defaultdict(dict)
    for event in _events(eval_dir):
        if event.HasField("summary"):
            metrics = {value.tag: value.simple_value for value in event.summary.value if value.HasField("simple_value")}
            if metrics:
                found[event.step].update(metrics)
    return OrderedDict(sorted(found.items()))


def _values_of(metric_name: str, eval_dir: str, min_steps: int) -> Iterator[tuple[int, float]]:
    """The values of a metric from a step on, as (global step, value)."""
    for step, metrics in read_eval_metrics(eval_dir).items():
        if step < min_steps:
            continue
        if metric_name not in metrics:
            raise KeyError(f"{metric_name!r} isn't among the metrics in {eval_dir}: {sorted(metrics)}")
        yield step, metrics[metric_name]


def _directory_of_metric(estimator: Any, metric_name: Any, eval_dir: Any, **numbers: Any) -> Any:
    """The directory with the evaluations. Refuses what would only fail at the first look, hours later.

    Args:
      estimator: the `Estimator`.
      metric_name: name of the metric.
      eval_dir: the directory, or None for that of the Estimator.
      **numbers: what the metric and the steps are compared with, by the argument's name.

    Raises:
      TypeError: no Estimator, a name that is no string, a directory that is no path, or something else that is no
        number.
    """
    check_estimator(estimator)
    if eval_dir is not None and not isinstance(eval_dir, str | bytes | os.PathLike):
        raise TypeError(f"`eval_dir` must be the path of a directory, or None for the Estimator's. Got: {eval_dir!r}")
    if not isinstance(metric_name, str):
        raise TypeError(f"`metric_name` must be the name of a metric, a string. Got: {metric_name!r}")
    for name, value in numbers.items():
        if not hasattr(value, "__float__"):
            raise TypeError(f"`{name}` must be a number. Got: {value!r}")
    return estimator.eval_dir() if eval_dir is None else os.fsdecode(eval_dir)


def _threshold_hook(
    estimator: Any, metric_name: str, threshold: float, higher_is_better: bool, eval_dir: Any, min_steps: int,
    run_every_secs: Any, run_every_steps: Any,
) -> Any:  # fmt: skip
    directory = _directory_of_metric(estimator, metric_name, eval_dir, threshold=threshold, min_steps=min_steps)
    crossed = operator.gt if higher_is_better else operator.lt

    def should_stop() -> bool:
        for step, value in _values_of(metric_name, directory, min_steps):
            if crossed(value, threshold):
                logging.info(
                    'At step %s, metric "%s" has value %s which is %s the configured threshold (%s) for early '
                    "stopping.",
                    step, metric_name, value, "greater than" if higher_is_better else "less than", threshold,
                )  # fmt: skip
                return True
        return False

    return make_early_stopping_hook(estimator, should_stop, run_every_secs, run_every_steps)


def _no_improvement_hook(
    estimator: Any, metric_name: str, max_steps: int, higher_is_better: bool, eval_dir: Any, min_steps: int,
    run_every_secs: Any, run_every_steps: Any,
) -> Any:  # fmt: skip
    limit = {f"max_steps_without_{'increase' if higher_is_better else 'decrease'}": max_steps}
    directory = _directory_of_metric(estimator, metric_name, eval_dir, min_steps=min_steps, **limit)
    better = operator.gt if higher_is_better else operator.lt

    def should_stop() -> bool:
        best, best_step = None, 0
        for step, value in _values_of(metric_name, directory, min_steps):
            if best is None or better(value, best):
                best, best_step = value, step
            if step - best_step >= max_steps:
                logging.info(
                    'No %s in metric "%s" for %s steps, which is greater than or equal to max steps (%s) configured '
                    "for early stopping.",
                    "increase" if higher_is_better else "decrease", metric_name, step - best_step, max_steps,
                )  # fmt: skip
                return True
        return False

    return make_early_stopping_hook(estimator, should_stop, run_every_secs, run_every_steps)


def stop_if_higher_hook(
    estimator: Any,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """A hook that stops training once a metric is higher than a threshold.

    Args:
      estimator: the `Estimator` that trains.
      metric_name: name of the metric.
      threshold: the threshold.
      eval_dir: directory with the event files of the evaluations. Defaults to `estimator.eval_dir()`.
      min_steps: global step before which evaluations don't count.
      run_every_secs: seconds between two looks; or
      run_every_steps: global steps between two looks. Not both: pass `run_every_secs=None` with it.
    """
    return _threshold_hook(
        estimator, metric_name, threshold, True, eval_dir, min_steps, run_every_secs, run_every_steps
    )


def stop_if_lower_hook(
    estimator: Any,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """A hook that stops training once a metric is lower than a threshold. Arguments as for `stop_if_higher_hook`."""
    return _threshold_hook(
        estimator, metric_name, threshold, False, eval_dir, min_steps, run_every_secs, run_every_steps
    )


def stop_if_no_increase_hook(
    estimator: Any,
    metric_name: str,
    max_steps_without_increase: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """A hook that stops training once a metric hasn't increased for a number of global steps.

    Args:
      estimator: the `Estimator` that trains.
      metric_name: name of the metric.
      max_steps_without_increase: the number of global steps.
      eval_dir: as for `stop_if_higher_hook`.
      min_steps: as for `stop_if_higher_hook`.
      run_every_secs: as for `stop_if_higher_hook`.
      run_every_steps: as for `stop_if_higher_hook`.
    """
    return _no_improvement_hook(
        estimator, metric_name, max_steps_without_increase, True, eval_dir, min_steps, run_every_secs, run_every_steps
    )


def stop_if_no_decrease_hook(
    estimator: Any,
    metric_name: str,
    max_steps_without_decrease: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """A hook that stops training once a metric hasn't decreased. Arguments as for `stop_if_no_increase_hook`."""
    return _no_improvement_hook(
        estimator, metric_name, max_steps_without_decrease, False, eval_dir, min_steps, run_every_secs, run_every_steps
    )
