"""MonitoredSession and what belongs to it: the names, the behaviour and the errors of `tf.compat.v1.train`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tensorflow.python.distribute import distribute_coordinator_context
from tensorflow.python.framework import errors, ops
from tensorflow.python.training import basic_session_run_hooks as tf_hooks
from tensorflow.python.training import coordinator, queue_runner
from tensorflow.python.training import monitored_session as tf_monitored_session
from tensorflow.python.util import function_utils

from fastsup.core import timeline
from fastsup.core.hook_kinds import why_no_session_hook
from fastsup.core.plan_executor import PlanExecutor
from fastsup.core.recorder import recorder_of
from fastsup.core.session_origin import current_origin, session_role
from fastsup.events import event_files
from fastsup.runtime import stop_signals
from fastsup.runtime.executor import keep_traceable
from fastsup.runtime.interpreter_end import uninterrupted
from fastsup.runtime.session import Session
from fastsup.train.hooks.progress import ProgressHook, hooks_with_progress
from fastsup.train.session.hook_errors import report_error
from fastsup.train.session.hooked_session import Hooked
from fastsup.train.session.monitored import Monitored
from fastsup.train.session.recorded_hooks import hook_span
from fastsup.train.session.session_creators import ChiefSessionCreator, SessionCreator
from fastsup.train.session.wrapped_sessions import Coordinated, Recoverable, Wrapped

__all__ = [
    "CoordinatedSession",
    "HookedSession",
    "MonitoredSession",
    "RecoverableSession",
    "SingularMonitoredSession",
    "WrappedSession",
    "given_hooks",
]

# TensorFlow's class, whatever a program binds under its name later.
_TFProfilerHook = tf_hooks.ProfilerHook

# The errors that a session is made anew after. A program may replace them here.
_PREEMPTION_ERRORS = (errors.AbortedError, errors.UnavailableError)


class WrappedSession(Wrapped):
    __doc__ = Wrapped.__doc__


class HookedSession(Hooked, WrappedSession):
    __doc__ = Hooked.__doc__


class CoordinatedSession(Coordinated, WrappedSession):
    __doc__ = Coordinated.__doc__


class RecoverableSession(Recoverable, WrappedSession):
    __doc__ = Recoverable.__doc__


def given_hooks(name: str, hooks: Any) -> Any:
    """The hooks that were given for an argument, as they were given; none for None."""
    try:
        iter(hooks or [])
    except TypeError as error:
        raise TypeError(f"{error}: {name}={hooks!r} must be a list of SessionRunHook objects.") from None
    return hooks or []


def _check_hook(hook: Any) -> None:
    why = why_no_session_hook(hook)
    if why:
        missing = f"{hook.begin.__qualname__}() missing 1 required positional argument: "
        missing += "'self'" if isinstance(hook, type) else "'loop'"
        raise TypeError(f"{missing}: hooks must be SessionRunHook objects, got {hook!r}{why}")
    if not hasattr(hook, "begin"):
        raise AttributeError(
            f"{type(hook).__name__!r} object has no attribute 'begin': hooks must be SessionRunHook objects, got "
            f"{hook!r}."
        )


def in_order_of_end(hooks: Iterable[Any]) -> list[Any]:
    """Hooks in the order in which `end` is called: their own, but for one that asks to save what the others did."""
    return sorted(hooks, key=lambda hook: getattr(hook, "_ends_last", False) is True)


def _is_of_signal(exception_type: Any) -> bool:
    return stop_signals.has_come() and issubclass(exception_type, (KeyboardInterrupt, SystemExit))


class _MonitoredSession(Monitored):
    """See `MonitoredSession` and `SingularMonitoredSession`."""

    def __init__(
        self,
        session_creator: Any,
        hooks: Any,
        should_recover: bool,
        stop_grace_period_secs: float = 120,
        max_recoveries: int | None = 10,
        handle_signals: bool = False,
        profiler: Any = None,
    ) -> None:
        hooks = given_hooks("hooks", hooks)
        self._profiler = recorder_of(profiler)
        self._opened = current_origin()
        self._in_timeline: Any = None
        self._watches_signals = handle_signals and stop_signals.watch()
        try:
            # What it is opened for isn't what the sessions are for that its hooks open.
            with timeline.phase("open"), session_role(""):
                self._open(session_creator, hooks, should_recover, stop_grace_period_secs, max_recoveries)
            self._in_timeline = timeline.begin(self._opened.role)
        except BaseException:
            event_files.session_closed(self)
            self._stop_watching_signals()
            raise

    def _open(
        self,
        session_creator: Any,
        hooks: Any,
        should_recover: bool,
        stop_grace_period_secs: float,
        max_recoveries: int | None,
    ) -> None:
        self._hooks = hooks
        self._graph_was_finalized = ops.get_default_graph().finalized
        event_files.session_opens(self)
        begun = []
        for hook in self._hooks:
            _check_hook(hook)
            with uninterrupted:
                hook.begin()
            begun.append(hook)
            if isinstance(hook, _TFProfilerHook):
                keep_traceable(ops.get_default_graph())
        for hook in begun:
            if isinstance(hook, ProgressHook):
                hook.know_hooks(begun)
        worker_context = distribute_coordinator_context.get_current_worker_context()
        if not session_creator and worker_context:
            session_creator = worker_context.session_creator()
        self._coordinated_creator = self._CoordinatedSessionCreator(
            session_creator=session_creator or ChiefSessionCreator(),
            hooks=self._hooks,
            stop_grace_period_secs=stop_grace_period_secs,
        )
        self._coordinated_creator.profiler = self._profiler
        self._coordinated_creator.opened = self._opened
        if should_recover:
            # Programs replace its constructor by one with TensorFlow's one argument.
            limit = () if max_recoveries == 10 else (max_recoveries,)
            self._sess = RecoverableSession(self._coordinated_creator, *limit)
        else:
            self._sess = self._coordinated_creator.create_session()

    @property
    def graph(self) -> Any:
        """The graph that was launched in this session; None once it is closed."""
        session = self._tf_sess()
        return None if session is None else session.graph

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Calls a step function, which runs what it wants with or without hooks.

        Args:
          step_fn: function or method with the one argument `step_context`, a `StepContext`.

        Returns:
          What `step_fn` returns.

        Raises:
          StopIteration: `step_fn` has called `request_stop()`. It ends a `with` block normally.
          ValueError: `step_fn` doesn't have that argument, or has others.
        """
        arguments = function_utils.fn_args(step_fn)
        if arguments not in (("step_context",), ("self", "step_context")):
            raise ValueError(
                "`step_fn` may either have one `step_context` argument, or `self` and `step_context` arguments if "
                f"it's an instance method. Got {arguments} instead."
            )
        return self._sess.run_step_fn(step_fn, self._tf_sess(), run_with_hooks=None)

    class StepContext(tf_monitored_session._MonitoredSession.StepContext):  # type: ignore[misc]
        """What a step function gets from `run_step_fn`.

        Args:
          session: the session that no hook sees.
          run_with_hooks_fn: function that runs a step with hooks.
        """

        def __init__(self, session: Any, run_with_hooks_fn: Callable[..., Any]) -> None:
            self._session = session
            self._run_with_hooks_fn = run_with_hooks_fn

        @property
        def session(self) -> Any:
            """The session that no hook sees."""
            return self._session

        def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
            """The same as `MonitoredSession.run`."""
            return self._run_with_hooks_fn(*args, **kwargs)

        def request_stop(self) -> None:
            """Ends the step function, and the loop, by raising StopIteration."""
            raise StopIteration("step_fn has requested the iterations to stop.")

    def request_stop(self) -> None:
        """Makes `should_stop` true from now on."""
        if self._sess is not None:
            self._sess.request_stop()

    def raw_session(self) -> Any:
        """The session that no hook sees; None once it is closed."""
        return self._tf_sess()

    def executor_info(self) -> list[PlanExecutor]:
        """Which executor runs each combination of fetches and feeds: `executor_info` of the raw session.

        Returns:
          List of `PlanExecutor` tuples. Empty once the session is closed, and if the session creator doesn't make a
          `fastsup.Session`.
        """
        session = self._tf_sess()
        return session.executor_info() if isinstance(session, Session) else []

    def close(self) -> None:
        """Calls the hooks' `end` and closes the session.

        Raises:
          RuntimeError: it was closed before.
        """
        self._close_internal()

    def __enter__(self) -> _MonitoredSession:
        return self

    def __exit__(self, exception_type: Any, exception_value: Any, traceback: Any) -> bool:
        if exception_type in (errors.OutOfRangeError, StopIteration):
            exception_type = None
        by_signal = exception_type and _is_of_signal(exception_type)
        # If it came while a session was being made anew, there is nothing that could be saved.
        if by_signal and self._sess is not None and self._sess.raw_session() is not None:
            # What it raised goes on from here, to end the program.
            try:
                self._end_and_close(None)
            finally:
                self._stop_watching_signals()
            return False
        if exception_type and not by_signal:
            report_error(self._hooks, None, exception_value)
        self._close_internal(exception_type)
        return exception_type is None

    def _stop_watching_signals(self) -> None:
        if self._watches_signals:
            self._watches_signals = False
            stop_signals.unwatch()

    class _CoordinatedSessionCreator(SessionCreator):  # type: ignore[misc]
        """Makes a session with its coordinator, threads and hooks, at the start and after a preemption."""

        def __init__(self, session_creator: Any, hooks: Any, stop_grace_period_secs: float) -> None:
            self._session_creator = session_creator
            self._hooks = hooks
            self._stop_grace_period_secs = stop_grace_period_secs
            self.profiler: Any = None
            self.opened: Any = None
            self.coord: Any = None
            self.tf_sess: Any = None

        def create_session(self) -> Any:
            self.tf_sess = self._session_creator.create_session()
            # No error is a clean stop for this coordinator: the session above decides about that.
            self.coord = coordinator.Coordinator(clean_stop_exception_types=[])
            if ops.get_collection(ops.GraphKeys.QUEUE_RUNNERS):
                queue_runner.start_queue_runners(sess=self.tf_sess, coord=self.coord)
            held = stop_signals.holds_signals()
            try:
                for hook in self._hooks:
                    hook.after_create_session(self.tf_sess, self.coord)
            finally:
                stop_signals.release(held)
            hooked = HookedSession(self.tf_sess, self._hooks)
            hooked._opened = self.opened
            if self.profiler is not None:
                hooked._record(self.profiler)
            return CoordinatedSession(hooked, self.coord, self._stop_grace_period_secs)

    def _close_internal(self, exception_type: Any = None) -> None:
        try:
            self._end_and_close(exception_type)
            if not exception_type:
                # The loop has ended because of a signal: now the program does.
                stop_signals.raise_if_come()
        finally:
            self._stop_watching_signals()

    def _end_and_close(self, exception_type: Any) -> None:
        held = stop_signals.holds_signals()
        timeline.finish(self._in_timeline)
        try:
            with timeline.phase("end"):
                self._end_hooks_and_close(exception_type)
        finally:
            stop_signals.release(held)

    def _end_hooks_and_close(self, exception_type: Any) -> None:
        try:
            if isinstance(self._sess, Wrapped):
                self._sess._sync_hooks()
            if not exception_type:
                for hook in in_order_of_end(self._hooks):
                    with hook_span(self._profiler, hook, "end"):
                        hook.end(self._coordinated_creator.tf_sess)
        finally:
            # Before the session's threads are waited for, and again after them: they may have written.
            event_files.session_closed(self)
            try:
                if self._sess is None:
                    raise RuntimeError("Session is already closed.")
                self._sess.close()
            finally:
                self._sess = None
                self._coordinated_creator.tf_sess = None
                self._coordinated_creator.coord = None
                event_files.session_closed(self)
                if not self._graph_was_finalized:
                    ops.get_default_graph()._unsafe_unfinalize()

    def _is_closed(self) -> bool:
        return self._coordinated_creator.tf_sess is None

    def _tf_sess(self) -> Any:
        return self._coordinated_creator.tf_sess


