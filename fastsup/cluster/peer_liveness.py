"""Checks whether the tasks of a cluster are alive, by their ports and servers. Ends connections to them."""

from __future__ import annotations

import os
import socket
import stat
import time
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import errors, ops
from tensorflow.python.ops import control_flow_ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import server_lib

from fastsup.cluster.tf_config import TaskType, read_tf_config
from fastsup.common.liveness import LongCall

__all__ = [
    "PeerLiveness",
    "end_connections",
    "listens",
    "named_tasks",
    "peer_liveness_of",
    "peer_timeout_secs",
    "probe_servers",
    "silent_tasks",
]

# Parameter servers and evaluators, which only wait for the training tasks, detect the loss of all training tasks here.
#
# A killed task can't report its loss, but its server's port is closed.

_TRAINING_ROLES = (TaskType.CHIEF, TaskType.MASTER, TaskType.WORKER)
_CONNECT_TIMEOUT_SECS = 1.0
_ASKED_AT_ONCE = 32
_MAX_INTERVAL_SECS = 60.0
# The timeout for an older configuration, which has no session_creation_timeout_secs.
_DEFAULT_TIMEOUT_SECS = 7200.0


def listens(address: str) -> bool | None:
    """Returns True if something listens at HOST:PORT, False if nothing does, None if the machine doesn't answer."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_SECS).close()
    except (ConnectionRefusedError, ConnectionResetError, socket.gaierror, ValueError):
        return False
    except OSError:
        return None
    return True


def _answering(addresses: list[str]) -> list[str]:
    """Returns the addresses that answer. Connecting to a lost machine takes as long as the timeout."""
    with ThreadPoolExecutor(_ASKED_AT_ONCE, "liveness of peers") as pool:
        return [address for address, answers in zip(addresses, pool.map(listens, addresses), strict=True) if answers]


def _first_to_answer(addresses: list[str]) -> str | None:
    """Returns one of the addresses that answer. Probes a few at a time, because there may be a thousand."""
    for first in range(0, len(addresses), _ASKED_AT_ONCE):
        answered = _answering(addresses[first : first + _ASKED_AT_ONCE])
        if answered:
            return answered[0]
    return None


class PeerLiveness:
    """Checks that at least one task of a job is alive.

    Args:
      addresses: HOST:PORT of each task. The owner may assign a new list.
      timeout_secs: seconds without an answer after which all tasks are treated as lost.
    """

    def __init__(self, addresses: list[str], timeout_secs: float) -> None:
        self.addresses = addresses
        self.timeout_secs = timeout_secs
        # Probe the chief first, because it usually answers.
        self._last_to_answer = addresses[0] if addresses else None
        self._silent_since: float | None = None
        self._next_check = 0.0

    def any_answers(self) -> bool:
        """Returns True if a peer answers now. Probes the last one to answer first, then the others in groups."""
        last, self._last_to_answer = self._last_to_answer, None
        if last is not None and last in self.addresses and listens(last):
            self._last_to_answer = last
            return True
        self._last_to_answer = _first_to_answer([address for address in self.addresses if address != last])
        return self._last_to_answer is not None

    def record_alive(self) -> None:
        """Restarts the timeout, after other evidence that a peer is alive, such as a new checkpoint."""
        self._silent_since = None

    def are_lost(self) -> bool:
        """Returns True if no peer has answered for the timeout.

        Connects to the peers at most once per quarter of the timeout and once per minute, and always before it returns
        True.
        """
        now = time.monotonic()
        if not self.addresses or now < self._next_check:
            return False
        self._next_check = now + min(self.timeout_secs / 4, _MAX_INTERVAL_SECS)
        if self.any_answers():
            self._silent_since = None
            return False
        if self._silent_since is None:
            self._silent_since = now
            logging.info("No chief or worker answers. Waiting for one, for at most %s s.", self.timeout_secs)
        self._next_check = min(self._next_check, self._silent_since + self.timeout_secs)
        return now - self._silent_since >= self.timeout_secs

    def check(self) -> None:
        """Raises `tf.errors.DeadlineExceededError` if the peers are lost."""
        if self.are_lost():
            silent_secs = time.monotonic() - (self._silent_since or 0.0)
            raise errors.DeadlineExceededError(
                None,
                None,
                f"No chief or worker has answered for {silent_secs:.0f} s, and not all of them finished without an "
                f"error: {', '.join(self.addresses)}. Restart them. "
                f"RunConfig.session_creation_timeout_secs={self.timeout_secs} is the time limit.",
            )


def named_tasks(device_filters: Iterable[str]) -> dict[str, str]:
    """Returns the tasks of TF_CONFIG's cluster by address.

    Args:
      device_filters: the relevant tasks, such as "/job:ps" or "/job:worker/task:0". If empty, all tasks are relevant.

    Returns:
      Dictionary from HOST:PORT to "ps 0 at HOST:PORT". Empty if TF_CONFIG has no cluster or no ports.
    """
    try:
        tf_config = read_tf_config()
        cluster = server_lib.ClusterSpec(tf_config.get("cluster") or {})
    except (TypeError, ValueError):
        return {}
    if tf_config.get("environment") == "google":
        return {}
    filters = list(device_filters)
    found = {
        cluster.task_address(role, index): f"{role} {index}"
        for role in cluster.jobs
        for index in cluster.task_indices(role)
        if not filters or f"/job:{role}" in filters or f"/job:{role}/task:{index}" in filters
    }
    return {address: f"{name} at {address}" for address, name in found.items()}


def silent_tasks(tasks: dict[str, str]) -> dict[str, str]:
    """Returns the tasks whose ports don't answer. Takes at most a few seconds."""
    answering = _answering(list(tasks))
    return {address: name for address, name in tasks.items() if address not in answering}


