"""A task of a collective job, with workers and perhaps a chief: its role from TF_CONFIG, and its server."""

from __future__ import annotations

from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import server_lib

from fastsup.cluster.server import start_server
from fastsup.cluster.tf_config import (
    TaskSettings,
    TaskType,
    check_service,
    evaluator_settings,
    own_task,
    parse_cluster_spec,
    parse_task_settings,
    summarize_tf_config,
    warn_about_unknown_keys,
)

__all__ = ["ensure_server", "leader_of", "parse_collective_settings", "training_tasks"]

_ROLES = (TaskType.CHIEF, TaskType.WORKER)
_STRATEGY = "MultiWorkerMirroredStrategy"


def leader_of(cluster_spec: Any) -> tuple[str, int]:
    """Returns the role and index of the task that saves the model: the chief, or worker 0 if there is none."""
    return (TaskType.CHIEF if TaskType.CHIEF in cluster_spec.jobs else TaskType.WORKER), 0


def training_tasks(cluster_spec: Any) -> dict[tuple[str, int], str]:
    """Returns the addresses of the training tasks by role and index, with the chief first."""
    return {
        (role, index): cluster_spec.task_address(role, index)
        for role in _ROLES
        if role in cluster_spec.jobs
        for index in cluster_spec.task_indices(role)
    }


def parse_collective_settings(tf_config: dict[str, Any]) -> TaskSettings:
    """Derives the settings of this process in a collective job."""
    if not tf_config.get("cluster"):
        return parse_task_settings(tf_config)
    warn_about_unknown_keys(tf_config)
    try:
        return _parse(tf_config)
    except ValueError as error:
        raise type(error)(f"{error} {summarize_tf_config(tf_config)}") from None


def _parse(tf_config: dict[str, Any]) -> TaskSettings:
    service = check_service(tf_config)
    members = parse_cluster_spec(tf_config)
    _check_roles(members)
    task_type, task_id = own_task(tf_config, members)
    if task_type == TaskType.EVALUATOR:
        return evaluator_settings(tf_config, service, task_id)
    # TensorFlow's strategy requires the evaluator's address, although it doesn't train.
    jobs = {job: addresses for job, addresses in members.as_dict().items() if job in _ROLES}
    cluster_spec = server_lib.ClusterSpec(jobs)
    tasks = list(training_tasks(cluster_spec))
    return TaskSettings(
        service=service,
        cluster_spec=cluster_spec,
        task_type=task_type,
        task_id=task_id,
        global_id_in_cluster=tasks.index((task_type, task_id)),
        # Even a single task needs the address, because the strategy places operations on the task's job.
        master="grpc://" + cluster_spec.task_address(task_type, task_id),
        evaluation_master="",
        is_chief=(task_type, task_id) == leader_of(cluster_spec),
        num_ps_replicas=0,
        num_worker_replicas=len(tasks),
    )


def _check_roles(members: Any) -> None:
    """Rejects a cluster that isn't a collective job."""
    roles = list(members.jobs)
    others = [role for role in roles if role not in (*_ROLES, TaskType.EVALUATOR)]
    if others:
        raise ValueError(
            f'{_STRATEGY} trains only on "chief" and "worker" tasks, but TF_CONFIG["cluster"] also has {others}. '
            + (
                "The chief and every worker keep their own copy of the variables, so remove the parameter servers. To "
                "use parameter servers, train without a strategy (between-graph replication)."
                if others == [TaskType.PS]
                else "Give those tasks one of the two roles, or remove them."
            )
        )
    if not set(roles) & set(_ROLES):
        raise ValueError(
            f'{_STRATEGY} needs a chief in TF_CONFIG["cluster"]: a "chief" task, or "worker" tasks, of which worker 0 '
            'is the chief. Add "chief": ["host:port"] or "worker": ["host:port", ...] to it.'
        )
    if TaskType.CHIEF in roles and members.num_tasks(TaskType.CHIEF) > 1:
        raise ValueError("There must be at most one 'chief' job. Make the others \"worker\" nodes.")
    for role in set(roles) & set(_ROLES):
        indices = members.task_indices(role)
        if indices != list(range(len(indices))):
            raise ValueError(
                f'The indices of TF_CONFIG["cluster"]["{role}"] must be 0, 1, 2 and so on for {_STRATEGY}; got '
                f"{indices}."
            )


# This process's server, and the cluster and task for which it was started.
_started: dict[str, Any] = {}


def ensure_server(config: Any, session_config: Any) -> None:
    """Starts this task's server, unless an earlier call did. TensorFlow can't stop a server."""
    wanted = f"{config.task_type} {config.task_id} of {config.cluster_spec.as_dict()}"
    if wanted in _started:
        return
    if _started:
        raise RuntimeError(
            f"This process is {next(iter(_started))} in an earlier training. It can't become {wanted}: TensorFlow's "
            "server can't be stopped. Train it in a separate process."
        )
    options = config_pb2.ConfigProto()
    options.CopyFrom(session_config)
    # These settings apply to the sessions of one training run. Another run may need different settings.
    del options.device_filters[:]
    logging.info("Start Tensorflow server.")
    _started[wanted] = start_server(config, options, protocol=config.protocol)
