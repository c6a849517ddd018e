"""One evaluation, which updates the metrics over the input and then reads them. And the evaluator of an Estimator."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_ops, state_ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import evaluation as tf_evaluation

from fastsup import train
from fastsup.core.clock import steady
from fastsup.core.sessions import session_role
from fastsup.estimator.config.tensorflow_names import (
    basic_session_run_hooks,
    evaluation,
    monitored_session,
    our_options,
    run_steps,
    substitute,
    v1,
)
from fastsup.estimator.model.argument_checks import check_hooks, check_steps
from fastsup.estimator.model.model_fn import ModeKeys, add_loss_metric, split_metrics
from fastsup.estimator.model.user_model import ReplicatedModel, UserModel
from fastsup.events import metric_summaries
from fastsup.train.hooks.progress import hooks_with_progress
from fastsup.train.schedule import ScheduledHook

__all__ = [
    "Evaluator",
    "StopAfterNEvalsHook",
    "evaluate_once",
    "run_evaluation",
    "with_eval_step",
]

# The graph attribute that maps a step's operations to the same operations with the counter.
_COUNTED = "_fastsup_counted_evaluations"


# TensorFlow's class. A program may replace the class under this name later.
_TFStopAfterNEvalsHook: Any = tf_evaluation._StopAfterNEvalsHook


class StopAfterNEvalsHook(ScheduledHook, _TFStopAfterNEvalsHook):  # type: ignore[misc]
    """Ends an evaluation after a number of batches, and logs its progress.

    Args:
      num_evals: number of batches to evaluate.
      log_progress: Whether to log the progress.
    """

    _schedule_reads = frozenset({"_num_evals", "_log_frequency"})
    _num_evals: float
    _log_frequency: float

    def _schedule(self, run: int, step_read: Any) -> bool:
        # Each run evaluates one batch, and each session starts its own count.
        every = int(self._log_frequency)
        # A fraction of a batch counts as a whole batch.
        batches = math.ceil(min(self._num_evals, (run // every + 1) * every))
        self.due_at_run(max(run, batches - 1))
        return True

    def after_run(self, run_context: Any, run_values: Any) -> None:
        super().after_run(run_context, run_values)
        self._reschedule()


def with_eval_step(eval_ops: Any, hooks: list[Any]) -> Any:
    """Adds the counter of evaluated batches to the operations of a step, and passes it to the hooks that read it."""
    eval_step = tf_evaluation._get_or_create_eval_step()
    if eval_ops is None:
        return None
    # Reuse the counter of a graph that evaluates repeatedly, so that the graph doesn't grow.
    known: dict[int, Any] = getattr(eval_step.graph, _COUNTED, {})
    setattr(eval_step.graph, _COUNTED, known)
    if id(eval_ops) not in known:
        known[id(eval_ops)] = eval_ops, *_counted(eval_ops, eval_step)
    _, eval_ops, completed = known[id(eval_ops)]
    for hook in hooks:
        if isinstance(hook, _TFStopAfterNEvalsHook):
            hook._set_evals_completed_tensor(completed)
    return eval_ops


def _counted(eval_ops: Any, eval_step: Any) -> tuple[Any, Any]:
    """Returns the operations of a step with the counter, and the counter's value after them."""
    update_eval_step = state_ops.assign_add(eval_step, 1, use_locking=True)
    if isinstance(eval_ops, dict):
        eval_ops = {**eval_ops, "update_eval_step": update_eval_step}
    elif isinstance(eval_ops, tuple | list):
        eval_ops = [*eval_ops, update_eval_step]
    else:
        eval_ops = [eval_ops, update_eval_step]
    return eval_ops, tf_evaluation._get_latest_eval_step_value(eval_ops)


def evaluate_once(
    checkpoint_path: Any, master: str, scaffold: Any, eval_ops: Any, final_ops: Any, hooks: list[Any], config: Any,
    executor: str = "auto", progress: bool = False,
) -> Any:  # fmt: skip
    """Evaluates the model in the default graph once. Takes the arguments of `run_evaluation`."""
    steps = with_eval_step(eval_ops, hooks)
    return run_evaluation(
        checkpoint_path, master, scaffold, steps, final_ops=final_ops, hooks=hooks, config=config,
        executor=executor, progress=progress,
    )  # fmt: skip


def run_evaluation(
    checkpoint_path: Any,
    master: str,
    scaffold: Any,
    eval_ops: Any,
    feed_dict: Any = None,
    final_ops: Any = None,
    final_ops_feed_dict: Any = None,
    hooks: Iterable[Any] = (),
    config: Any = None,
    executor: str = "auto",
    progress: bool = False,
) -> Any:
    """Runs an evaluation whose graph is complete. Returns the values of `final_ops`."""
    logging.info("Starting evaluation at %s", time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime()))
    started = steady()
    new_creator = monitored_session.ChiefSessionCreator
    creator = new_creator(
        scaffold=scaffold,
        checkpoint_filename_with_path=checkpoint_path,
        master=master,
        config=config,
        **our_options(new_creator, train.ChiefSessionCreator, executor=executor),
    )
    final_ops_hook = basic_session_run_hooks.FinalOpsHook(final_ops, final_ops_feed_dict)
    with session_role("evaluate"):
        session = monitored_session.MonitoredSession(creator, hooks_with_progress(progress, [*hooks, final_ops_hook]))
    results: list[Any] = []
    with session:
        if eval_ops is not None:
            run_steps(session, eval_ops, results, feed_dict)
    if eval_ops is not None and not results:
        logging.warning(
            "Evaluation made no steps. Perhaps input is empty or misspecified: the metrics have their initial values. "
            "See `python -m fastsup docs dropin#estimator`."
        )
    logging.info("Inference Time : %0.5fs", steady() - started)
    logging.info("Finished evaluation at %s", time.strftime("%Y-%m-%d-%H:%M:%S", time.localtime()))
    return final_ops_hook.final_ops_values