def peer_timeout_secs(config: Any) -> float:
    """Returns the maximum seconds that a task waits for the other tasks of its job."""
    return getattr(config, "session_creation_timeout_secs", None) or _DEFAULT_TIMEOUT_SECS


def peer_liveness_of(config: Any) -> PeerLiveness:
    """Returns the liveness check for the chief and the workers of a task's job."""
    cluster = config.cluster_spec
    tf_config = read_tf_config()
    if not cluster and config.task_type == TaskType.EVALUATOR:
        cluster = server_lib.ClusterSpec(tf_config.get("cluster") or {})
    addresses = []
    if isinstance(cluster, server_lib.ClusterSpec) and tf_config.get("environment") != "google":
        addresses = [address for role in _TRAINING_ROLES if role in cluster.jobs for address in cluster.job_tasks(role)]
    return PeerLiveness([address for address in addresses if address], peer_timeout_secs(config))


def probe_servers(master: str, config: Any) -> LongCall:
    """Opens a session in a separate thread, which returns once every task that the session needs has answered.

    TensorFlow's runtime waits without a limit for a task that is down. No timeout of the session or the run ends that
    wait.
    """

    def connect() -> None:
        # Outside a graph, a session without a config uses the eager context's.
        with ops.Graph().as_default():
            probe = control_flow_ops.no_op()
            with tf_session.Session(master, config=config) as session:
                session.run(probe)

    return LongCall(connect, f"probe of {master}")


# Directories in which Linux and macOS list a process's open files.
_OPEN_FILES = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
_MAPPED = "::ffff:"


def end_connections(addresses: Collection[str]) -> int:
    """Ends all TCP connections of this process to some addresses.

    Their users see connections that the other side closed. TensorFlow's runtime then raises
    `tf.errors.UnavailableError` in the calls that wait for an answer, and reconnects for the next calls.
    """
    ends: set[tuple[str | int | bytes, ...]] = set()
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except (OSError, ValueError):
            continue
        ends |= {end[:2] for *_, end in found}
    return sum(_end_if_to(int(name), ends) for name in os.listdir(_OPEN_FILES) if name.isdigit())


def _end_if_to(descriptor: int, ends: set[tuple[str | int | bytes, ...]]) -> bool:
    """Ends a descriptor's connection if it leads to one of the addresses. Returns True if it did."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        blocks = os.get_blocking(descriptor)
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            # Restore the blocking mode. `socket.setdefaulttimeout` may have changed it, also for the socket's other
            # users.
            os.set_blocking(descriptor, blocks)
            peer = connection.getpeername()
            if not isinstance(peer, tuple) or (str(peer[0]).removeprefix(_MAPPED), peer[1]) not in ends:
                return False
            connection.shutdown(socket.SHUT_RDWR)
            return True
    except OSError:
        return False  # The socket isn't connected, or was closed in the meantime.
