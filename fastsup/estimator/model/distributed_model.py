"""Training and evaluation with a `tf.distribute` strategy, on several devices or in several processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.distribute import distribute_utils, reduce_util
from tensorflow.python.framework import ops, random_seed
from tensorflow.python.ops import array_ops, variables
from tensorflow.python.training import monitored_session, training_util
from tensorflow.python.util import nest

from fastsup.estimator.collective.part import CollectivePart, collective_part
from fastsup.estimator.config import distribution
from fastsup.estimator.inputs.input_fn import DistributedIteratorInitializerHook, parse_iterator_result
from fastsup.estimator.model import trained_model
from fastsup.estimator.model.eval_metrics import add_loss_metric, split_metrics
from fastsup.estimator.model.evaluate_model import Evaluation
from fastsup.estimator.model.model_fn import EstimatorSpec, ModeKeys
from fastsup.estimator.model.train_model import Training

__all__ = ["DistributedModel"]


def _ready_for_local_init_op(scaffold: Any) -> Any:
    """The operation of a replica that lists the uninitialised variables."""
    return scaffold.ready_for_local_init_op or monitored_session.Scaffold.get_or_default(
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
    return monitored_session.Scaffold(
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


class DistributedModel(Training, Evaluation):
    """The part of an Estimator that trains and evaluates with a strategy."""

    # This task's part in a training of several processes, while it trains.
    _collective_part: CollectivePart | None = None

    def _iterator_of(self, input_fn: Callable[..., Any], mode: str, strategy: Any) -> tuple[Any, list[Any]]:
        """The iterator of the strategy over the input, and the hook that initialises the iterator."""
        iterator = strategy.make_input_fn_iterator(lambda context: self._call_input_fn(input_fn, mode, context))
        return iterator, [DistributedIteratorInitializerHook(iterator)]

    def _train_model_distributed(self, input_fn: Any, hooks: list[Any], saving_listeners: list[Any]) -> Any:
        """Trains with the strategy of the configuration."""
        strategy = self._train_distribution
        distribution.check_devices("train_distribute", strategy, self._session_config)
        if not distribution.trains_collectively(self._config):
            strategy.configure(self._session_config)
            return self._actual_train_model_distributed(strategy, input_fn, hooks, saving_listeners)
        checkpoint = trained_model.newest_checkpoint(self._model_dir)
        with collective_part(self._config, strategy, self._session_config, checkpoint) as self._collective_part:
            try:
                return self._actual_train_model_distributed(strategy, input_fn, hooks, saving_listeners)
            finally:
                self._collective_part = None

    def _new_saver_hook(self, **options: Any) -> Any:
        part = self._collective_part
        return super()._new_saver_hook(**options) if part is None else part.new_saver_hook(**options)

    def _open_training_session(self, *arguments: Any) -> Any:
        part = self._collective_part
        if part is not None:
            return part.open_session(*arguments)
        return super()._open_training_session(*arguments)

    def _actual_train_model_distributed(
        self, strategy: Any, input_fn: Any, hooks: list[Any], saving_listeners: list[Any]
    ) -> Any:
        """Trains with a strategy, and returns the loss of the last step."""
        # The last context makes TensorFlow's v1 optimizers divide the loss by the number of replicas.
        with ops.Graph().as_default() as graph, strategy.scope(), strategy._scale_loss_for_estimator_enabled():
            random_seed.set_random_seed(self._config.tf_random_seed)
            iterator, worker_hooks = self._iterator_of(input_fn, ModeKeys.TRAIN, strategy)
            global_step = self._create_and_assert_global_step(graph)
            # Read here, because in the thread of a replica the tensor would belong to that replica.
            ops.add_to_collection(training_util.GLOBAL_STEP_READ_KEY, strategy.extended.read_var(global_step))
            features, labels = parse_iterator_result(iterator.get_next())
            grouped = strategy.extended.call_for_each_replica(
                self._call_model_fn, args=(features, labels, ModeKeys.TRAIN, self.config)
            )
            loss = strategy.reduce(_reported_loss_reduction(), grouped.loss, axis=None)
            spec = EstimatorSpec(
                mode=grouped.mode,
                loss=loss,
                train_op=strategy.group(grouped.train_op),
                training_hooks=self._first_replica_hooks(strategy, grouped.training_hooks),
                training_chief_hooks=self._first_replica_hooks(strategy, grouped.training_chief_hooks),
                scaffold=_combined_scaffold(grouped.scaffold, strategy),
            )
            if self._collective_part is not None:
                self._collective_part.step = [spec.train_op, spec.loss]
            return self._train_with_estimator_spec(spec, worker_hooks, hooks, global_step, saving_listeners)

    def _call_model_fn_eval_distributed(
        self, input_fn: Callable[..., Any], config: Any
    ) -> tuple[Any, Any, Any, Any, Any]:
        strategy = self._eval_distribution
        distribution.check_devices("eval_distribute", strategy, self._session_config)
        iterator, input_hooks = self._iterator_of(input_fn, ModeKeys.EVAL, strategy)
        features, labels = parse_iterator_result(iterator.get_next())
        grouped = strategy.extended.call_for_each_replica(
            self._call_model_fn, args=(features, labels, ModeKeys.EVAL, config)
        )
        metrics = add_loss_metric(grouped.eval_metric_ops, grouped.loss, strategy)
        update_op, eval_dict = split_metrics(metrics, strategy)
        hooks = self._first_replica_hooks(strategy, grouped.evaluation_hooks)
        return _combined_scaffold(grouped.scaffold, strategy), hooks, input_hooks, update_op, eval_dict

    @staticmethod
    def _first_replica_hooks(strategy: Any, per_device: Any) -> list[Any]:
        """The hooks of the first replica."""
        return [strategy.experimental_local_results(each)[0] for each in per_device]
