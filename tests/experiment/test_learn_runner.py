"""learn_runner.run: which role calls which method, and what it refuses."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest
import tensorflow as tf

from fastsup import estimator
from fastsup.experiment import Experiment, learn_runner


class Recorded(Experiment):
    """An Experiment whose methods only say that they were called."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("train", "train_and_evaluate", "continuous_eval", "run_std_server", "test"):
            return lambda: name
        return super().__getattribute__(name)

    not_a_method = 5


def experiment(config: Any) -> Recorded:
    return Recorded(mock.Mock(spec=estimator.Estimator, config=config, model_dir="dir"), lambda: None, lambda: None)


@pytest.mark.parametrize(
    ("role", "cluster", "method"),
    [
        (None, None, "train_and_evaluate"),
        ("chief", {"chief": ["a:1"]}, "train_and_evaluate"),
        ("chief", {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}, "train"),
        ("worker", {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}, "train"),
        ("ps", {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}, "run_std_server"),
        ("master", {"master": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}, "train_and_evaluate"),
        ("evaluator", {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}, "continuous_eval"),
    ],
)
def test_the_method_of_a_role(monkeypatch: pytest.MonkeyPatch, role: Any, cluster: Any, method: str) -> None:
    tf_config = {"cluster": cluster, "task": {"type": role, "index": 0}} if role else {}
    monkeypatch.setenv("TF_CONFIG", json.dumps(tf_config))
    config = estimator.RunConfig(model_dir="dir")
    assert learn_runner.run(lambda run_config, hparams: experiment(run_config), run_config=config) == method


def test_what_the_function_gets() -> None:
    config, hparams = estimator.RunConfig(model_dir="dir"), {"rate": 1}
    function = mock.Mock(return_value=experiment(config))
    learn_runner.run(function, run_config=config, hparams=hparams)
    function.assert_called_once_with(run_config=config, hparams=hparams)
    found = []

    def other_names(config: Any, parameters: Any) -> Any:
        found.append((config, parameters))
        return experiment(config)

    learn_runner.run(other_names, run_config=config, hparams=hparams)
    assert found == [(config, hparams)]
    function.reset_mock()
    assert learn_runner.run(function, "dir", "test") == "test"
    function.assert_called_once_with(output_dir="dir")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"experiment_fn": "none"}, TypeError, 'Experiment builder "none" is not callable.'),
        ({"experiment_fn": lambda output_dir: 5}, TypeError, "did not return an Experiment, but 5."),
        ({"run_config": "b"}, ValueError, "Cannot provide both `output_dir` and `run_config`"),
        ({"output_dir": None}, ValueError, "Must set value for `output_dir` or `run_config`"),
        ({"output_dir": ""}, ValueError, "Must specify an output directory. Got output_dir=''."),
        ({"hparams": {}}, ValueError, "Must set `hparams` as None for `experiment_fn` with `output_dir`."),
        (
            {"output_dir": None, "run_config": mock.Mock(model_dir=None)},
            ValueError,
            "Must specify a model directory `model_dir` in `run_config`",
        ),
        ({"output_dir": None, "run_config": "dir"}, ValueError, "`model_dir` in `run_config`, such as"),
        ({"schedule": "nonsense"}, ValueError, "Schedule references non-existent task nonsense"),
        ({"schedule": "_call_train"}, ValueError, "Schedule references non-existent task _call_train"),
        ({"schedule": 3}, TypeError, "`schedule` must be the name of a method"),
        ({"schedule": "not_a_method"}, TypeError, "Schedule references non-callable member not_a_method"),
    ],
)
def test_what_it_refuses(arguments: dict[str, Any], error: Any, message: str) -> None:
    function = lambda output_dir: experiment(estimator.RunConfig())  # noqa: E731
    with pytest.raises(error) as raised:
        learn_runner.run(**{"experiment_fn": function, "output_dir": "dir", **arguments})
    assert message in str(raised.value)


@pytest.mark.parametrize(("role", "message"), [("", "Must specify a schedule"), ("foo", "No default schedule for")])
def test_a_role_without_a_method(role: str, message: str) -> None:
    config = mock.Mock(cluster_spec=tf.train.ClusterSpec({"worker": ["a:1", "b:1"]}), task_type=role)
    with pytest.raises(ValueError, match=message) as raised:
        learn_runner.run(lambda output_dir: experiment(config), "dir")
    assert 'TF_CONFIG["cluster"] has the roles: ' in str(raised.value)


@pytest.mark.parametrize(
    ("cluster", "task", "message"),
    [
        ({"chief": ["a:1"], "worker": ["b:1"]}, ("worker", 0), 'TF_CONFIG["cluster"] has workers and no "ps"'),
        ({"chief": ["a:1"], "ps": ["b:1"]}, ("evaluator", 1), "there can only be one `evaluator` task"),
    ],
)
def test_a_job_that_can_t_be(
    monkeypatch: pytest.MonkeyPatch, cluster: Any, task: tuple[str, int], message: str
) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": task[0], "index": task[1]}}))
    with pytest.raises(ValueError) as raised:
        learn_runner.run(lambda output_dir: experiment(estimator.RunConfig()), "dir")
    assert str(raised.value).startswith(("For distributed training, " + message, message))
    assert 'TF_CONFIG["cluster"] has the roles: ' in str(raised.value)
