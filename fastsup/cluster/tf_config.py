"""Reads TF_CONFIG: the cluster with its tasks and addresses, and this process's role and settings in the cluster."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from typing import Any, NamedTuple

from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import server_lib

from fastsup.core.checks import did_you_mean

__all__ = [
    "ClusterConfigTypeError",
    "TaskSettings",
    "TaskType",
    "check_job_layout",
    "check_service",
    "evaluator_settings",
    "own_task",
    "parse_cluster_spec",
    "parse_task_settings",
    "read_tf_config",
    "summarize_tf_config",
    "warn_about_unknown_keys",
]

TF_CONFIG = "TF_CONFIG"
_EXAMPLE = '{"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222"]}, "task": {"type": "worker", "index": 0}}'


class ClusterConfigTypeError(ValueError, TypeError):
    """Raised for a part of TF_CONFIG with a wrong type. TensorFlow raises TypeError for some of these parts."""


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Converts a JSON object to a dictionary. Rejects duplicate keys, of which Python would silently keep the last."""
    section = dict(pairs)
    if len(section) < len(pairs):
        keys = [key for key, _ in pairs]
        duplicate = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(
            f'The environment variable TF_CONFIG has the key "{duplicate}" more than once in one object: {keys}. Give '
            f"it once, with all of its tasks. TF_CONFIG is {os.environ.get(TF_CONFIG)!r}."
        )
    return section


def read_tf_config() -> dict[str, Any]:
    """Reads the environment variable TF_CONFIG."""
    text = os.environ.get(TF_CONFIG, "{}")
    try:
        config = json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"The environment variable TF_CONFIG isn't JSON ({error}). It is {text!r}. "
            f"It should be a JSON object such as {_EXAMPLE}."
        ) from error
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise ClusterConfigTypeError(
            f"The environment variable TF_CONFIG must be a JSON object, such as {_EXAMPLE}; got {text!r}."
        )
    return config


def summarize_tf_config(tf_config: dict[str, Any] | None = None) -> str:
    """Describes the roles and the task in TF_CONFIG in one sentence, for an error message."""
    if tf_config is None:
        tf_config = read_tf_config()
    cluster = tf_config.get("cluster")
    if isinstance(cluster, dict) and cluster:
        roles = ", ".join(
            f"{role} ({len(tasks)})" if isinstance(tasks, list | tuple | dict) else f"{role} ({tasks!r})"
            for role, tasks in cluster.items()
        )
    else:
        roles = "none"
    return f'TF_CONFIG["cluster"] has the roles: {roles}; TF_CONFIG["task"] is {tf_config.get("task")!r}.'


# The keys that RunConfig and TensorFlow's cluster resolver read, and keys that platforms add when they start a task.
_KEYS = (
    "cluster", "environment", "eval_session_master", "job", "master", "model_dir", "rpc_layer", "service",
    "session_master", "task",
)  # fmt: skip
_TASK_KEYS = ("cloud", "index", "trial", "type")
_ROLES = ("chief", "evaluator", "master", "ps", "worker")


def warn_about_unknown_keys(tf_config: dict[str, Any]) -> None:
    """Logs a warning about unknown keys. With a misspelled "cluster", a task would silently train on its own."""
    task = tf_config.get("task")
    _warn("TF_CONFIG", tf_config, _KEYS)
    _warn('TF_CONFIG["task"]', task if isinstance(task, dict) else {}, _TASK_KEYS)
    cluster = tf_config.get("cluster")
    roles = cluster if isinstance(cluster, dict) else {}
    # A program may have other roles, so this warns only about a role that resembles a known one.
    _warn('TF_CONFIG["cluster"]', {role: 0 for role in roles if did_you_mean(role, _ROLES)}, _ROLES)


def _warn(path: str, section: dict[str, Any], known_keys: tuple[str, ...]) -> None:
    unknown = [key for key in section if key not in known_keys]
    if unknown:
        logging.warning(
            "%s has unknown keys: %s.%s The known ones are %s. See `python -m fastsup docs dropin#clusters`.",
            path,
            unknown,
            did_you_mean(unknown[0], known_keys),
            list(known_keys),
        )


# A host and a port, without a scheme, path or list.
_ADDRESS = re.compile(r"[^\s,/]+:[0-9]{1,5}")
_ROLE = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")


