"""`tf.contrib.training`: training and evaluation loops, and hyperparameters."""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from tensorflow.python.framework import indexed_slices, ops, tensor_shape
from tensorflow.python.ops import array_ops, clip_ops, control_flow_ops, variables
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary import summary
from tensorflow.python.summary.writer import writer_cache
from tensorflow.python.training import checkpoint_utils, evaluation, session_run_hook, training_util
from tensorflow.python.training import optimizer as tf_optimizer
from tensorflow.python.training.checkpoint_utils import checkpoints_iterator, wait_for_new_checkpoint

from fastsup.common.absent_names import absent_name_error, alternative_to
from fastsup.contrib.alternatives import ALTERNATIVES
from fastsup.contrib.hparams import HParams, parse_values
from fastsup.estimator.inputs.in_memory import FeedingQueueRunner
from fastsup.estimator.model.argument_checks import check_hooks
from fastsup.estimator.model.evaluate_once import StopAfterNEvalsHook, run_evaluation, with_eval_step
from fastsup.train import MonitoredTrainingSession

__all__ = [
    "FeedingQueueRunner",
    "GreedyLoadBalancingStrategy",
    "HParams",
    "RandomStrategy",
    "StopAfterNEvalsHook",
    "SummaryAtEndHook",
    "Tuner",
    "add_gradients_summaries",
    "byte_size_load_fn",
    "checkpoints_iterator",
    "clip_gradient_norms",
    "clip_gradient_norms_fn",
    "create_train_op",
    "evaluate_once",
    "evaluate_repeatedly",
    "get_or_create_eval_step",
    "multiply_gradients",
    "parse_values",
    "train",
    "wait_for_new_checkpoint",
]

_Pairs = list[tuple[Any, Any]]
_GLOBAL_STEP_OF_GRAPH = 0


def _with_values(gradient: Any, change: Callable[[Any], Any]) -> Any:
    """Applies a function to a gradient's values. The gradient of an embedding consists of values and their indices."""
    if isinstance(gradient, indexed_slices.IndexedSlices):
        return indexed_slices.IndexedSlices(change(gradient.values), gradient.indices, gradient.dense_shape)
    return change(gradient)


def add_gradients_summaries(grads_and_vars: Iterable[tuple[Any, Any]]) -> list[Any]:
    """Adds a histogram and the norm of each gradient to the summaries of the graph.

    Args:
      grads_and_vars: pairs of gradient and variable. A gradient may be None.

    Returns:
      The summaries.
    """
    summaries = []
    for gradient, variable in grads_and_vars:
        if gradient is None:
            logging.info("Var %s has no gradient", variable.op.name)
            continue
        values = gradient.values if isinstance(gradient, indexed_slices.IndexedSlices) else gradient
        summaries.append(summary.histogram(f"{variable.op.name}_gradient", values))
        summaries.append(summary.scalar(f"{variable.op.name}_gradient_norm", clip_ops.global_norm([values])))
    return summaries


def clip_gradient_norms(gradients_to_variables: Iterable[tuple[Any, Any]], max_norm: float) -> _Pairs:
    """Clips each gradient to a norm.

    Args:
      gradients_to_variables: pairs of gradient and variable. A gradient may be None.
      max_norm: the maximum norm.

    Returns:
      The pairs with clipped gradients.
    """
    return [
        (
            None
            if gradient is None
            else _with_values(gradient, lambda values: clip_ops.clip_by_norm(values, max_norm)),
            variable,
        )
        for gradient, variable in gradients_to_variables
    ]


def clip_gradient_norms_fn(max_norm: float) -> Callable[[Iterable[tuple[Any, Any]]], _Pairs]:
    """Returns a function that clips the gradients in pairs, for `create_train_op`.

    Args:
      max_norm: the maximum norm.
    """
    return lambda gradients_to_variables: clip_gradient_norms(gradients_to_variables, max_norm)


def multiply_gradients(grads_and_vars: _Pairs, gradient_multipliers: dict[Any, Any]) -> _Pairs:
    """Multiplies gradients by factors.

    Args:
      grads_and_vars: list of pairs of gradient and variable.
      gradient_multipliers: dictionary from variables, or names of their operations, to factors. Other gradients don't
        change.

    Returns:
      The pairs with multiplied gradients.

    Raises:
      ValueError: If an argument has the wrong type, no factors are given, or the gradient to multiply is None.
    """
    if not isinstance(grads_and_vars, list):
        raise ValueError("`grads_and_vars` must be a list.")
    if not gradient_multipliers:
        raise ValueError("`gradient_multipliers` is empty.")
    if not isinstance(gradient_multipliers, dict):
        raise ValueError("`gradient_multipliers` must be a dict.")
    by_variable = {id(key): factor for key, factor in gradient_multipliers.items() if not isinstance(key, str)}
    by_name = {key: factor for key, factor in gradient_multipliers.items() if isinstance(key, str)}
    multiplied = []
    for gradient, variable in grads_and_vars:
        # Compare variables by identity. Under TensorFlow 2 behavior, variables have no hash, and `==` compares values.
        factor = by_variable.get(id(variable), by_name.get(variable.op.name))
        if factor is not None:
            if gradient is None:
                raise ValueError("Requested multiple of `None` gradient.")
            tensor = ops.convert_to_tensor(factor, dtype=gradient.dtype)
            gradient = _with_values(gradient, tensor.__rmul__)
        multiplied.append((gradient, variable))
    return multiplied


