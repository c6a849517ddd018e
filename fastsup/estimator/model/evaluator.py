"""The evaluator of an Estimator."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_ops
from tensorflow.python.training import evaluation as tf_evaluation

from fastsup.estimator.config.tensorflow_names import evaluation, our_options, v1
from fastsup.estimator.model.arguments import check_hooks, check_steps
from fastsup.estimator.model.eval_metrics import add_loss_metric, split_metrics
from fastsup.estimator.model.evaluate_once import evaluate_once
from fastsup.estimator.model.model_fn import ModeKeys
from fastsup.estimator.model.replicated_model import ReplicatedModel
from fastsup.estimator.model.user_model import UserModel
from fastsup.events import metric_summaries

__all__ = ["Evaluator"]


def _with_local_variables_initialised(scaffold: Any) -> Any:
    """A scaffold whose `local_init_op` initialises the variables of the metrics and of the step count too."""
    if not (scaffold and scaffold.local_init_op):
        return scaffold  # TensorFlow's default operation initialises all local variables.
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
        """The hook that ends the evaluation after a number of batches, if one is given."""
        check_steps("steps", steps, endless=False)
        return [] if steps is None else [evaluation._StopAfterNEvalsHook(num_evals=steps)]

    def build_graph(
        self, input_fn: Callable[..., Any], hooks: Any = None, checkpoint_path: Any = None
    ) -> tuple[Any, Any, dict[str, Any], list[Any]]:
        """Builds the model in the default graph.

        Args:
          input_fn: function that makes the input.
          hooks: hooks of the caller, or None.
          checkpoint_path: path of the checkpoint that will be restored, or None.

        Returns:
          The scaffold, the operation that updates the metrics, the values of the metrics by name, and all hooks.
        """
        model, methods, graph = self._model, self._model.methods, ops.get_default_graph()
        model.seed_and_create_global_step(graph)
        call = methods._call_model_fn_eval_distributed if model.eval_distribution else methods._call_model_fn_eval
        scaffold, evaluation_hooks, input_hooks, update_op, eval_dict = call(input_fn, methods.config)
        # Needs the variables of the model.
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

        Returns:
          The scaffold, the hooks of the model, the hooks of the input, the operation that updates the metrics, and the
          values of the metrics by name.
        """
        methods = self._model.methods
        features, labels, input_hooks = methods._get_features_and_labels_from_input_fn(input_fn, ModeKeys.EVAL)
        spec = methods._call_model_fn(features, labels, ModeKeys.EVAL, config)
        update_op, eval_dict = split_metrics(add_loss_metric(spec.eval_metric_ops, spec.loss))
        return spec.scaffold, spec.evaluation_hooks, input_hooks, update_op, eval_dict

    def call_model_fn_in_replicas(self, input_fn: Callable[..., Any], config: Any) -> tuple[Any, Any, Any, Any, Any]:
        """As `call_model_fn`, with the strategy."""
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