def parse_cluster_spec(tf_config: dict[str, Any]) -> Any:
    """Parses the cluster of TF_CONFIG."""
    cluster = tf_config.get("cluster")
    if cluster is None:
        cluster = {}
    if not isinstance(cluster, dict):
        raise ClusterConfigTypeError(
            'TF_CONFIG["cluster"] must be a JSON object from roles to lists of addresses, such as '
            f'{{"chief": ["host0:2222"]}}; got {cluster!r}.'
        )
    # If the platform starts the servers, addresses may be names.
    with_ports = tf_config.get("environment") != "google"
    key_by_address: dict[str, str] = {}
    members: dict[str, Any] = {}
    for role, tasks in cluster.items():
        members[role] = _parse_tasks(role, tasks)
        indexed = members[role].items() if isinstance(members[role], dict) else enumerate(members[role])
        for index, address in indexed:
            key = f'TF_CONFIG["cluster"]["{role}"][{index}]'
            _check_address(key, address, with_ports)
            if address in key_by_address:
                raise ValueError(
                    f"{key} and {key_by_address[address]} are the same address, {address!r}. Each task needs its own."
                )
            key_by_address[address] = key
    return server_lib.ClusterSpec(members)


def _parse_tasks(role: str, tasks: Any) -> Any:
    """Returns a role's addresses: an unchanged list or tuple, or a dictionary with integer keys."""
    if not _ROLE.fullmatch(role):
        # TensorFlow's server would abort the process.
        raise ValueError(
            f'TF_CONFIG["cluster"] has the role {role!r}. A role must consist of letters, digits and "_", '
            "and start with a letter."
        )
    if not isinstance(tasks, list | tuple | dict):
        raise ClusterConfigTypeError(
            f"The tasks for job {role!r} must be a list or a dictionary from integers to strings. "
            f'TF_CONFIG["cluster"]["{role}"] is {tasks!r}; it should be a list such as ["host0:2222"].'
        )
    if not tasks:
        raise ValueError(
            f'TF_CONFIG["cluster"]["{role}"] is empty. Give the addresses of its tasks, or leave "{role}" out.'
        )
    return _parse_indices(role, tasks) if isinstance(tasks, dict) else tasks


def _parse_indices(role: str, tasks: dict[Any, Any]) -> dict[int, Any]:
    """Returns the addresses by integer index. JSON has only string keys."""
    try:
        by_index = {int(index): address for index, address in tasks.items()}
    except ValueError:
        by_index = {}
    if len(by_index) < len(tasks) or min(by_index) < 0:
        raise ValueError(
            f'TF_CONFIG["cluster"]["{role}"] is an object, so its keys must be distinct task indices, counted '
            f"from 0; got {list(tasks)}."
        )
    return by_index


def _check_address(key: str, address: Any, with_port: bool) -> None:
    if not isinstance(address, str):
        raise ClusterConfigTypeError(f'{key} must be a string such as "host0:2222", got {address!r}.')
    if with_port and not (_ADDRESS.fullmatch(address) and int(address.rpartition(":")[2]) < 65536):
        raise ValueError(f'{key} must be an address with a port, such as "host0:2222"; got {address!r}.')


class TaskType:
    """The roles of the tasks of a cluster."""

    MASTER = "master"
    PS = "ps"
    WORKER = "worker"
    CHIEF = "chief"
    EVALUATOR = "evaluator"


class TaskSettings(NamedTuple):
    """Role and settings of this process in its cluster.

    Args:
      service: the "service" dictionary of TF_CONFIG, or None.
      cluster_spec: `tf.train.ClusterSpec`, which is empty for a single process and for an evaluator.
      task_type: role: one of `TaskType`, or a name that the cluster defines.
      task_id: index among the tasks of this role.
      global_id_in_cluster: index among all tasks, from the chief to the parameter servers. None for an evaluator.
      master: execution engine to train on.
      evaluation_master: execution engine to evaluate on.
      is_chief: Whether this process initializes and saves the model.
      num_ps_replicas: number of parameter servers.
      num_worker_replicas: number of training tasks, including the chief.
    """

    service: dict[str, Any] | None
    cluster_spec: Any
    task_type: str
    task_id: int
    global_id_in_cluster: int | None
    master: str
    evaluation_master: str
    is_chief: bool
    num_ps_replicas: int
    num_worker_replicas: int


def _task_section(tf_config: dict[str, Any]) -> dict[str, Any]:
    """Returns TF_CONFIG["task"], or an empty dictionary if it is missing."""
    task = tf_config.get("task")
    if task is None:
        task = {}
    if not isinstance(task, dict):
        raise ClusterConfigTypeError(
            f'TF_CONFIG["task"] must be a JSON object such as {{"type": "worker", "index": 0}}; got {task!r}.'
        )
    if "type" in task and task["type"] is not None and not isinstance(task["type"], str):
        raise ClusterConfigTypeError(
            f'TF_CONFIG["task"]["type"] must be a string, one of the roles; got {task["type"]!r}.'
        )
    return task


