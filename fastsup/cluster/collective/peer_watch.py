"""The two threads of a task of a job of collectives: one tells the others and hears them, one finds out who is lost."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging

from fastsup.cluster.collective.peers import Peer
from fastsup.cluster.collective.status_board import StatusBoard
from fastsup.cluster.collective.task_status import ENDED, FAILED, LEFT, TRAINING, TaskStatus

__all__ = ["HURRY_SECS", "PeerWatch"]

_TELL_SECS = 1.0
# While a thread waits for an answer.
HURRY_SECS = 0.1
_WATCH_SECS = 1.0
# How long a run must have lasted before a task that has ended its training counts as missing in it.
_ENDED_SECS = 2.0
_JOIN_SECS = 10.0


class PeerWatch:
    """Tells the other tasks this one's status, and finds out that one of them is lost.

    A run that waits for a lost task waits for ever. Closing its session, by another thread, cancels it.

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
        """Whether the threads run."""
        return all(thread.is_alive() for thread in self._threads)

    def tell_now(self) -> None:
        """Has the status told at once."""
        self._tell_now.set()

    def wait_for_news(self) -> None:
        """Returns when something was heard, and after a little while in any case."""
        self._heard.wait(HURRY_SECS)
        self._heard.clear()

    def hurry_until(self, condition: Callable[[], bool], limit_secs: float) -> bool:
        """Waits for a condition, with more frequent news.

        Args:
          condition: function that says whether the wait is over.
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
        """Whether a task has ended this training well."""
        status = peer.status
        return status is not None and (status.training > self.status.training or status.phase in (ENDED, LEFT))

    def loss_of(self, peer: Peer) -> str | None:
        """Why a task counts as lost, as a sentence without its full stop; None if it doesn't."""
        status = peer.status
        member = self.status.members.get(peer.name)
        if status is not None and member is not None and status.process != member:
            return f"{peer} was started again while this training went on"
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
            f"{peer} has ended its training after {status.runs} steps, while this task waits for it in step "
            f"{self.status.runs + 1}: each task must make the same number of steps. Give all the same max_steps, and "
            "an input that is long enough, such as dataset.repeat()"
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
                    # Who has failed says why. Others may be gone because of that.
                    self.loss = min(losses, key=lambda loss: "has failed" not in loss)
                    logging.error("%s.", self.loss)
            session = self.session
            if self.loss is not None and self.waits_since is not None and session is not None:
                self.session = None
                session.close()
