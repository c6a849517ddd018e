"""The step of a monitored session: in the engine of its innermost session if possible, otherwise session by session.

SteppingFunction, which `make_callable` returns, runs a step as a function of its feeds.
"""

from cpython.exc cimport PyErr_CheckSignals
from cython cimport final
from libc.stdint cimport INT64_MAX, int64_t

import inspect
from collections.abc import Mapping
from copy import copy
from threading import Event

from tensorflow.python.client import session as tf_session
from tensorflow.python.framework.ops import Graph
from tensorflow.python.training import coordinator as tf_coordinator

from fastsup.common.stop_signals cimport pending_signal
from fastsup.runtime.fetches cimport stored_attributes
from fastsup.runtime.plans cimport Plan
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.engine cimport RunRequest, StepEngine, new_request, still_open

from fastsup.common.stop_signals import raise_pending

cdef extern from "Python.h":
    int PyObject_GenericSetAttr(object instance, object name, object value) except -1

cdef object Coordinator = tf_coordinator.Coordinator

# The classes that a monitored session nests, and for each the methods that a step calls. A program may replace them.
cdef object RecoverableSession = None
cdef object CoordinatedSession = None
cdef object HookedSession = None
cdef dict original_methods = {}


def set_session_classes(recoverable, coordinated, hooked):
    """Sets the classes that a monitored session nests. wrapped_sessions.py, which imports the bases below, calls it."""
    global RecoverableSession, CoordinatedSession, HookedSession
    RecoverableSession, CoordinatedSession, HookedSession = recoverable, coordinated, hooked
    for kind in (recoverable, coordinated, hooked):
        original_methods[kind] = {
            name: getattr(kind, name) for name in ("run", "should_stop", "_check_stop", "run_without_hooks")
        }


cdef class WrappedBase:
    """Base of `WrappedSession`."""


cdef class CoordinatedBase(WrappedBase):
    """Base of `CoordinatedSession`."""


cdef bint is_unpatched(object session, object kind) except -1:
    """Returns True if a session is of a class, and no method that a step calls was replaced."""
    if not isinstance(session, kind):
        return False
    replaced = getattr(session, "__dict__", ())
    for name, method in (<dict> original_methods[kind]).items():
        if getattr(type(session), name) is not method or name in replaced:
            return False
    return True


@final
cdef class SessionChain:
    """A snapshot of the sessions that a monitored session nests."""

    def __init__(self, outermost):
        self.outermost = outermost
        session = outermost
        if is_unpatched(session, RecoverableSession):
            self.recoverable = session
            session = self.in_recoverable = self.recoverable._sess
        if is_unpatched(session, CoordinatedSession):
            self.coordinated = session
            session = self.in_coordinated = self.coordinated._sess
        if self.coordinated is not None and is_unpatched(session, HookedSession):
            self.hooked = session
            if self.hooked._sess is not None and not self.hooked._wrapped_is_stoppable:
                self.engine = session._engine

    cdef bint is_current(self, object outermost) noexcept:
        """Returns True if the sessions are still the same."""
        return (
            outermost is self.outermost
            and (self.recoverable is None or self.recoverable._sess is self.in_recoverable)
            and (self.coordinated is None or self.coordinated._sess is self.in_coordinated)
            and (self.engine is None or self.hooked._sess is not None)
        )

    cdef object stop_event(self):
        """Returns the event that the coordinator sets to stop the loop; None for a coordinator of another kind."""
        coordinator = self.coordinated._coord
        if type(coordinator) is Coordinator and type(coordinator._stop_event) is Event:
            return coordinator._stop_event
        return None


cdef bint takes_last_result(object feed_fn) except -1:
    """Returns True if a feed function takes the previous step's result.

    Returns False if it can be called without arguments, unless its first parameter is named `last_result`. A parameter
    with that name gets the last result even if it has a default.
    """
    if not callable(feed_fn):
        raise TypeError(f"feed_fn must be callable or None, got {feed_fn!r}.")
    try:
        signature = inspect.signature(feed_fn)
    except (TypeError, ValueError):
        return False  # A built-in function without a signature is called without arguments.
    if next(iter(signature.parameters), None) != "last_result" and can_take(signature, ()):
        return False
    if can_take(signature, (None,)):
        return True
    raise TypeError(
        f"feed_fn must take no argument, or one: the result of the last step. Got {feed_fn!r} with the signature "
        f"{signature}."
    )


cdef bint is_feed_dict(object feed_dict) except -1:
    return feed_dict is None or isinstance(feed_dict, Mapping)


cdef bint can_take(object signature, tuple arguments) except -1:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


