"""The configuration of `tf.contrib.learn`, whose cluster has workers and perhaps a master, and no separate chief."""

from __future__ import annotations

import json
import os
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.training import server_lib

from fastsup import estimator
from fastsup.cluster.tf_config import TaskType
from fastsup.compat.contrib.learn.keys import Environment
from fastsup.estimator.config.task_properties import TaskProperties

__all__ = ["ClusterConfig", "RunConfig"]

# What a program may change between the configuration that learn_runner gives and the one that the Estimator has.
_NOT_IN_UID = (
    "tf_random_seed", "save_summary_steps", "save_checkpoints_steps", "save_checkpoints_secs", "session_config",
    "keep_checkpoint_max", "keep_checkpoint_every_n_hours", "log_step_count_steps",
)  # fmt: skip
_USE_DEFAULT = 0


def _tf_config() -> Any:
    return json.loads(os.environ.get("TF_CONFIG") or "{}")


def _address(cluster_spec: Any, task_type: str | None, task_id: int) -> str:
    """The execution engine of a task: "" for a single process and for a task without a role."""
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
    "environment", one of `Environment`. In the cloud the first master is the chief, elsewhere the first worker. A task
    of the role "chief" is the chief everywhere.

    Args:
      master: the execution engine to train on. None: the address of this task, or "" for a single process.
      evaluation_master: the execution engine to evaluate on. None: "".

    Raises:
      ValueError: the cluster lacks this task.
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
        """The index of this process among those of its role, from TF_CONFIG; 0 if there is none."""
        index = _tf_config().get("task", {}).get("index")
        return int(index) if index else 0


class RunConfig(ClusterConfig, estimator.RunConfig):
    """The settings of an Estimator as `tf.contrib.learn` had them. It is a `tf.estimator.RunConfig` too.

    The other arguments are those of `ClusterConfig` and `tf.estimator.RunConfig`.

    Args:
      num_cores: number of threads, for `tf_config`. 0: TensorFlow chooses.
      log_device_placement: True to log the devices of operations, for `tf_config`.
      gpu_memory_fraction: part of each GPU's memory to use, for `tf_config`.
      save_checkpoints_secs: seconds between two checkpoints. 0: 600, unless save_checkpoints_steps is given.

    Raises:
      ValueError: an argument is out of its range, or TF_CONFIG is invalid.
      TypeError: an argument is of the wrong type.
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
        estimator.RunConfig.__init__(
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
        """Leaves the cluster as `ClusterConfig` has read it."""
        self._service = tf_config.get("service")
        self._global_id_in_cluster = None

    def _maybe_overwrite_session_config_for_distributed_training(self) -> None:
        """Leaves the session configuration as it was given."""

    @property
    def tf_config(self) -> Any:
        """ConfigProto with the arguments about devices and threads. The servers of tasks are started with it."""
        return self._tf_config

    def uid(self, whitelist: Any = None) -> str:
        """A text that two configurations have in common if they describe the same run.

        Args:
          whitelist: names of properties that the text leaves out. None: those that don't affect the cluster.
        """
        left_out = {f"_{name}" for name in (_NOT_IN_UID if whitelist is None else whitelist)}
        state = {name: value for name, value in vars(self).items() if name not in left_out and name[:2] != "__"}
        if "_cluster_spec" in state:
            state["_cluster_spec"] = sorted(state["_cluster_spec"].as_dict().items())
        return ", ".join(f"{name}={state[name]!r}" for name in sorted(state))
