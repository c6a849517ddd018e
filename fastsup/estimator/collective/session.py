"""The session of a training of collectives: every task initialises or restores the model, one saves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastsup import train
from fastsup.cluster.collective.membership import Membership
from fastsup.core.sessions import session_role
from fastsup.train.session.monitored_session import MonitoredSession, _MonitoredSession
from fastsup.train.session.session_creators import ChiefSessionCreator
from fastsup.train.session.session_manager import SessionManager

__all__ = ["CollectiveSession", "CollectiveSessionCreator", "leader_hooks"]


class _WatchedSessionManager(SessionManager):
    """Shows each session to the membership before anything runs in it."""

    def __init__(self, membership: Membership, **options: Any) -> None:
        super().__init__(**options)
        self._membership = membership

    def _make_session(self, master: str, config: Any) -> Any:
        session = super()._make_session(master, config)
        self._membership.watch_session(session)
        return session


class CollectiveSessionCreator(ChiefSessionCreator):
    """Makes a task's session once all tasks are there: each then initialises the model, from the values of the first.

    Args:
      membership: this task's part in the training.
      interrupted: function that raises an error if the wait for the other tasks is to end.
      limit_secs: seconds to wait for them at most.
      check: function of the finalised scaffold that refuses a model with an error.
      **options: the arguments of `ChiefSessionCreator`.
    """

    def __init__(
        self,
        membership: Membership,
        interrupted: Callable[[], None],
        limit_secs: float,
        check: Callable[[Any], None],
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._membership = membership
        self._interrupted = interrupted
        self._limit_secs = limit_secs
        self._check = check

    def _new_session_manager(self, **options: Any) -> Any:
        return _WatchedSessionManager(self._membership, **options)

    def _finalize_graph(self) -> Any:
        manager = super()._finalize_graph()
        self._check(self._scaffold)
        return manager

    def create_session(self) -> Any:
        """Waits for the other tasks, and makes a session.

        Returns:
          The session, ready to run.

        Raises:
          tf.errors.DeadlineExceededError: a task wasn't there in time.
          Exception: as `ChiefSessionCreator.create_session`.
        """
        self._finalize_graph()
        self._membership.join(self._limit_secs, self._interrupted)
        self._membership.begin_wait()
        try:
            return super().create_session()
        finally:
            self._membership.end_wait()


class CollectiveSession(MonitoredSession):
    """A `MonitoredSession` that doesn't recover: TensorFlow's collectives can't, once a task is lost.

    Args:
      session_creator: the `CollectiveSessionCreator`.
      hooks: the hooks.
      profiler: `fastsup.HookProfiler`, or None.
    """

    def __init__(self, session_creator: CollectiveSessionCreator, hooks: list[Any], profiler: Any) -> None:
        with session_role("train"):
            _MonitoredSession.__init__(self, session_creator, hooks, should_recover=False, profiler=profiler)


def leader_hooks(scaffold: Any, config: Any, summary_steps: int | None, count_steps: int | None) -> list[Any]:
    """The hooks that write events, as in `MonitoredTrainingSession`.

    Args:
      scaffold: scaffold of the model.
      config: the `RunConfig`.
      summary_steps: global steps between two summaries. 0 or None: no summaries.
      count_steps: global steps between two measurements of the rate. 0 or None: none.
    """
    hooks: list[Any] = []
    if count_steps:
        hooks.append(train.StepCounterHook(count_steps, output_dir=config.model_dir))
    if summary_steps:
        hooks.append(train.SummarySaverHook(summary_steps, output_dir=config.model_dir, scaffold=scaffold))
    return hooks
