"""Experiment with a model: what it trains, evaluates and exports, and when."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from fastsup import estimator
from fastsup.experiment import Experiment, ExportStrategy, learn_runner

v1 = tf.compat.v1


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    """A line through the origin."""
    w = v1.get_variable("w", initializer=0.0)
    predicted = features * w
    if mode == "infer":
        return estimator.EstimatorSpec(mode, predictions={"y": predicted})
    loss = tf.reduce_mean((predicted - labels) ** 2)
    step = v1.train.get_or_create_global_step()
    train_op = v1.train.GradientDescentOptimizer(0.01).minimize(loss, step) if mode == "train" else None
    return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def data(repeat: int | None = 1) -> Any:
    return tf.data.Dataset.from_tensor_slices(([1.0, 2.0], [2.0, 4.0])).repeat(repeat).batch(2)


def endless() -> Any:
    return data(None)


def receiver() -> Any:
    x = v1.placeholder(tf.float32, [None], name="x")
    return estimator.export.TensorServingInputReceiver(x, {"x": x})


def export(est: Any, path: Any, checkpoint_path: Any, eval_result: Any) -> Any:
    return est.export_saved_model(path, receiver, checkpoint_path=checkpoint_path)


def make(model_dir: Path, save_steps: int = 10, **arguments: Any) -> Experiment:
    config = estimator.RunConfig(model_dir=str(model_dir), save_checkpoints_steps=save_steps, tf_random_seed=1)
    arguments = {"train_steps": 35, "eval_steps": None, "check_interval_secs": 0, **arguments}
    return Experiment(estimator.Estimator(model_fn, config=config), endless, data, **arguments)


def evaluated(tf_log: Any) -> list[int]:
    """The steps of the evaluations."""
    found = [re.match(r"Saving dict for global step (\d+)", message) for message in tf_log.messages]
    return [int(match[1]) for match in found if match]


def test_an_evaluation_of_each_checkpoint(tmp_path: Path, tf_log: Any) -> None:
    metrics, exported = make(tmp_path).train_and_evaluate()
    assert metrics["global_step"] == 35
    assert exported == []
    assert evaluated(tf_log) == [0, 10, 20, 30, 35]
    assert (tmp_path / "eval").is_dir()
    assert any(re.match(r"Validation \(step 1\): .*global_step = 0", message) for message in tf_log.messages)


def test_steps_between_evaluations(tmp_path: Path, tf_log: Any) -> None:
    make(tmp_path, min_eval_frequency=15).train_and_evaluate()
    assert evaluated(tf_log) == [10, 30, 35]


def test_seconds_between_looks(tmp_path: Path, tf_log: Any) -> None:
    make(tmp_path, check_interval_secs=1000).train_and_evaluate()
    assert evaluated(tf_log) == [0, 35]


def test_an_export_of_each_checkpoint(tmp_path: Path, tf_log: Any) -> None:
    experiment = make(
        tmp_path, 20, checkpoint_and_export=True, export_strategies=ExportStrategy("name", export)
    )  # fmt: skip
    metrics, exported = experiment.train_and_evaluate()
    assert metrics["global_step"] == 35
    assert evaluated(tf_log) == [0, 20, 35]
    assert len(exported) == 1
    assert len(list((tmp_path / "export" / "name").iterdir())) == 3
    assert (tmp_path / "eval_intermediate_export").is_dir()
    # Nothing is left to train: what there is is evaluated and exported.
    again, _ = experiment.train_and_evaluate()
    assert again["global_step"] == 35


def test_turns(tmp_path: Path, tf_log: Any) -> None:
    metrics, _ = make(tmp_path, 1000, train_steps=30, train_steps_per_iteration=10).continuous_train_and_eval()
    assert metrics["global_step"] == 30
    assert evaluated(tf_log) == [10, 20, 30]


def test_continuous_eval_of_what_was_trained(tmp_path: Path, tf_log: Any) -> None:
    make(tmp_path).train()
    make(tmp_path).continuous_eval(delay_secs=0, throttle_delay_secs=0)
    assert evaluated(tf_log) == [35]
    assert (tmp_path / "eval_continuous").is_dir()


def test_one_step_each(tmp_path: Path) -> None:
    assert make(tmp_path, eval_steps=1, export_strategies=[ExportStrategy("n", export)]).test()["global_step"] == 1
    assert len(list((tmp_path / "export" / "n").iterdir())) == 1


def test_learn_runner(tmp_path: Path) -> None:
    metrics, _ = learn_runner.run(lambda output_dir: make(Path(output_dir)), str(tmp_path))
    assert metrics["global_step"] == 35


class Rates:
    """A tuner: one trial for each rate, in its own directory."""

    def __init__(self, place: Path, rates: list[float]) -> None:
        self.place, self.rates, self.steps = place, rates, {}

    def next_trial(self) -> bool:
        return bool(self.rates)

    def run_experiment(self, experiment_fn: Any) -> None:
        rate = self.rates.pop(0)
        config = estimator.RunConfig(model_dir=str(self.place / str(rate)))
        experiment = experiment_fn(config, {"rate": rate})
        self.steps[rate] = experiment.train_and_evaluate()[0]["global_step"]


def test_tune(tmp_path: Path) -> None:
    def experiment_fn(run_config: Any, hparams: Any) -> Experiment:
        return make(Path(run_config.model_dir), train_steps=round(10 * hparams["rate"]))

    tuner = Rates(tmp_path, [0.5, 2.0])
    assert learn_runner.tune(experiment_fn, tuner) is None
    assert tuner.steps == {0.5: 5, 2.0: 20}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((None, {}), "`run_config`"),
        ((estimator.RunConfig(), {}), "model directory"),
        ((estimator.RunConfig(model_dir="m"), None), "`hparams` cannot be `None`"),
    ],
)
def test_tune_refuses_a_trial_without_configuration(arguments: Any, text: str) -> None:
    class Tuner:
        def next_trial(self) -> bool:
            return True

        def run_experiment(self, experiment_fn: Any) -> None:
            experiment_fn(*arguments)

    with pytest.raises(ValueError, match=text):
        learn_runner.tune(lambda **_: None, Tuner())
    with pytest.raises(TypeError, match="is not callable"):
        learn_runner.tune(None, Tuner())  # type: ignore[arg-type]
