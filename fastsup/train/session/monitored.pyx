"""What a step passes through from the monitored session down to the one with the hooks."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, int64_t

from tensorflow.python.client import session as tf_session
from tensorflow.python.framework.ops import Graph

from fastsup.runtime.plan cimport Plan
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.session.feed_functions import takes_last_result
from fastsup.train.session.hooked_session cimport Hooked
from fastsup.common.stop_signals cimport pending_signal
from fastsup.common.stop_signals import raise_if_come
from fastsup.train.session.wrapped_sessions cimport (
    Call, Coordinated, Recoverable, Wrapped, as_compiled, new_call, still_open, take_last_result
)


cdef class Monitored:
    """What a step passes through in `MonitoredSession` and `SingularMonitoredSession`."""

    cdef Wrapped compiled_inner(self):
        if self._sess is not self.inner_seen:
            session = self._sess
            # In this order: another thread goes by what it sees.
            self.innermost = None
            self.middle = None
            self.inner = as_compiled(session)
            self.inner_seen = session
        return self.inner

    cdef Hooked compiled_innermost(self):
        """The session with the hooks, if nothing but ours, as delivered, lies between: a step then starts there."""
        cdef Wrapped inner, middle
        if (
            self.innermost is not None
            and self._sess is self.inner_seen
            and self.inner._sess is self.middle
            and self.middle._sess is self.innermost
        ):
            return self.innermost
        self.innermost = None
        inner = self.compiled_inner()
        if inner is None or inner._sess is None:
            return None
        middle = inner.compiled_inner()
        if isinstance(inner, Recoverable) and isinstance(middle, Coordinated):
            if isinstance(middle.compiled_inner(), Hooked):
                self.middle = middle
                self.innermost = middle.compiled_inner()
        return self.innermost

    cdef object step(self, Call* call):
        """Runs one step."""
        cdef Hooked innermost = self.compiled_innermost() if call.hooks else None
        cdef Wrapped inner, middle
        if innermost is not None:
            inner, middle = self.inner, self.middle
            try:
                return innermost.step(call)
            except Exception as error:
                try:
                    return middle.on_error(call, error)
                except Exception as raised:
                    return inner.on_error(call, raised)
        inner = self.compiled_inner()
        if inner is not None:
            return inner.step(call)
        if not call.hooks:
            return still_open(self._sess).run_without_hooks(<object> call.fetches, <object> call.feed_dict)
        return still_open(self._sess).run(
            <object> call.fetches, feed_dict=<object> call.feed_dict, options=<object> call.options,
            run_metadata=<object> call.run_metadata,
        )

    cdef object run_step(self, object fetches, object feed_dict):
        """Runs one step with the hooks around it, without options."""
        cdef Call call = new_call(fetches, feed_dict, None, None, True)
        return self.step(&call)

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Runs one step with the hooks around it. Arguments and result are those of `tf.compat.v1.Session.run`."""
        cdef Call call = new_call(fetches, feed_dict, options, run_metadata, True)
        if pending_signal():
            raise_if_come()
        return self.step(&call)

    def run_without_hooks(self, fetches, feed_dict=None):
        """Runs one step that no hook sees; a preemption is recovered from as in `run`.

        Args:
          fetches: as for `tf.compat.v1.Session.run`.
          feed_dict: as for `tf.compat.v1.Session.run`.
        """
        cdef Call call = new_call(fetches, feed_dict, None, None, False)
        return self.step(&call)

    def should_stop(self):
        """Whether the loop should end: a hook, a thread or somebody else has asked for it, or the session is closed."""
        session = self._sess
        if session is None or pending_signal():
            return True
        cdef Wrapped inner = self.compiled_inner()
        return inner.is_stopped() if inner is not None else session.should_stop()

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
          TypeError: `steps` is no integer, or `feed_fn` can't be called without arguments or with one.
          Whatever `run` raises; OutOfRangeError too, which ends a `with` block normally. `last_result` then is what the
            last step that ended well returned.
        """
        cdef int64_t left = INT64_MAX
        cdef Wrapped inner = None
        cdef Call call = new_call(fetches, None, None, None, True)
        cdef tuple last
        cdef object result = None
        if steps is not None:
            if not hasattr(steps, "__index__"):
                raise TypeError(f"steps must be an integer or None, got {steps!r}.")
            left = min(steps.__index__(), INT64_MAX)
            if left < 0:
                raise ValueError(f"steps must not be negative, got {steps!r}. Pass None to run until should_stop().")
        cdef bint takes_result = feed_fn is not None and takes_last_result(feed_fn)
        cdef bint runs_itself = self.runs_itself()
        self.check_open()
        self.last_result = None
        if feed_fn is not None:
            while left > 0 and not self.should_stop():
                feed_dict = feed_fn(self.last_result) if takes_result else feed_fn()
                self.last_result = self.run_step(fetches, feed_dict) if runs_itself else self.run(fetches, feed_dict)
                left -= 1
                PyErr_CheckSignals()
            return self.last_result
        try:
            while left > 0 and not self.should_stop():
                inner = self.compiled_inner()
                if runs_itself and inner is not None:
                    call.steps_left = &left
                    result = inner.step(&call)
                    take_last_result(&call)  # Of a session that was lost.
                    continue
                result = self.run_step(fetches, None) if runs_itself else self.run(fetches)
                left -= 1
                PyErr_CheckSignals()
        except BaseException:
            last = take_last_result(&call)
            self.last_result = result if last is None else last[0]
            raise
        self.last_result = result
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
          TypeError: `feed_list` is no list or tuple, or `fetches` can't be fetched.
          ValueError: `fetches` names what the graph doesn't have.
        """
        self.check_open()
        if feed_list is not None and not isinstance(feed_list, (list, tuple)):
            raise TypeError(f"Argument `feed_list` must be a list or tuple. Received: feed_list={feed_list}")
        if isinstance(self.graph, Graph):
            tf_session._FetchHandler(self.graph, fetches, {})
        return SteppingFunction(self, fetches, feed_list or (), accept_options)

    cdef bint runs_itself(self) except -1:
        """Whether nobody has put another `run` in the place of this one."""
        return type(self).run is Monitored.run and "run" not in self.__dict__

    cdef int check_open(self) except -1:
        still_open(self._sess)
        return 0


