"""make_early_stopping_hook: stops training, in all tasks of a job, when a function says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.framework import dtypes, ops
from tensorflow.python.ops import init_ops, state_ops, variable_scope
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import session_run_hook

from fastsup.estimator.config import distribution
from fastsup.estimator.config.tensorflow_names import v1
from fastsup.estimator.hooks.global_step_reader import GlobalStepReader
from fastsup.estimator.model.estimator import check_estimator
from fastsup.train.hooks.bases import GlobalStepHook, check_one_interval

__all__ = ["make_early_stopping_hook"]


def _stop_variable() -> Any:
    """The variable that the chief sets to True to stop the workers."""
    with variable_scope.variable_scope("signal_early_stopping", reuse=variable_scope.AUTO_REUSE):
        return variable_scope.get_variable(
            "STOP", [], dtypes.bool, init_ops.constant_initializer(False), trainable=False,
            collections=[ops.GraphKeys.GLOBAL_VARIABLES],
        )  # fmt: skip


class _StopOnPredicateHook(GlobalStepHook, GlobalStepReader):
    """The chief's hook: calls a predicate every N seconds or steps, and stops all tasks when it returns True.

    Args:
      should_stop_fn: function without arguments that returns True to stop.
      run_every_secs: seconds between two calls; or
      run_every_steps: global steps between two calls. Exactly one of the two.

    Raises:
      TypeError: `should_stop_fn` can't be called, or an interval isn't a number.
      ValueError: both intervals are given, or neither.
    """

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
        # Read in parallel with the run: the step before the run.
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
    """A worker's hook: stops when the chief's hook has set the stop variable."""

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
    """The chief's hook in a training of collectives: has all tasks stop after the next step.

    Args:
      estimator: the `Estimator` that trains.
      should_stop_fn: as for `_StopOnPredicateHook`; so are the intervals.
      run_every_secs: seconds between two calls; or
      run_every_steps: global steps between two calls.
    """

    def __init__(
        self, estimator: Any, should_stop_fn: Callable[[], Any], run_every_secs: Any, run_every_steps: Any
    ) -> None:
        super().__init__(should_stop_fn, run_every_secs, run_every_steps)
        self._estimator = estimator

    def begin(self) -> None:
        """Finds this task's part in the training."""
        GlobalStepReader.begin(self)
        self._part = self._estimator._model_trainer.part
        if self._part is None:
            raise RuntimeError("An early stopping hook must be made with the Estimator that trains with it.")

    def _stop(self, run_context: Any) -> None:
        self._part.membership.ask_stop("early stopping")


def make_early_stopping_hook(
    estimator: Any,
    should_stop_fn: Callable[[], Any],
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """Makes a hook that stops training, in all tasks of the job, when a function returns True.

    Args:
      estimator: the `Estimator` that trains.
      should_stop_fn: function without arguments that returns True to stop. Only the chief calls it.
      run_every_secs: seconds between two calls; or
      run_every_steps: global steps between two calls. Exactly one of the two: with it pass `run_every_secs=None`.

    Returns:
      A `SessionRunHook` to pass to training: that of the chief or that of a worker, by the Estimator's configuration.

    Raises:
      TypeError: `estimator` isn't an Estimator, `should_stop_fn` can't be called, or an interval isn't a number.
      ValueError: both intervals are given, or neither.
    """
    check_estimator(estimator)
    if run_every_secs is not None and run_every_steps is not None:
        raise ValueError("Only one of `run_every_secs` and `run_every_steps` must be set.")
    if distribution.trains_collectively(estimator.config):
        hook = _StopCollectivelyHook(estimator, should_stop_fn, run_every_secs, run_every_steps)
        # The others learn of it without a hook.
        return hook if estimator.config.is_chief else session_run_hook.SessionRunHook()
    if estimator.config.is_chief:
        return _StopOnPredicateHook(should_stop_fn, run_every_secs, run_every_steps)
    return _CheckForStoppingHook()