# TensorFlow's classes are the last bases, for isinstance alone: every method is found before them.
class MonitoredSession(_MonitoredSession, tf_monitored_session.MonitoredSession):  # type: ignore[misc]
    """A session with hooks, that initialises or restores its model, and is made anew when it is preempted.

    Made: each hook's `begin`; the graph is finalised; the session is made and the model initialised or restored;
    queue runners are started; each hook's `after_create_session`.

    Run: each hook's `before_run`; one run of what the caller and the hooks want; each hook's `after_run`. After
    AbortedError or UnavailableError the session is made anew and the step is run again.

    Closed: each hook's `end`, unless there was an error; threads are stopped and the session is closed. In a `with`
    block OutOfRangeError, which says that the input is exhausted, is a normal end.

    Args:
      session_creator: `SessionCreator` that makes the session. Defaults to a `ChiefSessionCreator`.
      hooks: iterable of `SessionRunHook`.
      stop_grace_period_secs: seconds that threads get to end in `close`.
      max_recoveries: how many preemptions in a row, with nothing that ran well in between, are recovered from; then
        the error is raised. None: without end, as in TensorFlow.
      handle_signals: whether SIGTERM and SIGINT, where nobody else handles them, end the session between two steps
        and the program after it, with exit code 143 or KeyboardInterrupt. The hooks' `end` is called, so a checkpoint
        is saved. A second signal ends the program at once.
      profiler: `fastsup.HookProfiler` that records what hooks and steps cost; None for the one that is on for the
        whole program, whenever one is.
    """

    def __init__(
        self,
        session_creator: Any = None,
        hooks: Iterable[Any] | None = None,
        stop_grace_period_secs: float = 120,
        max_recoveries: int | None = 10,
        handle_signals: bool = False,
        profiler: Any = None,
    ) -> None:
        super().__init__(
            session_creator,
            hooks,
            should_recover=True,
            stop_grace_period_secs=stop_grace_period_secs,
            max_recoveries=max_recoveries,
            handle_signals=handle_signals,
            profiler=profiler,
        )