def _parse_index(index: Any) -> int:
    """Converts the task index to an integer. TF_CONFIG may contain it as a string."""
    with contextlib.suppress(ValueError):
        if isinstance(index, str):
            return int(index)
    if isinstance(index, bool) or not isinstance(index, int | float) or not math.isfinite(index):
        raise ClusterConfigTypeError(f'TF_CONFIG["task"]["index"] must be an integer, got {json.dumps(index)}.')
    if not float(index).is_integer():
        logging.warning('TF_CONFIG["task"]["index"]=%r is not an integer: it is treated as %d.', index, int(index))
    return int(index)


def _master(tf_config: dict[str, Any], key: str) -> str:
    """Returns the execution engine under a key of TF_CONFIG. Defaults to the engine of this process."""
    value = tf_config.get(key, "")
    if not isinstance(value, str):
        raise ClusterConfigTypeError(f'TF_CONFIG["{key}"] must be a string such as "grpc://host0:2222", got {value!r}.')
    return value


def _check_chief(cluster_spec: Any, chief: str) -> None:
    """Rejects a cluster unless it has exactly one task with the chief's role, with index 0."""
    if chief not in cluster_spec.jobs:
        raise ValueError(
            f'If "cluster" is set in TF_CONFIG, it must have one "{chief}" node. '
            f'Add "{chief}": ["host:port"] to TF_CONFIG["cluster"].'
        )
    if cluster_spec.num_tasks(chief) > 1:
        raise ValueError(
            f'The "cluster" in TF_CONFIG must have only one "{chief}" node. Make the others "worker" nodes.'
        )
    if cluster_spec.task_indices(chief) != [0]:
        raise ValueError(
            f'The index of the "{chief}" node must be 0. TF_CONFIG["cluster"]["{chief}"] has another index.'
        )


def own_task(tf_config: dict[str, Any], cluster_spec: Any) -> tuple[str, int]:
    """Returns the role and index of this process, checked against the cluster."""
    task = _task_section(tf_config)
    task_type, task_id = task.get("type"), task.get("index")
    roles = [*cluster_spec.jobs, TaskType.EVALUATOR]
    if not task_type:
        raise ValueError(
            f'If "cluster" is set in TF_CONFIG, task type must be set. Set TF_CONFIG["task"]["type"] to one of {roles}.'
        )
    if task_id is None:
        raise ValueError(
            'If "cluster" is set in TF_CONFIG, task index must be set. '
            'Set TF_CONFIG["task"]["index"] to the task\'s place, counted from 0, among those of its role.'
        )
    task_id = _parse_index(task_id)
    if task_id < 0:
        raise ValueError(f'Task index must be non-negative number. TF_CONFIG["task"]["index"] is {task_id}.')
    if task_type == TaskType.EVALUATOR:
        return task_type, task_id
    if task_type not in cluster_spec.jobs:
        raise ValueError(
            f"{task_type} is not a valid task_type in the cluster_spec:\n{cluster_spec}\n\n"
            "Note that these values may be coming from the TF_CONFIG environment variable.\n"
            f'TF_CONFIG["task"]["type"] should be one of {roles}.'
        )
    indices = cluster_spec.task_indices(task_type)
    if task_id not in indices:
        raise ValueError(
            f"{task_id} is not a valid task_id for task_type {task_type} in the cluster_spec:\n{cluster_spec}\n\n"
            "Note that these values may be coming from the TF_CONFIG environment variable.\n"
            f'TF_CONFIG["task"]["index"] should be one of {indices}.'
        )
    return task_type, task_id


def _global_id(cluster_spec: Any, task_type: str, task_id: int, chief: str) -> int:
    """Returns the index among all tasks of the cluster, from the chief to the parameter servers."""
    others = [job for job in sorted(cluster_spec.jobs) if job not in (chief, TaskType.PS)]
    before = 0
    for job in (chief, *others, TaskType.PS):
        if job == task_type:
            break
        before += cluster_spec.num_tasks(job)
    return before + task_id


def _is_single_node(cluster_spec: Any) -> bool:
    jobs = cluster_spec.jobs
    return len(jobs) == 1 and cluster_spec.num_tasks(jobs[0]) == 1


def _num_tasks(cluster_spec: Any, *jobs: str) -> int:
    """Returns the number of tasks with any of these roles."""
    return sum(cluster_spec.num_tasks(job) for job in jobs if job in cluster_spec.jobs)


