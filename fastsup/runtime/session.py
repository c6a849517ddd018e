"""`fastsup.Session`: a `tf.compat.v1.Session` whose steps run through cached plans."""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from time import perf_counter
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import constant_op, dtypes, errors, ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import training_util

from fastsup.common.fork import fork_reason
from fastsup.common.tensorflow_errors import not_end_of_input
from fastsup.core.plan_executor import PlanExecutor
from fastsup.runtime.errors import ErrorSources, with_remedy
from fastsup.runtime.executor import (
    CALLING_THREAD,
    REMEDY,
    REMEDY_FOR_CONFIG,
    SINGLE_THREADED,
    check_executor,
    config_for,
    may_run_inline,
)
from fastsup.runtime.graph.callable_bytes import callable_bytes
from fastsup.runtime.graph.devices import check_one_device, devices_of_step, is_on_one_device
from fastsup.runtime.graph.nested_conditionals import check_threads
from fastsup.runtime.graph.operations import operations_behind, outlive_callables
from fastsup.runtime.graph.variable_access import VariableAccess, access_of
from fastsup.runtime.graph_elements import structure_of
from fastsup.runtime.interpreter_end import uninterrupted
from fastsup.runtime.plan import Plan
from fastsup.runtime.remote_close import close_remote
from fastsup.runtime.runner import SessionRunner
from fastsup.runtime.session_run import LARGE_RESULTS_BYTES, LargeResults
from fastsup.runtime.trial import INLINE, POOL, Trial, log_choice

__all__ = ["Session"]


# What the compiled plans of a session may take: some thousand small ones. TensorFlow keeps about the same for each
# combination of fetches and feeds that it has run, without a limit.
_MAX_PLAN_BYTES = 256 << 20

# What a close waits at most for runs that have just begun. Under load, a thread may lose the processor for long.
_RUNS_BEGIN_SECS = 0.5


def _convert_a_result() -> None:
    """The runtime looks NumPy up for the first result that it converts, which the program's end must not interrupt."""
    with ops.Graph().as_default() as graph, graph._c_graph.get() as c_graph:
        pywrap_tf_session.TF_TryEvaluateConstant_wrapper(c_graph, constant_op.constant(1.0)._as_tf_output())


_convert_a_result()


def _raise(error: BaseException) -> None:
    raise error


def _may_be_large(tensor: Any) -> bool:
    """Whether a tensor's value may be one that isn't copied cheaply."""
    if tensor.dtype.base_dtype in (dtypes.string, dtypes.resource, dtypes.variant):
        return False
    count = tensor.shape.num_elements()
    return count is None or count * tensor.dtype.size >= LARGE_RESULTS_BYTES


class _Callable(tf_session.BaseSession._Callable):  # type: ignore[misc]
    """TensorFlow's own callable, whose making and release the end of the program doesn't interrupt."""

    _uninterrupted = uninterrupted

    def __init__(self, session: Any, callable_options: Any) -> None:
        with uninterrupted:
            super().__init__(session, callable_options)

    def __del__(self) -> None:
        if not self._uninterrupted.is_over_for_this_thread():
            with self._uninterrupted:
                super().__del__()


# Those that are there, for a child of `os.fork()`.
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _leave_sessions_to_parent() -> None:
    """In a child of `os.fork()`: a run would wait for threads of the runtime that aren't in this process."""
    for session in list(_sessions):
        if not session._closed:
            session._leave_to_parent(RuntimeError(f"The session can't run: {fork_reason(session._made_in)}."))
            session._closed = True


os.register_at_fork(after_in_child=_leave_sessions_to_parent)


