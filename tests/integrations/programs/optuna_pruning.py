"""optuna's TensorFlowPruningHook, which reads what an Estimator's evaluations have written."""

import os
import sys
import warnings

import optuna
import tensorflow as tf
from a_model import data, estimator

warnings.filterwarnings("ignore", category=FutureWarning)
from optuna_integration import TensorFlowPruningHook  # noqa: E402

folder = sys.argv[1]


def objective(trial):
    model = estimator(os.path.join(folder, str(trial.number)), save_checkpoints_steps=10)
    hook = TensorFlowPruningHook(trial, model, metric="mae", run_every_steps=10)
    train = tf.estimator.TrainSpec(data, max_steps=60, hooks=[hook])
    result, _ = tf.estimator.train_and_evaluate(model, train, tf.estimator.EvalSpec(data, steps=1, throttle_secs=0))
    return result["mae"]


class Second(optuna.pruners.BasePruner):
    """Prunes the second trial at its third value."""

    def prune(self, study, trial):
        return trial.number == 1 and len(trial.intermediate_values) > 2


study = optuna.create_study(pruner=Second())
study.optimize(objective, n_trials=2)
first, second = study.trials
assert first.state is optuna.trial.TrialState.COMPLETE, first
assert first.value < 0.01, first
values = list(first.intermediate_values.values())
assert len(values) >= 4, values
assert values == sorted(values, reverse=True), values
assert second.state is optuna.trial.TrialState.PRUNED, second
assert len(second.intermediate_values) == 3, second
