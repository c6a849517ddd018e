"""The model of an Estimator: its settings, the calls to the user's functions, and its replicas."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorflow.python.distribute import distribute_lib, distribute_utils, reduce_util
from tensorflow.python.framework import ops
from tensorflow.python.ops import array_ops, variables
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import device_setter, training_util
from tensorflow.python.util import function_utils, nest

from fastsup.common.absent_names import Keras2Hint
from fastsup.core.checks import check_no_pattern
from fastsup.core.errors import add_note, is_from_call
from fastsup.estimator.config import distribution
from fastsup.estimator.config.run_config import resolve_config
from fastsup.estimator.config.tensorflow_names import v1
from fastsup.estimator.inputs.input_fn import (
    DistributedIteratorInitializerHook,
    parse_input_fn_result,
    parse_iterator_result,
)
from fastsup.estimator.model import model_checkpoints
from fastsup.estimator.model.argument_checks import check_input_fn
from fastsup.estimator.model.model_fn import (
    EstimatorSpec,
    ModeKeys,
    add_loss_metric,
    check_mode,
    split_metrics,
    verify_model_fn_args,
)

__all__ = [
    "ReplicatedModel",
    "UserModel",
    "graph_keras_names",
]

_STATE_MODULE = "keras.src.backend.common.global_state"
# The parts of the thread's Keras state that graphs must not share: the counters for automatic names, and the variable
# of the unseeded random numbers, which belongs to the graph in which it was created.
_STATE_KEYS = ("object_name_uids", "global_seed_generator")
# The graph attribute with this state. The variable refers to its graph, so a dictionary with weak references to graphs
# would keep all graphs alive.
_ATTRIBUTE = "_fastsup_keras_state"


class _Entered(threading.local):
    """The graphs whose state this thread uses, innermost last."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []


_entered = _Entered()


def _exchange(state: dict[str, Any]) -> dict[str, Any]:
    """Replaces the Keras state of this thread and returns the old one, which is empty unless Keras is imported."""
    module = sys.modules.get(_STATE_MODULE)
    # Look it up each time, because clear_session() creates a new tracker.
    tracker = getattr(module, "GLOBAL_STATE_TRACKER", None)
    if tracker is None:
        return {}
    current = vars(tracker)
    old = {name: current.pop(name) for name in _STATE_KEYS if name in current}
    current.update(state)
    return old


@contextmanager
def graph_keras_names(graph: Any) -> Iterator[None]:
    """Makes Keras 3 number layers with the counters of a graph instead of the thread's, during a `with` block.

    Restores the thread's counters at the end. A replica of a strategy uses a copy of the graph's counters, so that all
    replicas use the same names. This function doesn't import Keras.
    """
    if any(entered is graph for entered in _entered.graphs):
        yield
        return
    state: dict[str, Any] | None = getattr(graph, _ATTRIBUTE, None)
    if state is None:
        state = {}
        setattr(graph, _ATTRIBUTE, state)
    if distribute_lib.has_strategy() and not distribute_lib.in_cross_replica_context():
        state = {name: value.copy() if hasattr(value, "copy") else value for name, value in state.items()}
    callers = _exchange(state)
    _entered.graphs.append(graph)
    try:
        with Keras2Hint():
            yield
    finally:
        _entered.graphs.pop()
        state.update(_exchange(callers))


def _replica_device_setter(config: Any) -> Any:
    """Returns the device function that places variables on parameter servers, or None if the job has none."""
    if config.num_ps_replicas <= 0:
        return None
    return v1.train.replica_device_setter(
        ps_tasks=config.num_ps_replicas,
        worker_device=f"/job:{config.task_type}/task:{config.task_id}" if config.task_type else "/job:worker",
        merge_devices=True,
        ps_ops=list(device_setter.STANDARD_PS_OPS),
        cluster=config.cluster_spec,
    )


