"""Early stopping by a metric: by a threshold, or when the metric no longer improves."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator
from typing import Any

from tensorflow.python.platform import tf_logging as logging

from fastsup.core.checks import is_number
from fastsup.estimator.hooks.early_stopping import make_early_stopping_hook
from fastsup.estimator.hooks.eval_events import read_eval_metrics
from fastsup.estimator.model.estimator import check_estimator

__all__ = [
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]

# Yields (global step, value) of the evaluations that count.
_MetricReader = Callable[[], Iterator[tuple[int, float]]]


def _metric_reader(estimator: Any, metric_name: Any, eval_dir: Any, min_steps: Any, **limit: Any) -> _MetricReader:
    """A function that reads the values of a metric, in the order of the global steps.

    All arguments are checked here, because the first call of the function may be hours later.

    Args:
      estimator: the `Estimator`.
      metric_name: name of the metric.
      eval_dir: directory of the event files, or None for that of the Estimator.
      min_steps: global step before which evaluations don't count.
      **limit: another argument that must be a number, by its name.

    Raises:
      TypeError: an argument is of the wrong type.
    """
    check_estimator(estimator)
    if eval_dir is not None and not isinstance(eval_dir, str | bytes | os.PathLike):
        raise TypeError(f"`eval_dir` must be the path of a directory, or None for the Estimator's. Got: {eval_dir!r}")
    if not isinstance(metric_name, str):
        raise TypeError(f"`metric_name` must be the name of a metric, a string. Got: {metric_name!r}")
    for name, value in {**limit, "min_steps": min_steps}.items():
        if not is_number(value):
            raise TypeError(f"`{name}` must be a number. Got: {value!r}")
    directory = estimator.eval_dir() if eval_dir is None else os.fsdecode(eval_dir)

    def read() -> Iterator[tuple[int, float]]:
        for step, metrics in read_eval_metrics(directory).items():
            if step < min_steps:
                continue
            if metric_name not in metrics:
                raise KeyError(f"{metric_name!r} isn't among the metrics in {directory}: {sorted(metrics)}")
            yield step, metrics[metric_name]

    return read


def _crosses_threshold(read: _MetricReader, metric_name: str, threshold: float, higher: bool) -> Callable[[], bool]:
    """A predicate: True once the metric is higher, or lower, than the threshold."""
    is_beyond = operator.gt if higher else operator.lt

    def should_stop() -> bool:
        crossing = next(((step, value) for step, value in read() if is_beyond(value, threshold)), None)
        if crossing is None:
            return False
        logging.info(
            'At step %s, metric "%s" has value %s which is %s the configured threshold (%s) for early stopping.',
            crossing[0], metric_name, crossing[1], "greater than" if higher else "less than", threshold,
        )  # fmt: skip
        return True

    return should_stop


def _stops_improving(read: _MetricReader, metric_name: str, max_steps: int, higher: bool) -> Callable[[], bool]:
    """A predicate: True once the metric hasn't increased, or decreased, for `max_steps` global steps."""
    is_better = operator.gt if higher else operator.lt

    def should_stop() -> bool:
        best, best_step = None, 0
        for step, value in read():
            if best is None or is_better(value, best):
                best, best_step = value, step
            if step - best_step >= max_steps:
                logging.info(
                    'No %s in metric "%s" for %s steps, which is greater than or equal to max steps (%s) configured '
                    "for early stopping.",
                    "increase" if higher else "decrease", metric_name, step - best_step, max_steps,
                )  # fmt: skip
                return True
        return False

    return should_stop