class SingularMonitoredSession(_MonitoredSession, tf_monitored_session.SingularMonitoredSession):  # type: ignore[misc]
    """A `MonitoredSession` for one process: always a chief, and without recovery from preemptions.

    Args:
      hooks: iterable of `SessionRunHook`.
      scaffold: `Scaffold` with the operations that get the model ready. Defaults to one from the graph.
      master: the execution engine to connect to.
      config: ConfigProto of the session, or None.
      checkpoint_dir: directory to restore the newest checkpoint from; or
      stop_grace_period_secs: seconds that threads get to end in `close`.
      checkpoint_filename_with_path: checkpoint to restore.
      executor: executor mode, as for `fastsup.Session`.
      recovery_wait_secs: seconds between two looks at a checkpoint that is waited for.
      restore: "strict" or "partial", as for `SessionManager`: whether the checkpoint must hold the whole model.
      profiler: `fastsup.HookProfiler`, as for `MonitoredSession`.
      progress: whether to show the progress on stderr: a `ProgressHook` more, if `hooks` has none.
    """

    def __init__(
        self,
        hooks: Iterable[Any] | None = None,
        scaffold: Any = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: Any = None,
        stop_grace_period_secs: float = 120,
        checkpoint_filename_with_path: Any = None,
        executor: str = "auto",
        recovery_wait_secs: float = 30,
        restore: str = "strict",
        profiler: Any = None,
        progress: bool = False,
    ) -> None:
        hooks = hooks_with_progress(progress, given_hooks("hooks", hooks))
        creator = ChiefSessionCreator(
            scaffold=scaffold,
            master=master,
            config=config,
            checkpoint_dir=checkpoint_dir,
            checkpoint_filename_with_path=checkpoint_filename_with_path,
            executor=executor,
            recovery_wait_secs=recovery_wait_secs,
            restore=restore,
        )
        super().__init__(
            creator, hooks, should_recover=False, stop_grace_period_secs=stop_grace_period_secs, profiler=profiler
        )
