"""A model on the replicas of a `tf.distribute` strategy, on several devices or in several processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.distribute import distribute_utils, reduce_util
from tensorflow.python.framework import ops
from tensorflow.python.ops import array_ops, variables
from tensorflow.python.training import training_util
from tensorflow.python.util import nest

from fastsup.estimator.config import distribution
from fastsup.estimator.config.tensorflow_names import v1
from fastsup.estimator.inputs.input_fn import DistributedIteratorInitializerHook, parse_iterator_result
from fastsup.estimator.model.eval_metrics import add_loss_metric, split_metrics
from fastsup.estimator.model.model_fn import EstimatorSpec, ModeKeys
from fastsup.estimator.model.user_model import UserModel

__all__ = ["ReplicatedModel"]


def _ready_for_local_init_op(scaffold: Any) -> Any:
    """The operation of a replica that lists the uninitialised variables."""
    return scaffold.ready_for_local_init_op or v1.train.Scaffold.get_or_default(
        "ready_for_local_init_op",
        ops.GraphKeys.READY_FOR_LOCAL_INIT_OP,
        lambda: variables.report_uninitialized_variables(variables.global_variables()),
    )


def _combined_scaffold(grouped: Any, strategy: Any) -> Any:
    """Combines the scaffolds of the replicas into one."""
    scaffolds = strategy.experimental_local_results(grouped)

    def given(attribute: str) -> list[Any]:
        return [value for value in (getattr(each, attribute) for each in scaffolds) if value is not None]

    def group(attribute: str) -> Any:
        found = given(attribute)
        return strategy.group(found) if found else None

    def concatenated(function: Callable[[Any], Any]) -> Any:
        per_replica = strategy.extended.call_for_each_replica(function, args=(grouped,))
        if per_replica is None:
            return None
        parts = nest.flatten(strategy.experimental_local_results(per_replica))
        return parts[0] if len(parts) == 1 else array_ops.concat(parts, 0)

    ready_op = concatenated(lambda scaffold: scaffold.ready_op)
    return v1.train.Scaffold(
        init_op=group("init_op"),
        ready_op=ready_op,
        ready_for_local_init_op=concatenated(_ready_for_local_init_op),
        local_init_op=group("local_init_op"),
        summary_op=group("summary_op"),
        saver=next(iter(given("saver")), None),
        init_feed_dict=group("init_feed_dict"),
        init_fn=next(iter(given("_user_init_fn")), None),
    )


def _reported_loss_reduction() -> Any:
    """The reduction of the replicas' losses to the reported loss."""
    if getattr(ops.get_default_graph(), "_is_loss_scaled_by_optimizer", False):
        return distribute_utils.get_loss_reduction()
    return reduce_util.ReduceOp.SUM


class ReplicatedModel:
    """Builds a model with a strategy.

    Args:
      model: the model.
      strategy: the strategy.
    """

    def __init__(self, model: UserModel, strategy: Any) -> None:
        self._model = model
        self._strategy = strategy

    def train(self, input_fn: Callable[..., Any], hooks: list[Any], saving_listeners: list[Any]) -> Any:
        """Builds the model and trains it. See `LocalTrainer.train`."""
        model, methods, strategy = self._model, self._model.methods, self._strategy
        # The last context makes TensorFlow's v1 optimizers divide the loss by the number of replicas.
        with ops.Graph().as_default() as graph, strategy.scope(), strategy._scale_loss_for_estimator_enabled():
            v1.random.set_random_seed(model.config.tf_random_seed)
            iterator, worker_hooks = self._iterator_of(input_fn, ModeKeys.TRAIN)
            global_step = methods._create_and_assert_global_step(graph)
            # Read here, because in the thread of a replica the tensor would belong to that replica.
            ops.add_to_collection(training_util.GLOBAL_STEP_READ_KEY, strategy.extended.read_var(global_step))
            grouped = self._call_model_fn(iterator, ModeKeys.TRAIN, methods.config)
            loss = strategy.reduce(_reported_loss_reduction(), grouped.loss, axis=None)
            spec = EstimatorSpec(
                mode=grouped.mode,
                loss=loss,
                train_op=strategy.group(grouped.train_op),
                training_hooks=self._first_replica_hooks(grouped.training_hooks),
                training_chief_hooks=self._first_replica_hooks(grouped.training_chief_hooks),
                scaffold=_combined_scaffold(grouped.scaffold, strategy),
            )
            return methods._train_with_estimator_spec(spec, worker_hooks, hooks, global_step, saving_listeners)

    def evaluation(self, input_fn: Callable[..., Any], config: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Builds the model for an evaluation. See `Evaluator.call_model_fn`."""
        strategy = self._strategy
        distribution.check_devices("eval_distribute", strategy, self._model.session_config)
        iterator, input_hooks = self._iterator_of(input_fn, ModeKeys.EVAL)
        grouped = self._call_model_fn(iterator, ModeKeys.EVAL, config)
        metrics = add_loss_metric(grouped.eval_metric_ops, grouped.loss, strategy)
        update_op, eval_dict = split_metrics(metrics, strategy)
        hooks = self._first_replica_hooks(grouped.evaluation_hooks)
        return _combined_scaffold(grouped.scaffold, strategy), hooks, input_hooks, update_op, eval_dict

    def _iterator_of(self, input_fn: Callable[..., Any], mode: str) -> tuple[Any, list[Any]]:
        """The iterator of the strategy over the input, and the hook that initialises the iterator."""
        call = self._model.methods._call_input_fn
        iterator = self._strategy.make_input_fn_iterator(lambda context: call(input_fn, mode, context))
        return iterator, [DistributedIteratorInitializerHook(iterator)]

    def _call_model_fn(self, iterator: Any, mode: str, config: Any) -> Any:
        """Calls the model_fn in each replica, with the next element of its input."""
        features, labels = parse_iterator_result(iterator.get_next())
        return self._strategy.extended.call_for_each_replica(
            self._model.methods._call_model_fn, args=(features, labels, mode, config)
        )

    def _first_replica_hooks(self, per_device: Any) -> list[Any]:
        """The hooks of the first replica."""
        return [self._strategy.experimental_local_results(each)[0] for each in per_device]