cdef class MonitoredSessionBase:
    """The steps of `MonitoredSession` and `SingularMonitoredSession`."""

    cdef SessionChain current_chain(self):
        """Returns the nested sessions. They change when a session is recovered, closed, or replaced by the program."""
        cdef SessionChain chain = self.chain
        if chain is None or not chain.is_current(self._sess):
            self.chain = chain = SessionChain(self._sess)
        return chain

    cdef object step(self, RunRequest request):
        """Runs one step; in a loop, at least one, and more if nothing has to be checked between them."""
        cdef SessionChain chain = self.current_chain()
        if chain.engine is None:
            return self.step_through(request)
        try:
            return chain.engine.run(chain.hooked._sess, request)
        except Exception as error:
            if not chain.outermost._recovers_from(error):
                raise
        # Run the step in a new session, which the outermost session creates.
        return self.step_through(request)

    cdef object step_through(self, RunRequest request):
        """Runs one step through each of the nested sessions."""
        result = still_open(self._sess).run(
            request.fetches, feed_dict=request.feed_dict, options=request.options, run_metadata=request.run_metadata
        )
        request.steps_left -= 1
        return result

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Runs one step with the hooks around it. Arguments and result are the same as in
        `tf.compat.v1.Session.run`."""
        if pending_signal():
            raise_pending()
        return self.step(new_request(fetches, feed_dict, options, run_metadata))

    def run_without_hooks(self, fetches, feed_dict=None):
        """Runs one step without hooks. Recovers from a preemption, as `run` does.

        Args:
          fetches: as for `tf.compat.v1.Session.run`.
          feed_dict: as for `tf.compat.v1.Session.run`.
        """
        cdef SessionChain chain = self.current_chain()
        if chain.engine is not None:
            try:
                return chain.engine.step_without_hooks(chain.hooked._sess, fetches, feed_dict)
            except Exception as error:
                if not chain.outermost._recovers_from(error):
                    raise
        return still_open(self._sess).run_without_hooks(fetches, feed_dict)

    def should_stop(self):
        """Returns True if a hook, a thread or the program requested a stop, or if the session is closed."""
        cdef SessionChain chain
        session = self._sess
        if session is None or pending_signal():
            return True
        chain = self.current_chain()
        if chain.engine is not None and not chain.engine.should_stop:
            coordinator = chain.coordinated._coord
            # A coordinator that has an error to raise is already stopped.
            if type(coordinator) is Coordinator and not coordinator.should_stop():
                return False
        return session.should_stop()

    def run_loop(self, fetches, steps=None, feed_fn=None):
        """Runs the training loop: steps until `should_stop()` returns True.

        `last_result` is the last step's result. It is set when the loop ends, even after an error. With a `feed_fn`, it
        is set after each step, so that `feed_fn` and the hooks can read it; it is None before the first step.

        Args:
          fetches: the fetches of each step, as for `run`.
          steps: number of steps after which to return; None to run until `should_stop()`.
          feed_fn: function that returns the feed_dict of a step, or None. It is called once before each step, without
            arguments if possible, otherwise with the last step's result (None before the first step). A first parameter
            named `last_result` always gets that result.

        Returns:
          The last step's result; None if no step was run.

        Raises:
          RuntimeError: If the session is closed.
          ValueError: If `steps` is negative.
          TypeError: If `steps` isn't an integer, or `feed_fn` can't be called without arguments or with one.
          Exception: Any error that `run` raises, including OutOfRangeError, which ends a `with` block normally.
            `last_result` is then the last successful step's result.
        """
        cdef RunRequest request = new_request(fetches, None, None, None)
        request.steps_left = INT64_MAX
        if steps is not None:
            if not hasattr(steps, "__index__"):
                raise TypeError(f"steps must be an integer or None, got {steps!r}.")
            request.steps_left = min(steps.__index__(), INT64_MAX)
            if request.steps_left < 0:
                raise ValueError(f"steps must not be negative, got {steps!r}. Pass None to run until should_stop().")
        cdef bint takes_result = feed_fn is not None and takes_last_result(feed_fn)
        self.check_open()
        self.last_result = None
        return self.loop(request, feed_fn, takes_result)

    cdef object loop(self, RunRequest request, object feed_fn, bint takes_result):
        """Runs the loop. Each iteration runs one step, or all steps until the engine must check something."""
        cdef SessionChain chain
        cdef bint runs_itself = self.runs_itself()
        cdef object result = None
        request.in_loop = runs_itself and feed_fn is None
        try:
            while request.steps_left > 0 and not self.should_stop():
                if feed_fn is not None:
                    request.feed_dict = feed_fn(result) if takes_result else feed_fn()
                    if type(request.feed_dict) is not dict and not is_feed_dict(request.feed_dict):
                        raise TypeError(f"feed_fn must return a feed_dict or None, got {request.feed_dict!r}.")
                if request.in_loop:
                    chain = self.current_chain()
                    request.stop_event = None if chain.engine is None else chain.stop_event()
                if runs_itself:
                    result = self.step(request)
                else:
                    result = self.run(request.fetches) if feed_fn is None else self.run(request.fetches, request.feed_dict)
                    request.steps_left -= 1
                request.last_result = None  # Clear the result from a session that was lost.
                if feed_fn is not None:
                    self.last_result = result
                PyErr_CheckSignals()
        except BaseException:
            self.last_result = result if request.last_result is None else request.last_result[0]
            raise
        self.last_result = result
        return result

    def make_callable(self, fetches, feed_list=None, accept_options=False):
        """Returns a function that runs a step with hooks, like `run`, with arguments that are resolved in advance.

        Use it in programs that alternate between several sets of fetches. After a preemption, the function runs in the
        new session.

        Args:
          fetches: the fetches, as for `run`.
          feed_list: list of the fed elements, like the keys of the `feed_dict` of `run`; None for nothing.
          accept_options: whether the function accepts `options` and `run_metadata`, as `run` does.

        Returns:
          A function that takes the values to feed, in the order of `feed_list`, and returns the result of `run`.

        Raises:
          RuntimeError: If the session is closed.
          TypeError: If `feed_list` isn't a list or tuple, or `fetches` can't be fetched.
          ValueError: If `fetches` names elements that the graph doesn't have.
        """
        self.check_open()
        if feed_list is not None and not isinstance(feed_list, (list, tuple)):
            raise TypeError(f"Argument `feed_list` must be a list or tuple. Received: feed_list={feed_list}")
        if isinstance(self.graph, Graph):
            tf_session._FetchHandler(self.graph, fetches, {})
        return SteppingFunction(self, fetches, feed_list or (), accept_options)

    cdef object run_step(self, object fetches, object feed_dict):
        """Runs one step with the hooks around it, without options."""
        return self.step(new_request(fetches, feed_dict, None, None))

    cdef bint runs_itself(self) except -1:
        """Returns True if `run` isn't overridden."""
        return type(self).run is MonitoredSessionBase.run and "run" not in self.__dict__

    cdef int check_open(self) except -1:
        still_open(self._sess)
        return 0