def stop_if_higher_hook(
    estimator: Any,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """Makes a hook that stops training once a metric is higher than a threshold.

    Args:
      estimator: the `Estimator` that trains.
      metric_name: name of the metric.
      threshold: the threshold, in the metric's unit.
      eval_dir: directory with the event files of the evaluations. Defaults to `estimator.eval_dir()`.
      min_steps: global step before which evaluations don't count.
      run_every_secs: seconds between two readings of the event files; or
      run_every_steps: global steps between two readings. Exactly one of the two: with it pass `run_every_secs=None`.

    Returns:
      A `SessionRunHook` to pass to training, in every task of the job.

    Raises:
      TypeError: an argument is of the wrong type.
      ValueError: both intervals are given, or neither.
    """
    read = _metric_reader(estimator, metric_name, eval_dir, min_steps, threshold=threshold)
    predicate = _crosses_threshold(read, metric_name, threshold, higher=True)
    return make_early_stopping_hook(estimator, predicate, run_every_secs, run_every_steps)


def stop_if_lower_hook(
    estimator: Any,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """Makes a hook that stops training once a metric is lower than a threshold.

    Args:
      estimator: the `Estimator` that trains.
      metric_name: name of the metric.
      threshold: the threshold, in the metric's unit.
      eval_dir: directory with the event files of the evaluations. Defaults to `estimator.eval_dir()`.
      min_steps: global step before which evaluations don't count.
      run_every_secs: seconds between two readings of the event files; or
      run_every_steps: global steps between two readings. Exactly one of the two: with it pass `run_every_secs=None`.

    Returns:
      A `SessionRunHook` to pass to training, in every task of the job.

    Raises:
      TypeError: an argument is of the wrong type.
      ValueError: both intervals are given, or neither.
    """
    read = _metric_reader(estimator, metric_name, eval_dir, min_steps, threshold=threshold)
    predicate = _crosses_threshold(read, metric_name, threshold, higher=False)
    return make_early_stopping_hook(estimator, predicate, run_every_secs, run_every_steps)


def stop_if_no_increase_hook(
    estimator: Any,
    metric_name: str,
    max_steps_without_increase: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """Makes a hook that stops training once a metric hasn't increased for a number of global steps.

    Args:
      estimator: the `Estimator` that trains.
      metric_name: name of the metric.
      max_steps_without_increase: the number of global steps.
      eval_dir: directory with the event files of the evaluations. Defaults to `estimator.eval_dir()`.
      min_steps: global step before which evaluations don't count.
      run_every_secs: seconds between two readings of the event files; or
      run_every_steps: global steps between two readings. Exactly one of the two: with it pass `run_every_secs=None`.

    Returns:
      A `SessionRunHook` to pass to training, in every task of the job.

    Raises:
      TypeError: an argument is of the wrong type.
      ValueError: both intervals are given, or neither.
    """
    max_steps = max_steps_without_increase
    read = _metric_reader(estimator, metric_name, eval_dir, min_steps, max_steps_without_increase=max_steps)
    predicate = _stops_improving(read, metric_name, max_steps, higher=True)
    return make_early_stopping_hook(estimator, predicate, run_every_secs, run_every_steps)


def stop_if_no_decrease_hook(
    estimator: Any,
    metric_name: str,
    max_steps_without_decrease: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """Makes a hook that stops training once a metric hasn't decreased for a number of global steps.

    Args:
      estimator: the `Estimator` that trains.
      metric_name: name of the metric.
      max_steps_without_decrease: the number of global steps.
      eval_dir: directory with the event files of the evaluations. Defaults to `estimator.eval_dir()`.
      min_steps: global step before which evaluations don't count.
      run_every_secs: seconds between two readings of the event files; or
      run_every_steps: global steps between two readings. Exactly one of the two: with it pass `run_every_secs=None`.

    Returns:
      A `SessionRunHook` to pass to training, in every task of the job.

    Raises:
      TypeError: an argument is of the wrong type.
      ValueError: both intervals are given, or neither.
    """
    max_steps = max_steps_without_decrease
    read = _metric_reader(estimator, metric_name, eval_dir, min_steps, max_steps_without_decrease=max_steps)
    predicate = _stops_improving(read, metric_name, max_steps, higher=False)
    return make_early_stopping_hook(estimator, predicate, run_every_secs, run_every_steps)
