"""train_and_evaluate: one call for a single process and for each task of a cluster."""

from __future__ import annotations

from typing import Any

from fastsup.cluster.tf_config import check_job_layout
from fastsup.estimator.config import distribution
from fastsup.estimator.jobs.executor import TrainingExecutor
from fastsup.estimator.jobs.specs import assert_eval_spec

__all__ = ["train_and_evaluate"]


def train_and_evaluate(estimator: Any, train_spec: Any, eval_spec: Any) -> Any:
    """Trains, evaluates and exports an Estimator.

    A single process evaluates after each checkpoint. In a cluster (see `RunConfig` and TF_CONFIG) each task calls this
    function with the same arguments and runs its own part, with one model directory: between-graph replication, or
    synchronous training with `MultiWorkerMirroredStrategy`.

    `TrainSpec.max_steps` ends training alike in both. The end of the data ends training too; but in a cluster each
    worker reads the data independently.

    Args:
      estimator: the `Estimator`.
      train_spec: `TrainSpec`.
      eval_spec: `EvalSpec`.

    Returns:
      In a single process the metrics of the last evaluation and the list of the exporters' results; in a cluster None.

    Raises:
      ValueError: TF_CONFIG is invalid, such as with a second evaluator, or with workers and no parameter server.
      TypeError: an argument is of the wrong type.
    """
    assert_eval_spec(eval_spec)  # First, as in TensorFlow.
    executor = TrainingExecutor(estimator=estimator, train_spec=train_spec, eval_spec=eval_spec)
    check_job_layout(estimator.config, distribution.trains_collectively(estimator.config))
    return executor.run()
