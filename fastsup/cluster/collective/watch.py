"""Monitors a collective job: each task sends its status, receives the others' statuses, and detects lost tasks."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import dtypes, errors, ops
from tensorflow.python.ops import array_ops, gen_lookup_ops
from tensorflow.python.platform import tf_logging as logging

from fastsup.cluster.peer_liveness import listens, probe_servers

__all__ = [
    "ENDED",
    "FAILED",
    "HURRY_SECS",
    "JOINING",
    "LEFT",
    "SILENT_SECS",
    "TRAINING",
    "Peer",
    "PeerWatch",
    "StatusBoard",
    "TaskStatus",
]

# The phases of a training, for one task. It has left when it has detected the leader's end.
JOINING, TRAINING, ENDED, LEFT, FAILED = "joining", "training", "ended", "left", "failed"


@dataclasses.dataclass
class TaskStatus:
    """The status of a task, as the status board has it.

    Args:
      process: random name of the process. A restarted task has a different one.
      training: number of the training, counted from 1 in each process: an Estimator may train several times.
      phase: one of the five phases.
      beat: number that grows as long as the process lives.
      checkpoint: name of the newest checkpoint that the task has found; empty if there is none.
      runs: number of runs of the training step that have ended.
      members: of the leader: the processes that train together, by task. Empty until all are there.
      stop_after: number of runs after which the task wants all to stop; None as long as it doesn't.
      stop_reason: why it wants that.
      stop_signal: number of the signal that it has got, or 0.
      knows_stop: the smallest `stop_after` that the task has set or received.
      save_after: of the leader: number of runs after which all take part in a save; 0 as long as there is none.
      knows_save: the `save_after` that the task has received.
      error: why the task failed.
    """

    process: str
    training: int
    phase: str = JOINING
    beat: int = 0
    checkpoint: str = ""
    runs: int = 0
    members: dict[str, str] = dataclasses.field(default_factory=dict)
    stop_after: int | None = None
    stop_reason: str = ""
    stop_signal: int = 0
    knows_stop: int | None = None
    save_after: int = 0
    knows_save: int = 0
    error: str = ""

    def to_text(self) -> str:
        """Returns the status as text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> TaskStatus:
        """Returns the status that a text has."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields)


# A table of short texts that the tasks of a job share: each writes its own and reads those of all.
#
# It is kept in the TensorFlow server of one task, and reached by sessions on that server: where training gets
# through, it does. No port and no file is needed.

# A separate one, so that a reset of the server's usual container doesn't clear it.
_CONTAINER = "fastsup.collective"
_NAME = "status_board"
# Milliseconds after which a call is given up. A server that isn't there answers with an error, one that is stopped with
# nothing.
_TIMEOUT_MS = 3000


class StatusBoard:
    """One task's access to the table. Only one thread may use it."""

    def __init__(self, target: str, task: str) -> None:
        self._target = target
        # Without a filter, the server would connect to every task of the cluster, and wait for each.
        self._config = config_pb2.ConfigProto(device_filters=[task], operation_timeout_in_ms=_TIMEOUT_MS)
        self._session: Any = None
        with ops.Graph().as_default() as self._graph, ops.device(f"{task}/device:CPU:0"):
            table = gen_lookup_ops.mutable_hash_table_v2(
                key_dtype=dtypes.int64, value_dtype=dtypes.string, container=_CONTAINER, shared_name=_NAME
            )
            self._key = array_ops.placeholder(dtypes.int64, [])
            self._value = array_ops.placeholder(dtypes.string, [])
            insert = gen_lookup_ops.lookup_table_insert_v2(table, self._key, self._value)
            with ops.control_dependencies([insert]):
                self._export = gen_lookup_ops.lookup_table_export_v2(table, dtypes.int64, dtypes.string)

    def exchange(self, number: int, text: str) -> dict[int, str]:
        """Writes the text of a task, and reads those of all."""
        try:
            if self._session is None:
                self._session = tf_session.Session(self._target, graph=self._graph, config=self._config)
            keys, values = self._session.run(
                self._export,
                {self._key: number, self._value: text},
                options=config_pb2.RunOptions(timeout_in_ms=_TIMEOUT_MS),
            )
        except errors.OpError:
            # The server may have been restarted, and no longer has the session.
            self.close()
            raise
        return {int(key): value.decode() for key, value in zip(keys, values, strict=True)}

    def close(self) -> None:
        """Closes the session. The table stays."""
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(errors.OpError):  # The server no longer exists.
                session.close()


