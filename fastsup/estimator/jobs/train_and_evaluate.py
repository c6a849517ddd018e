"""train_and_evaluate: one call for a process by itself and for each task of a cluster."""

from __future__ import annotations

from typing import Any

from fastsup.cluster.tf_config import check_job
from fastsup.estimator.jobs.executor import TrainingExecutor
from fastsup.estimator.jobs.specs import assert_eval_spec

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
    check_job(estimator.config)
    return executor.run()
