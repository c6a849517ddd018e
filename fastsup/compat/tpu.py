"""`tf.estimator.tpu` on CPU and GPU, with `use_tpu=False`."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from numbers import Integral
from typing import Any, NamedTuple

from tensorflow.core.framework.summary_pb2 import Summary
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.util import function_utils

from fastsup import estimator, train
from fastsup.cluster.tf_config import read_tf_config
from fastsup.estimator.model.estimator import EstimatorV1
from fastsup.estimator.model.model_fn import TPUEstimatorSpec, verify_model_fn_args

__all__ = [
    "ExamplesPerSecondHook",
    "InputPipelineConfig",
    "IterationsPerLoopCounter",
    "RunConfig",
    "TPUConfig",
    "TPUEstimator",
    "check_positive_integer",
    "parse_iterations_per_loop",
]

_SECONDS = {"s": 1, "m": 60, "h": 3600}


class IterationsPerLoopCounter(NamedTuple):
    """The length of a loop on a TPU.

    Args:
      value: number of steps or seconds.
      unit: "count" or "seconds".
    """

    value: int
    unit: str


def check_positive_integer(value: Any, name: str) -> None:
    """Rejects a value that isn't a positive integer.

    Raises:
      TypeError: If the value isn't an integer.
      ValueError: If the value isn't positive.
    """
    if not isinstance(value, Integral):
        raise TypeError(f"{name} must be int, got {type(value)}")
    if value <= 0:
        raise ValueError(f"{name} must be positive, got {value}")


def parse_iterations_per_loop(iterations_per_loop: Any) -> IterationsPerLoopCounter:
    """Parses TPUConfig's argument of that name.

    Args:
      iterations_per_loop: a number of steps, or a number with the unit s, m or h, such as "60m".

    Raises:
      ValueError: If the argument is neither.
    """
    match = re.fullmatch(r"([1-9]\d*)([smh]?)", str(iterations_per_loop))
    if match is None:
        raise ValueError(
            f"Invalid TPUConfig `iterations_per_loop` value. Got {iterations_per_loop!r}: must be a positive integer, "
            "or a time such as `3600s`, `60m`, `1h`."
        )
    value, unit = int(match[1]), match[2]
    return (
        IterationsPerLoopCounter(value * _SECONDS[unit], "seconds")
        if unit
        else IterationsPerLoopCounter(value, "count")
    )


_CORES = (1, 2, 4, 8, 16, 32, 64, 128)


class InputPipelineConfig:
    """Ways to distribute the input over the cores of TPUs."""

    PER_SHARD_V1 = 1
    PER_HOST_V1 = 2
    PER_HOST_V2 = 3
    BROADCAST = 4
    SLICED = 5


class _TPUConfig(NamedTuple):
    iterations_per_loop: Any
    num_shards: int | None
    num_cores_per_replica: int | None
    per_host_input_for_training: int
    tpu_job_name: str | None
    initial_infeed_sleep_secs: int | None
    input_partition_dims: Any
    eval_training_input_configuration: int
    experimental_host_call_every_n_steps: int
    experimental_allow_per_host_v2_parallel_get_next: bool
    experimental_feed_hook: Any


class TPUConfig(_TPUConfig):
    """The settings of training on TPUs. On CPU and GPU, they are checked, but only `iterations_per_loop` is used.

    Args:
      iterations_per_loop: steps, or a time such as "60m", between two returns to the host. On CPU and GPU, it divides
        the interval of the log lines with the step rate, as in TensorFlow.
      num_shards: number of replicas of the model.
      num_cores_per_replica: number of cores per replica: 1, 2, 4, ... 128.
      per_host_input_for_training: one of `InputPipelineConfig`. True is PER_HOST_V1, and False is PER_SHARD_V1.
      tpu_job_name: name of the TPUs' job. Defaults to the job in TF_CONFIG.
      initial_infeed_sleep_secs: seconds to wait before the first batch is sent.
      input_partition_dims: number of parts into which to split each dimension of the input.
      eval_training_input_configuration: PER_HOST_V1 or SLICED of `InputPipelineConfig`.
      experimental_host_call_every_n_steps: steps between calls to the host.
      experimental_allow_per_host_v2_parallel_get_next: Whether hosts fetch their input in parallel.
      experimental_feed_hook: class of the hook that feeds TPUs.

    Raises:
      ValueError: If an argument has an invalid value.
      TypeError: If an argument has the wrong type.
    """

    __slots__ = ()

    def __new__(
        cls,
        iterations_per_loop: Any = 2,
        num_shards: int | None = None,
        num_cores_per_replica: int | None = None,
        per_host_input_for_training: Any = True,
        tpu_job_name: str | None = None,
        initial_infeed_sleep_secs: int | None = None,
        input_partition_dims: Any = None,
        eval_training_input_configuration: int = InputPipelineConfig.PER_HOST_V1,
        experimental_host_call_every_n_steps: int = 1,
        experimental_allow_per_host_v2_parallel_get_next: bool = False,
        experimental_feed_hook: Any = None,
    ) -> TPUConfig:
        parse_iterations_per_loop(iterations_per_loop)
        if num_shards is not None:
            check_positive_integer(num_shards, "TPUConfig num_shards")
        if input_partition_dims is not None:
            if len(input_partition_dims) not in (1, 2):
                raise ValueError("input_partition_dims must be a list/tuple with one or two elements.")
            if per_host_input_for_training is not InputPipelineConfig.PER_HOST_V2:
                raise ValueError("input_partition_dims is only supported in PER_HOST_V2 mode.")
            if num_cores_per_replica is None:
                raise ValueError("input_partition_dims requires setting num_cores_per_replica.")
        if num_cores_per_replica is not None and num_cores_per_replica not in _CORES:
            raise ValueError(
                f"num_cores_per_replica must be {', '.join(map(str, _CORES))}; got {num_cores_per_replica}"
            )
        if eval_training_input_configuration not in (InputPipelineConfig.PER_HOST_V1, InputPipelineConfig.SLICED):
            raise ValueError(
                "eval_training_input_configuration must be PER_HOST_V1 or SLICED; "
                f"got {eval_training_input_configuration}"
            )
        if isinstance(per_host_input_for_training, bool):
            by_host = per_host_input_for_training
            per_host_input_for_training = (
                InputPipelineConfig.PER_HOST_V1 if by_host else InputPipelineConfig.PER_SHARD_V1
            )
        if initial_infeed_sleep_secs:
            check_positive_integer(initial_infeed_sleep_secs, "TPUConfig initial_infeed_sleep_secs")
        return super().__new__(
            cls,
            iterations_per_loop,
            num_shards,
            num_cores_per_replica,
            per_host_input_for_training,
            tpu_job_name or (read_tf_config().get("service") or {}).get("tpu_worker_job_name"),
            initial_infeed_sleep_secs,
            input_partition_dims,
            eval_training_input_configuration,
            experimental_host_call_every_n_steps,
            experimental_allow_per_host_v2_parallel_get_next,
            experimental_feed_hook,
        )


class RunConfig(estimator.RunConfig):
    """`tf.estimator.RunConfig` with the settings of TPUs.

    Args:
      tpu_config: `TPUConfig`. Defaults to `TPUConfig()`.
      evaluation_master: the execution engine to evaluate on. Defaults to `master`.
      master: the execution engine to train on. Defaults to the one in TF_CONFIG.
      cluster: a ClusterResolver with the execution engine and the cluster. Exclusive with `master`.
      **kwargs: arguments of `tf.estimator.RunConfig`.

    Raises:
      ValueError: If both `master` and `cluster` are given, or `cluster` and a session_config with another cluster.
    """

    def __init__(
        self,
        tpu_config: TPUConfig | None = None,
        evaluation_master: str | None = None,
        master: str | None = None,
        cluster: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if master is not None and cluster is not None:
            raise ValueError("Both master and cluster are set.")
        self._tpu_config = tpu_config or TPUConfig()
        self._cluster = cluster
        self._master: Any
        self._evaluation_master: Any
        if master is not None:
            self._master = master
        elif cluster:
            self._master = cluster.master()
        if evaluation_master is not None:
            self._evaluation_master = evaluation_master
        elif not self._evaluation_master and self.task_type != estimator.TaskType.EVALUATOR:
            self._evaluation_master = self._master
        if cluster:
            self._join(cluster.cluster_spec())

    def _join(self, cluster_spec: Any) -> None:
        """Makes this process part of a cluster."""
        self._cluster_spec = cluster_spec
        if self._session_config is None:
            self._session_config: Any = config_pb2.ConfigProto(allow_soft_placement=True, isolate_session_state=True)
        if self._session_config.HasField("cluster_def"):
            raise ValueError("You cannot provide a ClusterResolver and session_config.cluster_def.")
        if cluster_spec:
            self._session_config.cluster_def.CopyFrom(cluster_spec.as_cluster_def())

    def _maybe_overwrite_session_config_for_distributed_training(self) -> None:
        """Leaves the session configuration unchanged, because devices aren't filtered."""

    @property
    def tpu_config(self) -> TPUConfig:
        """The TPU settings."""
        return self._tpu_config

    @property
    def cluster(self) -> Any:
        """The ClusterResolver, or None."""
        return self._cluster

    def replace(self, **kwargs: Any) -> Any:
        """Returns a copy with new values for some properties.

        Args:
          **kwargs: the new values by name: `tpu_config`, and the arguments of `tf.estimator.RunConfig.replace`.
        """
        tpu_config = kwargs.pop("tpu_config", self._tpu_config)
        config = super().replace(**kwargs)
        config._tpu_config = tpu_config
        return config


