"""The Estimator of `tf.contrib.learn`, with `fit`, as a layer over `tf.estimator.Estimator`. And its RunConfig.

A cluster of this RunConfig has workers and perhaps a master, and no separate chief.
"""

from __future__ import annotations

import abc
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks, server_lib, session_run_hook
from tensorflow.python.util import function_utils

from fastsup import estimator as core
from fastsup.cluster.tf_config import TaskType
from fastsup.contrib.learn.exports import as_receiver_fn
from fastsup.contrib.learn.model import Environment, ModeKeys, ModelFnOps, make_metrics_ops
from fastsup.estimator.config.run_config import TaskProperties
from fastsup.estimator.model.estimator import EstimatorV1
from fastsup.experiment.monitor_hooks import replace_monitors_with_hooks

__all__ = [
    "ClusterConfig",
    "Estimator",
    "Evaluable",
    "NotFittedError",
    "RunConfig",
    "Trainable",
]


class Evaluable(abc.ABC):
    """An object that an Experiment can evaluate. Subclasses define both members."""

    @property
    @abc.abstractmethod
    def model_dir(self) -> Any:
        """Directory of the checkpoints."""
        raise NotImplementedError

    @abc.abstractmethod
    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        input_fn: Any = None,
        feed_fn: Any = None,
        batch_size: int | None = None,
        steps: int | None = None,
        metrics: Any = None,
        name: str | None = None,
        checkpoint_path: Any = None,
        hooks: Any = None,
    ) -> Any:
        """Evaluates the model.

        Args:
          x: data, or None with `input_fn`.
          y: labels of `x`.
          input_fn: function that returns the evaluation data: features and labels.
          feed_fn: function that returns the feed dictionary for a step, or None.
          batch_size: number of rows of `x` per batch.
          steps: number of batches. If None, evaluates until the data ends.
          metrics: dictionary from names to metrics. If None, uses the model's metrics.
          name: name of the evaluation.
          checkpoint_path: path of the checkpoint. If None, uses the newest one.
          hooks: hooks for the evaluation.

        Returns:
          Dictionary from metric names, and "global_step", to values.
        """
        raise NotImplementedError


class Trainable(abc.ABC):
    """An object that an Experiment can train. Subclasses define `fit`."""

    @abc.abstractmethod
    def fit(
        self,
        x: Any = None,
        y: Any = None,
        input_fn: Any = None,
        steps: int | None = None,
        batch_size: int | None = None,
        monitors: Any = None,
        max_steps: int | None = None,
    ) -> Any:
        """Trains the model.

        Args:
          x: data, or None with `input_fn`.
          y: labels of `x`.
          input_fn: function that returns the training data: features and labels.
          steps: number of steps. If None, trains until the data ends.
          batch_size: number of rows of `x` per batch.
          monitors: monitors and hooks for training.
          max_steps: global step at which training ends, instead of `steps`.

        Returns:
          The object itself.
        """
        raise NotImplementedError


# Properties that a program may change between learn_runner's configuration and the Estimator's.
_NOT_IN_UID = (
    "tf_random_seed", "save_summary_steps", "save_checkpoints_steps", "save_checkpoints_secs", "session_config",
    "keep_checkpoint_max", "keep_checkpoint_every_n_hours", "log_step_count_steps",
)  # fmt: skip
_USE_DEFAULT = 0


def _tf_config() -> Any:
    return json.loads(os.environ.get("TF_CONFIG") or "{}")


def _address(cluster_spec: Any, task_type: str | None, task_id: int) -> str:
    """Returns the execution engine of a task, which is "" for a single process and for a task without a role."""
    if not cluster_spec or not task_type or sum(map(cluster_spec.num_tasks, cluster_spec.jobs)) == 1:
        return ""
    source = "may be coming from the TF_CONFIG environment variable."
    if task_type not in cluster_spec.jobs:
        raise ValueError(
            f"{task_type} is not a valid task_type in the cluster_spec:\n{cluster_spec}\n\n"
            f"Note that these values {source}"
        )
    addresses = cluster_spec.job_tasks(task_type)
    if not 0 <= task_id < len(addresses):
        raise ValueError(
            f"{task_id} is not a valid task_id for task_type {task_type} in the cluster_spec:\n{cluster_spec}\n\n"
            f"Note that these value {source}"
        )
    return f"grpc://{addresses[task_id]}"


