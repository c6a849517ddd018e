"""InMemoryEvaluatorHook, which evaluates during training, without a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.ops import array_ops, control_flow_ops, state_ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import session_run_hook

from fastsup.common import stop_signals
from fastsup.core.checks import is_number
from fastsup.estimator.config.tensorflow_names import v1
from fastsup.estimator.model.argument_checks import check_hooks, check_input_fn
from fastsup.estimator.model.estimator import check_estimator

__all__ = ["InMemoryEvaluatorHook"]


def _global_variables() -> dict[str, Any]:
    """Returns the global variables of the default graph, by name."""
    return {variable.name: variable for variable in ops.get_collection(ops.GraphKeys.GLOBAL_VARIABLES)}


class _EvaluationGraph:
    """A graph that evaluates a model with fed values of its variables."""

    def __init__(self, estimator: Any, input_fn: Callable[..., Any], hooks: list[Any]) -> None:
        self._estimator = estimator
        self._graph = ops.Graph()
        with self._graph.as_default():
            self._scaffold, self._update_op, self._metrics, self._hooks = estimator._evaluate_build_graph(
                input_fn, hooks, checkpoint_path=None
            )
            self._variables = _global_variables()
        for unsupported in ("saver", "init_fn"):
            if getattr(self._scaffold, unsupported) is not None:
                raise ValueError(f"InMemoryEvaluator does not support custom {unsupported}")

    def add_assignments(self, train_variables: dict[str, Any]) -> None:
        """Adds the operation that assigns the training graph's variables to the variables with the same names."""
        names = sorted(train_variables.keys() & self._variables.keys())
        self._train_variables = [train_variables[name] for name in names]
        with self._graph.as_default():
            targets = [self._variables[name] for name in names]
            self._placeholders = [array_ops.placeholder(target.dtype.base_dtype) for target in targets]
            self._assign_op = control_flow_ops.group(*map(state_ops.assign, targets, self._placeholders))

    def evaluate(self, train_session: Any, output_dir: str) -> None:
        """Evaluates with the current values of the training variables."""
        feeds = dict(zip(self._placeholders, train_session.run(self._train_variables), strict=True))
        with self._graph.as_default():
            scaffold = v1.train.Scaffold(
                init_fn=lambda _, session: session.run(self._assign_op, feeds), copy_from_scaffold=self._scaffold
            )
            self._estimator._evaluate_run(
                checkpoint_path=None, scaffold=scaffold, update_op=self._update_op, eval_dict=self._metrics,
                all_hooks=self._hooks, output_dir=output_dir,
            )  # fmt: skip


class InMemoryEvaluatorHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Evaluates during training, with the current values of the variables and without a checkpoint.

    Evaluates before the first step, every N runs, and at the end. Supports training in a single process. The model's
    state must be in its global variables, and the model must not have its own saver or init_fn.

    Args:
      estimator: the `Estimator` that trains.
      input_fn: function that creates the input of the evaluation.
      steps: number of batches to evaluate. Defaults to all batches of the input.
      hooks: `SessionRunHook` objects for the evaluation.
      name: name of the evaluation if there are several. The metrics are written to `estimator.eval_dir(name)`.
      every_n_iter: number of runs between evaluations.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If `every_n_iter` isn't positive, or the configuration has a cluster. When training starts, if the
        model has its own saver or init_fn, or saveable objects other than variables.
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
        check_input_fn(input_fn)
        if every_n_iter is not None and not is_number(every_n_iter):
            raise TypeError(f"every_n_iter must be a number of steps, given: {every_n_iter!r}")
        if every_n_iter is None or every_n_iter <= 0:
            raise ValueError(f"invalid every_n_iter={every_n_iter}.")
        config = estimator.config
        if config.num_ps_replicas > 0 or config.num_worker_replicas > 1:
            raise ValueError("InMemoryEvaluator supports only single machine (aka Local) setting.")
        self._estimator = estimator
        self._input_fn = input_fn
        self._eval_dir = estimator.eval_dir(name)
        self._hooks = [*check_hooks(hooks), *estimator._convert_eval_steps_to_hooks(steps)]
        self._timer = v1.train.SecondOrStepTimer(every_steps=every_n_iter)
        self._runs = 0

    def begin(self) -> None:
        """Builds the evaluation graph."""
        self._timer.reset()
        self._runs = 0
        self._evaluation = _EvaluationGraph(self._estimator, self._input_fn, self._hooks)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Evaluates the initial model, before the first step."""
        if ops.get_collection(ops.GraphKeys.SAVEABLE_OBJECTS):
            raise ValueError("InMemoryEvaluator does not support saveables other than global variables.")
        self._evaluation.add_assignments(_global_variables())
        self._evaluate(session)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Evaluates every N runs."""
        self._runs += 1
        if self._timer.should_trigger_for_step(self._runs):
            self._evaluate(run_context.session)

    def end(self, session: Any) -> None:
        """Evaluates the final model, unless a signal ends the program."""
        if stop_signals.received():
            logging.info("Skip the eval of the final model: a signal is ending the training.")
            return
        self._evaluate(session)

    def _evaluate(self, session: Any) -> None:
        self._evaluation.evaluate(session, self._eval_dir)
        self._timer.update_last_triggered_step(self._runs)
