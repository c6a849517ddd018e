"""Logs an Estimator's training and evaluations to MLflow, whose autologging no longer knows Estimators.

pip install "fastsup[cpu]" mlflow-skinny   # not yet published: pip install -e ".[cpu]" mlflow-skinny in a clone
python mlflow_hook.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mlflow
import tensorflow as tf

import fastsup.estimator as estimator
from fastsup.loop import PeriodicHook
from fastsup.loop.metrics import named_numbers

v1 = tf.compat.v1


class MlflowHook(PeriodicHook):
    """Logs the numbers that steps return to the active run of MLflow.

    Args:
      fetches: a tensor, which is logged as "loss", or a dictionary of tensors by name. In a `StepLoop` it isn't needed:
        what the step returns is logged.
      every_steps: global steps between two values.
    """

    def __init__(self, fetches: Any = None, every_steps: int = 100) -> None:
        super().__init__(every_steps=every_steps)
        self.fetches = fetches

    def act(self, loop: Any) -> None:
        mlflow.log_metrics(named_numbers(loop.result), step=loop.global_step)


class LogEvaluations(estimator.Exporter):
    """Logs the metrics of each evaluation of `train_and_evaluate` to the active run of MLflow."""

    name = "mlflow"

    def export(
        self, estimator: Any, export_path: Any, checkpoint_path: Any, eval_result: Any, is_the_final_export: bool
    ) -> None:
        numbers = {f"eval_{name}": float(value) for name, value in eval_result.items() if name != "global_step"}
        mlflow.log_metrics(numbers, step=int(eval_result["global_step"]))


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    predicted = tf.squeeze(features["x"] @ v1.get_variable("weights", [3, 1]), 1)
    loss = tf.reduce_mean(tf.square(predicted - labels))
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
    hooks = [MlflowHook({"loss": loss})]
    return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=hooks)


def data() -> Any:
    x = tf.random.stateless_uniform([100, 3], seed=(1, 2))
    return tf.data.Dataset.from_tensors(({"x": x}, tf.reduce_sum(x, 1))).repeat()


def main(folder: str) -> None:
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    config = estimator.RunConfig(f"{folder}/model", save_checkpoints_steps=200)
    model = estimator.Estimator(model_fn, config=config)
    with mlflow.start_run() as run:
        mlflow.log_params({"rate": 0.1, "save_checkpoints_steps": config.save_checkpoints_steps})
        train = estimator.TrainSpec(data, max_steps=1_000)
        evaluate = estimator.EvalSpec(data, steps=1, exporters=[LogEvaluations()], throttle_secs=0)
        estimator.train_and_evaluate(model, train, evaluate)
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
    print(f"{len(history)} values of the loss, the last one {history[-1].value:.6f} at step {history[-1].step}")


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    main(sys.argv[1])