# Seconds without a sign of life after which the port of a task is looked at, and those after which a task that keeps
# its port open is requested an answer.
_QUIET_SECS = 2.0
SILENT_SECS = 60.0
_ANSWER_SECS = 10.0
# A port may be closed for a moment by the system's limits. This many successive looks must find it closed.
_LOOKS = 2


class Peer:
    """Another task of the job."""

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
        """Takes a status of the task."""
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
        if listens(self.address) is False:
            self._closed_looks += 1
            if self._closed_looks >= _LOOKS:
                return f"{self} is gone: no process listens at its address"
            return None
        self._closed_looks = 0
        if silent_secs < SILENT_SECS:
            return None
        # Its thread that tells may have been held up by Python. TensorFlow's server has its own threads.
        if self._probe is None:
            config = config_pb2.ConfigProto(device_filters=[self.job])
            self._probe, self._probe_started = probe_servers(f"grpc://{self.address}", config), time.monotonic()
        try:
            answered = self._probe.has_returned(0.0)
        except Exception as error:
            logging.info("%s answers with an error: %s", self, error)
            answered = False
        if answered:
            self.note_alive()
        elif time.monotonic() - self._probe_started > _ANSWER_SECS:
            return f"{self} doesn't answer: it hasn't responded for {silent_secs:.0f} s"
        return None


_TELL_SECS = 1.0
# While a thread waits for an answer.
HURRY_SECS = 0.1
_WATCH_SECS = 1.0
# How long a run must have lasted before a task that has ended its training counts as missing in it.
_ENDED_SECS = 2.0
_JOIN_SECS = 10.0