def _single_process_settings(tf_config: dict[str, Any], service: Any) -> TaskSettings:
    task = _task_section(tf_config)
    task_type = task.get("type", TaskType.WORKER)
    task_id = _parse_index(task.get("index", 0))
    if task_type != TaskType.WORKER:
        raise ValueError(
            'If "cluster" is not set in TF_CONFIG, task type must be WORKER. '
            'Add the addresses of the tasks as TF_CONFIG["cluster"], or omit "task" to run only in this process.'
        )
    if task_id != 0:
        raise ValueError(
            'If "cluster" is not set in TF_CONFIG, task index must be 0. '
            'Add the addresses of the tasks as TF_CONFIG["cluster"].'
        )
    return TaskSettings(
        service=service,
        cluster_spec=server_lib.ClusterSpec({}),
        task_type=task_type,
        task_id=task_id,
        global_id_in_cluster=0,
        master=_master(tf_config, "session_master"),
        evaluation_master=_master(tf_config, "eval_session_master"),
        is_chief=True,
        num_ps_replicas=0,
        num_worker_replicas=1,
    )


def parse_task_settings(tf_config: dict[str, Any]) -> TaskSettings:
    """Derives the settings of this process from TF_CONFIG."""
    warn_about_unknown_keys(tf_config)
    try:
        return _parse(tf_config)
    except ValueError as error:
        raise type(error)(f"{error} {summarize_tf_config(tf_config)}") from None


def check_service(tf_config: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the "service" dictionary of TF_CONFIG, or None."""
    service = tf_config.get("service")
    if service is not None and not isinstance(service, dict):
        raise ClusterConfigTypeError(
            f'If "service" is set in TF_CONFIG, it must be a dict. Given {type(service)}: {service!r}.'
        )
    return service


def evaluator_settings(tf_config: dict[str, Any], service: dict[str, Any] | None, task_id: int) -> TaskSettings:
    """Returns the settings of an evaluator, which isn't part of the training cluster."""
    return TaskSettings(
        service=service,
        cluster_spec=server_lib.ClusterSpec({}),
        task_type=TaskType.EVALUATOR,
        task_id=task_id,
        global_id_in_cluster=None,
        master="",
        evaluation_master=_master(tf_config, "eval_session_master"),
        is_chief=False,
        num_ps_replicas=0,
        num_worker_replicas=0,
    )


def _parse(tf_config: dict[str, Any]) -> TaskSettings:
    service = check_service(tf_config)
    cluster_spec = parse_cluster_spec(tf_config)
    if not cluster_spec:
        return _single_process_settings(tf_config, service)
    chief = TaskType.CHIEF
    if TaskType.MASTER in cluster_spec.jobs:
        chief = TaskType.MASTER
        if TaskType.CHIEF in cluster_spec.jobs:
            raise ValueError(
                "If `master` node exists in `cluster`, job `chief` is not supported. "
                'Remove one of the two from TF_CONFIG["cluster"].'
            )
    _check_chief(cluster_spec, chief)
    task_type, task_id = own_task(tf_config, cluster_spec)
    if task_type == TaskType.EVALUATOR:
        if chief == TaskType.MASTER:
            raise ValueError(
                "If `master` node exists in `cluster`, task_type `evaluator` is not supported. "
                "The master evaluates; with an evaluator, name it `chief`."
            )
        return evaluator_settings(tf_config, service, task_id)
    if "session_master" in tf_config:
        master = _master(tf_config, "session_master")
    elif _is_single_node(cluster_spec):
        master = ""
    else:
        master = "grpc://" + cluster_spec.task_address(task_type, task_id)
    return TaskSettings(
        service=service,
        cluster_spec=cluster_spec,
        task_type=task_type,
        task_id=task_id,
        global_id_in_cluster=_global_id(cluster_spec, task_type, task_id, chief),
        master=master,
        evaluation_master="",
        is_chief=task_type == chief,
        num_ps_replicas=_num_tasks(cluster_spec, TaskType.PS),
        num_worker_replicas=_num_tasks(cluster_spec, TaskType.WORKER, chief),
    )


def check_job_layout(config: Any, collective: bool = False) -> None:
    """Rejects a job whose tasks would overwrite each other's files or wait for each other without a limit."""
    if config.task_type == TaskType.EVALUATOR and config.task_id > 0:
        raise ValueError(
            "For distributed training, there can only be one `evaluator` task (with task id 0).  Given task id "
            f'{config.task_id}. TF_CONFIG["task"]["index"] of the evaluator should be 0. {summarize_tf_config()}'
        )
    jobs = config.cluster_spec.jobs if config.cluster_spec else []
    # A program with its own device function may place the variables differently.
    if collective or getattr(config, "device_fn", None) is not None:
        return
    if TaskType.WORKER in jobs and TaskType.PS not in jobs:
        raise ValueError(
            'TF_CONFIG["cluster"] has workers and no "ps": there is no task that holds the variables they share. Add '
            '"ps": ["host:port"] to it, or leave "worker" out to train in one process; or train synchronously, with '
            "RunConfig(train_distribute=tf.distribute.MultiWorkerMirroredStrategy()). The cluster is "
            f"{config.cluster_spec.as_dict()}. {summarize_tf_config()}"
        )