class ClusterConfig(TaskProperties):
    """The cluster and the role of this process, read from the environment variable TF_CONFIG.

    TF_CONFIG is a JSON object with "cluster", from roles to lists of addresses, "task", with "type" and "index", and
    "environment", one of `Environment`. In the cloud, the first master is the chief; elsewhere, the first worker is. A
    task with the role "chief" is always the chief.

    Args:
      master: the execution engine to train on. If None, uses the address of this task, or "" for a single process.
      evaluation_master: the execution engine to evaluate on. If None, uses "".

    Raises:
      ValueError: If the cluster lacks this task.
    """

    def __init__(self, master: str | None = None, evaluation_master: str | None = None) -> None:
        config = _tf_config()
        self._task_type = config.get("task", {}).get("type")
        self._task_id = self.get_task_id()
        self._cluster_spec = server_lib.ClusterSpec(config.get("cluster", {}))
        self._master = _address(self._cluster_spec, self._task_type, self._task_id) if master is None else master
        tasks = self._cluster_spec.as_dict()
        self._num_ps_replicas = len(tasks.get(TaskType.PS, []))
        self._num_worker_replicas = sum(
            len(tasks.get(role, [])) for role in (TaskType.WORKER, TaskType.MASTER, TaskType.CHIEF)
        )
        self._environment = config.get("environment", Environment.LOCAL)
        chief = TaskType.MASTER if self._environment == Environment.CLOUD else TaskType.WORKER
        self._is_chief = self._task_id == 0 and self._task_type in (None, TaskType.CHIEF, chief)
        self._evaluation_master = evaluation_master or ""

    @property
    def environment(self) -> str:
        """Where the job runs: one of `Environment`."""
        return self._environment  # type: ignore[no-any-return]

    @staticmethod
    def get_task_id() -> int:
        """Returns the index of this process within its role, from TF_CONFIG, or 0 if there is none."""
        index = _tf_config().get("task", {}).get("index")
        return int(index) if index else 0


class RunConfig(ClusterConfig, core.RunConfig):
    """The settings of an Estimator as in `tf.contrib.learn`. This is also a `tf.estimator.RunConfig`.

    The other arguments are those of `ClusterConfig` and `tf.estimator.RunConfig`.

    Args:
      num_cores: number of threads, for `tf_config`. If 0, TensorFlow chooses.
      log_device_placement: Whether to log the devices of operations, for `tf_config`.
      gpu_memory_fraction: fraction of each GPU's memory to use, for `tf_config`.
      save_checkpoints_secs: seconds between checkpoints. If 0, uses 600 unless save_checkpoints_steps is given.

    Raises:
      ValueError: If an argument is out of its range, or TF_CONFIG is invalid.
      TypeError: If an argument has the wrong type.
    """

    def __init__(
        self,
        master: str | None = None,
        num_cores: int = 0,
        log_device_placement: bool = False,
        gpu_memory_fraction: float = 1,
        tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100,
        save_checkpoints_secs: float | None = _USE_DEFAULT,
        save_checkpoints_steps: int | None = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float | None = 10000,
        log_step_count_steps: int | None = 100,
        protocol: str | None = None,
        evaluation_master: str = "",
        model_dir: Any = None,
        session_config: Any = None,
        session_creation_timeout_secs: float = 7200,
    ) -> None:
        ClusterConfig.__init__(self, master=master, evaluation_master=evaluation_master)
        if save_checkpoints_secs == _USE_DEFAULT and save_checkpoints_secs is not None:
            save_checkpoints_secs = 600 if save_checkpoints_steps is None else None
        core.RunConfig.__init__(
            self,
            model_dir=model_dir,
            tf_random_seed=tf_random_seed,
            save_summary_steps=save_summary_steps,
            save_checkpoints_steps=save_checkpoints_steps,
            save_checkpoints_secs=save_checkpoints_secs,
            session_config=session_config,
            keep_checkpoint_max=keep_checkpoint_max,
            keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
            log_step_count_steps=log_step_count_steps,
            protocol=protocol,
            session_creation_timeout_secs=session_creation_timeout_secs,
        )
        self._tf_config = config_pb2.ConfigProto(
            log_device_placement=log_device_placement,
            inter_op_parallelism_threads=num_cores,
            intra_op_parallelism_threads=num_cores,
            gpu_options=config_pb2.GPUOptions(per_process_gpu_memory_fraction=gpu_memory_fraction),
        )

    def _init_distributed_setting_from_environment_var(self, tf_config: dict[str, Any]) -> None:
        """Keeps the cluster that `ClusterConfig` read."""
        self._service = tf_config.get("service")
        self._global_id_in_cluster = None

    def _maybe_overwrite_session_config_for_distributed_training(self) -> None:
        """Keeps the given session configuration."""

    @property
    def tf_config(self) -> Any:
        """ConfigProto with the arguments for devices and threads. The tasks' servers are started with this."""
        return self._tf_config

    def uid(self, whitelist: Any = None) -> str:
        """Returns a text that is equal for two configurations of the same run.

        Args:
          whitelist: names of properties to leave out. If None, leaves out those that don't affect the cluster.
        """
        left_out = {f"_{name}" for name in (_NOT_IN_UID if whitelist is None else whitelist)}
        state = {name: value for name, value in vars(self).items() if name not in left_out and name[:2] != "__"}
        if "_cluster_spec" in state:
            state["_cluster_spec"] = sorted(state["_cluster_spec"].as_dict().items())
        return ", ".join(f"{name}={state[name]!r}" for name in sorted(state))