class Session(SessionRunner, tf_session.Session):  # type: ignore[misc]
    """A `tf.compat.v1.Session` that resolves each combination of fetches and feeds once.

    Everything that TensorFlow's session does, this one does, with the same results and the same errors.

    Args:
      target: the execution engine to connect to. Defaults to one in this process.
      graph: the graph to launch. Defaults to the default graph.
      config: a `tf.compat.v1.ConfigProto`, or None.
      executor: "auto", "thread_pool" (TensorFlow's), "inline" (in the calling thread) or "single_threaded"
        (TensorFlow's SINGLE_THREADED_EXECUTOR: no parallelism between operations, no reference variables, no
        low-level control flow). "auto" takes what is right for the graph, and of that the fastest, by measurement.

    Raises:
      TypeError: an argument is of the wrong type.
      ValueError: `executor` is no executor mode.
      tf.errors.OpError: TensorFlow couldn't make the session.
    """

    # A session may be deleted when the names of this module are gone.
    _uninterrupted = uninterrupted
    # What __del__ looks for, also where the session could not be made.
    _session: Any = None
    _closed: bool = False
    _made_in = 0
    _process: Callable[[], int] = staticmethod(os.getpid)
    _python_ends: Callable[[], bool] = staticmethod(sys.is_finalizing)

    def __init__(
        self,
        target: str = "",
        graph: ops.Graph | None = None,
        config: Any = None,
        executor: str = "auto",
    ) -> None:
        self._made_in = os.getpid()
        self._executor = check_executor(executor)
        with uninterrupted:
            if isinstance(graph, ops.Graph | None) and isinstance(config, config_pb2.ConfigProto | None):
                config = config_for(executor, graph or ops.get_default_graph(), target, config)
            tf_session.Session.__init__(self, target, graph, config)
        self._set_up_runner(_MAX_PLAN_BYTES)
        _sessions.add(self)
        asked = self._config.graph_options.build_cost_model or self._config.experimental.HasField("session_metadata")
        self.fills_metadata: bool = bool(asked)
        self._device_names: list[str] = []
        # Names of fetches and feeds for which the runtime takes its thread pool, whatever was asked for.
        self._pooled: set[tuple[Any, ...]] = set()
        self._cheaper_reads: dict[str, str] = {}
        self._trace_warned = False
        self._kept_callables: list[Any] = []
        self._error_sources = ErrorSources(self._kept_callables)
        self._checkpoint: tuple[str, int] | None = None

    @property
    def executor(self) -> str:
        """The executor mode that was asked for; "single_threaded" also where "auto" has chosen it.

        `executor_info` tells the mode in use for each combination of fetches and feeds.
        """
        return "single_threaded" if self._config.experimental.executor_type == SINGLE_THREADED else self._executor

    def executor_info(self) -> list[PlanExecutor]:
        """Which executor runs each combination of fetches and feeds that the session has compiled.

        Returns:
          List of `PlanExecutor` tuples, in the order in which the combinations were compiled. Empty once the session is
          closed.
        """
        with uninterrupted:
            return [self._executor_of(plan) for plan in self.cache.compiled_plans()]

    def _executor_of(self, plan: Plan) -> PlanExecutor:
        fetches = tuple(element.name for element in plan.elements)
        feeds = tuple(slot.tensor.name for slot in plan.feeds)
        trial = plan.trial
        if trial is not None:
            return PlanExecutor(fetches, feeds, trial.executor, trial.is_open, trial.seconds)
        # Of what has no trial, "auto" stays with TensorFlow's own mode.
        is_pooled = self.executor == "auto" or (fetches, feeds) in self._pooled
        return PlanExecutor(fetches, feeds, POOL if is_pooled else self.executor, False, None)

    def close(self) -> None:
        """Closes the session and frees what it holds. A second call does nothing.

        A session on a cluster, a task of which doesn't answer, is left behind after 10 seconds, with a warning.

        Raises:
          tf.errors.OpError: TensorFlow couldn't close the session.
        """
        with self._uninterrupted:
            self._close()

    def _close(self) -> None:
        # The names of all modules may be gone, and no new thread runs. What the session holds is freed with it.
        if self._python_ends():
            if self.liveness is not None:
                self.liveness.open = False
            super().close()
            return
        if self.liveness is not None and self.liveness.open:
            # A remote engine is asked to release each callable, and may not answer. It frees them with the session.
            # A profile asks which executors the plans have used.
            self._forget_fetches()
            self.liveness.open = not self._target
            self._drop_plans()
            self._kept_callables.clear()
            self.cache.release_kept()
            self._release_unused()
            self.liveness.open = False
        if not self._session or self._closed:
            return
        # No run begins any more.
        self._closed = True
        self._let_runs_begin()
        close = partial(pywrap_tf_session.TF_CloseSession, self._session)
        if self._target:
            close_remote(close, os.fsdecode(self._target))
        else:
            close()

    def _let_runs_begin(self) -> None:
        """Gives the runs of other threads, which have found the session open, the time to take hold of it or to end.

        TensorFlow's session is deleted by its close while a run is on the way into it: that run crashes the process.
        """
        until = perf_counter() + _RUNS_BEGIN_SECS
        while self.gate.running > 0 and perf_counter() < until:
            time.sleep(0.001)

    def __del__(self) -> None:
        # In a child of the process that has made it, the runtime's threads aren't there, and closing may wait for them.
        if self._process() != self._made_in:
            return
        # The thread may hold any lock here, so it must not be held back. The process frees the session when it ends.
        if not self._uninterrupted.is_over_for_this_thread():
            with self._uninterrupted:
                super().__del__()

    def make_callable(
        self, fetches: Any, feed_list: list[Any] | None = None, accept_options: bool = False
    ) -> Callable[..., Any]:
        """A function that runs one step. The same as `tf.compat.v1.Session.make_callable`."""
        function: Callable[..., Any] = super().make_callable(fetches, feed_list, accept_options)
        if feed_list is None and self.executor == "single_threaded":
            handler = tf_session._FetchHandler(self._graph, fetches, {})
            self._check_single_threaded(operations_behind([*handler.fetches(), *handler.targets()]), ())
        if feed_list is not None or accept_options or not self._has_plan_key(fetches):
            return function
        self._release_unused()
        plan = self._make_plan(fetches, ())
        if plan is None:
            return function

        def run_plan() -> Any:
            return self._execute_plan(plan) if self.liveness.open else function()

        return run_plan

    def _note_checkpoint(self, path: str, passed: int) -> None:
        """Takes note that a checkpoint holds what the variables held at some time.

        Args:
          path: path of the checkpoint.
          passed: how many steps had passed `gate` by then, none of them under way.
        """
        self._checkpoint = (path, passed)

    def _forget_checkpoint(self) -> None:
        """Takes back `_note_checkpoint`: the next save writes in any case."""
        self._checkpoint = None

    def _unchanged_checkpoint(self) -> str | None:
        """Path of the checkpoint noted last. None if anything that may write variables has run here since."""
        if self._checkpoint is None or self.gate.running > 0 or self._checkpoint[1] != self.gate.passed:
            return None
        return self._checkpoint[0]

    # What `SessionRunner` calls.

    def _names_to_fetch(self, tensors: list[Any]) -> list[str]:
        """The names of tensors or of cheaper reads of them. None twice: a runtime of several tasks can't do that."""
        names = [tensor.name for tensor in tensors]
        for i, name in enumerate(names):
            cheaper = self._cheaper_reads.get(name, name)
            if cheaper not in names:
                names[i] = cheaper
        return names

    def _make_plan(self, fetches: Any, feed_keys: tuple[Any, ...], compiled: bool = True) -> Plan | None:
        """The plan for a combination seen for the first time, or None where only `Session.run` will do.

        Resolution is TensorFlow's own. Where it fails, `Session.run` fails in the same way, and says so.

        Args:
          fetches: what is fetched.
          feed_keys: what is fed.
          compiled: whether the plan is to be run.
        """
        graph = self._graph
        try:
            fed = [(key, graph.as_graph_element(key, allow_tensor=True, allow_operation=False)) for key in feed_keys]
            # The order of the program's feeds, and of its fetches, makes no other callable.
            fed.sort(key=lambda pair: pair[1].name)
            feeds = [tensor for _, tensor in fed]
            handler = tf_session._FetchHandler(graph, fetches, {feed.ref(): None for feed in feeds})
        except Exception:
            return None
        elements = (*handler.fetches(), *handler.targets())
        tensors, targets = (sorted(some, key=attrgetter("name")) for some in (handler.fetches(), handler.targets()))
        # A tensor that is fed and fetched has the value that is fed: the feeds follow the values of the runtime.
        place = {id(tensor): i for i, tensor in enumerate((*tensors, *feeds))}
        if (
            not (tensors or targets)
            or handler._fetch_handles
            or len(place) != len(tensors) + len(feeds)
            or not all(graph.is_feedable(feed) for feed in feeds)
        ):
            return None
        options = config_pb2.CallableOptions(
            feed=[feed.name for feed in feeds],
            fetch=self._names_to_fetch(tensors),
            target=[target.name for target in targets],
        )
        leaves: list[Any] = []
        structure = structure_of(fetches, graph, place, leaves)
        if self.executor == INLINE:
            options.run_options.inter_op_thread_pool = CALLING_THREAD
        operations = operations_behind(elements, feeds)
        self._check_single_threaded(operations, feeds)
        access = access_of(operations)
        pinned = (*leaves, *feed_keys)
        returns_feeds = any(tensor.ref() in handler._feeds for tensor in handler._fetches)
        serialized = options.SerializeToString(deterministic=True)
        plan = Plan(structure, fed, elements, pinned, serialized, access, returns_feeds)
        return plan if not compiled or self._compile_plan(plan, operations) else None

    def _compile_plan(self, plan: Plan, operations: set[ops.Operation] | None = None) -> bool:
        """Compiles a plan, or leaves it to TensorFlow's own executors, where there is no room for more.

        Args:
          plan: the plan.
          operations: what it runs, if that is known.

        Returns:
          True if the plan can be run now; False where only `Session.run` will do.
        """
        feeds = [slot.tensor for slot in plan.feeds]
        tensors = [element for element in plan.elements if not isinstance(element, ops.Operation)]
        if operations is None:
            operations = operations_behind(plan.elements, feeds)
        plan.set_size(callable_bytes(operations), not outlive_callables(operations))
        values = (*feeds, *tensors)
        trial = None
        try:
            self._extend_graph()
            callable_ = self.cache.compile(plan)
            if callable_ is None:
                return True
            if self.executor == INLINE:
                self._warn_of_pool(operations, values, plan.elements, feeds)
            # Writing a checkpoint takes long enough to make the executor irrelevant.
            light = plan.access not in (VariableAccess.SAVES, VariableAccess.SAVES_COPIES)
            if (
                self.executor == "auto"
                and light
                and may_run_inline(operations)
                and self._has_one_executor(operations, values)
            ):
                options = config_pb2.CallableOptions.FromString(plan.options)
                options.run_options.inter_op_thread_pool = CALLING_THREAD
                serialized = options.SerializeToString(deterministic=True)
                # Without a reference to this session, which would keep itself alive by it.
                make_inline = partial(self.cache.compile_variant, serialized, plan.size, plan.is_releasable)
                chosen = partial(log_choice, plan.elements, len(feeds))
                trial = Trial(callable_, make_inline, bool(self._target), chosen, callable_.compile_secs)
        except Exception:
            return False
        # What a session's config asks for is only gathered by callables.
        large = not self.fills_metadata and any(map(_may_be_large, tensors))
        large_results = LargeResults(self._graph, self._session, callable_.compile_secs) if large else None
        plan.compiled_to(callable_, trial, large_results)
        return True

    def _has_one_executor(self, operations: set[ops.Operation], values: Sequence[Any]) -> bool:
        """Several devices have an executor each, which wait for each other: none of them may hold a thread."""
        devices = self._devices()
        return len(devices) == 1 or (not self._target and is_on_one_device(operations, values, devices))

    def _warn_of_pool(
        self, operations: set[ops.Operation], values: Sequence[Any], elements: Sequence[Any], feeds: Sequence[Any]
    ) -> None:
        """Says, once, that the runtime takes its thread pool for a step that was to run in the calling thread."""
        if self._target or self._has_one_executor(operations, values):
            return
        if not self._pooled:
            places = devices_of_step(operations, values, self._devices())
            logging.warning(
                'executor="inline" has no effect on a step of several devices, which TensorFlow runs on its thread '
                "pool: %s. See docs/executors.md.",
                ", ".join(f"{what} on {name}" for name, what in places.items()),
            )
        self._pooled.add((tuple(element.name for element in elements), tuple(feed.name for feed in feeds)))

    def _devices(self) -> list[str]:
        """The names of the session's devices."""
        if not self._device_names:
            self._device_names = [device.name for device in self.list_devices()]
        return self._device_names

    def _check_single_threaded(self, operations: set[ops.Operation], feeds: Sequence[Any]) -> None:
        """Refuses a step that the single-threaded executor would run without an end."""
        if self.executor != "single_threaded" or self._target or self._closed:
            return
        remedy = REMEDY_FOR_CONFIG if self._executor != "single_threaded" else REMEDY
        if len(self._devices()) > 1:
            check_one_device(operations, feeds, self._devices(), remedy)
        check_threads(operations, self._config, remedy)

    def _read_step_directly(self, variable: Any) -> None:
        """Fetches the global step from its variable, wherever TensorFlow's guarded read of it is asked for.

        The guard, a conditional that gives the initial value as long as there is no other, costs ten times what the
        read does. Called once the variable is known to have a value.
        """
        guarded = training_util._get_global_step_read(self._graph)
        direct = self._graph.as_graph_element(variable)
        # Where something waits for the guarded read, its place in the order of the run has a meaning.
        if guarded is None or guarded.consumers() or guarded.op._control_outputs or guarded.dtype != direct.dtype:
            return
        if any(op.control_inputs for op in (guarded.op, *(source.op for source in guarded.op.inputs))):
            return
        if direct.dtype._is_ref_dtype:
            return
        self._cheaper_reads = {guarded.name: direct.name}
        self._drop_plans_with(guarded)

    def _raise_as_run_does(self, error: Any, elements: Sequence[Any], feeds: Mapping[Any, Any]) -> None:
        """Raises a runtime error with the operation, and the place in the program, that it names.

        Args:
          error: the error.
          elements: what the failed run was to compute.
          feeds: the tensors that it was fed, each with its array.
        """
        if self.executor == "single_threaded":
            compile_ = super()._make_callable_from_options
            error = self._error_sources.named(error, elements, feeds, compile_)
        self._do_call(_raise, error)

    def _do_call(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Calls the runtime. A file that is too large isn't the end of the input, which TensorFlow makes of it."""
        try:
            return super()._do_call(fn, *args)
        except errors.OutOfRangeError as error:
            raised = not_end_of_input(error)
            if raised is error:
                raise
        raise raised

    def _check_traceable(self, options: Any) -> None:
        """Says so, once, when step statistics are asked of an executor that records none."""
        traced = getattr(options, "trace_level", 0) != config_pb2.RunOptions.NO_TRACE
        if traced and self.executor == "single_threaded" and not self._trace_warned:
            self._trace_warned = True
            logging.warning(
                "The single-threaded executor records no step statistics: the RunMetadata of this run has none. "
                'Pass executor="inline" or executor="thread_pool" to trace runs. See '
                "docs/dropin.md#sessions-and-executors."
            )

    # TensorFlow's own ways to run something, which no plan describes.

    def _do_run(
        self,
        handle: Any,
        target_list: list[Any],
        fetch_list: list[Any],
        feed_dict: Any,
        options: Any,
        run_metadata: Any,
    ) -> Any:
        if self.executor == "single_threaded":
            feeds = {key.deref(): value for key, value in feed_dict.items()}
            elements = [*fetch_list, *target_list]
            self._check_single_threaded(operations_behind(elements, feeds), list(feeds))
            try:
                return super()._do_run(handle, target_list, fetch_list, feed_dict, options, run_metadata)
            except errors.OpError as error:
                # What the runtime has raised, before TensorFlow has put the text together.
                failed = error.__context__ if isinstance(error.__context__, errors.OpError) else error
            self._raise_as_run_does(failed, elements, feeds)
        return super()._do_run(handle, target_list, fetch_list, feed_dict, options, run_metadata)

    def _extend_graph(self) -> None:
        with uninterrupted:
            super()._extend_graph()

    def _call_tf_sessionrun(self, *args: Any) -> Any:
        self._begin_unknown_run()
        try:
            return super()._call_tf_sessionrun(*args)
        except errors.UnimplementedError as error:
            if self.executor != "single_threaded":
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
        if self.executor == "single_threaded":
            named = [*callable_options.fetch, *callable_options.target]
            feeds = [self._graph.as_graph_element(name) for name in callable_options.feed]
            elements = [self._graph.as_graph_element(name) for name in named]
            self._check_single_threaded(operations_behind(elements, feeds), feeds)
        self._extend_graph()
        function = _Callable(self, callable_options)

        def run(*args: Any, **kwargs: Any) -> Any:
            self._begin_unknown_run()
            try:
                return function(*args, **kwargs)
            finally:
                self._end_unknown_run()

        return run
