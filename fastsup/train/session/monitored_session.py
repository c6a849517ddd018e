"""MonitoredSession and SingularMonitoredSession: sessions with hooks, with the behavior of `tf.compat.v1.train`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from numbers import Real
from typing import TYPE_CHECKING, Any

from tensorflow.python.distribute import distribute_coordinator_context
from tensorflow.python.eager import context
from tensorflow.python.framework import errors, ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks as tf_hooks
from tensorflow.python.training import monitored_session as tf_monitored_session
from tensorflow.python.util import function_utils

from fastsup.common import stop_signals
from fastsup.common.errors import is_end_of_input
from fastsup.common.interpreter_end import no_interpreter_exit, raise_in_fork
from fastsup.core import timeline
from fastsup.core.checks import check_flag, doubt_about, hint_for_class
from fastsup.core.errors import end_all_hooks
from fastsup.core.hook import LoopHook
from fastsup.core.probe import Profiler, check_profiler, program_profiler_now
from fastsup.core.sessions import PlanExecutor, current_origin, session_role
from fastsup.events.writers import close_writers, register_session
from fastsup.loop.checkpoint import CheckpointHook
from fastsup.runtime.executor import keep_traceable
from fastsup.runtime.session import Session
from fastsup.train.engine import report_error
from fastsup.train.hooks.adapted_hook import AdaptedHook
from fastsup.train.hooks.progress import hooks_with_progress
from fastsup.train.session.monitored import MonitoredSessionBase
from fastsup.train.session.session_creators import ChiefSessionCreator
from fastsup.train.session.wrapped_sessions import (
    CoordinatedSessionCreator,
    RecoverableSession,
    StepContext,
    WrappedSession,
    recover_from,
)

__all__ = [
    "MonitoredSession",
    "SingularMonitoredSession",
    "check_hook",
    "hooks_argument",
    "is_by_signal",
    "log_failed_end",
    "sorted_for_end",
]


def is_by_signal(error_type: Any) -> bool:
    """Returns True if an exception type is the interrupt that a stop signal raises."""
    return error_type is not None and stop_signals.received() and issubclass(error_type, KeyboardInterrupt | SystemExit)


def log_failed_end(what: str, error: BaseException) -> None:
    """Logs an error at the end of a session that a signal ended. The exit code remains the signal's."""
    interrupt = stop_signals.pending_interrupt()
    if type(error) is type(interrupt) and error.args == interrupt.args:
        logging.info("The signal interrupted an operation at the end of the %s, such as an evaluation.", what)
        return
    logging.error("The %s ended with an error after the signal: %r", what, error, exc_info=error)


def hooks_argument(name: str, hooks: Any) -> Any:
    """Checks the hooks passed in an argument, and adapts loop hooks. Returns an empty list for None."""
    try:
        once_only = iter(hooks or []) is hooks
    except TypeError as error:
        raise TypeError(f"{error}: {name}={hooks!r} must be a list of SessionRunHook objects.") from None
    # The hooks of a generator are iterated only once, to call `begin`, as in TensorFlow.
    if hooks and not once_only and any(map(_is_of_loops, hooks)):
        return [AdaptedHook(hook) if _is_of_loops(hook) else hook for hook in hooks]
    return hooks or []


def _is_of_loops(hook: Any) -> bool:
    """Returns True for a step-loop hook that isn't also a session hook."""
    return isinstance(hook, LoopHook) and not hasattr(hook, "before_run")


def check_hook(hook: Any) -> None:
    """Rejects an object that isn't a session-run hook."""
    hint = hint_for_class(hook)
    if hint:
        raise TypeError(
            f"{hook.begin.__qualname__}() missing 1 required positional argument: 'self': hooks must be SessionRunHook "
            f"objects, got {hook!r}{hint}"
        )
    if _is_of_loops(hook):
        raise TypeError(
            f"{type(hook).__name__}.begin() missing 1 required positional argument: 'loop': {hook!r} is a "
            "fastsup.core.Hook. Pass a list of hooks, or fastsup.train.AdaptedHook(hook)."
        )
    if not hasattr(hook, "begin"):
        raise AttributeError(
            f"{type(hook).__name__!r} object has no attribute 'begin': hooks must be SessionRunHook objects, got "
            f"{hook!r}."
        )


def sorted_for_end(hooks: Iterable[Any]) -> list[Any]:
    """Sorts hooks in the order in which their `end` is called: hooks with `_ends_last` come last."""
    return sorted(hooks, key=lambda hook: getattr(hook, "_ends_last", False) is True)


