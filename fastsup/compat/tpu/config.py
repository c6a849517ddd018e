"""TPUConfig and the RunConfig that has one."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorflow.core.protobuf import config_pb2

from fastsup import estimator
from fastsup.cluster.tf_config import read_tf_config
from fastsup.compat.tpu.arguments import check_positive_integer, parse_iterations_per_loop

__all__ = ["InputPipelineConfig", "RunConfig", "TPUConfig"]

_CORES = (1, 2, 4, 8, 16, 32, 64, 128)


class InputPipelineConfig:
    """How the input is spread over the cores of TPUs."""

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
    """The settings of a training on TPUs. On CPU and GPU they are checked; `iterations_per_loop` alone is used.

    Args:
      iterations_per_loop: steps, or a time such as "60m", between two returns to the host. Here it divides the interval
        of the log lines with the rate of steps, as in TensorFlow.
      num_shards: number of replicas of the model.
      num_cores_per_replica: cores of a replica: 1, 2, 4, ... 128.
      per_host_input_for_training: one of `InputPipelineConfig`; True is PER_HOST_V1, False PER_SHARD_V1.
      tpu_job_name: name of the TPUs' job. Defaults to that of TF_CONFIG.
      initial_infeed_sleep_secs: seconds to wait before the first batch is sent.
      input_partition_dims: into how many parts each dimension of the input is split.
      eval_training_input_configuration: PER_HOST_V1 or SLICED of `InputPipelineConfig`.
      experimental_host_call_every_n_steps: steps between two calls of the host.
      experimental_allow_per_host_v2_parallel_get_next: whether hosts fetch their input in parallel.
      experimental_feed_hook: class of the hook that feeds TPUs.

    Raises:
      ValueError: an argument can't have its value.
      TypeError: an argument is of the wrong type.
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
      master: the execution engine to train on. Defaults to that of TF_CONFIG.
      cluster: a ClusterResolver with the execution engine and the cluster. Not together with `master`.
      **kwargs: arguments of `tf.estimator.RunConfig`.

    Raises:
      ValueError: `master` and `cluster` are both given, or `cluster` and a session_config with another cluster.
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
        """Makes this process a part of a cluster."""
        self._cluster_spec = cluster_spec
        if self._session_config is None:
            self._session_config: Any = config_pb2.ConfigProto(allow_soft_placement=True, isolate_session_state=True)
        if self._session_config.HasField("cluster_def"):
            raise ValueError("You cannot provide a ClusterResolver and session_config.cluster_def.")
        if cluster_spec:
            self._session_config.cluster_def.CopyFrom(cluster_spec.as_cluster_def())

    def _maybe_overwrite_session_config_for_distributed_training(self) -> None:
        """Leaves the session configuration as it is: devices aren't filtered."""

    @property
    def tpu_config(self) -> TPUConfig:
        """The settings of TPUs."""
        return self._tpu_config

    @property
    def cluster(self) -> Any:
        """The ClusterResolver, or None."""
        return self._cluster

    def replace(self, **kwargs: Any) -> Any:
        """A copy with other values for some properties.

        Args:
          **kwargs: the new values, by name: `tpu_config`, and what `tf.estimator.RunConfig.replace` takes.
        """
        tpu_config = kwargs.pop("tpu_config", self._tpu_config)
        config = super().replace(**kwargs)
        config._tpu_config = tpu_config
        return config
