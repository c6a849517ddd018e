"""Ends a step that waits for a task of the cluster that has stopped answering without closing its connections."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging

from fastsup.cluster.peer_liveness import end_connections, named_tasks, probe_servers, silent_tasks
from fastsup.common.liveness import LongCall, watch_progress
from fastsup.runtime.session import Session

__all__ = ["watch_servers"]

# Seconds without a finished step after which the tasks are probed, and seconds that they get to answer.
STILL_SECS = 60.0
ANSWER_SECS = 60.0
# Seconds between checks of the coordinator while the tasks are probed.
_POLL_SECS = 1.0


def watch_servers(session: Any, coord: Any) -> None:
    """Starts a thread that watches a session until its coordinator stops or the session is closed.

    If a machine or a network is lost, TensorFlow's runtime waits for a step's answer without a limit. If a step or a
    save is running and nothing finishes for a minute, the thread probes the tasks. If a task doesn't answer within
    another minute, the thread cancels the operations that wait for it, with `tf.errors.UnavailableError`.

    Args:
      session: the session. Only a `fastsup.Session` on a cluster is watched.
      coord: its coordinator.
    """
    if isinstance(session, Session) and session.sess_str:
        watch = _ServerWatch(session, coord)
        threading.Thread(target=watch.run, name="watch over the servers", daemon=True).start()


class _ServerWatch:
    """Runs in the watching thread. It doesn't keep the session alive.

    Args:
      session: the session.
      coord: its coordinator.
    """

    def __init__(self, session: Session, coord: Any) -> None:
        self._session = weakref.ref(session)
        self._coord = coord
        # An unanswered probe. Its thread waits as long as the task is silent, so it is checked again.
        self._probe: LongCall | None = None

    def run(self) -> None:
        """Checks the progress until the session has ended."""
        watch_progress(self._coord.wait_for_stop, STILL_SECS, self._progress, self._when_still)

    def _progress(self) -> Any:
        session = self._session()
        if session is None or session._closed:
            return None
        if session.gate.running > 0 or session.gate.closed:
            return session.runs_ended, session.gate.passed
        return object()  # No step waits. The new object differs from every other value.

    def _when_still(self, seen: Any) -> bool:
        session = self._session()
        return session is not None and (self._all_answer(session, seen) or self._end_wait(session, seen))

    def _goes_on(self, seen: Any) -> bool:
        return bool(self._coord.should_stop()) or self._progress() != seen

    def _all_answer(self, session: Session, seen: Any) -> bool:
        """Returns True if all tasks answer, or the session continues or ends during the probe."""
        self._probe = self._probe or probe_servers(os.fsdecode(session.sess_str), session._config)
        try:
            for _ in range(max(1, round(ANSWER_SECS / _POLL_SECS))):
                if self._probe.has_returned(_POLL_SECS):
                    self._probe = None
                    return True
                if self._goes_on(seen):
                    return True
        except errors.OpError as error:
            # The servers do answer. If there is an error, the step itself will raise it.
            logging.debug("The servers of %s answer with an error: %s", session.sess_str, error)
            self._probe = None
            return True
        return False

    def _end_wait(self, session: Session, seen: Any) -> bool:
        """Cancels the waiting operations. Returns False if the session had to be closed for that."""
        target = os.fsdecode(session.sess_str)
        tasks = named_tasks(session._config.device_filters)
        silent = silent_tasks(tasks)
        if self._goes_on(seen):
            return True
        # The port of a stopped process answers. If no task is silent, any task except this one may be the stopped one.
        suspects = silent or {address: name for address, name in tasks.items() if not target.endswith(f"//{address}")}
        ended = end_connections(suspects)
        if tasks and not ended:
            return True  # A step that needs a task without a connection fails on its own. This one waits for others.
        which = ", ".join(silent.values()) or f"a task of the cluster of {target}"
        text = f"No step has finished for {STILL_SECS:g} s, and {which} hasn't answered for {ANSWER_SECS:g} s"
        logging.error(
            "%s. Its machine, network or process is unresponsive. Cancelling the operations that wait for it.", text
        )
        if ended:
            return True
        # TF_CONFIG doesn't name the tasks. A step that waits for the task may continue to wait, because TensorFlow's
        # runtime requests a cleanup from the task when a session is closed.
        session._give_up(errors.UnavailableError(None, None, f"{text}."))
        return False
