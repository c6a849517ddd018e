"""Whether the tasks that train are still there: for those that only wait for what these do.

A task that was killed can't say so. But its server's port is then closed.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import server_lib

from fastsup.cluster.tf_config import TaskType, read_tf_config

__all__ = ["Trainers", "limit_secs_of", "trainers_of"]

_ROLES = (TaskType.CHIEF, TaskType.MASTER, TaskType.WORKER)
_CONNECT_SECS = 1.0
_LONGEST_INTERVAL_SECS = 60.0
# Where a configuration of an older kind doesn't say how long to wait.
_DEFAULT_LIMIT_SECS = 7200.0


class Trainers:
    """The servers of a job's chief and workers.

    Args:
      addresses: HOST:PORT of each. None: nothing is known of them, and nothing is ever said.
      limit_secs: seconds to wait, while none of them answers, until that is an error.
    """

    def __init__(self, addresses: list[str], limit_secs: float) -> None:
        self._addresses = [address.rpartition(":") for address in addresses]
        self._limit_secs = limit_secs
        self._silent_since: float | None = None
        self._next_look = 0.0

    def _one_answers(self) -> bool:
        for host, _, port in self._addresses:
            try:
                socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECS).close()
            except (OSError, ValueError):
                continue
            return True
        return False

    def are_there(self) -> None:
        """Takes note that they have just given a sign of life."""
        self._silent_since = None

    def check(self) -> None:
        """Looks for them.

        Raises:
          tf.errors.DeadlineExceededError: none has answered for `limit_secs`.
        """
        now = time.monotonic()
        if not self._addresses or now < self._next_look:
            return
        self._next_look = now + min(self._limit_secs / 4, _LONGEST_INTERVAL_SECS)
        if self._one_answers():
            self._silent_since = None
            return
        if self._silent_since is None:
            self._silent_since = now
            logging.info("No chief or worker answers. Waiting for one for %s s at most.", self._limit_secs)
        if now - self._silent_since >= self._limit_secs:
            addresses = ", ".join("".join(parts) for parts in self._addresses)
            raise errors.DeadlineExceededError(
                None,
                None,
                f"No chief or worker has answered for {now - self._silent_since:.0f} s, and not each of them has "
                f"written down that it has ended: {addresses}. "
                f"RunConfig.session_creation_timeout_secs={self._limit_secs} says for how long to wait.",
            )


def limit_secs_of(config: Any) -> float:
    """Seconds that a task waits at most for the others of its job."""
    return getattr(config, "session_creation_timeout_secs", None) or _DEFAULT_LIMIT_SECS


def trainers_of(config: Any) -> Trainers:
    """The servers of the chief and the workers of a task's job.

    Args:
      config: the task's `RunConfig`. An evaluator's has no cluster: it finds that in TF_CONFIG.
    """
    cluster = config.cluster_spec
    tf_config = read_tf_config()
    if not cluster and config.task_type == TaskType.EVALUATOR:
        cluster = server_lib.ClusterSpec(tf_config.get("cluster") or {})
    addresses = []
    if isinstance(cluster, server_lib.ClusterSpec) and tf_config.get("environment") != "google":
        addresses = [address for role in _ROLES if role in cluster.jobs for address in cluster.job_tasks(role)]
    return Trainers([address for address in addresses if address], limit_secs_of(config))
