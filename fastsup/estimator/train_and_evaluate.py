"""train_and_evaluate: one call for a process by itself and for each task of a cluster."""

from __future__ import annotations

from typing import Any

from fastsup.estimator.cluster_config import described, read_tf_config
from fastsup.estimator.executor import TrainingExecutor
from fastsup.estimator.run_config import TaskType
from fastsup.estimator.specs import assert_eval_spec

__all__ = ["train_and_evaluate"]


def train_and_evaluate(estimator: Any, train_spec: Any, eval_spec: Any) -> Any:
    """Trains, evaluates and exports an Estimator.

    Without a cluster it evaluates after each checkpoint. In a cluster (see `RunConfig` and TF_CONFIG) each task calls
    it with the same arguments and does its part: between-graph replication, with all tasks on one model directory.

    The one condition to stop by that is the same in both is `TrainSpec.max_steps`. A training whose data ends stops
    there; but in a cluster each worker goes through its data by itself.

    Args:
      estimator: the `Estimator`.
      train_spec: `TrainSpec`: how to train.
      eval_spec: `EvalSpec`: how to evaluate and export.

    Returns:
      The metrics of the last evaluation, and what the exporters then returned. In a cluster None.

    Raises:
      ValueError: TF_CONFIG is set wrongly: a second evaluator, or workers without parameter servers.
      TypeError: an argument is of the wrong type.
    """
    assert_eval_spec(eval_spec)  # Before anything is made of the others.
    executor = TrainingExecutor(estimator=estimator, train_spec=train_spec, eval_spec=eval_spec)
    _check_cluster(estimator.config)
    return executor.run()


def _check_cluster(config: Any) -> None:
    """Refuses a cluster in which tasks would be in each other's way, or wait for each other without an end."""
    if config.task_type == TaskType.EVALUATOR and config.task_id > 0:
        raise ValueError(
            "For distributed training, there can only be one `evaluator` task (with task id 0).  Given task id "
            f'{config.task_id}. TF_CONFIG["task"]["index"] of the evaluator should be 0. {described(read_tf_config())}'
        )
    jobs = config.cluster_spec.jobs if config.cluster_spec else []
    # With a device function of its own, a program may keep the variables elsewhere.
    if TaskType.WORKER in jobs and TaskType.PS not in jobs and config.device_fn is None:
        raise ValueError(
            'TF_CONFIG["cluster"] has workers and no "ps": there is no task that holds the variables they share. Add '
            '"ps": ["host:port"] to it, or leave "worker" out to train in one process. The cluster is '
            f"{config.cluster_spec.as_dict()}. {described(read_tf_config())}"
        )
