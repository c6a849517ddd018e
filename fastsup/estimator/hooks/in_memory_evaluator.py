"""Hooks of the Estimator world: evaluation in memory, and a stop that waits for the checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.ops import array_ops, control_flow_ops, state_ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import monitored_session, session_run_hook, training_util

from fastsup import train
from fastsup.core import SecondOrStepTimer
from fastsup.core.checks import check_number
from fastsup.estimator.model import trained_model
from fastsup.estimator.model.base import check_hooks
from fastsup.estimator.model.estimator import check_estimator

__all__ = ["InMemoryEvaluatorHook", "make_stop_at_checkpoint_step_hook"]


def _global_variables() -> dict[str, Any]:
    return {variable.name: variable for variable in ops.get_collection(ops.GraphKeys.GLOBAL_VARIABLES)}


class InMemoryEvaluatorHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Evaluates while training, with the variables as they are, without a checkpoint.

    Evaluates before the first step, every N runs, and at the end. For one process; for models that are all in their
    variables, and savers that are the usual ones.

    Args:
      estimator: the `Estimator` that trains.
      input_fn: function that makes the input of the evaluation.
      steps: batches to evaluate. Defaults to all, until the input ends.
      hooks: `SessionRunHook` objects for the evaluation.
      name: name of the evaluation, where there are several.
      every_n_iter: runs between two evaluations.

    Raises:
      TypeError: no Estimator, an `input_fn` that can't be called, or an argument of another wrong type.
      ValueError: `every_n_iter` isn't positive, or the configuration is one of a cluster.
    """

    def __init__(
        self,
        estimator: Any,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Any = None,
        name: str | None = None,
        every_n_iter: int | None = 100,
    ) -> None:
        check_estimator(estimator)
        if not callable(input_fn):
            raise TypeError(f"`input_fn` must be callable, given: {input_fn}")
        if every_n_iter is not None and not hasattr(every_n_iter, "__float__"):
            raise TypeError(f"every_n_iter must be a number of steps, given: {every_n_iter!r}")
        if every_n_iter is None or every_n_iter <= 0:
            raise ValueError(f"invalid every_n_iter={every_n_iter}.")
        if estimator.config.num_ps_replicas > 0 or estimator.config.num_worker_replicas > 1:
            raise ValueError("InMemoryEvaluator supports only single machine (aka Local) setting.")
        self._estimator = estimator
        self._input_fn = input_fn
        self._eval_dir = estimator.eval_dir(name)
        self._hooks = check_hooks(hooks)
        self._hooks.extend(estimator._convert_eval_steps_to_hooks(steps))
        self._timer = SecondOrStepTimer(every_steps=every_n_iter)
        self._iter_count = 0

    def begin(self) -> None:
        self._timer.reset()
        self._iter_count = 0
        self._graph = ops.Graph()
        with self._graph.as_default():
            self._scaffold, self._update_op, self._eval_dict, self._all_hooks = self._estimator._evaluate_build_graph(
                self._input_fn, self._hooks, checkpoint_path=None
            )
            if self._scaffold.saver is not None:
                raise ValueError("InMemoryEvaluator does not support custom saver")
            if self._scaffold.init_fn is not None:
                raise ValueError("InMemoryEvaluator does not support custom init_fn")
            self._eval_variables = _global_variables()

    def after_create_session(self, session: Any, coord: Any) -> None:
        if ops.get_collection(ops.GraphKeys.SAVEABLE_OBJECTS):
            raise ValueError("InMemoryEvaluator does not support saveables other than global variables.")
        train_variables = _global_variables()
        shared = sorted(train_variables.keys() & self._eval_variables.keys())
        self._train_variables = {name: train_variables[name] for name in shared}
        with self._graph.as_default():
            self._placeholders = {
                name: array_ops.placeholder(self._eval_variables[name].dtype.base_dtype) for name in shared
            }
            self._assign_op = control_flow_ops.group(
                *[state_ops.assign(self._eval_variables[name], self._placeholders[name]) for name in shared]
            )
        self._evaluate(session)

    def _evaluate(self, train_session: Any) -> None:
        """Evaluates with the variables of the training session."""
        values = train_session.run(self._train_variables)
        feeds = {self._placeholders[name]: value for name, value in values.items()}

        def assign_variables(scaffold: Any, session: Any) -> None:
            del scaffold
            session.run(self._assign_op, feed_dict=feeds)

        with self._graph.as_default():
            self._estimator._evaluate_run(
                checkpoint_path=None,
                scaffold=monitored_session.Scaffold(init_fn=assign_variables, copy_from_scaffold=self._scaffold),
                update_op=self._update_op,
                eval_dict=self._eval_dict,
                all_hooks=self._all_hooks,
                output_dir=self._eval_dir,
            )
        self._timer.update_last_triggered_step(self._iter_count)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._iter_count += 1
        if self._timer.should_trigger_for_step(self._iter_count):
            self._evaluate(run_context.session)

    def end(self, session: Any) -> None:
        self._evaluate(session)


class _StopAtCheckpointStepHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Stops once the newest checkpoint has reached a step. For a worker.

    Args:
      model_dir: directory of the checkpoints.
      last_step: the step.
      wait_after_file_check_secs: seconds to wait after each look at the directory.

    Raises:
      ValueError: `model_dir` or `last_step` is None.
    """

    def __init__(self, model_dir: Any, last_step: int, wait_after_file_check_secs: float = 30) -> None:
        if last_step is None:
            raise ValueError("last_step must be specified.")
        if model_dir is None:
            raise ValueError("model_dir must be specified.")
        self._model_dir = model_dir
        self._last_step = last_step
        self._wait_after_file_check_secs = wait_after_file_check_secs

    def begin(self) -> None:
        self._global_step_tensor = training_util._get_or_create_global_step_read()
        if self._global_step_tensor is None:
            raise RuntimeError("Global step should be created to use StopAtCheckpointStepHook.")

    def before_run(self, run_context: Any) -> Any:
        return session_run_hook.SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_values.results + 1 < self._last_step:
            return
        if trained_model.global_step_of(self._model_dir) >= self._last_step:
            run_context.request_stop()
        else:
            time.sleep(self._wait_after_file_check_secs)


def make_stop_at_checkpoint_step_hook(estimator: Any, last_step: int, wait_after_file_check_secs: float = 30) -> Any:
    """A hook that stops training at a step; a worker only once a checkpoint of that step is there.

    Args:
      estimator: the `Estimator` that trains.
      last_step: the global step.
      wait_after_file_check_secs: seconds that a worker waits between two looks at the model directory.

    Raises:
      TypeError: no Estimator, or a `last_step` or a wait that is no number.
      ValueError: `last_step` is None.
    """
    check_estimator(estimator)
    if last_step is not None:
        check_number("last_step", last_step, "an integer")
        if not last_step > 0:
            logging.warning("last_step=%r isn't positive: training ends after its first step.", last_step)
    if not hasattr(wait_after_file_check_secs, "__float__"):
        raise TypeError(f"wait_after_file_check_secs must be a number of seconds, got {wait_after_file_check_secs!r}.")
    if estimator.config.is_chief:
        return train.StopAtStepHook(last_step=last_step)
    return _StopAtCheckpointStepHook(estimator.model_dir, last_step, wait_after_file_check_secs)
