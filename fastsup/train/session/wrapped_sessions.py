"""The sessions that a monitored session nests: RecoverableSession(CoordinatedSession(HookedSession(session))).

Each can be used, subclassed and replaced separately, as in TensorFlow. A monitored session skips unmodified ones: it
runs a step in the engine of its HookedSession, and calls `_recovers_from` after an error. CoordinatedSessionCreator
nests them at the start and after each preemption.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import coordinator, queue_runner
from tensorflow.python.training import monitored_session as tf_monitored_session

from fastsup.checkpoint.durable import is_failed_save
from fastsup.common import stop_signals
from fastsup.common.errors import FailureRow
from fastsup.common.stop_signals import raise_pending
from fastsup.train.engine import StepEngine, still_open
from fastsup.train.session.monitored import CoordinatedBase, WrappedBase, set_session_classes
from fastsup.train.session.server_watch import watch_servers
from fastsup.train.session.session_creators import SessionCreator

__all__ = [
    "CoordinatedSession",
    "CoordinatedSessionCreator",
    "HookedSession",
    "RecoverableSession",
    "StepContext",
    "WrappedSession",
]


class StepContext(tf_monitored_session._MonitoredSession.StepContext):  # type: ignore[misc]
    """The argument of a step function. See `run_step_fn`.

    Args:
      session: the session below all hooks.
      run_with_hooks_fn: function that runs a step with hooks.
    """

    def __init__(self, session: Any, run_with_hooks_fn: Callable[..., Any]) -> None:
        self._session = session
        self._run_with_hooks_fn = run_with_hooks_fn

    @property
    def session(self) -> Any:
        """The session below all hooks. Its runs call no hooks."""
        return self._session

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        """Runs a step with hooks. Takes the arguments of `MonitoredSession.run`, and returns its result."""
        return self._run_with_hooks_fn(*args, **kwargs)

    def request_stop(self) -> None:
        """Ends the step function and the loop.

        Raises:
          StopIteration: Always.
        """
        raise StopIteration("step_fn has requested the iterations to stop.")


# The function that was passed to `recover_from`.
_preemption_errors: Callable[[], tuple[type[Exception], ...]] = tuple

_ADVICE = (
    "This error may also occur due to a gRPC failure caused by high memory or network bandwidth usage in the "
    "parameter servers. If this error occurs repeatedly, try increasing the number of parameter servers assigned to "
    "the job. Error: %s"
)

_RUN_FAILED = (
    "An error was raised. This may be due to a preemption in a connected worker or parameter server. The current "
    "session will be closed and a new session will be created. "
)


def recover_from(errors: Callable[[], tuple[type[Exception], ...]]) -> None:
    """Sets the function that returns the errors to recover from, because programs replace them in another module."""
    global _preemption_errors
    _preemption_errors = errors


def _ended_in(session: Any) -> tuple[int, int]:
    """Returns how many steps ran with their hooks in nested sessions, and how many saves ended there."""
    steps = 0
    while isinstance(session, WrappedSession):
        if isinstance(session, HookedSession):
            steps = session._engine.runs_ended
        session = session._sess
    return steps, getattr(session, "saves_ended", 0)


class WrappedSession(WrappedBase):
    """A session around another session, to which it delegates everything.

    Args:
      sess: the session to wrap.
    """

    def __init__(self, sess: Any) -> None:
        self._sess = sess
        self._wrapped_is_stoppable = isinstance(sess, WrappedSession)

    @property
    def graph(self) -> Any:
        """The graph of the wrapped session."""
        return self._sess.graph

    @property
    def sess_str(self) -> Any:
        """The execution engine that the wrapped session is connected to."""
        return self._sess.sess_str

    def should_stop(self) -> bool:
        """Returns True if the session should no longer be used. True also after `close`."""
        if self._check_stop():
            return True
        session = self._sess
        if session:
            return self._wrapped_is_stoppable and bool(session.should_stop())
        return True

    def _check_stop(self) -> bool:
        """Returns a subclass's own reason to stop."""
        return False

    def request_stop(self) -> None:
        """Makes `should_stop` true from now on."""
        if self._wrapped_is_stoppable and self._sess is not None:
            self._sess.request_stop()

    def raw_session(self) -> Any:
        """Returns the innermost session, which no hook sees; None after `close`."""
        return self._sess.raw_session() if isinstance(self._sess, WrappedSession) else self._sess

    def close(self) -> None:
        """Closes the wrapped session. Errors from a preemption in the meantime are logged, not raised."""
        if self._sess:
            try:
                self._sess.close()
            except _preemption_errors() as error:
                logging.error(
                    "An error occurred when attempting to close the session. This may be due to a preemption in a "
                    "connected worker or parameter server. Error: %s",
                    error,
                )
            finally:
                self._sess = None

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Runs one step in the wrapped session."""
        return still_open(self._sess).run(*args, **kwargs)

    def run_step_fn(self, step_fn: Callable[[Any], Any], raw_session: Any, run_with_hooks: Any) -> Any:
        """Calls a step function with a StepContext. See `MonitoredSession.run_step_fn`."""
        return step_fn(StepContext(raw_session, run_with_hooks or self.run))

    def run_without_hooks(self, fetches: Any, feed_dict: Any = None) -> Any:
        """Runs one step that no hook sees."""
        session = still_open(self._sess)
        if isinstance(session, WrappedSession):
            return session.run_without_hooks(fetches, feed_dict)
        return session.run(fetches, feed_dict=feed_dict)

    def _sync_hooks(self) -> None:
        """Brings the state of hooks that were left out of runs up to date."""
        if isinstance(self._sess, WrappedSession):
            self._sess._sync_hooks()

    def _recovers_from(self, error: Exception) -> bool:
        """Gets ready for running a step again that has raised an error in the engine. False: the error is raised."""
        return False


class HookedSession(WrappedSession):
    """A session that calls hooks around each run.

    Args:
      sess: the session to run in.
      hooks: iterable of `SessionRunHook`.
    """

    def __init__(self, sess: Any, hooks: Iterable[Any]) -> None:
        super().__init__(sess)
        self._engine = StepEngine(hooks)

    @property
    def _hooks(self) -> Any:
        return self._engine.hooks

    @_hooks.setter
    def _hooks(self, hooks: Any) -> None:
        self._engine.hooks = hooks

    @property
    def _should_stop(self) -> bool:
        return self._engine.should_stop

    @_should_stop.setter
    def _should_stop(self, should_stop: bool) -> None:
        self._engine.should_stop = should_stop

    def _check_stop(self) -> bool:
        return self._engine.should_stop

    def request_stop(self) -> None:
        """Makes `should_stop` true from now on."""
        self._engine.should_stop = True

    def close(self) -> None:
        """Closes the session."""
        try:
            self._engine.close()
        finally:
            super().close()

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Runs one step, between the hooks' `before_run` and `after_run`.

        Raises:
          RuntimeError: If a stop was requested before; or two hooks, or a hook and the caller, feed the same tensor.
        """
        if self.should_stop():
            raise RuntimeError("Run called even after should_stop requested.")
        return self._engine.step(self._sess, fetches, feed_dict, options, run_metadata)

    def run_without_hooks(self, fetches: Any, feed_dict: Any = None) -> Any:
        """Runs one step that no hook sees."""
        return self._engine.step_without_hooks(self._sess, fetches, feed_dict)

    def _sync_hooks(self) -> None:
        self._engine.sync_hooks()


