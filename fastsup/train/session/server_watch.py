"""Ends a step that waits for a task of the cluster which has stopped to answer without closing its connections."""

from __future__ import annotations

import os
import threading
from typing import Any

from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging

from fastsup.cluster.connections import end_connections
from fastsup.cluster.peer_liveness import named_tasks, silent_tasks
from fastsup.cluster.server_probe import ServerProbe
from fastsup.runtime.session import Session

__all__ = ["watch_servers"]

# Seconds without the end of a step after which the tasks are asked, and seconds that they have to answer.
STILL_SECS = 60.0
ANSWER_SECS = 60.0
# Progress is looked at so often in that time. Looks are counted, not seconds: a process that was suspended for an hour
# has missed looks, but its tasks haven't been silent.
_LOOKS = 4
# Seconds between two questions to the coordinator while the tasks are asked.
_POLL_SECS = 1.0


def watch_servers(session: Any, coord: Any) -> None:
    """Starts a thread that watches a session, until its coordinator is stopped.

    If a machine or a network is lost, TensorFlow's runtime waits for the answer to a step without a limit. The thread
    ends that step with `tf.errors.UnavailableError`, after two minutes in which no step has ended; in the second one, a
    task was asked and hasn't answered. As long as steps end, no task is asked.

    Args:
      session: the session. Nothing is watched if it is another kind than `fastsup.Session`, or isn't on a cluster.
      coord: its coordinator.
    """
    if isinstance(session, Session) and session.sess_str:
        watch = _ServerWatch(session, coord)
        threading.Thread(target=watch.run, name="watch over the servers", daemon=True).start()


class _ServerWatch:
    """The body of the thread.

    Args:
      session: the session.
      coord: its coordinator.
    """

    def __init__(self, session: Session, coord: Any) -> None:
        self._session = session
        self._coord = coord

    def run(self) -> None:
        """Looks at the progress until the session has ended."""
        ended, still = self._session.runs_ended, 0
        while not self._coord.wait_for_stop(STILL_SECS / _LOOKS):
            before, ended = ended, self._session.runs_ended
            still = still + 1 if ended == before else 0
            if still < _LOOKS:
                continue
            still = 0
            if not self._all_answer() and not self._end_wait():
                return

    def _all_answer(self) -> bool:
        """Whether all tasks answer; also if the coordinator was stopped, or a step has ended, while they were asked."""
        ended = self._session.runs_ended
        probe = ServerProbe(os.fsdecode(self._session.sess_str), self._session._config)
        try:
            for _ in range(max(1, round(ANSWER_SECS / _POLL_SECS))):
                if probe.has_answered(_POLL_SECS) or self._coord.should_stop() or self._session.runs_ended != ended:
                    return True
        except errors.OpError as error:
            # They do answer. If something is wrong, the step itself will say so.
            logging.debug("The servers of %s answer with an error: %s", self._session.sess_str, error)
            return True
        return False

    def _end_wait(self) -> bool:
        """Ends the step that waits. Returns False if the session was closed for that."""
        target = os.fsdecode(self._session.sess_str)
        filters = self._session._config.device_filters
        silent = silent_tasks(filters)
        which = ", ".join(silent.values()) or f"a task of the cluster of {target}"
        text = f"No step has ended for {STILL_SECS:g} s, and {which} hasn't answered for {ANSWER_SECS:g} s"
        logging.error("%s. Its machine, its network or its process stands still. The step is ended.", text)
        # The port of a process that is stopped answers: then it may be any task but this one.
        others = [address for address in named_tasks(filters) if not target.endswith(f"//{address}")]
        if end_connections(silent or others):
            return True
        # Only now: if a session is closed while a step waits for a task, TensorFlow's runtime asks it to clean up,
        # and the step may wait for the answer to this.
        self._session._give_up(errors.UnavailableError(None, None, f"{text}."))
        return False
