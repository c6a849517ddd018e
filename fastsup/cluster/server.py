"""The TensorFlow server of a task, and how long a parameter server serves."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import server_lib

from fastsup.cluster.job_completion import JobWatch
from fastsup.cluster.peer_liveness import trainers_of
from fastsup.cluster.tf_config import TaskType

__all__ = ["is_google_environment", "saying_where", "serve_until_job_ends", "start_std_server"]

_TRAINER_JOBS = (TaskType.CHIEF, TaskType.MASTER, TaskType.WORKER)
_REMEDY = "or set the TF_CONFIG environment variable."
# Seconds between two looks of a parameter server at whether the job has ended.
_LOOK_SECS = 2.0


def is_google_environment() -> bool:
    """Whether TF_CONFIG says that servers are started by somebody else."""
    tf_config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    if not tf_config:
        logging.warning("TF_CONFIG should not be empty in distributed environment.")
    return bool(tf_config.get("environment") == "google")


def start_std_server(config: Any) -> Any:
    """Starts the server of a task.

    Args:
      config: `RunConfig` with the cluster, the task and the master.

    Returns:
      The `tf.distribute.Server`, or None where there is only one node, which needs none.

    Raises:
      RuntimeError: the configuration lacks the cluster, the task or the master.
      tf.errors.UnknownError: nothing can listen at the task's address.
    """
    if not config.cluster_spec or not config.task_type or config.task_id is None:
        raise RuntimeError(
            f"Could not start server; be sure to specify cluster_spec, task_type, and task in RunConfig {_REMEDY}"
        )
    if not config.master:
        jobs = config.cluster_spec.jobs
        # A master is missing only if there is one node, and that needs no server.
        if (
            len(jobs) == 1
            and len(config.cluster_spec.job_tasks(jobs[0])) == 1
            and config.task_type in _TRAINER_JOBS
        ):  # fmt: skip
            logging.info("Skip starting Tensorflow server as there is only one node in the cluster.")
            return None
        raise RuntimeError(f"Could not start server; be sure to specify master in RunConfig {_REMEDY}")
    logging.info("Start Tensorflow server.")
    session_config = config_pb2.ConfigProto(log_device_placement=False)
    if config.session_config is not None:
        session_config.gpu_options.CopyFrom(config.session_config.gpu_options)
    with saying_where(config):
        server = server_lib.Server(
            config.cluster_spec,
            job_name=config.task_type,
            task_index=config.task_id,
            config=session_config,
            start=False,
            protocol=config.protocol,
        )
        server.start()
    return server


@contextlib.contextmanager
def saying_where(config: Any) -> Iterator[None]:
    """Adds to the error of a server that can't start which task's it is, where, and what may be the matter.

    Args:
      config: configuration of the task.
    """
    try:
        yield
    except errors.UnknownError as error:
        address = config.cluster_spec.task_address(config.task_type, config.task_id)
        raise errors.UnknownError(
            error.node_def,
            error.op,
            f"{error.message}: {config.task_type} {config.task_id} can't listen at {address}, its address in the "
            "cluster. Another process does, perhaps this task, started before; or the port needs other rights.",
        ) from error


def _num_workers(cluster: Any) -> int:
    return int(cluster.num_tasks(TaskType.WORKER)) if TaskType.WORKER in cluster.jobs else 0


def serve_until_job_ends(server: Any, config: Any, watch: JobWatch) -> None:
    """Keeps a parameter server up until the job has ended, or until its server has.

    Args:
      server: the server.
      config: `RunConfig` of the task.
      watch: what has watched the job since before the server was started.

    Raises:
      tf.errors.DeadlineExceededError: neither the chief nor a worker has answered for the config's
        `session_creation_timeout_secs`.
    """
    trainers = trainers_of(config)
    failures: list[BaseException] = []

    def join() -> None:
        try:
            server.join()
        except BaseException as error:
            failures.append(error)

    # The server's own join can't be ended; the process needn't wait for the thread.
    serving = threading.Thread(target=join, name="parameter server", daemon=True)
    serving.start()
    while serving.is_alive():
        serving.join(_LOOK_SECS)
        if serving.is_alive() and watch.job_has_ended(_num_workers(config.cluster_spec)):
            logging.info("The job has ended: its parameter server %s ends too.", config.task_id)
            return
        trainers.check()
    if failures:
        raise failures[0]
