"""RunConfig with MultiWorkerMirroredStrategy: what TF_CONFIG makes of a task, which TF_CONFIG is refused, and how."""

from __future__ import annotations

import copy
import socket
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import tensorflow as tf

from fastsup import estimator as est
from fastsup.cluster.collective import task
from fastsup.estimator.config import distribution

v1 = tf.compat.v1
CHIEF = {"chief": ["h0:1"], "worker": ["h1:1", "h2:1"]}
WORKERS = {"worker": ["h0:1", "h1:1"]}
WITH_EVALUATOR = {**CHIEF, "evaluator": ["h3:1"]}


def config_of(task_type: str, index: int, cluster: Any) -> dict[str, Any]:
    return {"cluster": cluster, "task": {"type": task_type, "index": index}}


@pytest.fixture
def make_config(set_tf_config: Callable[..., None]) -> Callable[..., Any]:
    """Makes the RunConfig of a task: make_config(TF_CONFIG). In a graph, where the strategy starts no server."""

    def make(tf_config: Any = None, when_made: Any = None, **arguments: Any) -> Any:
        with tf.Graph().as_default():
            if when_made is not None:
                set_tf_config(when_made)
                strategy = tf.distribute.MultiWorkerMirroredStrategy()
            if tf_config is not None:
                set_tf_config(tf_config)
            if when_made is None:
                strategy = tf.distribute.MultiWorkerMirroredStrategy()
            return est.RunConfig(train_distribute=strategy, **arguments)

    return make


# fmt: off
TASKS = [
    ("chief", 0, CHIEF, "grpc://h0:1", True, 3, 0),
    ("worker", 1, CHIEF, "grpc://h2:1", False, 3, 2),
    ("worker", 0, WORKERS, "grpc://h0:1", True, 2, 0),  # The chief, as in TensorFlow.
    ("worker", 1, WORKERS, "grpc://h1:1", False, 2, 1),
    ("chief", 0, {"chief": ["h0:1"]}, "grpc://h0:1", True, 1, 0),
    ("worker", 0, WITH_EVALUATOR, "grpc://h1:1", False, 3, 1),
]
# fmt: on


@pytest.mark.parametrize(("role", "index", "cluster", "master", "chief", "workers", "number"), TASKS)
def test_a_task(
    make_config: Any, role: str, index: int, cluster: Any, master: str, chief: bool, workers: int, number: int
) -> None:
    config = make_config(config_of(role, index, cluster))
    assert (config.task_type, config.task_id, config.master, config.is_chief) == (role, index, master, chief)
    assert (config.num_worker_replicas, config.num_ps_replicas) == (workers, 0)
    assert config.global_id_in_cluster == number
    assert "evaluator" not in config.cluster_spec.jobs
    assert distribution.trains_collectively(config)
    # TensorFlow's strategy thinks the same of the task.
    extended = config.train_distribute.extended
    assert (extended._is_chief, extended._num_workers, extended._id_in_cluster) == (chief, workers, number)


def test_an_evaluator_trains_with_nobody(make_config: Any) -> None:
    config = make_config(config_of("evaluator", 0, WITH_EVALUATOR))
    assert (config.master, config.is_chief, config.cluster_spec.as_dict()) == ("", False, {})
    assert not distribution.trains_collectively(config)


def test_a_process_by_itself(make_config: Any) -> None:
    config = make_config()
    assert (config.master, config.is_chief, config.num_worker_replicas) == ("", True, 1)
    assert not distribution.trains_collectively(config)


def test_copies_share_the_strategy(make_config: Any) -> None:
    """Each copy would count the collectives on its own."""
    config = make_config(config_of("chief", 0, CHIEF))
    for other in (copy.deepcopy(config), config.replace(tf_random_seed=2)):
        assert other is not config
        assert other.train_distribute is config.train_distribute
        assert other.cluster_spec is not config.cluster_spec


