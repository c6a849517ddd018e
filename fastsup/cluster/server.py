"""Starts a task's TensorFlow server, and serves a parameter server until its job ends."""

from __future__ import annotations

import os
import time
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import server_lib

from fastsup.cluster.job_completion import JobCompletionWatcher
from fastsup.cluster.peer_liveness import peer_liveness_of
from fastsup.cluster.tf_config import TaskType, read_tf_config
from fastsup.common import stop_signals
from fastsup.common.liveness import LongCall

__all__ = ["is_google_environment", "serve_until_job_ends", "start_server", "start_std_server"]

_TRAINING_ROLES = (TaskType.CHIEF, TaskType.MASTER, TaskType.WORKER)
# Seconds between checks of a parameter server for the end of the job.
_POLL_SECS = 2.0
# Maximum seconds that a parameter server continues after a signal. Kubernetes kills a process after 30 seconds.
_SIGNAL_GRACE_SECS = 20.0
# Seconds between checks, after a signal, of whether the chief and the workers have ended.
_SIGNAL_POLL_SECS = 0.2


def is_google_environment() -> bool:
    """Returns True if the platform starts the servers, according to TF_CONFIG. Warns if TF_CONFIG is empty."""
    tf_config = read_tf_config() if os.environ.get("TF_CONFIG") else {}
    if not tf_config:
        logging.warning("TF_CONFIG should not be empty in distributed environment.")
    return tf_config.get("environment") == "google"


def start_server(config: Any, session_config: Any, **options: Any) -> Any:
    """Starts a `tf.distribute.Server` at a task's address in the cluster.

    Args:
      config: configuration of the task, with `cluster_spec`, `task_type` and `task_id`.
      session_config: ConfigProto of the server, or None.
      **options: additional arguments of the server.

    Returns:
      The server.

    Raises:
      tf.errors.UnknownError: If the server can't listen at the task's address. The message names the task, the address
        and the likely causes.
    """
    try:
        server = server_lib.Server(
            config.cluster_spec,
            job_name=config.task_type,
            task_index=config.task_id,
            config=session_config,
            start=False,
            **options,
        )
        server.start()
    except errors.UnknownError as error:
        address = config.cluster_spec.task_address(config.task_type, config.task_id)
        raise errors.UnknownError(
            error.node_def,
            error.op,
            f"{error.message}: {config.task_type} {config.task_id} can't listen at {address}, its address in the "
            "cluster. Either another process listens there, perhaps an earlier start of this task, or the port "
            "requires other permissions.",
        ) from error
    return server


def _is_only_node(config: Any) -> bool:
    """Returns True for a task that trains as the only one of its cluster. Only such a task has an empty master."""
    cluster = config.cluster_spec
    return [len(cluster.job_tasks(job)) for job in cluster.jobs] == [1] and config.task_type in _TRAINING_ROLES


def start_std_server(config: Any) -> Any:
    """Starts a task's server, unless the task is the only one of its cluster.

    Args:
      config: `RunConfig` with the cluster, the task and the master.

    Returns:
      The `tf.distribute.Server`, or None for a single task, which doesn't need one.

    Raises:
      RuntimeError: If the configuration lacks the cluster, the task or the master.
      tf.errors.UnknownError: If the server can't listen at the task's address.
    """
    missing = None
    if not (config.cluster_spec and config.task_type) or config.task_id is None:
        missing = "cluster_spec, task_type, and task"
    elif not config.master:
        if _is_only_node(config):
            logging.info("Skip starting Tensorflow server as there is only one node in the cluster.")
            return None
        missing = "master"
    if missing:
        raise RuntimeError(
            f"Could not start server; be sure to specify {missing} in RunConfig or set the TF_CONFIG environment "
            "variable."
        )
    logging.info("Start Tensorflow server.")
    gpu_options = config.session_config.gpu_options if config.session_config is not None else None
    return start_server(config, config_pb2.ConfigProto(gpu_options=gpu_options), protocol=config.protocol)


def serve_until_job_ends(server: Any, config: Any, watcher: JobCompletionWatcher) -> None:
    """Keeps a parameter server running until the job or the server has ended.

    A signal, as in a preemption or from Ctrl-C, usually goes to all tasks of a job. The chief then saves a last
    checkpoint, which needs this server's variables. After SIGTERM or SIGINT, the server therefore continues until the
    chief and the workers have ended, for at most `_SIGNAL_GRACE_SECS`. A second signal ends it immediately.

    Args:
      server: the server.
      config: `RunConfig` of the task.
      watcher: watcher of the job, created before the server was started.

    Raises:
      tf.errors.DeadlineExceededError: If neither the chief nor a worker has answered for the config's
        `session_creation_timeout_secs`.
      SystemExit: If SIGTERM was received. The exit code is 143.
      KeyboardInterrupt: If SIGINT was received.
      BaseException: The error that the server's `join` raised.
    """
    watches = stop_signals.install(
        f"parameter server {config.task_id} continues until the chief and workers have ended, for at most "
        f"{_SIGNAL_GRACE_SECS:.0f} s, so that a last checkpoint can be saved."
    )
    held = stop_signals.holds_signals()
    try:
        _serve(server, config, watcher)
        stop_signals.raise_pending()
    finally:
        stop_signals.release(held)
        if watches:
            stop_signals.uninstall()


def _serve(server: Any, config: Any, watcher: JobCompletionWatcher) -> None:
    """Serves until the job or the server has ended, or a signal was received and no task needs the server now."""
    liveness = peer_liveness_of(config)
    cluster = config.cluster_spec
    indices = cluster.task_indices(TaskType.WORKER) if TaskType.WORKER in cluster.jobs else []
    workers = {index: cluster.task_address(TaskType.WORKER, index) for index in indices}
    serving = LongCall(server.join, "parameter server")
    while not serving.has_returned(_POLL_SECS):
        if stop_signals.received():
            deadline = time.monotonic() + _SIGNAL_GRACE_SECS
            while liveness.any_answers() and time.monotonic() < deadline:
                serving.thread.join(_SIGNAL_POLL_SECS)
            return
        if watcher.job_has_ended(workers):
            logging.info(
                "The job has ended: its parameter server %s also ends. See `python -m fastsup docs dropin#clusters`.",
                config.task_id,
            )
            return
        liveness.check()
