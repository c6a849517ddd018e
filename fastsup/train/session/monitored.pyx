"""What a monitored session does for each step: it runs in the engine of its innermost session, or goes session by session.
"""

from cpython.exc cimport PyErr_CheckSignals
from cython cimport final
from libc.stdint cimport INT64_MAX, int64_t

from threading import Event
from time import perf_counter

from tensorflow.python.client import session as tf_session
from tensorflow.python.framework.ops import Graph
from tensorflow.python.training import coordinator as tf_coordinator

from fastsup.common.stop_signals cimport pending_signal
from fastsup.common.stop_signals import raise_pending
from fastsup.train.session.feed_functions import takes_last_result
from fastsup.train.engine.run_request cimport RunRequest, new_request
from fastsup.train.engine.step_engine cimport StepEngine, still_open
from fastsup.train.session.wrapped_base cimport CoordinatedBase, WrappedBase
from fastsup.train.session.wrapped_sessions import (
    DELIVERED_METHODS, CoordinatedSession, HookedSession, RecoverableSession
)

cdef object Coordinator = tf_coordinator.Coordinator

# Refusals in a row after which the number of steps until the next question, 64, grows no more.
cdef enum:
    MOST_REFUSALS = 8


cdef bint is_delivered(object session, object kind) except -1:
    """True if a session is of a kind, and none of the methods that a step would go through was replaced."""
    if not isinstance(session, kind):
        return False
    replaced = getattr(session, "__dict__", ())
    for name, method in (<dict> DELIVERED_METHODS[kind]).items():
        if getattr(type(session), name) is not method or name in replaced:
            return False
    return True


@final
cdef class Nest:
    """The sessions that a monitored session nests, as they were when they were looked at.

    Args:
      outermost: the outermost of them.
    """

    def __init__(self, outermost):
        self.outermost = outermost
        session = outermost
        if is_delivered(session, RecoverableSession):
            self.recoverable = session
            session = self.in_recoverable = self.recoverable._sess
        if is_delivered(session, CoordinatedSession):
            self.coordinated = session
            session = self.in_coordinated = self.coordinated._sess
        if self.coordinated is not None and is_delivered(session, HookedSession):
            self.hooked = session
            if self.hooked._sess is not None and not self.hooked._wrapped_is_stoppable:
                self.engine = session._engine

    cdef bint is_current(self, object outermost) noexcept:
        """True if the sessions are still the same."""
        return (
            outermost is self.outermost
            and (self.recoverable is None or self.recoverable._sess is self.in_recoverable)
            and (self.coordinated is None or self.coordinated._sess is self.in_coordinated)
            and (self.engine is None or self.hooked._sess is not None)
        )

    cdef object stop_event(self):
        """The event that the coordinator sets to stop the loop; None for a coordinator of another kind."""
        coordinator = self.coordinated._coord
        if type(coordinator) is Coordinator and type(coordinator._stop_event) is Event:
            return coordinator._stop_event
        return None