# What is wrong, the TF_CONFIG that the strategy has read, that of the RunConfig, and what the message must have.
# fmt: off
REFUSED = [
    ("a parameter server", config_of("worker", 0, {**CHIEF, "ps": ["h9:1"]}), None,
     ['trains only on "chief" and "worker" tasks', "also has ['ps']", "so remove the parameter servers"]),
    ("nobody who trains", config_of("chief", 0, CHIEF), config_of("evaluator", 0, {"evaluator": ["h0:1"]}),
     ["needs a chief in TF_CONFIG", 'Add "chief": ["host:port"]', "roles: evaluator (1)"]),
    ("a master", config_of("chief", 0, CHIEF), config_of("master", 0, {"master": ["h0:1"], "worker": ["h1:1"]}),
     ["also has ['master']", "Give those tasks one of the two roles"]),
    ("two chiefs", config_of("chief", 0, CHIEF), config_of("chief", 0, {"chief": ["h0:1", "h1:1"]}),
     ["There must be at most one 'chief' job", "roles: chief (2)"]),
    ("indices with a gap", config_of("chief", 0, CHIEF), config_of("worker", 2, {"worker": {"0": "a:1", "2": "b:1"}}),
     ["must be 0, 1, 2 and so on", "got [0, 2]"]),
    ("no task", config_of("chief", 0, CHIEF), {"cluster": CHIEF}, ["task type must be set"]),
    ("a task that isn't there", config_of("chief", 0, CHIEF), config_of("worker", 7, CHIEF),
     ["7 is not a valid task_id", "should be one of [0, 1]"]),
    ("another cluster", config_of("worker", 0, CHIEF), config_of("worker", 0, WORKERS),
     ["chief 0 at h0:1, worker 0 at h1:1", "TF_CONFIG has worker 0 at h0:1, worker 1 at h1:1",
      "Set TF_CONFIG before you create the strategy"]),
    ("another task", config_of("worker", 0, CHIEF), config_of("worker", 1, CHIEF),
     ["this process is worker 0", "this process is worker 1"]),
    ("no cluster", config_of("worker", 0, CHIEF), {}, ["TF_CONFIG has no cluster"]),
]
# fmt: on


@pytest.mark.parametrize(("made", "read", "texts"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_cluster_that_is_refused(make_config: Any, made: Any, read: Any, texts: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        make_config(read, when_made=made)
    for text in texts:
        assert text in str(caught.value)


def test_what_tensorflow_refuses_itself(make_config: Any) -> None:
    with pytest.raises(ValueError, match="not found in cluster_spec"):
        make_config(config_of("worker", 0, {"ps": ["h0:1"]}))


def test_mirrored_strategy_in_a_cluster_names_the_one_to_use(set_tf_config: Any) -> None:
    set_tf_config(config_of("chief", 0, CHIEF))
    with pytest.raises(NotImplementedError, match="MultiWorkerMirroredStrategy, which trains on all tasks together"):
        est.RunConfig(train_distribute=tf.distribute.MirroredStrategy(["/cpu:0"]))


def test_a_job_needs_no_parameter_server(make_config: Any, tmp_path: Any) -> None:
    config = make_config(config_of("worker", 1, WORKERS))
    estimator = mock.Mock(spec=est.Estimator, config=config, model_dir=str(tmp_path))
    est.train_and_evaluate(estimator, est.TrainSpec(lambda: None), est.EvalSpec(lambda: None))
    assert estimator.train.call_count == 1


def test_a_process_is_one_task_for_ever(make_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "_started", {})
    monkeypatch.setattr(task, "start_server", mock.Mock())
    first = make_config(config_of("worker", 1, WORKERS))
    task.ensure_server(first, v1.ConfigProto())
    task.ensure_server(first, v1.ConfigProto())
    assert task.start_server.call_count == 1  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match=r"This process is worker 1 of .* It can't become worker 0 of"):
        task.ensure_server(make_config(config_of("worker", 0, WORKERS)), v1.ConfigProto())


@pytest.mark.filterwarnings("ignore:To make it possible to preserve tf.data options")
def test_a_lonely_worker_names_who_is_missing(
    make: Any, make_config: Any, input_fn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else is ever started."""
    monkeypatch.setattr(task, "_started", {})
    with socket.create_server(("localhost", 0)) as one, socket.create_server(("localhost", 0)) as other:
        ports = [one.getsockname()[1], other.getsockname()[1]]
    tf_config = config_of("worker", 0, {"worker": [f"localhost:{port}" for port in ports]})
    config = make_config(tf_config)
    estimator = make(train_distribute=config.train_distribute, session_creation_timeout_secs=1)
    with pytest.raises(tf.errors.DeadlineExceededError) as caught:
        estimator.train(input_fn, steps=1)
    assert f"worker 1 (localhost:{ports[1]}) is missing" in str(caught.value)
    assert "session_creation_timeout_secs=1" in str(caught.value)
