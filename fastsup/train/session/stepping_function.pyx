"""`make_callable` of monitored sessions: a step as a function of what is fed."""

from copy import copy

from fastsup.common.stop_signals cimport pending_signal
from fastsup.common.stop_signals import raise_pending
from fastsup.runtime.plans cimport Plan, stored_attributes
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.session.monitored cimport MonitoredSessionBase, Nest

cdef extern from "Python.h":
    int PyObject_GenericSetAttr(object instance, object name, object value) except -1


cdef object own_copy(object fetches):
    """The same structure, in objects that no other code changes."""
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
            # Also of a frozen class.
            PyObject_GenericSetAttr(copied, name, own_copy(value))
        return copied
    return fetches


cdef class SteppingFunction:
    """A step of a monitored session as a function of what is fed. Made by `make_callable`.

    Args:
      session: the monitored session.
      fetches: what is fetched.
      feed_list: what is fed.
      accept_options: whether the function takes options.
    """

    cdef MonitoredSessionBase session
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
            raise_pending()
        self.bring_plan(feed_dict)
        return self.session.run_step(self.fetches, feed_dict)

    cdef int bring_plan(self, dict feed_dict) except -1:
        """Puts the plan where the session looks first."""
        cdef Nest nest = self.session.current_nest()
        cdef SessionRunner runner
        if nest.engine is None or nest.engine.runner is None or nest.hooked._sess is not nest.engine.runner:
            return 0
        runner = nest.engine.runner
        if self.plans is not runner.cache.plans:
            # Another session, or one that has dropped its plans.
            if not runner.lifetime.open:
                return 0
            self.plan = runner.find_plan(self.fetches, feed_dict, False)
            self.plans = runner.cache.plans
        elif self.plan is not None:
            runner.finder.put_first(self.plan)
        if self.plan is not None and self.plan.callable is None:
            self.plans = None  # Not the one to run: that one is made in the run.
        elif self.plan is not None and self.plan.cached_fetches is None:
            runner.finder.know_plan_by(self.plan, self.fetches, feed_dict)
        return 0
