"""`fastsup.Session`: a `tf.compat.v1.Session` whose steps run through cached plans."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import constant_op, errors, ops
from tensorflow.python.platform import tf_logging as logging

from fastsup.common.errors import not_end_of_input
from fastsup.common.interpreter_end import fork_reason, no_interpreter_exit
from fastsup.common.liveness import LongCall
from fastsup.core.checks import suggest_keywords
from fastsup.core.sessions import PlanExecutor
from fastsup.runtime.errors import ErrorSources, with_remedy
from fastsup.runtime.executor import SINGLE, SessionExecutor, check_executor, config_for
from fastsup.runtime.graph.operations import upstream_operations
from fastsup.runtime.runner import SessionRunner

__all__ = ["Session"]

# Maximum memory of a session's compiled plans: a few thousand small ones. TensorFlow keeps about the same for each
# combination of fetches and feeds that it has run, without a limit.
_MAX_PLAN_BYTES = 256 << 20

# Maximum seconds that a close waits for runs that have just started. Under load, a thread may wait long for a
# processor.
_RUNS_BEGIN_SECS = 0.5


def _convert_a_result() -> None:
    """Makes the runtime look up NumPy now instead of for its first result, which the exit must not interrupt."""
    with ops.Graph().as_default() as graph, graph._c_graph.get() as c_graph:
        pywrap_tf_session.TF_TryEvaluateConstant_wrapper(c_graph, constant_op.constant(1.0)._as_tf_output())


_convert_a_result()


def _raise(error: BaseException) -> None:
    raise error from None


class _Callable(tf_session.BaseSession._Callable):  # type: ignore[misc]
    """TensorFlow's own callable, whose creation and release the end of the program doesn't interrupt."""

    _completed_before_exit = no_interpreter_exit

    def __init__(self, session: Any, callable_options: Any) -> None:
        with no_interpreter_exit:
            super().__init__(session, callable_options)

    def __del__(self) -> None:
        if not self._completed_before_exit.is_over_for_this_thread():
            with self._completed_before_exit:
                super().__del__()


# The existing sessions, for a child of `os.fork()`.
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _leave_sessions_to_parent() -> None:
    """Disables sessions in a child of `os.fork()`, where runs would wait for threads of the parent process."""
    for session in list(_sessions):
        if not session._closed:
            session._leave_to_parent(RuntimeError(f"The session can't run: {fork_reason(session._made_in)}."))
            session._closed = True


os.register_at_fork(after_in_child=_leave_sessions_to_parent)


class Session(SessionRunner, tf_session.Session):  # type: ignore[misc]
    """A `tf.compat.v1.Session` that resolves each combination of fetches and feeds once.

    It does everything that TensorFlow's session does, with the same results and errors.

    Args:
      target: the execution engine to connect to. Defaults to one in this process.
      graph: the graph to launch. Defaults to the default graph.
      config: a `tf.compat.v1.ConfigProto`, or None.
      executor: "auto", "thread_pool" (TensorFlow's), "inline" (in the calling thread) or "single_threaded"
        (TensorFlow's SINGLE_THREADED_EXECUTOR: no parallelism between operations, no reference variables, no low-level
        control flow). "auto" measures and chooses the fastest executor that supports the graph.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If `executor` isn't an executor mode.
      tf.errors.OpError: If TensorFlow couldn't create the session.
    """

    # This is an attribute, because at exit a session may be deleted after this module's names.
    _completed_before_exit = no_interpreter_exit
    # Attributes that __del__ reads, even if the session couldn't be created.
    _session: Any = None
    _closed: bool = False
    _made_in = 0
    _process: Callable[[], int] = staticmethod(os.getpid)
    _python_ends: Callable[[], bool] = staticmethod(sys.is_finalizing)

    @suggest_keywords
    def __init__(
        self,
        target: str = "",
        graph: ops.Graph | None = None,
        config: Any = None,
        executor: str = "auto",
    ) -> None:
        self._made_in = os.getpid()
        check_executor(executor)
        with no_interpreter_exit:
            if isinstance(graph, ops.Graph | None) and isinstance(config, config_pb2.ConfigProto | None):
                config = config_for(executor, graph or ops.get_default_graph(), target, config)
            tf_session.Session.__init__(self, target, graph, config)
        self._executor = SessionExecutor(executor, self._config)
        asked = self._config.graph_options.build_cost_model or self._config.experimental.HasField("session_metadata")
        self.fills_metadata: bool = bool(asked)
        self._set_up_runner(_MAX_PLAN_BYTES, self._executor)
        _sessions.add(self)
        self._kept_callables: list[Any] = []
        self._error_sources = ErrorSources(self._kept_callables)
        self._checkpoint: tuple[str, int] | None = None

    @property
    def executor(self) -> str:
        """The requested executor mode, or "single_threaded" if "auto" chose it.

        `executor_info` returns the current mode for each combination of fetches and feeds.
        """
        return self._executor.mode

    def executor_info(self) -> list[PlanExecutor]:
        """Returns which executor runs each combination of fetches and feeds that the session has compiled.

        Returns:
          List of `PlanExecutor` tuples, in the order in which the combinations were compiled. Empty after the session
          is closed.
        """
        with no_interpreter_exit:
            return [self._executor.of_plan(plan) for plan in self.cache.compiled_plans()]

    def close(self) -> None:
        """Closes the session and frees its resources. A second call does nothing.

        A session on a cluster is abandoned, with a warning, if closing it takes more than 10 seconds.

        Raises:
          tf.errors.OpError: If TensorFlow couldn't close the session.
        """
        with self._completed_before_exit:
            self._close()

    def _close(self) -> None:
        # When Python ends, the names of all modules may be gone, and no new thread starts. The session's resources are
        # freed with the session.
        if self._python_ends():
            if self.lifetime is not None:
                self.lifetime.open = False
            super().close()
            return
        if self.lifetime is not None and self.lifetime.open:
            # A remote engine must release each callable, and may not answer. It frees them with the session. A profile
            # reads which executors the plans used.
            self._forget_fetches()
            self.lifetime.open = not self._target
            self._drop_plans()
            self._kept_callables.clear()
            self.cache.release_kept()
            self._release_unused()
            self.lifetime.open = False
        if not self._session or self._closed:
            return
        # No run starts from now on.
        self._closed = True
        self._let_runs_begin()
        close = partial(pywrap_tf_session.TF_CloseSession, self._session)
        if self._target:
            if not close_remote(close, os.fsdecode(self._target)):
                # The runtime still uses the session, so nothing may delete it.
                self._session = None
        else:
            close()

    def _let_runs_begin(self) -> None:
        """Gives other threads' runs that found the session open the time to acquire it or to finish.

        TensorFlow's session is deleted when it is closed. A run that is about to start on it then crashes the process.
        """
        until = perf_counter() + _RUNS_BEGIN_SECS
        while self.gate.running > 0 and perf_counter() < until:
            time.sleep(0.001)

    def __del__(self) -> None:
        # In a child process, the runtime's threads don't exist, and closing may wait for them.
        if self._process() != self._made_in:
            return
        # The thread may hold any lock here, so it must not be blocked. The process frees the session when it ends.
        if not self._completed_before_exit.is_over_for_this_thread():
            with self._completed_before_exit:
                super().__del__()

    def make_callable(
        self, fetches: Any, feed_list: list[Any] | None = None, accept_options: bool = False
    ) -> Callable[..., Any]:
        """Returns a function that runs one step, like `tf.compat.v1.Session.make_callable`."""
        function: Callable[..., Any] = super().make_callable(fetches, feed_list, accept_options)
        if feed_list is None and self.executor == SINGLE:
            handler = tf_session._FetchHandler(self._graph, fetches, {})
            elements = [*handler.fetches(), *handler.targets()]
            self._executor.check(self, partial(upstream_operations, elements), ())
        if feed_list is not None or accept_options or not self._has_plan_key(fetches):
            return function
        self._release_unused()
        plan = self.maker.make(self, fetches, ())
        if plan is None:
            return function

        def run_plan() -> Any:
            return self._execute_plan(plan) if self.lifetime.open else function()

        return run_plan

    def _note_checkpoint(self, path: str, passed: int) -> None:
        """Records the checkpoint of the variables after `passed` steps through `gate`, when none was running."""
        self._checkpoint = (path, passed)

    def _forget_checkpoint(self) -> None:
        """Reverts `_note_checkpoint`, so that the next save always writes."""
        self._checkpoint = None

    def _unchanged_checkpoint(self) -> str | None:
        """Returns the path of the last recorded checkpoint, or None if a run may have changed variables since then."""
        if self._checkpoint is None or self.gate.running > 0 or self._checkpoint[1] != self.gate.passed:
            return None
        return self._checkpoint[0]

    # Methods that `SessionRunner` calls.

    def _raise_as_run_does(self, error: Any, elements: Sequence[Any], feeds: Mapping[Any, Any]) -> None:
        """Raises a runtime error annotated with the operation and the source line that it refers to."""
        if self.executor == SINGLE:
            compile_ = super()._make_callable_from_options
            error = self._error_sources.named(error, elements, feeds, compile_)
        self._do_call(_raise, error)

    def _do_call(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Calls the runtime. Corrects the error for too large files, which TensorFlow reports as the end of input."""
        try:
            return super()._do_call(fn, *args)
        except errors.OutOfRangeError as error:
            raised = not_end_of_input(error)
            if raised is error:
                raise
        raise raised

    # TensorFlow's other ways to run something, which no plan supports.

    def _do_run(
        self,
        handle: Any,
        target_list: list[Any],
        fetch_list: list[Any],
        feed_dict: Any,
        options: Any,
        run_metadata: Any,
    ) -> Any:
        if self.executor == SINGLE:
            feeds = {key.deref(): value for key, value in feed_dict.items()}
            elements = [*fetch_list, *target_list]
            self._executor.check(self, partial(upstream_operations, elements, feeds), list(feeds))
            try:
                return super()._do_run(handle, target_list, fetch_list, feed_dict, options, run_metadata)
            except errors.OpError as error:
                # Use the error that the runtime raised, before TensorFlow has composed the text.
                failed = error.__context__ if isinstance(error.__context__, errors.OpError) else error
            self._raise_as_run_does(failed, elements, feeds)
        return super()._do_run(handle, target_list, fetch_list, feed_dict, options, run_metadata)

    def _extend_graph(self) -> None:
        with no_interpreter_exit:
            super()._extend_graph()

    def _call_tf_sessionrun(self, *args: Any) -> Any:
        self._begin_unknown_run()
        try:
            return super()._call_tf_sessionrun(*args)
        except errors.UnimplementedError as error:
            if self.executor != SINGLE:
                raise
            raise with_remedy(error) from None
        finally:
            self._end_unknown_run()

    def _call_tf_sessionprun(self, *args: Any) -> Any:
        self._begin_unknown_run()
        try:
            return super()._call_tf_sessionprun(*args)
        finally:
            self._end_unknown_run()

    def _make_callable_from_options(self, callable_options: Any) -> Callable[..., Any]:
        if self.executor == SINGLE:
            named = [*callable_options.fetch, *callable_options.target]
            feeds = [self._graph.as_graph_element(name) for name in callable_options.feed]
            elements = [self._graph.as_graph_element(name) for name in named]
            self._executor.check(self, partial(upstream_operations, elements, feeds), feeds)
        self._extend_graph()
        function = _Callable(self, callable_options)

        def run(*args: Any, **kwargs: Any) -> Any:
            self._begin_unknown_run()
            try:
                return function(*args, **kwargs)
            finally:
                self._end_unknown_run()

        return run


# Maximum seconds to close a session.
CLOSE_SECS = 10.0
# Maximum seconds that the end of the program waits for abandoned sessions. TensorFlow gives up a lost task after about
# ten seconds. A close that returns later than this aborts the program, with a wrong exit code.
_EXIT_SECS = 10.0

_abandoned: list[threading.Thread] = []


@atexit.register
def _wait_for_abandoned() -> None:
    """Waits for abandoned closes. A thread that returns from the runtime during Python's shutdown aborts the process.

    A runtime destructor may also abort, even after a late close, because it finds a mutex that isn't held.
    """
    until = time.monotonic() + _EXIT_SECS
    for thread in _abandoned:
        thread.join(max(0.0, until - time.monotonic()))
    if _abandoned:
        _skip_destructors()


def _skip_destructors() -> None:
    """Ends the process with its exit code before the runtime's destructors make the closes return."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # Only glibc has it.
        # Handlers of `on_exit` get the exit code as the first argument, which is the argument of `_exit`.
        libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)


def close_remote(close: Callable[[], None], target: object) -> bool:
    """Closes a session in its own thread, and abandons it if that takes too long.

    TensorFlow's runtime notifies every task of the cluster. It waits for a lost task until there is a new one at its
    address, or forever if none is started.

    Args:
      close: function that closes the session.
      target: the execution engine that the session is connected to.

    Returns:
      False if the session is abandoned.

    Raises:
      tf.errors.OpError: If TensorFlow couldn't close the session.
    """
    call = LongCall(close, f"closing a session of {target!r}")
    if call.has_returned(CLOSE_SECS):
        return True
    logging.warning(
        "A session of %s couldn't be closed within %g s and is abandoned. Either a task of its cluster doesn't answer, "
        "or a run or an input pipeline of the session hasn't ended. See "
        "`python -m fastsup docs dropin#sessions-and-executors`.",
        target,
        CLOSE_SECS,
    )
    _abandoned[:] = [other for other in _abandoned if other.is_alive()] + [call.thread]
    return False
