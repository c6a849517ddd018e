"""One task's membership in collective training: it joins the other tasks, stops with them, and leaves.

A collective operation waits for every task, and TensorFlow's runtime waits without a limit. The tasks therefore start
together, exchange their positions, and end at the same step.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging

from fastsup.cluster.collective.watch import (
    ENDED,
    FAILED,
    HURRY_SECS,
    JOINING,
    LEFT,
    TRAINING,
    Peer,
    PeerWatch,
    TaskStatus,
)

__all__ = ["Membership", "lost_task_error"]


def lost_task_error(loss: str) -> errors.UnavailableError:
    """Creates the error for a lost task. Its attribute `loss` is reported to the other tasks."""
    error = errors.UnavailableError(
        None,
        None,
        f"{loss}. Training with MultiWorkerMirroredStrategy can't continue without all of its workers, so this one "
        "also ends. Restart all tasks with the same TF_CONFIG: they resume from the newest checkpoint.",
    )
    error.loss = loss
    return error


# Maximum seconds to wait until the other tasks have received a stop, have detected a failure, or have left.
_STOP_SECS = 30.0
_FAILURE_SECS = 3.0
_LEAVE_SECS = 10.0
# Maximum seconds that a failed run waits for the reason of its failure.
_VERDICT_SECS = 8.0
_LONGEST_TEXT = 1500

_PROCESS = uuid.uuid4().hex[:12]
# For each job of this process: the number of training runs so far, and the processes in the latest one.
_trainings: dict[str, tuple[int, dict[str, str]]] = {}


class Membership:
    """One task's membership in collective training."""

    def __init__(self, own: Peer, others: list[Peer], leader: Peer, checkpoint: str) -> None:
        target = f"grpc://{leader.address}"
        self._key = target + own.job
        count, self._known = _trainings.get(self._key, (0, {}))
        self.status: TaskStatus = TaskStatus(_PROCESS, count + 1, checkpoint=checkpoint)
        self._watch = PeerWatch(own, others, self.status, target, leader.job, self._learn)
        self._others = list(self._watch.others.values())
        self._own = own
        self._leader = leader
        self._stop: tuple[int, str, int] | None = None

    @property
    def is_leader(self) -> bool:
        """True if this task keeps the status board and saves the model."""
        return self._own is self._leader

    @property
    def stop(self) -> tuple[int, str, int] | None:
        """Number of runs after which all tasks stop, the reason, and a signal number or 0; or None."""
        return self._stop

    # Methods for joining.

    def join(self, limit_secs: float, interrupted: Callable[[], None]) -> None:
        """Waits until all tasks have joined.

        Args:
          limit_secs: maximum seconds to wait.
          interrupted: function that is called repeatedly. It may raise an error to end the wait.

        Raises:
          tf.errors.DeadlineExceededError: If a task didn't join in time. The message names the task.
          tf.errors.UnavailableError: If a task was restarted since the last training of this process.
          ValueError: If the tasks found different checkpoints.
        """
        self._watch.start()
        started = time.monotonic()
        logged = 0.0
        while not self._has_joined():
            interrupted()
            waited = time.monotonic() - started
            if waited >= limit_secs:
                raise errors.DeadlineExceededError(
                    None,
                    None,
                    f"Training hasn't started after waiting {waited:.0f} secs, because {self._missing()}. Start the "
                    "missing tasks, with the same TF_CONFIG. RunConfig.session_creation_timeout_secs="
                    f"{limit_secs} is the time limit.",
                )
            if waited >= logged:
                logging.info("Waiting for all workers: %s; %d s so far.", self._missing(), waited)
                logged = max(10.0, 2 * waited)
            self._watch.wait_for_news()
        _trainings[self._key] = self.status.training, dict(self.status.members)
        self.status.phase = TRAINING
        self._watch.slow_down()

    def _missing(self) -> str:
        if not self.is_leader and self._leader.status is None:
            return f"{self._leader} doesn't answer"
        missing = [str(peer) for peer in self._others if not self._is_here(peer)]
        return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing" if missing else "all are there"

    def _is_here(self, peer: Peer) -> bool:
        status = peer.status
        return status is not None and status.training == self.status.training and status.phase in (JOINING, TRAINING)

    def _has_joined(self) -> bool:
        if not self.is_leader:
            status = self._leader.status
            if status is None or status.training != self.status.training:
                return False
            if status.members.get(self._own.name) != _PROCESS:
                return False
            self._check_known({self._leader.name: status.process})
            self.status.members = dict(status.members)
            return True
        if not all(map(self._is_here, self._others)):
            return False
        found = {self._own.name: self.status, **{peer.name: peer.status for peer in self._others if peer.status}}
        # Set the members even if an error follows, to notify the other tasks.
        self.status.members = {name: status.process for name, status in found.items()}
        self._check_known(self.status.members)
        checkpoints = {name: status.checkpoint for name, status in found.items()}
        if len(set(checkpoints.values())) > 1:
            listed = ", ".join(f"{name} has {path or 'none'}" for name, path in checkpoints.items())
            raise ValueError(
                f"The tasks have found different checkpoints in their model_dir: {listed}. It must be the same "
                "directory for all of them, on a shared file system: each restores the newest checkpoint from it."
            )
        return True

    def _check_known(self, processes: dict[str, str]) -> None:
        again = [name for name, process in processes.items() if self._known.get(name, process) != process]
        if again:
            raise lost_task_error(f"{', '.join(again)} was restarted after this process last trained")

    # Methods for training.

    def watch_session(self, session: Any) -> None:
        """Sets the session to close if a task is lost while a run waits for it."""
        self._watch.session = session

    def begin_wait(self) -> None:
        """Starts an operation that may wait for the other tasks."""
        if self._watch.loss is not None:
            raise lost_task_error(self._watch.loss)
        self._watch.waits_since = time.monotonic()

    def end_wait(self) -> None:
        """Ends an operation started by `begin_wait`."""
        self._watch.waits_since = None

    def end_step(self) -> bool:
        """Ends a training step started by `begin_wait`. Returns True if it was the last one."""
        self.end_wait()
        self.status.runs += 1
        return self._stop is not None and self.status.runs >= self._stop[0]

    def ask_stop(self, reason: str, signal: int = 0) -> None:
        """Makes all tasks stop after the next step. Returns when they have received the request.

        Call this between steps. No task can end the next step before this one has started it, so all tasks receive
        the request in time.
        """
        if self._stop is None:
            self.status.stop_reason, self.status.stop_signal = reason, signal
            self.status.stop_after = self.status.runs + 1
            self._learn_stop(self._own.name, self.status)
        self._watch.hurry_until(lambda: all(map(self._knows_stop, self._others)), _STOP_SECS)

    def _knows_stop(self, peer: Peer) -> bool:
        status = peer.status
        return self._watch.loss is not None or (
            status is not None and (status.knows_stop is not None or status.phase not in (JOINING, TRAINING))
        )

    @property
    def save_after(self) -> int:
        """Number of steps in this training after which the leader's next save is due, or its last one was; or 0."""
        return self.status.knows_save

    def ask_save(self) -> int:
        """Makes all tasks take part in a save after the next step. The leader calls this between steps.

        Returns:
          Number of steps in this training after which the save is due.

        Raises:
          tf.errors.UnavailableError: If a task doesn't answer.
        """
        self.status.save_after = self.status.knows_save = self.status.runs + 1

        def know() -> bool:
            return all(peer.status and peer.status.knows_save == self.status.save_after for peer in self._others)

        if not self._watch.hurry_until(lambda: self._watch.loss is not None or know(), _STOP_SECS):
            raise lost_task_error(f"A task hasn't answered for {_STOP_SECS:.0f} s to a request to join a save")
        return self.status.save_after

    def _learn(self, name: str, status: TaskStatus) -> None:
        """Receives the status of another task. Called in another thread."""
        if status.training != self.status.training:
            return
        self._learn_stop(name, status)
        if name == self._leader.name and status.save_after != self.status.knows_save:
            self.status.knows_save = status.save_after
            self._watch.tell_now()

    def _learn_stop(self, name: str, status: TaskStatus) -> None:
        if status.stop_after is None or (self._stop is not None and self._stop[0] <= status.stop_after):
            return
        self._stop = status.stop_after, f"{name}: {status.stop_reason}", status.stop_signal
        self.status.knows_stop = status.stop_after
        self._watch.tell_now()
        logging.info("All workers end after step %d of this training. %s.", *self._stop[:2])

    @property
    def loss(self) -> str | None:
        """Description of the loss as a sentence without a period, or None if nothing was lost."""
        return self._watch.loss

    def find_loss(self) -> str | None:
        """Returns `loss` after waiting a few seconds for it. Call this after a failed run, which a loss may explain."""
        if self.status.phase == TRAINING and self._watch.is_alive():
            self._watch.hurry_until(lambda: self._watch.loss is not None, _VERDICT_SECS)
        return self._watch.loss

    # Methods for leaving.

    def leave(self, error: BaseException | None) -> None:
        """Ends this task's membership, and notifies the other tasks. Must always be called.

        Args:
          error: the error that ended training in this task, or None after success.

        Raises:
          tf.errors.UnavailableError: If training succeeded here, but the leader is lost or failed to save the model.
        """
        if not self._watch.started:
            return
        try:
            if error is not None:
                self._fail(error)
            elif self.is_leader:
                self.status.phase = ENDED
                self._watch.hurry_until(self._all_have_left, _LEAVE_SECS)
            else:
                self.status.phase = ENDED
                self._wait_for_leader()
                self.status.phase = LEFT
                self._watch.hurry_until(lambda: False, 2 * HURRY_SECS)
        finally:
            self._watch.end()

    def _fail(self, error: BaseException) -> None:
        self.status.error = getattr(error, "loss", f"{type(error).__name__}: {error}")[:_LONGEST_TEXT]
        self.status.phase = FAILED
        # If this process keeps the status board, the other tasks must read the failure before the process ends.
        if self.is_leader:
            self._watch.hurry_until(self._all_have_left, _FAILURE_SECS)
        else:
            self._watch.hurry_until(lambda: False, 2 * HURRY_SECS)

    def _wait_for_leader(self) -> None:
        """Waits until the leader has saved the model, because later code may read it."""

        def has_ended() -> bool:
            return self._watch.has_ended(self._leader)

        while not has_ended():
            loss = self._watch.loss_of(self._leader)
            if loss is not None:
                raise lost_task_error(loss)
            self._watch.hurry_until(has_ended, 1.0)

    def _all_have_left(self) -> bool:
        return all(map(self._has_left, self._others))

    def _has_left(self, peer: Peer) -> bool:
        status = peer.status
        if status is None or status.training > self.status.training or status.phase in (LEFT, FAILED):
            return True
        return self._watch.loss_of(peer) is not None