substitute(_TFStopAfterNEvalsHook, StopAfterNEvalsHook)
substitute(tf_evaluation._evaluate_once, evaluate_once)


def _with_local_variables_initialised(scaffold: Any) -> Any:
    """Returns a scaffold whose `local_init_op` also initializes the variables of the metrics and the step count."""
    if not (scaffold and scaffold.local_init_op):
        return scaffold  # TensorFlow's default operation initializes all local variables.
    tf_evaluation._get_or_create_eval_step()
    default_op = v1.train.Scaffold.default_local_init_op()
    return v1.train.Scaffold(
        local_init_op=control_flow_ops.group(scaffold.local_init_op, default_op), copy_from_scaffold=scaffold
    )


class Evaluator:
    """Evaluates a `UserModel`."""

    def __init__(self, model: UserModel) -> None:
        self._model = model

    def evaluate(
        self, input_fn: Callable[..., Any], strategy: Any = None, steps: int | None = None, hooks: Any = None,
        checkpoint_path: Any = None, name: str | None = None,
    ) -> Any:  # fmt: skip
        """Evaluates, in the scope of the strategy if there is one. See `Estimator.evaluate`."""
        methods = self._model.methods
        with context.graph_mode():
            all_hooks = check_hooks(hooks)
            all_hooks.extend(methods._convert_eval_steps_to_hooks(steps))
            checkpoint_path = methods._checkpoint_or_initialize(checkpoint_path, "evaluate")
            self._model.warn_if_untrained(checkpoint_path, "metrics")
            with ops.Graph().as_default(), strategy.scope() if strategy else contextlib.nullcontext():
                scaffold, update_op, eval_dict, hooks_of_graph = methods._evaluate_build_graph(
                    input_fn, all_hooks, checkpoint_path
                )
                return methods._evaluate_run(
                    checkpoint_path=checkpoint_path,
                    scaffold=scaffold,
                    update_op=update_op,
                    eval_dict=eval_dict,
                    all_hooks=hooks_of_graph,
                    output_dir=methods.eval_dir(name),
                )

    def steps_hooks(self, steps: Any) -> list[Any]:
        """Returns the hook that ends the evaluation after a number of batches, if one is given."""
        check_steps("steps", steps, endless=False)
        return [] if steps is None else [evaluation._StopAfterNEvalsHook(num_evals=steps)]

    def build_graph(
        self, input_fn: Callable[..., Any], hooks: Any = None, checkpoint_path: Any = None
    ) -> tuple[Any, Any, dict[str, Any], list[Any]]:
        """Builds the model in the default graph.

        Returns the scaffold, the operation that updates the metrics, the values of the metrics by name, and all hooks.
        """
        model, methods, graph = self._model, self._model.methods, ops.get_default_graph()
        model.seed_and_create_global_step(graph)
        call = methods._call_model_fn_eval_distributed if model.eval_distribution else methods._call_model_fn_eval
        scaffold, evaluation_hooks, input_hooks, update_op, eval_dict = call(input_fn, methods.config)
        # Warm-start after the model_fn has created the variables of the model.
        methods._maybe_warm_start(checkpoint_path)
        if ops.GraphKeys.GLOBAL_STEP in eval_dict:
            raise ValueError(
                "Metric with name `global_step` is not allowed, because Estimator already defines a default metric "
                "with the same name."
            )
        eval_dict[ops.GraphKeys.GLOBAL_STEP] = v1.train.get_global_step(graph)
        all_hooks = [*input_hooks, *(hooks or []), *(evaluation_hooks or [])]
        return _with_local_variables_initialised(scaffold), update_op, eval_dict, all_hooks

    def call_model_fn(self, input_fn: Callable[..., Any], config: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Calls input_fn and model_fn without a strategy.

        Returns the scaffold, the hooks of the model, the hooks of the input, the operation that updates the metrics,
        and the values of the metrics by name.
        """
        methods = self._model.methods
        features, labels, input_hooks = methods._get_features_and_labels_from_input_fn(input_fn, ModeKeys.EVAL)
        spec = methods._call_model_fn(features, labels, ModeKeys.EVAL, config)
        update_op, eval_dict = split_metrics(add_loss_metric(spec.eval_metric_ops, spec.loss))
        return spec.scaffold, spec.evaluation_hooks, input_hooks, update_op, eval_dict

    def call_model_fn_in_replicas(self, input_fn: Callable[..., Any], config: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Calls input_fn and model_fn with the strategy. Returns the same values as `call_model_fn`."""
        return ReplicatedModel(self._model, self._model.eval_distribution).evaluation(input_fn, config)

    def run(
        self, checkpoint_path: Any, scaffold: Any, update_op: Any, eval_dict: Any, all_hooks: Any, output_dir: str
    ) -> Any:
        """Evaluates the graph that `build_graph` has built, writes the results and returns them."""
        model = self._model
        run = evaluation._evaluate_once
        results = run(
            checkpoint_path=checkpoint_path,
            master=model.config.evaluation_master,
            scaffold=scaffold,
            eval_ops=update_op,
            final_ops=eval_dict,
            hooks=all_hooks,
            config=model.session_config,
            **our_options(run, evaluate_once, executor=model.config.executor, progress=model.config.progress),
        )
        global_step = results[ops.GraphKeys.GLOBAL_STEP]
        metric_summaries.write_metrics(output_dir, results, global_step)
        if checkpoint_path:
            metric_summaries.write_checkpoint_path(output_dir, checkpoint_path, global_step)
        return results