class ExamplesPerSecondHook(train.StepCounterHook):
    """Logs and records the steps and examples per second.

    Args:
      batch_size: number of examples per step. If None, doesn't count examples.
      every_n_steps: global steps between two lines. Exclusive with `every_n_secs`.
      every_n_secs: seconds between two lines.
      output_dir: directory for the events. Exclusive with `summary_writer`.
      summary_writer: writer of the events. If neither is given, the rates are only logged.
    """

    def __init__(
        self,
        batch_size: int | None,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: Any = None,
        summary_writer: Any = None,
    ) -> None:
        self._batch_size = batch_size
        super().__init__(every_n_steps, every_n_secs, output_dir, summary_writer)

    def _log_and_record(self, elapsed_steps: int, elapsed_time: float, global_step: int) -> None:
        rate = elapsed_steps / elapsed_time
        rates = {"global_step/sec": rate}
        if self._batch_size is not None:
            rates["examples/sec"] = self._batch_size * rate
        for tag, value in rates.items():
            if self._summary_writer is not None:
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                self._summary_writer.add_summary(summary, global_step)
            logging.info(f"{tag}: %g", value)


_BATCH_SIZE = "batch_size"
_RESERVED = [_BATCH_SIZE, "context"]
_NO_TPU = (
    "TPUs aren't supported: TPU support for Estimators ended with TensorFlow 2.15. With use_tpu=False the same "
    "program trains on CPU and GPU; on TPUs use tf.distribute.TPUStrategy with Keras or your own training loop. "
    "See `python -m fastsup docs migrating`."
)
_NO_PARAMS = "{} ({}) does not include params argument, required by TPUEstimator to pass batch size as params[{!r}]"


