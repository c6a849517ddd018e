"""The configuration of contrib.learn: the cluster that TF_CONFIG describes, as 1.15.5 read it, and training with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fastsup import estimator
from fastsup.contrib.learn import ClusterConfig, Experiment, RunConfig, learn_runner

v1 = tf.compat.v1

# TF_CONFIG, arguments of the constructor, and the properties in 1.15.5, or the error's class and text.
REFERENCE = json.loads(Path(__file__).with_name("cluster_config_1_15.json").read_text())


def outcome(kind: Any, arguments: Any, names: Any) -> Any:
    try:
        made = kind(**arguments)
    except Exception as error:
        return [type(error).__name__, str(error)]
    values = {name: getattr(made, name) for name in names}
    return {**values, "cluster_spec": made.cluster_spec.as_dict()}


@pytest.mark.parametrize("kind", [ClusterConfig, RunConfig])
def test_the_cluster_as_in_1_15(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = next(expected for *_, expected in REFERENCE if isinstance(expected, dict))
    assert sum(isinstance(expected, list) for *_, expected in REFERENCE) > 10
    for tf_config, arguments, expected in REFERENCE:
        monkeypatch.setenv("TF_CONFIG", json.dumps(tf_config))
        assert outcome(kind, arguments, names) == expected, (tf_config, arguments)


def test_a_chief_is_the_chief(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}
    for role, is_chief in (("chief", True), ("ps", False)):
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": role, "index": 0}}))
        config = RunConfig()
        assert (config.is_chief, config.num_worker_replicas) == (is_chief, 2)


def test_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    config = RunConfig("grpc://here", 3, True, 0.5, 7, save_checkpoints_steps=4, model_dir="place")
    assert isinstance(config, estimator.RunConfig)
    assert (config.master, config.tf_random_seed, config.model_dir) == ("grpc://here", 7, "place")
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (4, None)
    assert config.tf_config.intra_op_parallelism_threads == 3
    assert config.tf_config.gpu_options.per_process_gpu_memory_fraction == 0.5
    assert config.session_config is None
    assert RunConfig().save_checkpoints_secs == 600
    assert RunConfig(save_checkpoints_secs=None).save_checkpoints_secs is None
    changed = config.replace(model_dir="other")
    assert (changed.model_dir, config.model_dir, changed.master) == ("other", "place", "grpc://here")
    with pytest.raises(ValueError, match="save_checkpoints"):
        RunConfig(save_checkpoints_secs=5, save_checkpoints_steps=5)


def test_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    config = RunConfig(model_dir="place")
    assert config.uid() == RunConfig(model_dir="place", tf_random_seed=3, save_summary_steps=5).uid()
    assert config.uid() != RunConfig(model_dir="other").uid()
    assert config.uid(whitelist=["model_dir"]) == RunConfig(model_dir="other").uid(whitelist=["model_dir"])


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    weight = v1.get_variable("w", [], initializer=v1.zeros_initializer(), use_resource=True)
    loss = tf.reduce_mean(tf.square(weight * features - labels))
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
    return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def data() -> Any:
    values = np.arange(4, dtype=np.float32)
    return tf.data.Dataset.from_tensors((values, 2 * values))


def experiment(config: Any) -> Any:
    return Experiment(
        estimator.Estimator(model_fn, config=config), lambda: data().repeat(), data, train_steps=5, eval_steps=None
    )


def test_learn_runner_checks_the_uid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    config = RunConfig(model_dir=str(tmp_path / "model"))
    metrics, _ = learn_runner.run(
        lambda run_config, hparams: experiment(run_config.replace(save_checkpoints_steps=2)), run_config=config
    )
    assert metrics["global_step"] == 5
    other = RunConfig(model_dir=str(tmp_path / "other"))
    with pytest.raises(RuntimeError, match="is expected to be used by the `Estimator`"):
        learn_runner.run(lambda run_config, hparams: experiment(other), run_config=config)
    core = estimator.RunConfig(model_dir=str(tmp_path / "other"))
    with pytest.raises(RuntimeError, match="Pass `run_config` argument of the `experiment_fn`"):
        learn_runner.run(lambda run_config, hparams: experiment(core), run_config=config)
