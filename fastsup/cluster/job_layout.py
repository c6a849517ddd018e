"""Refuses jobs that TensorFlow's runtime would let wait for ever, or overwrite each other's files."""

from __future__ import annotations

from typing import Any

from fastsup.cluster.task_settings import TaskType
from fastsup.cluster.tf_config import summarize_tf_config

__all__ = ["check_job_layout"]


def check_job_layout(config: Any, collective: bool = False) -> None:
    """Refuses a job whose tasks would overwrite each other's files or wait for each other without limit.

    Args:
      config: configuration of the task.
      collective: whether the tasks train by collectives, which need no parameter server.

    Raises:
      ValueError: the task is a second evaluator, or the cluster has workers and no parameter server.
    """
    if config.task_type == TaskType.EVALUATOR and config.task_id > 0:
        raise ValueError(
            "For distributed training, there can only be one `evaluator` task (with task id 0).  Given task id "
            f'{config.task_id}. TF_CONFIG["task"]["index"] of the evaluator should be 0. {summarize_tf_config()}'
        )
    jobs = config.cluster_spec.jobs if config.cluster_spec else []
    # A program with its own device function may place the variables elsewhere.
    if collective or getattr(config, "device_fn", None) is not None:
        return
    if TaskType.WORKER in jobs and TaskType.PS not in jobs:
        raise ValueError(
            'TF_CONFIG["cluster"] has workers and no "ps": there is no task that holds the variables they share. Add '
            '"ps": ["host:port"] to it, or leave "worker" out to train in one process; or train synchronously, with '
            "RunConfig(train_distribute=tf.distribute.MultiWorkerMirroredStrategy()). The cluster is "
            f"{config.cluster_spec.as_dict()}. {summarize_tf_config()}"
        )