cdef class MonitoredSessionBase:
    """What `MonitoredSession` and `SingularMonitoredSession` do for each step."""

    cdef Nest current_nest(self):
        """The nested sessions. They change when a session is recovered or closed, or a program replaces one."""
        cdef Nest nest = self.nest
        if nest is None or not nest.is_current(self._sess):
            self.nest = nest = Nest(self._sess)
        return nest

    cdef object step(self, RunRequest request):
        """Runs one step; in a loop, at least one, and more where nothing has to be asked between them."""
        cdef Nest nest = self.current_nest()
        if nest.engine is None:
            return self.step_through(request)
        try:
            return nest.engine.run(nest.hooked._sess, request)
        except Exception as error:
            if not nest.outermost._recovers_from(error):
                raise
        # In a new session, which the outermost one makes.
        return self.step_through(request)

    cdef object step_through(self, RunRequest request):
        """Runs one step through each of the nested sessions."""
        result = still_open(self._sess).run(
            request.fetches, feed_dict=request.feed_dict, options=request.options, run_metadata=request.run_metadata
        )
        request.steps_left -= 1
        return result

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Runs one step with the hooks around it. Arguments and result are those of `tf.compat.v1.Session.run`."""
        if pending_signal():
            raise_pending()
        return self.step(new_request(fetches, feed_dict, options, run_metadata))

    def run_without_hooks(self, fetches, feed_dict=None):
        """Runs one step that no hook sees; a preemption is recovered from as in `run`.

        Args:
          fetches: as for `tf.compat.v1.Session.run`.
          feed_dict: as for `tf.compat.v1.Session.run`.
        """
        cdef Nest nest = self.current_nest()
        if nest.engine is not None:
            try:
                return nest.engine.step_without_hooks(nest.hooked._sess, fetches, feed_dict)
            except Exception as error:
                if not nest.outermost._recovers_from(error):
                    raise
        return still_open(self._sess).run_without_hooks(fetches, feed_dict)

    def should_stop(self):
        """Whether the loop should end: a hook, a thread or the program has requested it, or the session is closed."""
        cdef Nest nest
        session = self._sess
        if session is None or pending_signal():
            return True
        nest = self.current_nest()
        if nest.engine is not None and not nest.engine.should_stop:
            coordinator = nest.coordinated._coord
            # A coordinator with an error to raise has been stopped.
            if type(coordinator) is Coordinator and not coordinator.should_stop():
                return False
        return session.should_stop()

    def run_loop(self, fetches, steps=None, feed_fn=None):
        """Runs step after step: the training loop itself, until `should_stop()`.

        `last_result` is what the last step returned. It is set when the loop ends, also by an error. With a `feed_fn`,
        it is set after each step, so that `feed_fn` and the hooks can read it; it is None before the first step.

        Args:
          fetches: what to fetch in each step, as for `run`.
          steps: steps after which to return, or None for no limit but `should_stop()`.
          feed_fn: function that returns the feed_dict of a step, or None. It is called once before each step: without
            arguments if it can be, else with the result of the last step (None before the first step). A first parameter
            named `last_result` always gets that result.

        Returns:
          What the last step returned; None if no step was run.

        Raises:
          RuntimeError: the session is closed.
          ValueError: `steps` is negative.
          TypeError: `steps` isn't an integer, or `feed_fn` can't be called without arguments or with one.
          Whatever `run` raises; OutOfRangeError too, which ends a `with` block normally. `last_result` then is what the
            last step that ended well returned.
        """
        return self._run_loop(fetches, steps, feed_fn, self._steps_at_once(fetches) if feed_fn is None else None)

    def _steps_at_once(self, fetches):
        """Who can make several steps of a loop in one call, or None."""
        return None

    def _run_loop(self, fetches, steps, feed_fn, several):
        """As `run_loop`.

        Args:
          fetches, steps, feed_fn: as for `run_loop`.
          several: who can make several steps in one call, as `fastsup.train.engine.steps_at_once.StepsAtOnce`; or
            None.
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
        request.in_loop = self.runs_itself()
        request.several = several if request.in_loop else None
        self.check_open()
        self.last_result = None
        if feed_fn is None:
            return self.loop(request)
        return self.loop_with_feeds(request, feed_fn, takes_result)

    cdef object loop(self, RunRequest request):
        """The loop of steps that are fed nothing."""
        cdef Nest nest
        cdef object result = None
        try:
            while request.steps_left > 0 and not self.should_stop():
                if request.several is not None and self.make_at_once(request):
                    result = request.last_result[0]
                elif request.in_loop:
                    nest = self.current_nest()
                    request.stop_event = None if nest.engine is None else nest.stop_event()
                    result = self.step(request) if request.several is None else self.step_in_time(request)
                else:
                    result = self.run(request.fetches)
                    request.steps_left -= 1
                request.last_result = None  # Of a session that was lost.
                PyErr_CheckSignals()
        except BaseException:
            self.last_result = result if request.last_result is None else request.last_result[0]
            raise
        self.last_result = result
        return result

    cdef object loop_with_feeds(self, RunRequest request, object feed_fn, bint takes_result):
        """The loop of steps that are fed what a function returns."""
        cdef bint is_fed = False
        while request.steps_left > 0 and not self.should_stop():
            # What a step does is known from its feeds.
            if is_fed and request.several is not None and self.make_at_once(request):
                self.last_result = request.last_result[0]
            else:
                feed_dict = feed_fn(self.last_result) if takes_result else feed_fn()
                if request.several is not None:
                    request.feed_dict, is_fed = feed_dict, True
                started = perf_counter() if request.several is not None else None
                if request.in_loop:
                    self.last_result = self.run_step(request.fetches, feed_dict)
                else:
                    self.last_result = self.run(request.fetches, feed_dict)
                request.steps_left -= 1
                if started is not None:
                    request.several.record_alone(1, perf_counter() - started)
            PyErr_CheckSignals()
        return self.last_result

    cdef bint make_at_once(self, RunRequest request) except -1:
        """Makes the next steps of a loop in one call, if they are to be. False if the next one has to be made alone."""
        cdef Nest nest
        if request.steps_until_asked > 0:
            request.steps_until_asked -= 1
            return False
        if not request.several.is_next():
            if request.several.why_not_fused:
                request.several = None
                request.most_steps = INT64_MAX
            return False
        nest = self.current_nest()
        if nest.engine is None:
            return False
        try:
            if nest.engine.run_at_once(nest.hooked._sess, request) > 0:
                request.times_refused = 0
                return True
        except Exception as error:
            # The next step makes a new session.
            if not nest.outermost._recovers_from(error):
                raise
            return False
        # Perhaps a hook acts in every run. It is asked less and less often.
        request.times_refused = min(request.times_refused + 1, MOST_REFUSALS)
        request.steps_until_asked = (1 << request.times_refused) // 4
        return False

    cdef object step_in_time(self, RunRequest request):
        """As `step`, of a loop, a few steps at a time, and says how long they have taken."""
        cdef int64_t before = request.steps_left
        request.most_steps = request.several.most_alone(before)
        started = perf_counter()
        result = self.step(request)
        request.several.record_alone(before - request.steps_left, perf_counter() - started)
        return result

    def make_callable(self, fetches, feed_list=None, accept_options=False):
        """A function that runs a step with the hooks around it: `run`, with its arguments resolved beforehand.

        It is for programs that run several sets of fetches in turns. After a preemption it runs in the new session.

        Args:
          fetches: what to fetch, as for `run`.
          feed_list: list of what is fed, as the keys of the `feed_dict` of `run`; None for nothing.
          accept_options: whether the function takes `options` and `run_metadata`, as `run` does.

        Returns:
          A function that takes the values to feed, in the order of `feed_list`, and returns what `run` returns.

        Raises:
          RuntimeError: the session is closed.
          TypeError: `feed_list` isn't a list or tuple, or `fetches` can't be fetched.
          ValueError: `fetches` names what the graph doesn't have.
        """
        self.check_open()
        if feed_list is not None and not isinstance(feed_list, (list, tuple)):
            raise TypeError(f"Argument `feed_list` must be a list or tuple. Received: feed_list={feed_list}")
        if isinstance(self.graph, Graph):
            tf_session._FetchHandler(self.graph, fetches, {})
        from fastsup.train.session.stepping_function import SteppingFunction

        return SteppingFunction(self, fetches, feed_list or (), accept_options)

    cdef object run_step(self, object fetches, object feed_dict):
        """Runs one step with the hooks around it, without options."""
        return self.step(new_request(fetches, feed_dict, None, None))

    cdef bint runs_itself(self) except -1:
        """True if `run` isn't overridden."""
        return type(self).run is MonitoredSessionBase.run and "run" not in self.__dict__

    cdef int check_open(self) except -1:
        still_open(self._sess)
        return 0