def _after_updates(loss: Any, update_ops: Iterable[Any] | None) -> Any:
    """Returns the loss, computed after the updates that the model's layers request."""
    of_graph = set(ops.get_collection(ops.GraphKeys.UPDATE_OPS))
    updates = of_graph if update_ops is None else set(update_ops)
    if not of_graph <= updates:
        logging.warning("update_ops in create_train_op does not contain all the update_ops in GraphKeys.UPDATE_OPS")
    if not updates:
        return loss
    with ops.control_dependencies(updates):
        barrier = control_flow_ops.no_op(name="update_barrier")
    return control_flow_ops.with_dependencies([barrier], loss)


def create_train_op(
    total_loss: Any,
    optimizer: Any,
    global_step: Any = _GLOBAL_STEP_OF_GRAPH,
    update_ops: Iterable[Any] | None = None,
    variables_to_train: Iterable[Any] | None = None,
    transform_grads_fn: Callable[[Any], Any] | None = None,
    summarize_gradients: bool = False,
    gate_gradients: int = tf_optimizer.Optimizer.GATE_OP,
    aggregation_method: Any = None,
    colocate_gradients_with_ops: bool = False,
    check_numerics: bool = True,
) -> Any:
    """Creates a tensor that runs one training step and returns the loss.

    The other arguments are the same as for `Optimizer.compute_gradients`.

    Args:
      total_loss: scalar tensor, the loss.
      optimizer: `tf.compat.v1.train.Optimizer`.
      global_step: the global step to increment. Defaults to the graph's, which is created if there is none. If None,
        counts no steps.
      update_ops: operations to run before the loss is computed, such as the updates of batch normalization. If None,
        uses the collection UPDATE_OPS.
      variables_to_train: variables to train. If None, trains all trainable variables.
      transform_grads_fn: function that transforms a list of pairs of gradient and variable; or None.
      summarize_gradients: Whether to add summaries of the gradients.
      check_numerics: Whether to raise an error in a step whose loss is infinite or NaN.

    Returns:
      The tensor, which is also added to the collection TRAIN_OP.

    Raises:
      AssertionError: If there is no variable to train, or one of `variables_to_train` isn't trainable.
    """
    if global_step is _GLOBAL_STEP_OF_GRAPH:
        global_step = training_util.get_or_create_global_step()
    total_loss = _after_updates(total_loss, update_ops)
    trainable = variables.trainable_variables()
    chosen = trainable if variables_to_train is None else list(variables_to_train)
    for variable in chosen:
        if not (variable.trainable or any(variable is other for other in trainable)):
            raise AssertionError(f"variables_to_train has {variable}, which isn't trainable.")
    if not chosen:
        raise AssertionError("There is no variable to train in the graph or in variables_to_train.")
    gradients = optimizer.compute_gradients(
        total_loss,
        chosen,
        gate_gradients=gate_gradients,
        aggregation_method=aggregation_method,
        colocate_gradients_with_ops=colocate_gradients_with_ops,
    )
    if transform_grads_fn:
        gradients = transform_grads_fn(gradients)
    if summarize_gradients:
        with ops.name_scope("summarize_grads"):
            add_gradients_summaries(gradients)
    updates = optimizer.apply_gradients(gradients, global_step=global_step)
    with ops.name_scope("train_op"):
        if check_numerics:
            total_loss = array_ops.check_numerics(total_loss, "LossTensor is inf or nan")
        train_op = control_flow_ops.with_dependencies([updates], total_loss)
    collected = ops.get_collection_ref(ops.GraphKeys.TRAIN_OP)
    if not any(train_op is other for other in collected):
        collected.append(train_op)
    return train_op


