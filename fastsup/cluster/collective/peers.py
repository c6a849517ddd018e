"""What a task of a job of collectives knows of the others: their status, and whether their processes are there."""

from __future__ import annotations

import socket
import time
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.platform import tf_logging as logging

from fastsup.cluster.collective.task_status import TaskStatus
from fastsup.cluster.server_probe import ServerProbe

__all__ = ["SILENT_SECS", "Peer"]

# Seconds without a sign of life after which the port of a task is looked at, and those after which a task that keeps
# its port open is asked for an answer.
_QUIET_SECS = 2.0
SILENT_SECS = 60.0
_ANSWER_SECS = 10.0
_CONNECT_SECS = 1.0
# A port may be closed for a moment by the system's limits. This many successive looks must find it closed.
_LOOKS = 2


class Peer:
    """Another task of the job.

    Args:
      number: number of the task among those that train.
      name: the task, such as "worker 1".
      job: its job and task, such as "/job:worker/task:1".
      address: HOST:PORT of its server.
    """

    def __init__(self, number: int, name: str, job: str, address: str) -> None:
        self.number = number
        self.name = name
        self.job = job
        self.address = address
        self.status: TaskStatus | None = None
        self._heard = time.monotonic()
        self._closed_looks = 0
        self._probe: Any = None
        self._probe_started = 0.0

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"

    def hear(self, status: TaskStatus) -> None:
        """Takes a status of the task.

        Args:
          status: what the board has. It may be the one known.
        """
        if self.status is None or (status.process, status.beat) != (self.status.process, self.status.beat):
            self.note_alive()
        self.status = status

    def note_alive(self) -> None:
        """Records a sign of life."""
        self._heard = time.monotonic()
        self._closed_looks = 0
        self._probe = None

    def process_loss(self) -> str | None:
        """Why the process counts as lost; None if it doesn't. It may connect to the task's port."""
        silent_secs = time.monotonic() - self._heard
        if silent_secs < _QUIET_SECS:
            return None
        if _is_closed(self.address):
            self._closed_looks += 1
            if self._closed_looks >= _LOOKS:
                return f"{self} is gone: nothing listens at its address"
            return None
        self._closed_looks = 0
        if silent_secs < SILENT_SECS:
            return None
        # Its thread that tells may have been held up by Python. TensorFlow's server has its own threads.
        if self._probe is None:
            config = config_pb2.ConfigProto(device_filters=[self.job])
            self._probe, self._probe_started = ServerProbe(f"grpc://{self.address}", config), time.monotonic()
        try:
            answered = self._probe.has_answered(0.0)
        except Exception as error:
            logging.info("%s answers with an error: %s", self, error)
            answered = False
        if answered:
            self.note_alive()
        elif time.monotonic() - self._probe_started > _ANSWER_SECS:
            return f"{self} doesn't answer: it has given no sign of life for {silent_secs:.0f} s"
        return None


def _is_closed(address: str) -> bool:
    """True if no process listens at an address, or the host is unknown. A host that doesn't answer isn't closed."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECS).close()
    except (ConnectionRefusedError, ConnectionResetError, socket.gaierror):
        return True
    except OSError:
        return False
    return False