class CoordinatedSession(WrappedSession, CoordinatedBase):
    """A session that reports to a coordinator, and stops when the coordinator does.

    Args:
      sess: the session to wrap.
      coord: a `tf.train.Coordinator`.
      stop_grace_period_secs: seconds that the coordinator's threads get to end in `close`.
    """

    def __init__(self, sess: Any, coord: Any, stop_grace_period_secs: float = 120) -> None:
        super().__init__(sess)
        self._coord = coord
        self._stop_grace_period_secs = stop_grace_period_secs

    def _check_stop(self) -> bool:
        # Raise the error that stopped the coordinator, if there is one.
        self._coord.raise_requested_exception()
        return bool(self._coord.should_stop())

    def close(self) -> None:
        """Stops the coordinator's threads and closes the session. Raises the first error of a thread."""
        self._coord.request_stop()
        try:
            self._coord.join(stop_grace_period_secs=self._stop_grace_period_secs, ignore_live_threads=True)
        finally:
            with contextlib.suppress(Exception):  # join() has already raised any important error.
                super().close()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Runs one step. A preemption that stopped the coordinator is raised before an error that it led to."""
        try:
            return still_open(self._sess).run(*args, **kwargs)
        except Exception as error:
            self._raise_cause(error)
            raise

    def run_without_hooks(self, fetches: Any, feed_dict: Any = None) -> Any:
        """Runs one step that no hook sees."""
        try:
            return super().run_without_hooks(fetches, feed_dict)
        except Exception as error:
            self._raise_cause(error)
            raise

    def _raise_cause(self, error: Exception) -> None:
        """Raises the preemption that has stopped the coordinator and led to an error, if there is one."""
        preemptions = _preemption_errors()
        if isinstance(error, preemptions):
            return
        try:
            self._coord.raise_requested_exception()
        except preemptions:
            raise
        except Exception:
            pass

    def _recovers_from(self, error: Exception) -> bool:
        self._raise_cause(error)
        return False


class RecoverableSession(WrappedSession):
    """A session that is created again, and repeats its step, after AbortedError and UnavailableError.

    Args:
      sess_creator: the `SessionCreator` that creates the sessions to wrap.
      max_recoveries: maximum number of consecutive failures to recover from; the next one is raised. If None, there is
        no limit. The count restarts after a step that runs with its hooks or through `run`; for failed saves, after a
        successful save. The first recovery is immediate; the others wait 0.1 seconds, 0.2, and so on, up to 30.
    """

    def __init__(self, sess_creator: Any, max_recoveries: int | None = 10) -> None:
        self._sess_creator = sess_creator
        self._failed_steps = FailureRow(max_recoveries, "failures, without a step that ran in between,", logging)
        self._failed_saves = FailureRow(max_recoveries, "failed saves", logging)
        # Whether a step has run with its hooks in the session. Used for sessions that don't count steps.
        self._has_run_step = False
        # The last error, if the session gave up after it.
        self._given_up_with: Exception | None = None
        # The error for which the last session was abandoned, until a new one is created.
        self._lost_with: Exception | None = None
        super().__init__(self._create_session())

    def _create_session(self) -> Any:
        while True:
            try:
                session = self._sess_creator.create_session()
            except _preemption_errors() as error:  # noqa: PERF203
                delay = self._count_failure(
                    "An error was raised while a session was being created. This may be due to a preemption of a "
                    "connected worker or parameter server. A new session will be created. ",
                    error,
                )
                self._pause(delay)
            except Exception as error:
                # Report the loss of the session as the cause of the failed creation.
                if self._lost_with is not None and error.__cause__ is None:
                    error.__cause__ = self._lost_with
                raise
            else:
                self._lost_with = None
                self._has_run_step = False
                return session

    def _count_failure(self, occasion: str, error: Exception) -> float:
        """Counts a failure, and logs a warning; or raises the error after too many consecutive failures.

        Returns:
          Seconds to wait before the next try.
        """
        # Raise a signal that arrived during hook calls, because signals don't interrupt these calls.
        raise_pending()
        if error is self._given_up_with:
            raise error  # The error arrives here again from the run that needed a session.
        self._lost_with = error
        row = self._failed_saves if is_failed_save(error) else self._failed_steps
        try:
            return row.add(error, occasion + _ADVICE, error)
        except Exception:
            self._given_up_with = error
            raise

    def _pause(self, secs: float) -> None:
        raise_pending()
        if secs > 0:
            time.sleep(secs)

    def _check_stop(self) -> bool:
        try:
            return self._sess._check_stop() if self._sess else True
        except _preemption_errors() as error:
            self._give_up_session(
                "An error was raised while considering whether the session is complete. This may be due to a "
                "preemption in a connected worker or parameter server. The current session will be closed and a new "
                "session will be created. ",
                error,
            )
            self._sess = self._create_session()
            return False
        except Exception:
            return True  # should_stop() doesn't raise the error. The next run will.

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Runs one step, again in a new session as long as it is preempted."""
        arguments = {"feed_dict": feed_dict, "options": options, "run_metadata": run_metadata}
        return self._until_it_runs(lambda session: self._run_step(session, fetches, **arguments))

    def run_without_hooks(self, fetches: Any, feed_dict: Any = None) -> Any:
        """Runs one step that no hook sees, again in a new session as long as it is preempted."""
        return self._until_it_runs(lambda _: WrappedSession.run_without_hooks(self, fetches, feed_dict))

    def run_step_fn(self, step_fn: Callable[[Any], Any], raw_session: Any, run_with_hooks: Any) -> Any:
        """Calls a step function, again in a new session as long as it is preempted."""
        return self._until_it_runs(
            lambda session: session.run_step_fn(step_fn, self.raw_session(), functools.partial(self._run_step, session))
        )

    def _run_step(self, session: Any, *args: Any, **kwargs: Any) -> Any:
        result = session.run(*args, **kwargs)
        self._has_run_step = True
        return result

    def _until_it_runs(self, run: Callable[[Any], Any]) -> Any:
        """Calls a function with the wrapped session, again with a new one as long as it is preempted."""
        while True:
            try:
                if not self._sess:
                    self._sess = self._create_session()
                return run(still_open(self._sess))
            except _preemption_errors() as error:  # noqa: PERF203
                self._give_up_session(_RUN_FAILED, error)

    def _recovers_from(self, error: Exception) -> bool:
        try:
            if self._sess is not None:
                self._sess._recovers_from(error)
        except _preemption_errors() as preemption:
            error = preemption
        if not isinstance(error, _preemption_errors()):
            return False
        self._give_up_session(_RUN_FAILED, error)
        return True

    def _give_up_session(self, occasion: str, error: Exception) -> None:
        # A new session, and reads in it, don't count as progress: only a step with its hooks ends a sequence of
        # failures. A step doesn't show that the disk works again: only a save ends a sequence of failed saves.
        steps, saves = _ended_in(self._sess)
        if steps or self._has_run_step:
            self._failed_steps.end()
        if saves:
            self._failed_saves.end()
        try:
            # Report the cause first, because the session of a cluster that has lost a task may take 10 seconds to
            # close.
            delay = self._count_failure(occasion, error)
        finally:
            self.close()
            self._sess = None
        self._pause(delay)


