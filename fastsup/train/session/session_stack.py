"""The creator of the sessions that a monitored session nests."""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import coordinator, queue_runner

from fastsup.common import stop_signals
from fastsup.train.session.server_watch import watch_servers
from fastsup.train.session.session_creators import SessionCreator
from fastsup.train.session.wrapped_sessions import CoordinatedSession, HookedSession

__all__ = ["CoordinatedSessionCreator"]


class CoordinatedSessionCreator(SessionCreator):  # type: ignore[misc]
    """Makes a session with its coordinator, queue runners and hooks, at the start and after each preemption.

    Args:
      session_creator: `SessionCreator` that makes the innermost session.
      hooks: the hooks of the monitored session.
      stop_grace_period_secs: seconds that threads have to end when the session is closed.
    """

    def __init__(self, session_creator: Any, hooks: Any, stop_grace_period_secs: float) -> None:
        self._session_creator = session_creator
        self._hooks = hooks
        self._stop_grace_period_secs = stop_grace_period_secs
        # The recorder of the session's runs and its description in a profile, set by the monitored session.
        self.profiler: Any = None
        self.opened: Any = None
        # The coordinator and the innermost session of the session made last; None once that is closed.
        self.coord: Any = None
        self.tf_sess: Any = None
        # A session that couldn't be got ready, until it is closed. The program may have caught the error, so hooks can
        # still see it in their `end`.
        self._unfinished: CoordinatedSession | None = None

    def create_session(self) -> Any:
        """Makes a session, starts its queue runners and calls the hooks' `after_create_session`.

        Returns:
          A `CoordinatedSession`.
        """
        self.close_unfinished()
        session = self.tf_sess = self._session_creator.create_session()
        # The monitored session decides which errors end it normally, so the coordinator must report all of them.
        self.coord = coordinator.Coordinator(clean_stop_exception_types=[])
        try:
            self._start(session)
        except BaseException:
            self._unfinished = self._wrap(session)
            raise
        return self._wrap(session)

    def _wrap(self, session: Any) -> CoordinatedSession:
        hooked = HookedSession(session, self._hooks)
        hooked._engine.record(self.profiler, self.opened)
        return CoordinatedSession(hooked, self.coord, self._stop_grace_period_secs)

    def _start(self, session: Any) -> None:
        if ops.get_collection(ops.GraphKeys.QUEUE_RUNNERS):
            queue_runner.start_queue_runners(sess=session, coord=self.coord)
        watch_servers(session, self.coord)
        held = stop_signals.holds_signals()
        try:
            for hook in self._hooks:
                hook.after_create_session(session, self.coord)
        finally:
            stop_signals.release(held)

    def close_unfinished(self) -> None:
        """Closes a session that couldn't be got ready, and ends its threads. What fails then is logged."""
        unfinished, self._unfinished = self._unfinished, None
        if unfinished is None:
            return
        try:
            unfinished.close()
        except Exception as error:
            logging.error("A session that couldn't be got ready has not ended well: %s", error, exc_info=error)

    def forget_session(self) -> None:
        """Drops the session and its coordinator, after the session was closed."""
        self.tf_sess = self.coord = None
