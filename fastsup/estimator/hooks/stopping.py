"""Hooks that stop training when a function returns True, a metric meets a condition, or a step or time is reached."""

from __future__ import annotations

import operator
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from tensorflow.python.framework import dtypes, errors, ops
from tensorflow.python.lib.io import file_io
from tensorflow.python.ops import init_ops, state_ops, variable_scope
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import session_run_hook, training_util

from fastsup.common.file_system import exists
from fastsup.core.checks import check_number, did_you_mean, is_number
from fastsup.core.clock import now, steady
from fastsup.estimator.config import distribution
from fastsup.estimator.config.tensorflow_names import v1
from fastsup.estimator.model import model_checkpoints
from fastsup.estimator.model.estimator import check_estimator
from fastsup.loop import TimeLimitHook
from fastsup.train.hooks.bases import GlobalStepHook, check_one_interval
from fastsup.train.schedule import ScheduledHook

__all__ = [
    "GlobalStepReader",
    "StopAtSecsHook",
    "make_early_stopping_hook",
    "make_stop_at_checkpoint_step_hook",
    "read_eval_metrics",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]


class GlobalStepReader(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Base of hooks whose `after_run` receives the global step as `run_values.results`."""

    _global_step_tensor: Any

    def begin(self) -> None:
        """Finds the global step's tensor, or None if the graph has no global step."""
        self._global_step_tensor = training_util._get_or_create_global_step_read()

    def before_run(self, run_context: Any) -> Any:
        """Requests the global step."""
        return session_run_hook.SessionRunArgs(self._global_step_tensor)


def _stop_variable() -> Any:
    """Returns the variable that the chief sets to True to stop the workers."""
    with variable_scope.variable_scope("signal_early_stopping", reuse=variable_scope.AUTO_REUSE):
        return variable_scope.get_variable(
            "STOP", [], dtypes.bool, init_ops.constant_initializer(False), trainable=False,
            collections=[ops.GraphKeys.GLOBAL_VARIABLES],
        )  # fmt: skip


class _StopOnPredicateHook(GlobalStepHook, GlobalStepReader):
    """The chief's hook. Calls a predicate every N seconds or steps, and stops all tasks when it returns True."""

    _NAME = "_StopOnPredicateHook"
    _schedule_reads = frozenset({"_timer", "_global_step_tensor"})

    def __init__(
        self, should_stop_fn: Callable[[], Any], run_every_secs: float | None = 60, run_every_steps: int | None = None
    ) -> None:
        if not callable(should_stop_fn):
            raise TypeError("`should_stop_fn` must be callable.")
        self._should_stop_fn = should_stop_fn
        check_one_interval(run_every_secs=run_every_secs, run_every_steps=run_every_steps)
        try:
            self._timer: Any = v1.train.SecondOrStepTimer(run_every_secs, run_every_steps)
        except ValueError as error:
            given = f"run_every_secs={run_every_secs!r}, run_every_steps={run_every_steps!r}"
            raise ValueError(f"{error} ({given})") from None
        self._stop_op: Any = None

    def begin(self) -> None:
        """Adds the operation that sets the stop variable."""
        super().begin()
        self._stop_op = state_ops.assign(_stop_variable(), True)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Calls the predicate if the interval has passed."""
        # The run may have read the step before its increment.
        global_step = run_values.results
        if not self._timer.should_trigger_for_step(global_step):
            return
        self._timer.update_last_triggered_step(global_step)
        if self._should_stop_fn():
            logging.info("Requesting early stopping at global step %d", global_step)
            self._stop(run_context)

    def _stop(self, run_context: Any) -> None:
        run_context.session.run(self._stop_op)
        run_context.request_stop()

    def _schedule(self, run: int, step_read: Any) -> bool:
        self._decide_after_run()
        return self._counts(step_read) and bool(self._due_with_timer(self._timer))


class _CheckForStoppingHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """A worker's hook. Stops when the chief's hook has set the stop variable."""

    def begin(self) -> None:
        """Finds the stop variable."""
        self._stop_var = _stop_variable()

    def before_run(self, run_context: Any) -> Any:
        """Requests the stop variable."""
        return session_run_hook.SessionRunArgs(self._stop_var)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Requests a stop if the variable is True."""
        if run_values.results:
            logging.info("Early stopping requested, suspending run.")
            run_context.request_stop()


class _StopCollectivelyHook(_StopOnPredicateHook):
    """The chief's hook in collective training. Makes all tasks stop after the next step."""

    def __init__(
        self, estimator: Any, should_stop_fn: Callable[[], Any], run_every_secs: Any, run_every_steps: Any
    ) -> None:
        super().__init__(should_stop_fn, run_every_secs, run_every_steps)
        self._estimator = estimator

    def begin(self) -> None:
        """Finds this task's part of the training."""
        GlobalStepReader.begin(self)
        self._part = self._estimator._model_trainer.part
        if self._part is None:
            raise RuntimeError("An early stopping hook must be created with the Estimator that trains with it.")

    def _stop(self, run_context: Any) -> None:
        self._part.membership.ask_stop("early stopping")


def make_early_stopping_hook(
    estimator: Any,
    should_stop_fn: Callable[[], Any],
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """Creates a hook that stops training in all tasks of the job when a function returns True.

    Args:
      estimator: the `Estimator` that trains.
      should_stop_fn: function without arguments that returns True to stop. Only the chief calls this function.
      run_every_secs: seconds between calls. Defaults to 60. Exclusive with `run_every_steps`.
      run_every_steps: global steps between calls. If given, also pass `run_every_secs=None`.

    Returns:
      The chief's or a worker's `SessionRunHook`, depending on the Estimator's configuration. Pass the hook to training.

    Raises:
      TypeError: If `estimator` isn't an Estimator, `should_stop_fn` can't be called, or an interval isn't a number.
      ValueError: If both intervals or neither are given.
    """
    check_estimator(estimator)
    if run_every_secs is not None and run_every_steps is not None:
        raise ValueError("Only one of `run_every_secs` and `run_every_steps` must be set.")
    if distribution.trains_collectively(estimator.config):
        hook = _StopCollectivelyHook(estimator, should_stop_fn, run_every_secs, run_every_steps)
        # The other tasks are notified without a hook.
        return hook if estimator.config.is_chief else session_run_hook.SessionRunHook()
    if estimator.config.is_chief:
        return _StopOnPredicateHook(should_stop_fn, run_every_secs, run_every_steps)
    return _CheckForStoppingHook()


def _events(eval_dir: str) -> Iterator[Any]:
    """Yields the events in a directory. From a damaged file, yields the events before the damage."""
    if not exists(eval_dir):
        return
    for path in file_io.get_matching_files(os.path.join(eval_dir, "events.out.tfevents.*")):
        try:
            yield from v1.train.summary_iterator(path)
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
      eval_dir: directory of the event files, as returned by `Estimator.eval_dir`.

    Returns:
      Dictionary from global steps, in ascending order, to dictionaries from metric names to values. Empty if there is
      no such directory.
    """
    by_step: dict[int, dict[str, float]] = {}
    for event in _events(eval_dir):
        for value in event.summary.value:
            if value.HasField("simple_value"):
                by_step.setdefault(event.step, {})[value.tag] = value.simple_value
    return OrderedDict((step, by_step[step]) for step in sorted(by_step))


# Yields pairs (global step, value) for the evaluations that count.
_MetricReader = Callable[[], Iterator[tuple[int, float]]]


def _metric_reader(estimator: Any, metric_name: Any, eval_dir: Any, min_steps: Any, **limit: Any) -> _MetricReader:
    """Returns a function that reads the values of a metric, in the order of the global steps.

    All arguments are checked here, because the first call to the function may be hours later.
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
                raise KeyError(
                    f"{metric_name!r} isn't among the metrics in {directory}: {sorted(metrics)}."
                    f"{did_you_mean(metric_name, metrics)}"
                )
            yield step, metrics[metric_name]

    return read


def _crosses_threshold(read: _MetricReader, metric_name: str, threshold: float, higher: bool) -> Callable[[], bool]:
    """Returns a predicate that is True once the metric is higher, or lower, than the threshold."""
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
    """Returns a predicate that is True once the metric hasn't increased, or decreased, for `max_steps` global steps."""
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
    """Creates a hook that stops training once a metric is higher than a threshold.

    Args:
      estimator: the `Estimator` that trains.
      metric_name: name of the metric.
      threshold: the threshold, in the metric's unit.
      eval_dir: directory with the event files of the evaluations. Defaults to `estimator.eval_dir()`.
      min_steps: global step before which evaluations are ignored.
      run_every_secs: seconds between readings of the event files. Exclusive with `run_every_steps`.
      run_every_steps: global steps between readings. If given, also pass `run_every_secs=None`.

    Returns:
      A `SessionRunHook` to pass to training, in every task of the job.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If both intervals or neither are given.
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
    """Creates a hook that stops training once a metric is lower than a threshold.

    Args:
      estimator: the `Estimator` that trains.
      metric_name: name of the metric.
      threshold: the threshold, in the metric's unit.
      eval_dir: directory with the event files of the evaluations. Defaults to `estimator.eval_dir()`.
      min_steps: global step before which evaluations are ignored.
      run_every_secs: seconds between readings of the event files. Exclusive with `run_every_steps`.
      run_every_steps: global steps between readings. If given, also pass `run_every_secs=None`.

    Returns:
      A `SessionRunHook` to pass to training, in every task of the job.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If both intervals or neither are given.
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
    """Creates a hook that stops training once a metric hasn't increased for a number of global steps.

    Args:
      estimator: the `Estimator` that trains.
      metric_name: name of the metric.
      max_steps_without_increase: the number of global steps.
      eval_dir: directory with the event files of the evaluations. Defaults to `estimator.eval_dir()`.
      min_steps: global step before which evaluations are ignored.
      run_every_secs: seconds between readings of the event files. Exclusive with `run_every_steps`.
      run_every_steps: global steps between readings. If given, also pass `run_every_secs=None`.

    Returns:
      A `SessionRunHook` to pass to training, in every task of the job.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If both intervals or neither are given.
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
    """Creates a hook that stops training once a metric hasn't decreased for a number of global steps.

    Args:
      estimator: the `Estimator` that trains.
      metric_name: name of the metric.
      max_steps_without_decrease: the number of global steps.
      eval_dir: directory with the event files of the evaluations. Defaults to `estimator.eval_dir()`.
      min_steps: global step before which evaluations are ignored.
      run_every_secs: seconds between readings of the event files. Exclusive with `run_every_steps`.
      run_every_steps: global steps between readings. If given, also pass `run_every_secs=None`.

    Returns:
      A `SessionRunHook` to pass to training, in every task of the job.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If both intervals or neither are given.
    """
    max_steps = max_steps_without_decrease
    read = _metric_reader(estimator, metric_name, eval_dir, min_steps, max_steps_without_decrease=max_steps)
    predicate = _stops_improving(read, metric_name, max_steps, higher=False)
    return make_early_stopping_hook(estimator, predicate, run_every_secs, run_every_steps)


class _StopAtCheckpointStepHook(GlobalStepReader):
    """A worker's hook. Stops once the newest checkpoint has reached a global step."""

    def __init__(self, model_dir: Any, last_step: int, wait_after_file_check_secs: float = 30) -> None:
        for name, value in (("last_step", last_step), ("model_dir", model_dir)):
            if value is None:
                raise ValueError(f"{name} must be specified.")
        self._model_dir = model_dir
        self._last_step = last_step
        self._wait_secs = wait_after_file_check_secs

    def begin(self) -> None:
        """Finds the global step."""
        super().begin()
        if self._global_step_tensor is None:
            raise RuntimeError("Global step should be created to use StopAtCheckpointStepHook.")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """At the last step, requests a stop if the checkpoint exists. Otherwise waits for the checkpoint."""
        step_before_run = run_values.results
        if step_before_run + 1 < self._last_step:
            return
        if model_checkpoints.global_step_of(self._model_dir) < self._last_step:
            time.sleep(self._wait_secs)
        else:
            run_context.request_stop()


def make_stop_at_checkpoint_step_hook(estimator: Any, last_step: int, wait_after_file_check_secs: float = 30) -> Any:
    """Creates a hook that stops training at a global step. A worker waits until a checkpoint of that step exists.

    Args:
      estimator: the `Estimator` that trains.
      last_step: the global step.
      wait_after_file_check_secs: seconds that a worker waits between readings of the model directory.

    Returns:
      The chief's or a worker's `SessionRunHook`, depending on the Estimator's configuration. Pass the hook to training.

    Raises:
      TypeError: If `estimator` isn't an Estimator, or another argument isn't a number.
      ValueError: If `last_step` is None.
    """
    check_estimator(estimator)
    if last_step is not None:
        check_number("last_step", last_step, "an integer")
        if not last_step > 0:
            logging.warning(
                "last_step=%r isn't positive: training ends after its first step. "
                "See `python -m fastsup docs dropin#estimator`.",
                last_step,
            )
    if not is_number(wait_after_file_check_secs):
        raise TypeError(f"wait_after_file_check_secs must be a number of seconds, got {wait_after_file_check_secs!r}.")
    if estimator.config.is_chief:
        return v1.train.StopAtStepHook(last_step=last_step)
    return _StopAtCheckpointStepHook(estimator.model_dir, last_step, wait_after_file_check_secs)


class StopAtSecsHook(ScheduledHook, session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Requests a stop a given time after the start of the session.

    Args:
      stop_after_secs: seconds from the start to the stop. Training stops after the first run that ends later than that.

    Raises:
      TypeError: If `stop_after_secs` isn't a number.
    """

    _schedule_reads = frozenset({"_stop_after_secs", "_start_time"})

    def __init__(self, stop_after_secs: float) -> None:
        if not is_number(stop_after_secs):
            raise TypeError(f"stop_after_secs must be a number of seconds, got {stop_after_secs!r}.")
        self._stop_after_secs = stop_after_secs
        self._start_time: Any = None

    def begin(self) -> None:
        """Starts the clock."""
        self._start_time = steady()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Requests a stop if the time is up."""
        if steady() - self._start_time >= self._stop_after_secs:
            run_context.request_stop()

    @property
    def loop_hook(self) -> TimeLimitHook:
        """The hook that a `StepLoop` uses instead of this one.

        Raises:
          AttributeError: If a subclass overrides `after_run`, which the other hook wouldn't call.
        """
        if type(self).after_run is not StopAtSecsHook.after_run:
            raise AttributeError(f"{type(self).__name__} overrides after_run.")
        return TimeLimitHook(self._stop_after_secs)

    def _schedule(self, run: int, step_read: Any) -> bool:
        self._decide_after_run()
        self.due_at_time(now() + self._start_time + self._stop_after_secs - steady())
        return True