def train(
    train_op: Any,
    logdir: Any,
    master: str = "",
    is_chief: bool = True,
    scaffold: Any = None,
    hooks: Iterable[Any] | None = None,
    chief_only_hooks: Iterable[Any] | None = None,
    save_checkpoint_secs: float | None = 600,
    save_summaries_steps: int | None = 100,
    config: Any = None,
    max_wait_secs: float = 7200,
    run_metadata: Any = None,
) -> Any:
    """Trains until a hook stops training or the input ends.

    Args:
      train_op: tensor that runs one step and returns the loss, as created by `create_train_op`.
      logdir: directory of checkpoints and events. May be None if none are written.
      master: the execution engine to connect to.
      is_chief: Whether this process initializes and saves the model.
      scaffold: `Scaffold`, or None for the default one.
      hooks: additional hooks.
      chief_only_hooks: additional hooks of the chief.
      save_checkpoint_secs: seconds between checkpoints. If None, saves none.
      save_summaries_steps: global steps between summaries. If None, writes none.
      config: ConfigProto of the session, or None.
      max_wait_secs: maximum seconds that a task of a cluster waits for others.
      run_metadata: `RunMetadata` that each step writes to, or None.

    Returns:
      The loss of the last step, or None if no step ran.

    Raises:
      ValueError: If the chief has no `logdir` but has checkpoints or summaries to write.
    """
    if logdir is None and is_chief:
        if save_summaries_steps:
            raise ValueError("logdir cannot be None when save_summaries_steps is not None")
        if save_checkpoint_secs:
            raise ValueError("logdir cannot be None when save_checkpoint_secs is not None")
    loss = None
    with MonitoredTrainingSession(
        master=master,
        is_chief=is_chief,
        checkpoint_dir=logdir,
        scaffold=scaffold,
        hooks=hooks,
        chief_only_hooks=chief_only_hooks,
        save_checkpoint_secs=save_checkpoint_secs,
        save_summaries_steps=save_summaries_steps,
        config=config,
        max_wait_secs=max_wait_secs,
    ) as session:
        if run_metadata is None:
            session.run_loop(train_op)
        else:
            while not session.should_stop():
                loss = session.run(train_op, run_metadata=run_metadata)
    return session.last_result if run_metadata is None else loss


def get_or_create_eval_step() -> Any:
    """Returns the counter of evaluated batches, a local variable. Creates it in the default graph if there is none.

    Returns:
      The variable, a scalar int64.
    """
    return evaluation._get_or_create_eval_step()


def evaluate_once(
    checkpoint_path: Any,
    master: str = "",
    scaffold: Any = None,
    eval_ops: Any = None,
    feed_dict: Any = None,
    final_ops: Any = None,
    final_ops_feed_dict: Any = None,
    hooks: Iterable[Any] | None = None,
    config: Any = None,
) -> Any:
    """Evaluates the model of the default graph with a checkpoint.

    Args:
      checkpoint_path: path of the checkpoint to restore, or None to initialize the model.
      master: the execution engine to connect to.
      scaffold: `Scaffold`, or None for the default one.
      eval_ops: fetches to run until a hook such as `StopAfterNEvalsHook`, or the end of the input, ends the evaluation;
        or None.
      feed_dict: feed dictionary for each of these runs.
      final_ops: fetches to run once at the end.
      final_ops_feed_dict: feed dictionary for the run of `final_ops`.
      hooks: `SessionRunHook` objects.
      config: ConfigProto of the session, or None.

    Returns:
      The values of `final_ops`, or None if there are none.

    Raises:
      TypeError: If a member of `hooks` isn't a hook.
    """
    hooks = check_hooks(hooks)
    steps = with_eval_step(eval_ops, hooks)
    return run_evaluation(
        checkpoint_path, master, scaffold, steps, feed_dict, final_ops, final_ops_feed_dict, hooks, config
    )