class NotFittedError(ValueError, AttributeError):
    """Raised if an operation requires a checkpoint and the Estimator has none."""


class _OneBatchHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Ends a prediction after one batch if the input is constant: it has no queue, dataset or feeds."""

    def begin(self) -> None:
        graph = ops.get_default_graph()
        of_dataset = any(operation.type == "IteratorGetNext" for operation in graph.get_operations())
        self._is_constant = not of_dataset and not graph.get_collection(ops.GraphKeys.QUEUE_RUNNERS)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._is_constant:
            run_context.request_stop()


def _as_array(values: Any) -> Any:
    """Converts data to float32 or int64, the types that the older Estimator fed."""
    if isinstance(values, dict):
        return {name: _as_array(value) for name, value in values.items()}
    array = np.asarray(values)
    if np.issubdtype(array.dtype, np.floating):
        return array.astype(np.float32)
    return array.astype(np.int64) if np.issubdtype(array.dtype, np.integer) else array


def _input_of(x: Any, y: Any, input_fn: Any, batch_size: int | None, training: bool) -> Callable[[], Any]:
    """Returns the given input function, or an input function for the given arrays."""
    if input_fn is not None:
        if x is not None or y is not None:
            raise ValueError("Can not provide both input_fn and x or y.")
        if batch_size is not None:
            raise ValueError("Can not provide both input_fn and batch_size.")
        return input_fn  # type: ignore[no-any-return]
    if x is None:
        raise ValueError("Either x or input_fn must be provided.")
    if any(hasattr(value, "graph") for value in (x, y)):
        raise ValueError("Inputs cannot be tensors. Please provide input_fn.")
    features = _as_array(x)
    size = batch_size or len(next(iter(features.values())) if isinstance(features, dict) else features)
    return core.inputs.numpy_input_fn(
        features,
        None if y is None else _as_array(y),
        batch_size=size,
        num_epochs=None if training else 1,
        shuffle=training,
    )


class Estimator(Evaluable, Trainable):
    """Trains, evaluates and predicts with a model that a function builds, like `tf.contrib.learn.Estimator`.

    Args:
      model_fn: function that builds the model. Its arguments are `features`, `labels`, and any of `mode`, `params`,
        `config` and `model_dir`. Returns `ModelFnOps`, a tuple (predictions, loss, train_op), or an `EstimatorSpec`.
      model_dir: directory for checkpoints, events and exports. If None, uses the one in `config`, or a temporary one.
      config: `RunConfig` of either kind. If None, uses the default one.
      params: hyperparameters for `model_fn`, or None.
      feature_engineering_fn: function of features and labels that returns both, called before `model_fn`; or None.

    Raises:
      ValueError: If there is no `model_fn`, `params` are given although it doesn't take them, or `model_dir` differs
        from the one in `config`.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any] | None = None,
        model_dir: Any = None,
        config: Any = None,
        params: Any = None,
        feature_engineering_fn: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        if model_fn is None:
            raise ValueError("model_fn must be provided to Estimator.")
        self._takes = set(function_utils.fn_args(model_fn))
        if params is not None and "params" not in self._takes:
            raise ValueError(
                f"Estimator's model_fn ({model_fn}) does not have a params argument, but params ({params}) were passed "
                "to the Estimator's constructor."
            )
        if params is None and "params" in self._takes:
            logging.warning(
                "Estimator's model_fn (%s) includes params argument, but params are not passed to Estimator.", model_fn
            )
        self._model_fn = model_fn
        self._feature_engineering_fn = feature_engineering_fn
        self.params = params
        self._core = self._made(RunConfig() if config is None else config, model_dir)

    def _made(self, config: Any, model_dir: Any, **options: Any) -> EstimatorV1:
        """Creates an Estimator of the same model. Takes the options of `_spec`."""

        def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
            return self._spec(features, labels, mode, config, **options)

        return EstimatorV1(model_fn, model_dir=model_dir, config=config)

    def _spec(
        self,
        features: Any,
        labels: Any,
        mode: str,
        config: Any,
        metrics: Any = None,
        exporting: bool = False,
        head: str | None = None,
    ) -> Any:
        """Calls the model_fn. Returns an `EstimatorSpec` with additional metrics, or with the head for an export."""
        if self._feature_engineering_fn is not None:
            features, labels = self._feature_engineering_fn(features, labels)
        values = {"mode": mode, "params": self.params, "config": config, "model_dir": self.model_dir}
        made = self._model_fn(
            features, labels, **{name: value for name, value in values.items() if name in self._takes}
        )
        if isinstance(made, core.EstimatorSpec):
            return made
        if not isinstance(made, ModelFnOps):
            if not isinstance(made, tuple | list) or len(made) != 3:
                raise ValueError("Unrecognized value returned by model_fn, please return ModelFnOps.")
            predictions, loss, train_op = made
            made = ModelFnOps(mode, predictions, loss, train_op)
        if mode == ModeKeys.EVAL and metrics:
            made.eval_metric_ops.update(make_metrics_ops(metrics, features, labels, made.predictions))
        if not exporting:
            return made._replace(output_alternatives=None).estimator_spec()
        heads = made.output_alternatives or {}
        if len(heads) > 1 and head not in heads:
            raise ValueError(
                f"Please specify a default_output_alternative_key. Available keys are: {sorted(heads)}. Got {head!r}."
            )
        return made.estimator_spec(head)

    @property
    def model_dir(self) -> Any:
        """Directory of checkpoints, events and exports."""
        return self._core.model_dir

    @property
    def config(self) -> Any:
        """A copy of the `RunConfig`."""
        return self._core.config

    @property
    def model_fn(self) -> Callable[..., Any]:
        """The model_fn with bound hyperparameters: a function of `features`, `labels`, `mode` and `config`."""
        return self._spec

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        input_fn: Any = None,
        steps: int | None = None,
        batch_size: int | None = None,
        monitors: Iterable[Any] | None = None,
        max_steps: int | None = None,
    ) -> Estimator:
        """Trains the model, starting from its newest checkpoint. See `Trainable.fit`.

        Args:
          x: array or dictionary of arrays, or None with `input_fn`.
          input_fn: function that creates the input: features and labels, or a `tf.data.Dataset` of both.
          batch_size: number of rows of `x` per batch. If None, uses all rows.

        Raises:
          ValueError: If the arguments contradict each other.
        """
        if steps is not None and max_steps is not None:
            raise ValueError("Can not provide both steps and max_steps.")
        data = _input_of(x, y, input_fn, batch_size, training=True)
        hooks = replace_monitors_with_hooks(monitors, self)
        self._core.train(data, hooks=hooks, steps=steps, max_steps=max_steps)
        return self

    def partial_fit(
        self,
        x: Any = None,
        y: Any = None,
        input_fn: Any = None,
        steps: int | None = 1,
        batch_size: int | None = None,
        monitors: Iterable[Any] | None = None,
    ) -> Estimator:
        """Trains for one or a few steps. See `fit`."""
        return self.fit(x, y, input_fn, steps, batch_size, monitors)

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        input_fn: Any = None,
        feed_fn: Any = None,
        batch_size: int | None = None,
        steps: int | None = None,
        metrics: Any = None,
        name: str | None = None,
        checkpoint_path: Any = None,
        hooks: Any = None,
        log_progress: bool = True,
    ) -> Any:
        """Evaluates the model. `x` and `y` are arrays or dictionaries of arrays. See `Evaluable.evaluate`.

        Args:
          steps: number of batches. If None or 0, evaluates until the data ends.
          metrics: dictionary from names to `MetricSpec`s or functions, in addition to the model's metrics.
          log_progress: has no effect. Progress is always logged.

        Raises:
          ValueError: If the arguments contradict each other, or `metrics` isn't a dictionary.
          NotFittedError: If the model directory has no checkpoint.
        """
        if feed_fn is not None and input_fn is None:
            raise ValueError("Can not provide both feed_fn and x or y.")
        data = _input_of(x, y, input_fn, batch_size, training=False)
        if metrics is not None and not isinstance(metrics, dict):
            raise ValueError(f"Metrics argument should be None or dict. Got {metrics}.")
        path = self._checkpoint(checkpoint_path)
        made = self._made(self._core.config, None, metrics=metrics) if metrics else self._core
        hooks = [*(hooks or []), *([basic_session_run_hooks.FeedFnHook(feed_fn)] if feed_fn else [])]
        return made.evaluate(data, steps=steps or None, hooks=hooks, checkpoint_path=path, name=name)

    def predict(
        self,
        x: Any = None,
        input_fn: Any = None,
        batch_size: int | None = None,
        outputs: Any = None,
        as_iterable: bool = True,
        iterate_batches: bool = False,
    ) -> Any:
        """Predicts. The other arguments are the same as for `fit`.

        Args:
          input_fn: as for `fit`, but the labels are optional.
          outputs: names of the predictions. If None, returns all.
          as_iterable: Whether to return an iterator. If False, returns the predictions of the first batch.
          iterate_batches: Whether to iterate over batches instead of single examples.

        Returns:
          Iterator over predictions, or the predictions of the first batch: arrays, or dictionaries of arrays.

        Raises:
          ValueError: If the arguments contradict each other.
          NotFittedError: If the model directory has no checkpoint.
        """
        data = _input_of(x, None, input_fn, batch_size, training=False)
        path = self._checkpoint(None)
        found: Iterator[Any] = self._core.predict(
            data,
            predict_keys=outputs,
            hooks=[_OneBatchHook()],
            checkpoint_path=path,
            yield_single_examples=as_iterable and not iterate_batches,
        )
        if as_iterable:
            return found
        try:
            return next(found, None)
        finally:
            found.close()  # type: ignore[attr-defined]

    def get_variable_value(self, name: str) -> Any:
        """Returns the value of a variable in the newest checkpoint."""
        return self._core.get_variable_value(name)

    def get_variable_names(self) -> list[str]:
        """Returns the names of the variables in the newest checkpoint."""
        return self._core.get_variable_names()

    def export_savedmodel(
        self,
        export_dir_base: Any,
        serving_input_fn: Callable[[], Any],
        default_output_alternative_key: str | None = None,
        assets_extra: Any = None,
        as_text: bool = False,
        checkpoint_path: Any = None,
        graph_rewrite_specs: Any = None,
        strip_default_attrs: bool = False,
    ) -> Any:
        """Exports the model for prediction as a SavedModel. See `tf.estimator.Estimator.export_saved_model`.

        Args:
          serving_input_fn: function without arguments that returns `InputFnOps` or a `ServingInputReceiver`.
          default_output_alternative_key: name of the head to serve, if there are several.
          graph_rewrite_specs: must be None, because TensorFlow 2 has no graph transforms.

        Raises:
          ValueError: If there is no `serving_input_fn`, or `graph_rewrite_specs` isn't None.
          NotFittedError: If the model directory has no checkpoint.
        """
        if serving_input_fn is None:
            raise ValueError("serving_input_fn must be defined.")
        if graph_rewrite_specs is not None:
            raise ValueError(
                f"graph_rewrite_specs={graph_rewrite_specs!r} isn't supported: TensorFlow 2 has no graph transforms."
            )
        return self._serving_estimator(default_output_alternative_key).export_savedmodel(
            export_dir_base,
            as_receiver_fn(serving_input_fn),
            assets_extra=assets_extra,
            as_text=as_text,
            checkpoint_path=self._checkpoint(checkpoint_path),
            strip_default_attrs=strip_default_attrs,
        )

    def _serving_estimator(self, head: str | None) -> EstimatorV1:
        """Returns the Estimator of the same model for serving. `head` is the head's name, or None for the only one."""
        return self._made(self._core.config, None, exporting=True, head=head)

    def _checkpoint(self, path: Any) -> Any:
        """Returns the given path, or the path of the newest checkpoint."""
        found = path or self._core.latest_checkpoint()
        if not found:
            raise NotFittedError(f"Couldn't find trained model at {self.model_dir}.")
        return found