def _set_parameter(params: Any, name: str, value: Any) -> None:
    """Sets a hyperparameter in a dictionary or an HParams object."""
    if not hasattr(params, "set_hparam"):
        params[name] = value
    elif name in params:
        params.set_hparam(name, value)
    else:
        params.add_hparam(name, value)


class TPUEstimator(EstimatorV1):
    """An Estimator whose model_fn is written for TPUs. It trains on CPU and GPU, with `use_tpu=False`.

    The model_fn and the input functions take `params`. `params["batch_size"]` is the batch size for training,
    evaluation or prediction. For the model_fn, `params["use_tpu"]` is False.

    Args:
      model_fn: function that builds the model and returns a `TPUEstimatorSpec` or a `tf.estimator.EstimatorSpec`.
      model_dir: as for `tf.estimator.Estimator`.
      config: `tf.estimator.tpu.RunConfig`.
      params: dictionary of hyperparameters, without "batch_size" and "context".
      use_tpu: must be False.
      train_batch_size: batch size in training.
      eval_batch_size: batch size in evaluation.
      predict_batch_size: batch size in prediction.
      batch_axis: used only on TPUs.
      eval_on_tpu: used only on TPUs.
      export_to_tpu: Whether to also export a graph for TPUs. This graph is skipped, with a warning.
      export_to_cpu: Whether to export a graph for CPU and GPU. Must be True for an export.
      warm_start_from: as for `tf.estimator.Estimator`.
      embedding_config_spec: must be None.
      export_saved_model_api_version: 1 or 2. Used only on TPUs.

    Raises:
      NotImplementedError: If `use_tpu` is True, or `embedding_config_spec` is given.
      ValueError: As for `tf.estimator.Estimator`, or if `config` has another class, or `params` has a reserved name.
    """

    def __init__(
        self,
        model_fn: Any = None,
        model_dir: Any = None,
        config: Any = None,
        params: Any = None,
        use_tpu: bool = True,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
        batch_axis: Any = None,
        eval_on_tpu: bool = True,
        export_to_tpu: bool = True,
        export_to_cpu: bool = True,
        warm_start_from: Any = None,
        embedding_config_spec: Any = None,
        export_saved_model_api_version: Any = 1,
    ) -> None:
        del batch_axis
        if config is None or not isinstance(config, RunConfig):
            raise ValueError("`config` must be provided with type `tpu_config.RunConfig`")
        if params is not None and any(name in params for name in _RESERVED):
            raise ValueError(f"{_RESERVED} are reserved keys but existed in params {params}.")
        if use_tpu:
            raise NotImplementedError(f"use_tpu={use_tpu!r}: {_NO_TPU}")
        if embedding_config_spec is not None:
            raise NotImplementedError(f"embedding_config_spec={embedding_config_spec!r}: {_NO_TPU}")
        if getattr(export_saved_model_api_version, "value", export_saved_model_api_version) not in (1, 2):
            raise ValueError(f"export_saved_model_api_version should be 1 or 2; got {export_saved_model_api_version}.")
        logging.info("_TPUContext: eval_on_tpu %s", eval_on_tpu)
        if eval_on_tpu:
            logging.warning("eval_on_tpu ignored because use_tpu is False.")
        verify_model_fn_args(model_fn, params)
        self._batch_sizes = {
            estimator.ModeKeys.TRAIN: train_batch_size,
            estimator.ModeKeys.EVAL: eval_batch_size,
            estimator.ModeKeys.PREDICT: predict_batch_size,
        }
        self._export_to_cpu, self._export_to_tpu = export_to_cpu, export_to_tpu
        # The input function is called before the model_fn, except in an export.
        self._input_fn_was_called = False
        self._logs_every = self._intervals_of(config)
        super().__init__(
            model_fn=self._on_cpu(model_fn),
            model_dir=model_dir,
            # A hook of this class logs the rate.
            config=config.replace(log_step_count_steps=None),
            params=params or {},
            warm_start_from=warm_start_from,
        )

    def _assert_members_are_not_overridden(self) -> None:
        if type(self) is not TPUEstimator:
            super()._assert_members_are_not_overridden()

    @staticmethod
    def _intervals_of(config: RunConfig) -> dict[str, Any] | None:
        """Returns the interval of the log lines as an argument of the hook, or None if there are no lines."""
        loop = parse_iterations_per_loop(config.tpu_config.iterations_per_loop)
        if loop.unit == "seconds":
            return {"every_n_steps": None, "every_n_secs": loop.value}
        if config.log_step_count_steps is None:
            return None
        return {"every_n_steps": math.ceil(config.log_step_count_steps / loop.value)}

    def _call_input_fn(self, input_fn: Callable[..., Any], mode: str, input_context: Any = None) -> Any:
        if "params" not in function_utils.fn_args(input_fn):
            raise ValueError(_NO_PARAMS.format("input_fn", input_fn, _BATCH_SIZE))
        sliced = InputPipelineConfig.SLICED
        if self._config.tpu_config.eval_training_input_configuration == sliced and mode != estimator.ModeKeys.TRAIN:
            raise ValueError(
                "Invalid TPUConfig `eval_training_input_configuration` value. SLICED mode only works on use_tpu = True."
            )
        self._input_fn_was_called = True
        params = self.params
        if self._batch_sizes[mode] is not None:
            _set_parameter(params, _BATCH_SIZE, self._batch_sizes[mode])
        return super()._call_input_fn(functools.partial(input_fn, params=params), mode, input_context)

    def _validate_features_in_predict_input(self, result: Any) -> None:
        """Accepts any input."""

    def _on_cpu(self, model_fn: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a model_fn that was written for TPUs in a model_fn for an Estimator."""
        taken = function_utils.fn_args(model_fn)

        def model_fn_on_cpu(features: Any, labels: Any, mode: str, config: Any, params: Any) -> Any:
            exports = not self._input_fn_was_called
            self._input_fn_was_called = False
            if labels is not None and "labels" not in taken:
                raise ValueError("model_fn does not take labels, but input_fn returns labels.")
            if "params" not in taken:
                raise ValueError(_NO_PARAMS.format("model_fn", model_fn, _BATCH_SIZE))
            _set_parameter(params, "use_tpu", False)
            batch_size = self._batch_sizes[mode]
            if batch_size is not None and not exports:
                _set_parameter(params, _BATCH_SIZE, batch_size)
            logging.info("Running %s on CPU/GPU", mode)
            arguments = {"labels": labels, "mode": mode, "config": config, "params": params}
            spec = model_fn(features=features, **{name: arguments[name] for name in arguments if name in taken})
            if isinstance(spec, TPUEstimatorSpec):
                spec = spec.as_estimator_spec()
            if self._logs_every is None or not isinstance(spec, estimator.EstimatorSpec):
                return spec
            output_dir = self.model_dir if config is None or config.save_summary_steps else None
            hook = ExamplesPerSecondHook(batch_size, output_dir=output_dir, **self._logs_every)
            return spec._replace(training_hooks=(*spec.training_hooks, hook))

        return model_fn_on_cpu

    def _add_meta_graph_for_mode(self, *args: Any, **kwargs: Any) -> None:
        if not self._export_to_cpu and not self._export_to_tpu:
            raise ValueError("One of export_to_cpu and export_to_tpu must be true.")
        if not self._export_to_cpu:
            raise NotImplementedError(f"export_to_cpu=False would leave nothing to export. {_NO_TPU}")
        if self._export_to_tpu:
            logging.warning(
                "export_to_tpu=True: the SavedModel has the graph for CPU and GPU alone. A graph for TPUs isn't "
                "supported "
                "(`python -m fastsup docs migrating`); pass export_to_tpu=False for an export without this line."
            )
        super()._add_meta_graph_for_mode(*args, **kwargs)