class UserModel:
    """The model that an Estimator's trainer, evaluator, predictor and exporter work on.

    `methods` is the Estimator, whose methods a subclass may override.
    """

    def __init__(
        self, methods: Any, model_fn: Callable[..., Any], model_dir: Any, config: Any, params: Any, warm_start_from: Any
    ) -> None:
        self.methods = methods
        self.has_temporary_dir: bool = not model_dir and getattr(config, "model_dir", None) is None
        self.config: Any = resolve_config(config, model_dir)
        self.train_distribution: Any = self.config.train_distribute
        self.eval_distribution: Any = distribution.evaluates_with(self.config.eval_distribute)
        self.model_dir: Any = self.config.model_dir
        check_no_pattern("model_dir", self.model_dir)
        self.session_config: Any = distribution.session_config_for(
            self.config.session_config, self.train_distribution, self.eval_distribution
        )
        logging.info("Using config: %s", str(vars(self.config)))
        self.device_fn: Any = self.config.device_fn or _replica_device_setter(self.config)
        if model_fn is None:
            raise ValueError("model_fn must be provided to Estimator.")
        if not callable(model_fn):
            raise TypeError(f"model_fn must be callable, given: {model_fn!r}")
        verify_model_fn_args(model_fn, params)
        self.model_fn = model_fn
        self.params: Any = copy.deepcopy(params or {})
        self.warm_start_settings: Any = model_checkpoints.parse_warm_start_from(warm_start_from)

    def checkpoint_or_initialize(self, checkpoint_path: Any, purpose: str) -> Any:
        """Returns the given checkpoint or the newest one. If there is none, logs the files of the model directory."""
        path = model_checkpoints.parse_checkpoint_path(checkpoint_path)
        if not path:
            path = model_checkpoints.newest_checkpoint(self.model_dir)
            model_checkpoints.warn_of_state_file(self.model_dir, path)
        if not path:
            logging.info(
                "Could not find trained model in model_dir: %s, running initialization to %s. %s",
                self.model_dir,
                purpose,
                model_checkpoints.describe_directory(self.model_dir),
            )
        return path or None

    def warn_if_untrained(self, checkpoint_path: Any, results: str) -> None:
        """Warns about results of an untrained model if the caller passed a model directory."""
        if checkpoint_path or self.has_temporary_dir or self.warm_start_settings:
            return
        # A caller that names a directory expects a trained model there.
        logging.warning(
            "These are %s of an untrained, newly initialized model: there is no checkpoint in model_dir=%s. Train "
            "the model first, or pass the directory of a trained model. See `python -m fastsup docs dropin#estimator`.",
            results,
            self.model_dir,
        )

    def maybe_warm_start(self, checkpoint_path: Any) -> None:
        """Initializes the variables with those of another model, unless there is a checkpoint to restore."""
        if not checkpoint_path and self.warm_start_settings:
            model_checkpoints.warm_start(self.warm_start_settings)

    def create_global_step(self, graph: Any) -> Any:
        """Creates the global step of a graph."""
        return v1.train.create_global_step(graph)

    def create_and_assert_global_step(self, graph: Any) -> Any:
        """Creates the global step of a graph, and asserts that it is the graph's global step."""
        step = self.methods._create_global_step(graph)
        assert step is v1.train.get_global_step()
        assert step.dtype.is_integer
        return step

    def seed_and_create_global_step(self, graph: Any) -> Any:
        """Sets the seed of the default graph, and creates and returns its global step."""
        v1.random.set_random_seed(self.config.tf_random_seed)
        return self.methods._create_and_assert_global_step(graph)

    def _accepted_arguments(self, function: Callable[..., Any], **candidates: Any) -> dict[str, Any]:
        """Selects the arguments that a user's function accepts, from the candidates, `params` and `config`."""
        accepted = function_utils.fn_args(function)
        return {
            name: candidates[name] if name in candidates else getattr(self.methods, name)
            for name in (*candidates, "params", "config")
            if name in accepted
        }

    def call_input_fn(self, input_fn: Callable[..., Any], mode: str, input_context: Any = None) -> Any:
        """Calls an input_fn on the CPU, with the arguments among `mode`, `params`, ... that it accepts."""
        check_input_fn(input_fn)
        candidates = {"mode": mode}
        if input_context:
            candidates["input_context"] = input_context
        arguments = self._accepted_arguments(input_fn, **candidates)
        if "input_context" in arguments:
            logging.info("The `input_fn` accepts an `input_context` which will be given by DistributionStrategy")
        with ops.device("/cpu:0"), graph_keras_names(ops.get_default_graph()):
            try:
                return input_fn(**arguments)
            except TypeError as error:
                if is_from_call(error):
                    add_note(
                        error,
                        "An input_fn gets the arguments mode, params and config, if it has them. For other arguments, "
                        "pass functools.partial(input_fn, ...).",
                    )
                raise

    def features_and_labels(self, input_fn: Callable[..., Any], mode: str) -> Any:
        """Calls an input_fn. Returns features, labels (or None), and the hooks that initialize the input."""
        return parse_input_fn_result(self.methods._call_input_fn(input_fn, mode), input_fn)

    def call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        """Calls the model_fn with the arguments that it accepts."""
        arguments = self._accepted_arguments(self.model_fn, labels=labels, mode=mode, config=config)
        if labels is not None and "labels" not in arguments:
            raise ValueError("model_fn does not take labels, but input_fn returns labels.")
        logging.info("Calling model_fn.")
        with graph_keras_names(ops.get_default_graph()):
            spec = self.model_fn(features=features, **arguments)
        logging.info("Done calling model_fn.")
        if not isinstance(spec, EstimatorSpec):
            raise ValueError(
                f"model_fn should return an EstimatorSpec. It returned {spec!r} of type {type(spec).__name__}."
            )
        check_mode(spec, mode)
        return spec


def _ready_for_local_init_op(scaffold: Any) -> Any:
    """Returns a replica's operation that lists the uninitialized variables."""
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
    """Returns how the replicas' losses are reduced to the reported loss."""
    if getattr(ops.get_default_graph(), "_is_loss_scaled_by_optimizer", False):
        return distribute_utils.get_loss_reduction()
    return reduce_util.ReduceOp.SUM


class ReplicatedModel:
    """Builds a model with a strategy."""

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
            # Read the global step here. In a replica's thread, the tensor would belong to that replica.
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
        """Returns the strategy's iterator over the input, and the hook that initializes it."""
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
        """Returns the hooks of the first replica."""
        return [self._strategy.experimental_local_results(each)[0] for each in per_device]
