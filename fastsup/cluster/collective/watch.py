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

# The phases of a training run for one task. A task has left once it has detected that the leader ended.
JOINING, TRAINING, ENDED, LEFT, FAILED = "joining", "training", "ended", "left", "failed"


@dataclasses.dataclass
class TaskStatus:
    """The status of a task on the status board.

    Args:
      process: random name of the process. A restarted task has a different one.
      training: number of the training, counted from 1 in each process: an Estimator may train several times.
      phase: one of the five phases.
      beat: number that grows as long as the process is alive.
      checkpoint: name of the newest checkpoint that the task found, or "" if there is none.
      runs: number of finished runs of the training step.
      members: set by the leader: the processes that train together, by task. Empty until all have joined.
      stop_after: number of runs after which the task requests all tasks to stop, or None.
      stop_reason: the reason for the request.
      stop_signal: number of the signal that the task received, or 0.
      knows_stop: the smallest `stop_after` that the task has set or received.
      save_after: set by the leader: number of runs after which all tasks take part in a save, or 0.
      knows_save: the `save_after` that the task received.
      error: error message if the task failed.
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
        """Creates a status from its text."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields)


# The status board is a table of short texts that the tasks of a job share. Each task writes its own text and reads all
# texts.
#
# One task's TensorFlow server keeps the table, and the others access it through sessions on that server. It therefore
# works wherever training works, without an additional port or file.

# A separate container, which a reset of the server's default container doesn't clear.
_CONTAINER = "fastsup.collective"
_NAME = "status_board"
# Milliseconds after which a call times out. A missing server answers with an error, but a stopped one doesn't answer.
_TIMEOUT_MS = 3000


class StatusBoard:
    """One task's access to the status board. Only one thread may use it."""

    def __init__(self, target: str, task: str) -> None:
        self._target = target
        # Without a device filter, the server would connect to every task of the cluster and wait for each task.
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
        """Writes this task's text, and returns the texts of all tasks."""
        try:
            if self._session is None:
                self._session = tf_session.Session(self._target, graph=self._graph, config=self._config)
            keys, values = self._session.run(
                self._export,
                {self._key: number, self._value: text},
                options=config_pb2.RunOptions(timeout_in_ms=_TIMEOUT_MS),
            )
        except errors.OpError:
            # The server may have been restarted without this session.
            self.close()
            raise
        return {int(key): value.decode() for key, value in zip(keys, values, strict=True)}

    def close(self) -> None:
        """Closes the session. The table remains."""
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(errors.OpError):  # The server no longer exists.
                session.close()


# Seconds without a sign of life after which a task's port is checked, and after which an answer is requested if the
# port is open.
_QUIET_SECS = 2.0
SILENT_SECS = 60.0
_ANSWER_SECS = 10.0
# The system's limits may close a port for a moment. It counts as closed after this many successive checks.
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
        """Receives a status of the task."""
        if self.status is None or (status.process, status.beat) != (self.status.process, self.status.beat):
            self.note_alive()
        self.status = status

    def note_alive(self) -> None:
        """Records a sign of life."""
        self._heard = time.monotonic()
        self._closed_looks = 0
        self._probe = None

    def process_loss(self) -> str | None:
        """Returns the reason why the process is treated as lost, or None. May connect to the task's port."""
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
        # Python may have delayed the thread that sends the status. TensorFlow's server has its own threads.
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
# Seconds between two exchanges while a thread waits for an answer.
HURRY_SECS = 0.1
_WATCH_SECS = 1.0
# Minimum duration of a run before a task that has ended its training is treated as missing from the run.
_ENDED_SECS = 2.0
_JOIN_SECS = 10.0


class PeerWatch:
    """Sends this task's status to the others, and detects a lost task.

    A run that waits for a lost task waits forever. To cancel the run, another thread closes its session.

    Args:
      own: this task.
      others: the other tasks.
      status: this task's status, which the caller changes.
      board_target: address of the server with the status board.
      board_job: the server's job and task, such as "/job:chief/task:0".
      hear: function of a task's name and status. Called for every received status.
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
        # Description of the loss as a sentence without a period.
        self.loss: str | None = None
        # The session to close if a task is lost, and the start of an operation in it that waits for the other tasks.
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
        """Starts the threads. Until `slow_down`, they exchange statuses frequently, as waiting threads require."""
        self.started = True
        for thread in self._threads:
            thread.start()

    def slow_down(self) -> None:
        """Reduces the frequency of exchanges to what training requires."""
        self._tell_secs = _TELL_SECS
        for peer in self.others.values():
            peer.note_alive()

    def end(self) -> None:
        """Ends the threads, or leaves them after `_JOIN_SECS`, because each may wait for a task that doesn't answer."""
        self._ended.set()
        self._tell_now.set()
        until = time.monotonic() + _JOIN_SECS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def is_alive(self) -> bool:
        """Returns True if the threads are running."""
        return all(thread.is_alive() for thread in self._threads)

    def tell_now(self) -> None:
        """Sends the status immediately."""
        self._tell_now.set()

    def wait_for_news(self) -> None:
        """Waits until a status is received, or for a short time."""
        self._heard.wait(HURRY_SECS)
        self._heard.clear()

    def hurry_until(self, condition: Callable[[], bool], limit_secs: float) -> bool:
        """Waits for a condition, with more frequent exchanges.

        Args:
          condition: function that returns True when the wait is over.
          limit_secs: maximum seconds to wait.

        Returns:
          False if the limit was reached.
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
        """Returns why a task is treated as lost, as a sentence without a period, or None."""
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
            return None  # The peer took part in the current run.
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
                    # A failed task reports the reason. Other tasks may have ended because of the failure.
                    self.loss = min(losses, key=lambda loss: "has failed" not in loss)
                    logging.error("%s.", self.loss)
            session = self.session
            if self.loss is not None and self.waits_since is not None and session is not None:
                self.session = None
                session.close()