set_session_classes(RecoverableSession, CoordinatedSession, HookedSession)


class CoordinatedSessionCreator(SessionCreator):  # type: ignore[misc]
    """Creates a session with its coordinator, queue runners and hooks, at the start and after each preemption."""

    def __init__(self, session_creator: Any, hooks: Any, stop_grace_period_secs: float) -> None:
        self._session_creator = session_creator
        self._hooks = hooks
        self._stop_grace_period_secs = stop_grace_period_secs
        # The recorder of the session's runs and its description in a profile, set by the monitored session.
        self.profiler: Any = None
        self.opened: Any = None
        # The coordinator and the innermost one of the latest nested sessions. None after the session is closed.
        self.coord: Any = None
        self.tf_sess: Any = None
        # A session that failed to initialize, until it is closed. The program may have caught the error, so hooks can
        # still see it in their `end`.
        self._unfinished: CoordinatedSession | None = None

    def create_session(self) -> Any:
        """Creates a session, starts its queue runners and calls the hooks' `after_create_session`."""
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
        """Closes a session that failed to initialize, and ends its threads. Logs errors in the process."""
        unfinished, self._unfinished = self._unfinished, None
        if unfinished is None:
            return
        try:
            unfinished.close()
        except Exception as error:
            logging.error("A session that couldn't be initialized also failed to close: %s", error, exc_info=error)

    def forget_session(self) -> None:
        """Drops the session and its coordinator, after the session was closed."""
        self.tf_sess = self.coord = None