cdef object own_copy(object fetches):
    """The same structure, in lists and dictionaries that nobody else changes."""
    if type(fetches) is list:
        return [own_copy(item) for item in fetches]
    if type(fetches) is dict:
        return {name: own_copy(item) for name, item in fetches.items()}
    if type(fetches) is tuple:
        return tuple([own_copy(item) for item in fetches])
    return fetches


cdef class SteppingFunction:
    """A step of a monitored session as a function of what is fed. Made by `make_callable`.

    Args:
      session: the monitored session.
      fetches: what is fetched.
      feed_list: what is fed.
      accept_options: whether the function takes options.
    """

    cdef Monitored session
    cdef object fetches
    cdef list feed_list
    cdef bint accept_options
    cdef bint runs_itself
    # The plan of these fetches and feeds, and the plans of the session that it is one of.
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
                    f"This callable got keyword arguments {sorted(kwargs)}. It takes values alone; with "
                    "make_callable(..., accept_options=True) it takes options and run_metadata too."
                )
            return self.session.run(self.fetches, feed_dict, **kwargs)
        if not self.runs_itself:
            return self.session.run(self.fetches, feed_dict)
        if pending_signal():
            raise_if_come()
        self.bring_plan(feed_dict)
        return self.session.run_step(self.fetches, feed_dict)

    cdef int bring_plan(self, dict feed_dict) except -1:
        """Puts the plan where the session looks first."""
        cdef Hooked innermost = self.session.compiled_innermost()
        cdef SessionRunner runner
        if innermost is None or innermost.runner is None or innermost._sess is not innermost.runner:
            return 0
        runner = innermost.runner
        if self.plans is not runner.cache.plans:
            # Another session, or one that has dropped its plans.
            if not runner.liveness.open:
                return 0
            self.plan = runner.find_plan(self.fetches, feed_dict, False)
            self.plans = runner.cache.plans
        elif self.plan is not None:
            runner.last_plan = self.plan
        if self.plan is not None and self.plan.callable is None:
            self.plans = None  # Not the one to run: that one is made in the run.
        elif self.plan is not None and self.plan.known_by is None:
            runner.know_plan_by(self.plan, self.fetches, feed_dict)
        return 0