cdef object own_copy(object fetches):
    """Copies a structure of fetches, so that no other code can change it."""
    cdef list attributes
    if type(fetches) is list:
        return [own_copy(item) for item in fetches]
    if type(fetches) is dict:
        return {name: own_copy(item) for name, item in fetches.items()}
    if type(fetches) is tuple:
        return tuple([own_copy(item) for item in fetches])
    if isinstance(fetches, tuple) and hasattr(type(fetches), "_fields"):
        return tuple.__new__(type(fetches), [own_copy(item) for item in fetches])
    attributes = stored_attributes(fetches)
    if attributes is not None:
        copied = copy(fetches)
        for name, value in attributes:
            # This function also works for frozen classes.
            PyObject_GenericSetAttr(copied, name, own_copy(value))
        return copied
    return fetches


cdef class SteppingFunction:
    """A step of a monitored session as a function of its feeds. Created by `make_callable`."""

    cdef MonitoredSessionBase session
    cdef object fetches
    cdef list feed_list
    cdef bint accept_options
    cdef bint runs_itself
    # The plan of these fetches and feeds, and the session's plans that contain it.
    cdef Plan plan
    cdef dict plans

    def __init__(self, session, fetches, feed_list, accept_options):
        self.session = session
        self.fetches = own_copy(fetches)
        self.feed_list = list(feed_list)
        self.accept_options = bool(accept_options)
        self.runs_itself = self.session.runs_itself()

    def __call__(self, *args, **kwargs):
        cdef dict feed_dict = None
        cdef Py_ssize_t i
        self.session.check_open()
        if len(<tuple> args) != len(self.feed_list):
            raise TypeError(
                f"This callable takes {len(self.feed_list)} values, one for each of its feed_list {self.feed_list}; "
                f"got {len(args)}."
            )
        if self.feed_list:
            feed_dict = {}
            for i in range(len(self.feed_list)):
                feed_dict[self.feed_list[i]] = (<tuple> args)[i]
        if kwargs:
            if not self.accept_options or not kwargs.keys() <= {"options", "run_metadata"}:
                raise TypeError(
                    f"This callable got keyword arguments {sorted(kwargs)}. It accepts only values; with "
                    f"make_callable(..., accept_options=True) it also accepts options and run_metadata."
                )
            return self.session.run(self.fetches, feed_dict, **kwargs)
        if not self.runs_itself:
            return self.session.run(self.fetches, feed_dict)
        if pending_signal():
            raise_pending()
        self.bring_plan(feed_dict)
        return self.session.run_step(self.fetches, feed_dict)

    cdef int bring_plan(self, dict feed_dict) except -1:
        """Makes the plan the first one that the session checks."""
        cdef SessionChain chain = self.session.current_chain()
        cdef SessionRunner runner
        if chain.engine is None or chain.engine.runner is None or chain.hooked._sess is not chain.engine.runner:
            return 0
        runner = chain.engine.runner
        if self.plans is not runner.cache.plans:
            # The session is new, or has dropped its plans.
            if not runner.lifetime.open:
                return 0
            self.plan = runner.find_plan(self.fetches, feed_dict, False)
            self.plans = runner.cache.plans
        elif self.plan is not None:
            runner.finder.put_first(self.plan)
        if self.plan is not None and self.plan.callable is None:
            self.plans = None  # This isn't the plan to run. The run creates the right plan.
        elif self.plan is not None and self.plan.cached_fetches is None:
            runner.finder.know_plan_by(self.plan, self.fetches, feed_dict)
        return 0