def evaluate_repeatedly(
    checkpoint_dir: Any,
    master: str = "",
    scaffold: Any = None,
    eval_ops: Any = None,
    feed_dict: Any = None,
    final_ops: Any = None,
    final_ops_feed_dict: Any = None,
    eval_interval_secs: float = 60,
    hooks: Iterable[Any] | None = None,
    config: Any = None,
    max_number_of_evaluations: int | None = None,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Any:
    """Evaluates each new checkpoint in a directory, with the model of the default graph.

    The other arguments are the same as for `evaluate_once`.

    Args:
      checkpoint_dir: the directory.
      eval_interval_secs: minimum seconds from the start of one evaluation to the start of the next.
      max_number_of_evaluations: number of evaluations after which to end. If None, there is no limit.
      timeout: maximum seconds to wait for a new checkpoint. If None, there is no limit.
      timeout_fn: function without arguments that is called after each `timeout`. Evaluation continues if it returns
        False. If None, evaluation ends.

    Returns:
      The values of `final_ops` in the last evaluation, or None if there was none.

    Raises:
      TypeError: If a member of `hooks` isn't a hook.
    """
    hooks = check_hooks(hooks)
    steps = with_eval_step(eval_ops, hooks)
    values = None
    paths = checkpoint_utils.checkpoints_iterator(
        checkpoint_dir, min_interval_secs=eval_interval_secs, timeout=timeout, timeout_fn=timeout_fn
    )
    for evaluated, path in enumerate(paths, 1):
        values = run_evaluation(path, master, scaffold, steps, feed_dict, final_ops, final_ops_feed_dict, hooks, config)
        if max_number_of_evaluations is not None and evaluated >= max_number_of_evaluations:
            break
    return values


class SummaryAtEndHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Writes the summaries once, when the session ends.

    Args:
      log_dir: directory of the events. Only without `summary_writer`.
      summary_writer: `FileWriter` to write with.
      summary_op: the serialized summary, a string tensor. If None, writes all summaries of the graph.
      feed_dict: feed dictionary for the run of the summary.

    Raises:
      ValueError: If neither `log_dir` nor `summary_writer` is given.
    """

    def __init__(
        self, log_dir: Any = None, summary_writer: Any = None, summary_op: Any = None, feed_dict: Any = None
    ) -> None:
        if log_dir is None and summary_writer is None:
            raise ValueError("One of log_dir or summary_writer should be used.")
        self._log_dir = log_dir
        self._summary_writer = summary_writer
        self._summary_op = summary_op
        self._replace_summary_op = summary_op is None
        self._feed_dict = feed_dict
        self._global_step: Any = None

    def begin(self) -> None:
        """Merges the summaries of the graph, and finds the global step."""
        if self._replace_summary_op:
            self._summary_op = summary.merge_all()
        self._global_step = training_util.get_or_create_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Opens the events."""
        if self._summary_writer is None and self._log_dir:
            self._summary_writer = writer_cache.FileWriterCache.get(self._log_dir)

    def end(self, session: Any) -> None:
        """Writes the summaries."""
        if self._summary_op is not None:
            step = training_util.global_step(session, self._global_step)
            text = session.run(self._summary_op, self._feed_dict)
            if self._summary_writer:
                self._summary_writer.add_summary(text, step)
        if self._summary_writer:
            self._summary_writer.flush()


class RandomStrategy:
    """Places an operation by a hash of its name, which is the same in every process.

    Args:
      num_ps_tasks: number of parameter servers.
      seed: number to hash with the name.
    """

    def __init__(self, num_ps_tasks: int, seed: int = 0) -> None:
        self._num_tasks = num_ps_tasks
        self._seed = seed

    def __call__(self, op: Any) -> int:
        """Returns the index of the parameter server for an operation."""
        # Python's hash differs between processes.
        digest = hashlib.md5(f"{op.name}_{self._seed:d}".encode(), usedforsecurity=False).hexdigest()
        return int(digest, 16) % self._num_tasks


class GreedyLoadBalancingStrategy:
    """Places an operation on the parameter server with the smallest load.

    Args:
      num_tasks: number of parameter servers.
      load_fn: function of an operation that returns its load, a number such as `byte_size_load_fn`.
    """

    def __init__(self, num_tasks: int, load_fn: Callable[[Any], float]) -> None:
        self._load_fn = load_fn
        self._ps_loads = np.zeros(num_tasks)

    def __call__(self, op: Any) -> Any:
        """Returns the index of the parameter server for an operation."""
        task = np.argmin(self._ps_loads)
        self._ps_loads[task] += self._load_fn(op)
        return task


def byte_size_load_fn(op: Any) -> int:
    """Returns the size of an operation's output.

    Args:
      op: an operation with one output, such as a variable.

    Returns:
      The size in bytes.

    Raises:
      ValueError: If the operation doesn't have exactly one output, or the output's shape isn't known.
    """
    if len(op.outputs) != 1:
        raise ValueError(f"Op {op} must have a single output")
    output = op.outputs[0]
    kind, shape = output.dtype, output.get_shape()
    if op.type == "VarHandleOp":
        # The output is a handle. The variable's type and shape are attributes.
        kind = op.get_attr("dtype")
    if not shape.is_fully_defined() or op.type == "VarHandleOp":
        shape = tensor_shape.TensorShape(op.get_attr("shape"))
    shape.assert_is_fully_defined()
    return int(shape.num_elements()) * int(kind.size)


class Tuner(abc.ABC):
    """A source of trials for `learn_runner.tune`. Subclasses define both methods."""

    @abc.abstractmethod
    def next_trial(self) -> bool:
        """Moves to the next trial.

        Returns:
          False if there are no more trials.
        """
        raise NotImplementedError("Calling an abstract method.")

    @abc.abstractmethod
    def run_experiment(self, experiment_fn: Callable[..., Any]) -> None:
        """Runs the trial.

        Args:
          experiment_fn: function of `run_config` and `hparams` that returns the `Experiment`.
        """
        raise NotImplementedError("Calling an abstract method.")


def __getattr__(name: str) -> Any:
    raise absent_name_error(__name__, name, alternative_to(f"training.{name}", ALTERNATIVES))


def __dir__() -> list[str]:
    return sorted(__all__)
