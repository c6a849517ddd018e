"""RunConfig in a cluster: what TF_CONFIG makes of a task, and which TF_CONFIG is refused, and how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import tensorflow as tf
from tensorflow.python.training import server_lib

from fastsup import estimator as est

HOSTS = {"chief": ["h0:1"], "worker": ["h1:1", "h2:1", "h3:1"], "ps": ["h4:1", "h5:1"]}
MASTER_HOSTS = {"master": ["h0:1"], "worker": ["h1:1"], "ps": ["h4:1"]}


def config_of(task_type: Any, index: Any, cluster: Any = HOSTS, **more: Any) -> dict[str, Any]:
    return {"cluster": cluster, "task": {"type": task_type, "index": index}, **more}


# Each row is what the reference's RunConfig says of that task.
# fmt: off
TASKS = [
    ("chief", 0, HOSTS, "grpc://h0:1", True, 2, 4, 0, ["/job:ps", "/job:chief"]),
    ("worker", 1, HOSTS, "grpc://h2:1", False, 2, 4, 2, ["/job:ps", "/job:worker/task:1"]),
    ("ps", 1, HOSTS, "grpc://h5:1", False, 2, 4, 5, ["/job:ps", "/job:worker", "/job:chief", "/job:master"]),
    ("master", 0, MASTER_HOSTS, "grpc://h0:1", True, 1, 2, 0, ["/job:ps", "/job:master"]),
    ("worker", 0, MASTER_HOSTS, "grpc://h1:1", False, 1, 2, 1, ["/job:ps", "/job:worker/task:0"]),
    ("chief", 0, {"chief": ["h0:1"]}, "", True, 0, 1, 0, ["/job:ps", "/job:chief"]),
    ("other", 0, {"chief": ["h0:1"], "other": ["h9:1"]}, "grpc://h9:1", False, 0, 1, 1, None),
]
# fmt: on


@pytest.mark.parametrize(
    ("role", "index", "cluster", "master", "chief", "ps", "workers", "global_id", "filters"), TASKS
)
def test_a_task_of_a_cluster(
    set_tf_config: Any, role: Any, index: Any, cluster: Any, master: Any, chief: Any, ps: Any, workers: Any,
    global_id: Any, filters: Any,
) -> None:  # fmt: skip
    set_tf_config(config_of(role, index, cluster))
    config = est.RunConfig()
    assert (config.task_type, config.task_id, config.master, config.is_chief) == (role, index, master, chief)
    assert (config.num_ps_replicas, config.num_worker_replicas) == (ps, workers)
    assert config.global_id_in_cluster == global_id
    assert config.cluster_spec == tf.train.ClusterSpec(cluster)
    assert config.evaluation_master == ""
    assert (config.session_config and list(config.session_config.device_filters)) == filters


def test_an_evaluator_is_no_part_of_the_cluster(set_tf_config: Any) -> None:
    set_tf_config(config_of("evaluator", 0, eval_session_master="grpc://h8:1"))
    config = est.RunConfig()
    assert config.cluster_spec.as_dict() == {}
    assert (config.master, config.evaluation_master, config.is_chief) == ("", "grpc://h8:1", False)
    assert (config.num_ps_replicas, config.num_worker_replicas, config.global_id_in_cluster) == (0, 0, None)
    assert config.session_config is None


@pytest.mark.parametrize("value", [None, "{}", "null", {"task": {}}, {"task": {"type": "worker", "index": 0}}])
def test_a_process_by_itself(set_tf_config: Any, value: Any) -> None:
    if value is not None:
        set_tf_config(value)
    config = est.RunConfig()
    assert (config.task_type, config.task_id, config.is_chief, config.master) == ("worker", 0, True, "")
    assert (config.num_ps_replicas, config.num_worker_replicas, config.global_id_in_cluster) == (0, 1, 0)
    assert config.cluster_spec.as_dict() == {}
    assert config.session_config is None


def test_masters_of_the_platform(set_tf_config: Any) -> None:
    set_tf_config(config_of("worker", 0, session_master="grpc://proxy:1", service={"a": 1}, environment="cloud"))
    config = est.RunConfig()
    assert (config.master, config.service) == ("grpc://proxy:1", {"a": 1})
    set_tf_config({"session_master": "grpc://x:1", "eval_session_master": "grpc://y:1"})
    config = est.RunConfig()
    assert (config.master, config.evaluation_master) == ("grpc://x:1", "grpc://y:1")


def test_model_dir(set_tf_config: Any) -> None:
    set_tf_config({"model_dir": "/a"})
    assert est.RunConfig().model_dir == "/a"
    assert est.RunConfig(model_dir="/a").model_dir == "/a"
    with pytest.raises(ValueError, match="must have the same value as the model_dir in TF_CONFIG"):
        est.RunConfig(model_dir="/b")
    set_tf_config({"model_dir": ""})
    with pytest.raises(ValueError, match="model_dir in TF_CONFIG should be non-empty"):
        est.RunConfig()


TWO_CHIEFS = {"chief": ["h0:1", "h1:1"]}
BOTH = {"chief": ["h0:1"], "master": ["h1:1"], "ps": ["h2:1"]}

# What is wrong, TF_CONFIG, and what the message must have: the reference's text, the key, the value, the roles.
# fmt: off
REFUSED = [
    ("not JSON", "{'cluster'", ["TF_CONFIG isn't JSON", "{'cluster'"]),
    ("no text", "", ["TF_CONFIG isn't JSON", "''"]),
    ("a list", [1], ["TF_CONFIG must be a JSON object", "[1]"]),
    ("cluster no object", {"cluster": ["h:1"]}, ['TF_CONFIG["cluster"] must be a JSON object', "['h:1']"]),
    ("tasks no list", config_of("chief", 0, {"chief": "h:1"}),
     ["The tasks for job 'chief' must be a list", "'h:1'", 'TF_CONFIG["cluster"]["chief"]']),
    ("a role without tasks", config_of("chief", 0, {"chief": ["h:1"], "ps": []}),
     ['TF_CONFIG["cluster"]["ps"] is empty']),
    ("an address that is a number", config_of("chief", 0, {"chief": [1]}), ['["chief"][0] must be a string', "got 1"]),
    ("an address without port", config_of("chief", 0, {"chief": ["h"]}), ["an address with a port", "'h'"]),
    ("a port too large", config_of("chief", 0, {"chief": ["h:65536"]}), ["an address with a port", "'h:65536'"]),
    ("an address with a scheme", config_of("chief", 0, {"chief": ["grpc://h:1"]}), ["with a port", "'grpc://h:1'"]),
    ("an address with a blank", config_of("chief", 0, {"chief": [" h:1"]}), ["an address with a port", "' h:1'"]),
    ("two addresses in one", config_of("chief", 0, {"chief": ["h:1,i:1"]}), ["an address with a port", "'h:1,i:1'"]),
    ("an address twice", config_of("chief", 0, {"chief": ["h:1"], "ps": ["h:1"]}), ["are the same address", "'h:1'"]),
    ("names as indices", config_of("chief", 0, {"chief": {"a": "h:1"}}), ["must be distinct task indices", "['a']"]),
    ("an index twice", config_of("chief", 0, {"chief": ["h:1"], "ps": {"0": "a:1", "00": "b:1"}}),
     ["keys must be distinct task indices", "['0', '00']"]),
    ("an index below 0", config_of("ps", 0, {"chief": ["h:1"], "ps": {"-1": "a:1"}}), ["counted from 0", "['-1']"]),
    ("a chief that isn't the first", config_of("chief", 1, {"chief": {"1": "h:1"}}),
     ['The index of the "chief" node must be 0', "'index': 1"]),
    ("a role that is no name", config_of("my ps", 0, {"chief": ["h:1"], "my ps": ["i:1"]}),
     ["has the role 'my ps'", "letters, digits"]),
    ("a role without a name", config_of("chief", 0, {"chief": ["h:1"], "": ["i:1"]}), ["has the role ''"]),
    ("cluster an empty list", {"cluster": [], "task": {"type": "worker", "index": 0}},
     ['TF_CONFIG["cluster"] must be a JSON object', "got []"]),
    ("cluster no text", {"cluster": ""}, ['TF_CONFIG["cluster"] must be a JSON object', "got ''"]),
    ("task an empty list", {"cluster": HOSTS, "task": []}, ['TF_CONFIG["task"] must be a JSON object', "got []"]),
    ("a role twice", '{"cluster": {"chief": ["h:1"], "worker": ["a:1"], "worker": ["b:1"]}}',
     ['has the key "worker" more than once', "['chief', 'worker', 'worker']", "Give it once"]),
    ("no chief", config_of("worker", 0, {"worker": ["h:1"], "ps": ["h:2"]}),
     ['it must have one "chief" node', "worker (1), ps (1)"]),
    ("two chiefs", config_of("chief", 0, TWO_CHIEFS), ['must have only one "chief" node', "chief (2)"]),
    ("chief and master", config_of("chief", 0, BOTH),
     ["If `master` node exists in `cluster`, job `chief` is not supported", "chief (1), master (1)"]),
    ("master and evaluator", config_of("evaluator", 0, MASTER_HOSTS), ["task_type `evaluator` is not supported"]),
    ("no task", {"cluster": HOSTS}, ["task type must be set", "chief (1), worker (3), ps (2)"]),
    ("no type", {"cluster": HOSTS, "task": {"index": 0}}, ["task type must be set", "{'index': 0}"]),
    ("no index", {"cluster": HOSTS, "task": {"type": "ps"}}, ["task index must be set", "{'type': 'ps'}"]),
    ("task no object", {"cluster": HOSTS, "task": "chief"}, ['TF_CONFIG["task"] must be a JSON object', "'chief'"]),
    ("type a number", config_of(3, 0), ['TF_CONFIG["task"]["type"] must be a string', "got 3"]),
    ("unknown type", config_of("boss", 0), ["boss is not a valid task_type", "chief (1), worker (3), ps (2)"]),
    ("local", config_of("local", 0),
     ["local is not a valid task_type", "one of ['chief', 'worker', 'ps', 'evaluator']"]),
    ("ps missing in the cluster", config_of("ps", 0, {"chief": ["h:1"], "worker": ["h:2"]}),
     ["ps is not a valid task_type", "chief (1), worker (1)"]),
    ("task outside the cluster", config_of("worker", 3),
     ["3 is not a valid task_id for task_type worker", "[0, 1, 2]"]),
    ("negative index", config_of("worker", -1), ["Task index must be non-negative number", "-1"]),
    ("index a word", config_of("worker", "one"), ['TF_CONFIG["task"]["index"] must be an integer', 'got "one"']),
    ("index infinite", config_of("worker", float("inf")), ['TF_CONFIG["task"]["index"] must be', "got Infinity"]),
    ("index true", config_of("worker", True), ['TF_CONFIG["task"]["index"] must be an integer', "got true"]),
    ("index a list", config_of("worker", [0]), ['TF_CONFIG["task"]["index"] must be an integer', "got [0]"]),
    ("alone, as a ps", {"task": {"type": "ps", "index": 0}},
     ['If "cluster" is not set in TF_CONFIG, task type must be WORKER', "'ps'", "the roles: none"]),
    ("alone, as the second", {"task": {"type": "worker", "index": 1}}, ["task index must be 0", "'index': 1"]),
    ("service no object", {"service": "x"}, ['"service" is set in TF_CONFIG, it must be a dict', "'x'"]),
    ("session_master a number", config_of("chief", 0, session_master=1), ['TF_CONFIG["session_master"]', "got 1"]),
    ("model_dir a number", {"model_dir": 1}, ['TF_CONFIG["model_dir"] must be a string', "got 1"]),
]
# fmt: on


@pytest.mark.parametrize(("value", "texts"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_wrong_tf_config(set_tf_config: Any, value: Any, texts: list[str]) -> None:
    set_tf_config(value)
    with pytest.raises(ValueError) as caught:
        est.RunConfig()
    for text in [*texts, *what_was_seen(value)]:
        assert text in str(caught.value)


def what_was_seen(value: Any) -> list[str]:
    """What each message shows next to the value that is wrong: the roles with their numbers of tasks, and the task."""
    cluster = value.get("cluster") if isinstance(value, dict) else None
    if not isinstance(cluster, dict):
        return ["TF_CONFIG"]
    counted = ", ".join(
        f"{role} ({len(tasks) if isinstance(tasks, list | dict) else repr(tasks)})" for role, tasks in cluster.items()
    )
    return [
        f'TF_CONFIG["cluster"] has the roles: {counted};',
        f'TF_CONFIG["task"] is {json.loads(json.dumps(value.get("task")))!r}.',
    ]


@pytest.mark.parametrize(
    ("value", "where", "unknown", "hint"),
    [
        ({"clusters": HOSTS, "tasks": {"type": "ps", "index": 0}}, "TF_CONFIG", "['clusters', 'tasks']", "cluster"),
        ({"sparseCluster": HOSTS}, "TF_CONFIG", "['sparseCluster']", "cluster"),
        ({"task": {"type": "worker", "indx": 0}}, 'TF_CONFIG["task"]', "['indx']", "index"),
    ],
)
def test_keys_that_nobody_reads(
    set_tf_config: Any, tf_log: Any, value: Any, where: str, unknown: str, hint: str
) -> None:
    set_tf_config(value)
    assert est.RunConfig().is_chief
    (warning,) = [message for message in tf_log.messages if "has unknown keys" in message]
    assert warning.startswith(f"{where} has unknown keys: {unknown}. Did you mean {hint!r}? The known ones are [")
    assert ("'cluster'" if where == "TF_CONFIG" else "'index'") in warning


def test_roles_that_are_misspelled(set_tf_config: Any, tf_log: Any) -> None:
    cluster = {"chief": ["a:1"], "wokrer": ["b:1"], "trainer": ["c:1"]}
    set_tf_config({"cluster": cluster, "task": {"type": "chief", "index": 0}})
    assert est.RunConfig().num_worker_replicas == 1
    (warning,) = [message for message in tf_log.messages if "has unknown keys" in message]
    assert warning.startswith("TF_CONFIG[\"cluster\"] has unknown keys: ['wokrer']. Did you mean 'worker'? The known")


def test_keys_that_platforms_set_are_known(set_tf_config: Any, tf_log: Any) -> None:
    task = {"type": "chief", "index": 0, "trial": "1", "cloud": "x"}
    more: dict[str, Any] = dict.fromkeys(("master", "session_master", "rpc_layer"), "grpc") | {"job": {}, "service": {}}
    set_tf_config({"cluster": HOSTS, "task": task, "environment": "cloud", "eval_session_master": "", **more})
    est.RunConfig()
    assert not [message for message in tf_log.messages if "unknown keys" in message]


NO_PS = {"chief": ["h0:1"], "worker": ["h1:1", "h2:1"]}
NO_PS_MASTER = {"master": ["h0:1"], "worker": ["h1:1"]}
# What a RunConfig may be, but not a job.
# fmt: off
REFUSED_BY_A_JOB = [
    ("a second evaluator", config_of("evaluator", 1),
     ["there can only be one `evaluator` task (with task id 0)", "Given task id 1",
      'TF_CONFIG["task"]["index"] of the evaluator should be 0']),
    ("workers without ps, the chief", config_of("chief", 0, NO_PS),
     ['TF_CONFIG["cluster"] has workers and no "ps"', 'Add "ps": ["host:port"]', repr(NO_PS["worker"])]),
    ("workers without ps, a worker", config_of("worker", 1, NO_PS), ['TF_CONFIG["cluster"] has workers and no "ps"']),
    ("workers without ps, the master", config_of("master", 0, NO_PS_MASTER),
     ['TF_CONFIG["cluster"] has workers and no "ps"']),
]
# fmt: on


def train_and_evaluate(model_dir: Path, **config: Any) -> Any:
    """The call, with an Estimator that notes in a list that it was asked to train."""
    trained: list[str] = []
    estimator = mock.Mock(spec=est.Estimator, config=est.RunConfig(**config), model_dir=str(model_dir))
    estimator.train.side_effect = lambda **_: trained.append(estimator.config.task_type)
    est.train_and_evaluate(estimator, est.TrainSpec(lambda: None), est.EvalSpec(lambda: None))
    return trained


@pytest.mark.parametrize(
    ("value", "texts"), [row[1:] for row in REFUSED_BY_A_JOB], ids=[row[0] for row in REFUSED_BY_A_JOB]
)
def test_a_job_that_can_t_be(set_tf_config: Any, tmp_path: Path, value: Any, texts: list[str]) -> None:
    set_tf_config(value)
    with pytest.raises(ValueError) as caught:
        train_and_evaluate(tmp_path)
    for text in [*texts, *what_was_seen(value)]:
        assert text in str(caught.value)


@pytest.mark.parametrize("role", ["chief", "master"])
def test_a_cluster_of_one_needs_no_ps(set_tf_config: Any, tmp_path: Path, role: str) -> None:
    set_tf_config(config_of(role, 0, {role: ["localhost:1"]}))
    assert train_and_evaluate(tmp_path) == [role]


def test_who_places_the_variables_needs_no_ps(
    set_tf_config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_lib, "Server", mock.Mock())
    set_tf_config(config_of("chief", 0, NO_PS))
    assert train_and_evaluate(tmp_path, device_fn=lambda op: "/job:chief") == ["chief"]


def test_what_is_a_type_error_in_the_reference_is_one_here(set_tf_config: Any) -> None:
    for value in ({"service": "x"}, config_of("chief", 0, {"chief": "h:1"})):
        set_tf_config(value)
        with pytest.raises(TypeError):
            est.RunConfig()


@pytest.mark.parametrize(("index", "task_id"), [("1", 1), (" 1 ", 1), (1.0, 1), (1.5, 1)])
def test_an_index_that_the_reference_takes(set_tf_config: Any, tf_log: Any, index: Any, task_id: int) -> None:
    """As many a job's description has it: between quotation marks."""
    set_tf_config(config_of("worker", index))
    assert est.RunConfig().task_id == task_id
    assert ("is not an integer: it is treated as 1" in tf_log.text) == (index == 1.5)


def test_an_index_between_quotation_marks_without_a_cluster(set_tf_config: Any) -> None:
    set_tf_config({"task": {"type": "worker", "index": "0"}})
    assert est.RunConfig().task_id == 0