class PeerWatch:
    """Sends this task's status to the others, and detects a lost task.

    A run that waits for a lost task waits forever. Closing its session, by another thread, cancels it.

    Args:
      own: this task.
      others: the other tasks.
      status: this task's status, which the caller changes.
      board_target: address of the server that keeps the status board.
      board_job: its job and task, such as "/job:chief/task:0".
      hear: called with the name of a task and its status, again and again.
    """

    def __init__(
        self,
        own: Peer,
        others: list[Peer],
        status: TaskStatus,
        board_target: str,
        board_job: str,
        hear: Callable[[str, TaskStatus], None],
    ) -> None:
        self.own = own
        self.others: dict[str, Peer] = {peer.name: peer for peer in others}
        self.status = status
        # What was lost, as a sentence without its full stop.
        self.loss: str | None = None
        # The session that is closed when a task is lost, and since when something runs in it that waits for the others.
        self.session: Any = None
        self.waits_since: float | None = None
        self._board = StatusBoard(board_target, board_job)
        self._hear_status = hear
        self._tell_secs = HURRY_SECS
        self._tell_now, self._ended, self._heard = threading.Event(), threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._tell_and_hear, name="status of the other workers", daemon=True),
            threading.Thread(target=self._watch, name="watch over the other workers", daemon=True),
        ]
        self.started: bool = False

    def start(self) -> None:
        """Starts the threads. Until `slow_down`, they exchange news as often as a waiting thread needs it."""
        self.started = True
        for thread in self._threads:
            thread.start()

    def slow_down(self) -> None:
        """Lets the threads exchange news as often as a training needs it."""
        self._tell_secs = _TELL_SECS
        for peer in self.others.values():
            peer.note_alive()

    def end(self) -> None:
        """Ends the threads, or leaves them after `_JOIN_SECS`: each may wait for a task that doesn't answer."""
        self._ended.set()
        self._tell_now.set()
        until = time.monotonic() + _JOIN_SECS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def is_alive(self) -> bool:
        """Returns True if the threads run."""
        return all(thread.is_alive() for thread in self._threads)

    def tell_now(self) -> None:
        """Sends the status immediately."""
        self._tell_now.set()

    def wait_for_news(self) -> None:
        """Returns when something was heard, and after a little while in any case."""
        self._heard.wait(HURRY_SECS)
        self._heard.clear()

    def hurry_until(self, condition: Callable[[], bool], limit_secs: float) -> bool:
        """Waits for a condition, with more frequent news.

        Args:
          condition: function that returns True when the wait is over.
          limit_secs: seconds to wait at most.

        Returns:
          False if the limit has passed.
        """
        usual, self._tell_secs = self._tell_secs, HURRY_SECS
        self._tell_now.set()
        until = time.monotonic() + limit_secs
        try:
            while not condition():
                if time.monotonic() >= until:
                    return False
                self.wait_for_news()
            return True
        finally:
            self._tell_secs = usual

    def has_ended(self, peer: Peer) -> bool:
        """Returns True if a task has finished this training without an error."""
        status = peer.status
        return status is not None and (status.training > self.status.training or status.phase in (ENDED, LEFT))

    def loss_of(self, peer: Peer) -> str | None:
        """Why a task counts as lost, as a sentence without its full stop; None if it doesn't."""
        status = peer.status
        member = self.status.members.get(peer.name)
        if status is not None and member is not None and status.process != member:
            return f"{peer} was restarted during this training"
        if status is not None and status.phase == FAILED:
            return f"{peer} has failed: {status.error}"
        if status is None or not self.has_ended(peer):
            return peer.process_loss()
        since = self.waits_since
        if since is None or time.monotonic() - since < _ENDED_SECS:
            return None
        if status.training == self.status.training and status.runs > self.status.runs:
            return None  # It was in the run that this task is in.
        return (
            f"{peer} ended its training after {status.runs} steps, while this task waits for it in step "
            f"{self.status.runs + 1}: each task must run the same number of steps. Pass the same max_steps to all "
            "tasks, and an input that is long enough, such as dataset.repeat()"
        )

    def _tell_and_hear(self) -> None:
        while not self._ended.is_set():
            self.status.beat += 1
            try:
                texts = self._board.exchange(self.own.number, self.status.to_text())
            except (errors.UnavailableError, errors.DeadlineExceededError, errors.AbortedError) as error:
                logging.debug("The status board doesn't answer: %s", error)
            except Exception as error:
                logging.warning("The status board of the workers can't be used: %s", error)
            else:
                self._hear(texts)
            self._tell_now.wait(self._tell_secs)
            self._tell_now.clear()
        with contextlib.suppress(errors.OpError):
            self._board.close()

    def _hear(self, texts: dict[int, str]) -> None:
        for name, peer in self.others.items():
            if peer.number in texts:
                status = TaskStatus.from_text(texts[peer.number])
                peer.hear(status)
                self._hear_status(name, status)
        self._heard.set()

    def _watch(self) -> None:
        while not self._ended.wait(_WATCH_SECS):
            if self.status.phase == TRAINING and self.loss is None:
                losses = [loss for loss in map(self.loss_of, self.others.values()) if loss is not None]
                if losses:
                    # A failed task reports the reason. Others may have ended because of it.
                    self.loss = min(losses, key=lambda loss: "has failed" not in loss)
                    logging.error("%s.", self.loss)
            session = self.session
            if self.loss is not None and self.waits_since is not None and session is not None:
                self.session = None
                session.close()