if TYPE_CHECKING:
    from typing_extensions import Self


# TensorFlow's class, which a program may replace under its name later.
_TFProfilerHook = tf_hooks.ProfilerHook

_CANT_CLOSE = "The session can't be closed"
_NEEDS_GRAPH = (
    "A session runs a graph, but TensorFlow is executing eagerly: create the model, the hooks and the session within "
    "`with tf.Graph().as_default():`, or call tf.compat.v1.disable_eager_execution() at the start of the program."
)

# The errors after which a session recovers. They are looked up after an error, because a program may replace them here.
_PREEMPTION_ERRORS = (errors.AbortedError, errors.UnavailableError)
recover_from(lambda: tuple(_PREEMPTION_ERRORS))


class _MonitoredSession(MonitoredSessionBase):
    """Base of `MonitoredSession` and `SingularMonitoredSession`."""

    StepContext = StepContext
    _CoordinatedSessionCreator = CoordinatedSessionCreator

    def __init__(
        self,
        session_creator: Any,
        hooks: Any,
        should_recover: bool,
        stop_grace_period_secs: float = 120,
        max_recoveries: int | None = 10,
        handle_signals: bool | None = None,
        profiler: Any = None,
    ) -> None:
        self._hooks = hooks_argument("hooks", hooks)
        _check_grace_period(stop_grace_period_secs)
        if handle_signals is None:
            # The hooks of a generator are iterated only once, to call `begin`.
            handle_signals = iter(self._hooks) is not self._hooks and any(map(_saves_checkpoints, self._hooks))
        self._profiler = check_profiler(profiler)
        self._opened = current_origin()
        self._in_timeline: Any = None
        self._made_in = os.getpid()
        check_flag(handle_signals=handle_signals)
        self._coordinated_creator: Any = None
        self._watches_signals = handle_signals and stop_signals.install()
        try:
            # The sessions that hooks open have their own role in the timeline.
            with timeline.phase("open"), session_role(""):
                self._graph_was_finalized = ops.get_default_graph().finalized
                register_session(self)
                self._begin_hooks()
                creator = self._make_creator(session_creator, stop_grace_period_secs)
                self._coordinated_creator = creator
                self._sess = _recoverable(creator, max_recoveries) if should_recover else creator.create_session()
            self._in_timeline = timeline.begin(self._opened.role)
        except BaseException as error:
            if self._coordinated_creator is not None:
                self._coordinated_creator.close_unfinished()
            close_writers(self)
            self._stop_watching_signals()
            # A program's session creator may use another graph, so this isn't refused earlier.
            if type(error) is RuntimeError and context.executing_eagerly():
                raise RuntimeError(f"{error} {_NEEDS_GRAPH}") from error
            raise

    def _begin_hooks(self) -> None:
        begun = []
        for hook in self._hooks:
            check_hook(hook)
            with no_interpreter_exit:
                hook.begin()
            begun.append(hook)
            if isinstance(hook, _TFProfilerHook):
                keep_traceable(ops.get_default_graph())
        for hook in begun:
            if isinstance(hook, AdaptedHook):
                hook.bind_hooks(begun)

    def _make_creator(self, session_creator: Any, stop_grace_period_secs: float) -> CoordinatedSessionCreator:
        if not session_creator:
            worker_context = distribute_coordinator_context.get_current_worker_context()
            session_creator = worker_context.session_creator() if worker_context else ChiefSessionCreator()
        creator = self._CoordinatedSessionCreator(
            session_creator=session_creator, hooks=self._hooks, stop_grace_period_secs=stop_grace_period_secs
        )
        creator.profiler = self._profiler
        creator.opened = self._opened
        return creator

    @property
    def graph(self) -> Any:
        """The session's graph. None after the session is closed."""
        session = self._tf_sess()
        return None if session is None else session.graph

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Calls a step function that runs steps with or without hooks.

        Args:
          step_fn: function or method with one argument, `step_context`: a `StepContext`.

        Returns:
          The result of `step_fn`.

        Raises:
          StopIteration: If `step_fn` called `request_stop()`. It ends a `with` block normally.
          ValueError: If `step_fn` has other arguments.
        """
        if not callable(step_fn):
            raise TypeError(f"unsupported callable: step_fn must be a function of step_context, got {step_fn!r}.")
        arguments = function_utils.fn_args(step_fn)
        if arguments in (("step_context",), ("self", "step_context")):
            return self._sess.run_step_fn(step_fn, self._tf_sess(), run_with_hooks=None)
        raise ValueError(
            "`step_fn` may either have one `step_context` argument, or `self` and `step_context` arguments if "
            f"it's an instance method. Got {arguments} instead."
        )

    def request_stop(self) -> None:
        """Requests a stop. `should_stop` then returns True."""
        if self._sess is not None:
            self._sess.request_stop()

    def raw_session(self) -> Any:
        """Returns the session below all hooks. None after the session is closed."""
        return self._tf_sess()

    def executor_info(self) -> list[PlanExecutor]:
        """Returns the executor of each combination of fetches and feeds, like `fastsup.Session.executor_info`.

        Returns:
          List of `PlanExecutor` tuples. Empty after the session is closed, and if the session creator doesn't create a
          `fastsup.Session`.
        """
        session = self._tf_sess()
        return session.executor_info() if isinstance(session, Session) else []

    def close(self) -> None:
        """Calls the hooks' `end`, stops the session's threads and closes the session.

        Raises:
          RuntimeError: If the session is already closed.
          SystemExit, KeyboardInterrupt: If a signal requested the end of the program.
          Exception: The error of a hook's `end`, or the first error of a thread.
        """
        raise_in_fork(self._made_in, _CANT_CLOSE)
        self._close_internal()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exception_type: Any, exception_value: Any, traceback: Any) -> bool:
        if exception_type in (errors.OutOfRangeError, StopIteration) and is_end_of_input(exception_value):
            exception_type = None
        if raise_in_fork(self._made_in, _CANT_CLOSE, exception_type):
            return False
        by_signal = is_by_signal(exception_type)
        # A session that a signal interrupted during a recovery has no state to save.
        if by_signal and self._sess is not None and self._sess.raw_session() is not None:
            # After this, the exception propagates and ends the program.
            try:
                self._end_and_close(None)
            except BaseException as error:
                log_failed_end("session", error)
            finally:
                self._stop_watching_signals()
            return False
        try:
            if exception_type and not by_signal:
                report_error(self._hooks, None, exception_value)
        finally:  # A hook may interrupt the program while it receives the error.
            self._close_internal(exception_type)
        return exception_type is None

    def _stop_watching_signals(self) -> None:
        if self._watches_signals:
            self._watches_signals = False
            stop_signals.uninstall()

    def _close_internal(self, exception_type: Any = None) -> None:
        try:
            try:
                self._end_and_close(exception_type)
            except BaseException as error:
                if exception_type or not stop_signals.received():
                    raise
                log_failed_end("session", error)
            if not exception_type:
                # A signal ended the loop, and now ends the program.
                stop_signals.raise_pending()
        finally:
            self._stop_watching_signals()

    def _end_and_close(self, exception_type: Any) -> None:
        held = stop_signals.holds_signals()
        timeline.finish(self._in_timeline)
        try:
            with timeline.phase("end"):
                try:
                    self._end_hooks(failed=bool(exception_type))
                finally:
                    self._close_session()
        finally:
            stop_signals.release(held)

    def _end_hooks(self, failed: bool) -> None:
        if isinstance(self._sess, WrappedSession):
            self._sess._sync_hooks()
        if failed:
            return

        profiler = self._profiler or program_profiler_now() or Profiler()

        def end(hook: Any) -> None:
            with profiler.callback(hook, "end"):
                hook.end(self._tf_sess())

        end_all_hooks(sorted_for_end(self._hooks), end, logging.error)

    def _close_session(self) -> None:
        # Flush now, so that the files are complete while close() waits for threads. Flush later, because threads may
        # write.
        close_writers(self)
        try:
            if self._sess is None:
                raise RuntimeError("Session is already closed.")
            self._sess.close()
        finally:
            self._sess = None
            self._coordinated_creator.close_unfinished()
            self._coordinated_creator.forget_session()
            close_writers(self)
            self._unfinalize_graph()

    def _unfinalize_graph(self) -> None:
        """Makes the default graph changeable again, unless it was final before the session was created."""
        if not self._graph_was_finalized:
            ops.get_default_graph()._unsafe_unfinalize()

    def _is_closed(self) -> bool:
        return self._tf_sess() is None

    def _tf_sess(self) -> Any:
        return self._coordinated_creator.tf_sess


def _check_grace_period(secs: Any) -> None:
    """Warns of a time that no thread can be waited for. TensorFlow accepts it, and fails only if a thread runs."""
    no_wait = "`close` doesn't wait for threads"
    doubt = f"stop_grace_period_secs={secs!r} isn't a number: `close` fails if a thread runs. Pass a number of seconds."
    if isinstance(secs, Real):
        section = "sessions-and-executors"
        doubt = doubt_about("stop_grace_period_secs", secs, no_wait, no_wait, section) or ""
    if doubt:
        logging.warning(doubt)


def _saves_checkpoints(hook: Any) -> bool:
    if isinstance(hook, AdaptedHook):
        return isinstance(hook.loop_hook, CheckpointHook)
    return isinstance(hook, tf_hooks.CheckpointSaverHook)


def _recoverable(creator: Any, max_recoveries: int | None) -> RecoverableSession:
    # Programs replace the constructor of RecoverableSession with one that takes only TensorFlow's argument.
    return RecoverableSession(creator) if max_recoveries == 10 else RecoverableSession(creator, max_recoveries)


# TensorFlow's classes are the last bases, only for isinstance. fastsup's classes define every method.
class MonitoredSession(_MonitoredSession, tf_monitored_session.MonitoredSession):  # type: ignore[misc]
    """A session with hooks, which initializes or restores its model and recovers from preemptions.

        with MonitoredSession(hooks=[StopAtStepHook(num_steps=100)]) as session:
            while not session.should_stop():
                session.run(train_op)

    The constructor calls each hook's `begin`, finalizes the graph, creates the session, initializes or restores the
    model, starts the queue runners and calls each hook's `after_create_session`.

    `run` calls each hook's `before_run`, runs the caller's and the hooks' fetches in one step, and calls each hook's
    `after_run`. After AbortedError or UnavailableError, it creates a new session and repeats the step.

    `close` calls each hook's `end`, stops the threads and closes the session. The end of a `with` block does the same,
    but doesn't call `end` after an error. OutOfRangeError, the end of the input, ends the block normally.

    Args:
      session_creator: `SessionCreator` that creates the session. Defaults to a `ChiefSessionCreator`.
      hooks: iterable of `SessionRunHook` objects.
      stop_grace_period_secs: seconds that threads get to end in `close`.
      max_recoveries: number of consecutive preemptions, without a successful step between them, to recover from. The
        next one raises its error. If None, there is no limit, as in TensorFlow.
      handle_signals: Whether SIGTERM and SIGINT, unless the program handles them, end the session between steps and
        then the program, with exit code 143 or KeyboardInterrupt. The hooks' `end` is called, so a checkpoint is saved.
        A second signal of the same kind ends the program immediately. If None, True if a hook saves checkpoints: a
        `CheckpointSaverHook` or a `fastsup.loop.CheckpointHook`.
      profiler: `fastsup.HookProfiler` that records the costs of hooks and steps. If None, uses the profiler of the
        whole program, if one is on.

    Raises:
      TypeError: If `hooks` isn't iterable, or contains an object that isn't a session-run hook.
      AttributeError: If `hooks` contains an object without `begin`.
      RuntimeError: If the model isn't ready after it was initialized.
      Exception: The error of a hook or of the session creator.
    """

    def __init__(
        self,
        session_creator: Any = None,
        hooks: Iterable[Any] | None = None,
        stop_grace_period_secs: float = 120,
        max_recoveries: int | None = 10,
        handle_signals: bool | None = None,
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
    """A `MonitoredSession` for a single process. It is always the chief, and doesn't recover from preemptions.

    Args:
      hooks: iterable of `SessionRunHook` objects.
      scaffold: `Scaffold` with the operations that prepare the model. Defaults to one with the graph's operations.
      master: the execution engine to connect to.
      config: ConfigProto of the session, or None.
      checkpoint_dir: directory whose newest intact checkpoint is restored. Exclusive with the path below.
      stop_grace_period_secs: seconds that threads get to end in `close`.
      checkpoint_filename_with_path: path of the checkpoint to restore.
      executor: executor mode, as for `fastsup.Session`.
      recovery_wait_secs: seconds between checks of a directory that has no checkpoint yet.
      restore: "strict" or "partial", as for `SessionManager`.
      profiler: `fastsup.HookProfiler`, as for `MonitoredSession`.
      progress: Whether to show the progress on stderr, by adding a `ProgressHook` unless `hooks` has one.
      handle_signals: Whether SIGTERM and SIGINT end the session between steps, as for `MonitoredSession`.

    Raises:
      Exception: As for `MonitoredSession` and `ChiefSessionCreator`.
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
        handle_signals: bool | None = None,
    ) -> None:
        hooks = hooks_with_progress(progress, hooks_argument("hooks", hooks))
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
            creator,
            hooks,
            should_recover=False,
            stop_grace_period_secs=stop_grace_period_secs,
            handle_signals=handle_signals,
            profiler=profiler,
        )
