"""Evaluation: `Estimator.evaluate`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_ops
from tensorflow.python.training import evaluation, monitored_session, training_util

from fastsup.core import timeline
from fastsup.estimator.model import trained_model
from fastsup.estimator.model.arguments import check_hooks, check_steps
from fastsup.estimator.model.base import EstimatorBase
from fastsup.estimator.model.eval_metrics import add_loss_metric, split_metrics
from fastsup.estimator.model.evaluate_once import StopAfterNEvalsHook, evaluate_once
from fastsup.estimator.model.model_fn import ModeKeys
from fastsup.events import metric_summaries

__all__ = ["Evaluation"]


def _with_local_variables_initialised(scaffold: Any) -> Any:
    """A scaffold whose `local_init_op` initialises the variables of the metrics and of the step count too."""
    if not (scaffold and scaffold.local_init_op):
        return scaffold  # TensorFlow's default operation initialises all local variables.
    evaluation._get_or_create_eval_step()
    default_op = monitored_session.Scaffold.default_local_init_op()
    return monitored_session.Scaffold(
        local_init_op=control_flow_ops.group(scaffold.local_init_op, default_op), copy_from_scaffold=scaffold
    )


class Evaluation(EstimatorBase):
    """The part of an Estimator that evaluates."""

    @timeline.phase("evaluate")
    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Any = None,
        checkpoint_path: Any = None,
        name: str | None = None,
    ) -> Any:
        """Evaluates the model over the input.

        Args:
          input_fn: function that makes the input, as for `train`.
          steps: number of batches to evaluate. Defaults to all, until the input ends.
          hooks: `SessionRunHook` objects.
          checkpoint_path: path of the checkpoint to evaluate. Defaults to the newest one. If there is none, the initial
            model is evaluated.
          name: name of the evaluation, if there are several. Its metrics are written to `eval_dir(name)`.

        Returns:
          Dictionary from names of metrics to values. It includes the mean `loss` and the `global_step`.

        Raises:
          ValueError: `steps` isn't positive, or a metric has the name `loss` or `global_step`.
          TypeError: a hook or the number of steps is of the wrong type.
        """
        return self._actual_eval(
            input_fn,
            strategy=self._eval_distribution,
            steps=steps,
            hooks=hooks,
            checkpoint_path=checkpoint_path,
            name=name,
        )

    def _actual_eval(
        self,
        input_fn: Callable[..., Any],
        strategy: Any = None,
        steps: int | None = None,
        hooks: Any = None,
        checkpoint_path: Any = None,
        name: str | None = None,
    ) -> Any:
        """Evaluates, in the scope of the strategy if there is one."""
        with context.graph_mode():
            all_hooks = check_hooks(hooks)
            all_hooks.extend(self._convert_eval_steps_to_hooks(steps))
            checkpoint_path = self._checkpoint_or_initialize(checkpoint_path, "evaluate")

            def build_and_run() -> Any:
                scaffold, update_op, eval_dict, hooks_of_graph = self._evaluate_build_graph(
                    input_fn, all_hooks, checkpoint_path
                )
                return self._evaluate_run(
                    checkpoint_path=checkpoint_path,
                    scaffold=scaffold,
                    update_op=update_op,
                    eval_dict=eval_dict,
                    all_hooks=hooks_of_graph,
                    output_dir=self.eval_dir(name),
                )

            with ops.Graph().as_default():
                if not strategy:
                    return build_and_run()
                with strategy.scope():
                    return build_and_run()

    def _convert_eval_steps_to_hooks(self, steps: Any) -> list[Any]:
        """The hook that ends the evaluation after a number of batches, if one is given."""
        check_steps("steps", steps, endless=False)
        return [] if steps is None else [StopAfterNEvalsHook(num_evals=steps)]

    def _evaluate_build_graph(
        self, input_fn: Callable[..., Any], hooks: Any = None, checkpoint_path: Any = None
    ) -> tuple[Any, Any, dict[str, Any], list[Any]]:
        """Builds the model in the default graph.

        Args:
          input_fn: function that makes the input.
          hooks: hooks of the caller.
          checkpoint_path: path of the checkpoint that will be restored, or None.

        Returns:
          The scaffold, the operation that updates the metrics, the values of the metrics by name, and all hooks.
        """
        graph = ops.get_default_graph()
        self._seed_and_create_global_step(graph)
        call = self._call_model_fn_eval_distributed if self._eval_distribution else self._call_model_fn_eval
        scaffold, evaluation_hooks, input_hooks, update_op, eval_dict = call(input_fn, self.config)
        # Needs the variables of the model.
        self._maybe_warm_start(checkpoint_path)
        if ops.GraphKeys.GLOBAL_STEP in eval_dict:
            raise ValueError(
                "Metric with name `global_step` is not allowed, because Estimator already defines a default metric "
                "with the same name."
            )
        eval_dict[ops.GraphKeys.GLOBAL_STEP] = training_util.get_global_step(graph)
        all_hooks = [*input_hooks, *(hooks or []), *(evaluation_hooks or [])]
        return _with_local_variables_initialised(scaffold), update_op, eval_dict, all_hooks

    def _call_model_fn_eval(self, input_fn: Callable[..., Any], config: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Calls input_fn and model_fn.

        Returns:
          The scaffold, the hooks of the model, the hooks of the input, the operation that updates the metrics, and the
          values of the metrics by name.
        """
        features, labels, input_hooks = self._get_features_and_labels_from_input_fn(input_fn, ModeKeys.EVAL)
        spec = self._call_model_fn(features, labels, ModeKeys.EVAL, config)
        update_op, eval_dict = split_metrics(add_loss_metric(spec.eval_metric_ops, spec.loss))
        return spec.scaffold, spec.evaluation_hooks, input_hooks, update_op, eval_dict

    def _call_model_fn_eval_distributed(
        self, input_fn: Callable[..., Any], config: Any
    ) -> tuple[Any, Any, Any, Any, Any]:
        """As `_call_model_fn_eval`, with a strategy."""
        raise NotImplementedError

    def _evaluate_run(
        self, checkpoint_path: Any, scaffold: Any, update_op: Any, eval_dict: Any, all_hooks: Any, output_dir: str
    ) -> Any:
        """Evaluates the graph that `_evaluate_build_graph` has built, writes the results and returns them."""
        with trained_model.explaining_missing_variables(checkpoint_path):
            results = evaluate_once(
                checkpoint_path=checkpoint_path,
                master=self._config.evaluation_master,
                scaffold=scaffold,
                eval_ops=update_op,
                final_ops=eval_dict,
                hooks=all_hooks,
                config=self._session_config,
                executor=self._config.executor,
                progress=self._config.progress,
            )
        global_step = results[ops.GraphKeys.GLOBAL_STEP]
        metric_summaries.write_metrics(output_dir, results, global_step)
        if checkpoint_path:
            metric_summaries.write_checkpoint_path(output_dir, checkpoint_path, global_step)
        return results
