"""The global step without a fetch: read once, then counted, and read again after anything that may have disturbed it."""

from libc.stdint cimport int64_t, uint64_t

from tensorflow.python.framework import errors, ops
from tensorflow.python.ops.resource_variable_ops import is_resource_variable
from tensorflow.python.training import training_util

from fastsup.core.probe import session_part_here
from fastsup.runtime.graph_elements import ELEMENT_TYPES
from fastsup.runtime.graph.operations import upstream_operations
from fastsup.runtime.graph.global_step import track_global_step
from fastsup.runtime.plan cimport Plan
from fastsup.runtime.runner cimport SessionRunner

cdef object Operation = ops.Operation
cdef frozenset element_types = ELEMENT_TYPES


cdef bint can_be_read(SessionRunner session, object variable) except -1:
    """Whether the global step has a value, so that fetches of it needn't be guarded against its having none."""
    try:
        session.run(variable)
    except errors.OpError:
        return False
    return True


cdef class StepCount:
    """The global step of a session's graph.

    Args:
      session: a `fastsup.Session`.
      step_read: the tensor that TensorFlow's hooks read the global step from; None if there is none.
    """

    def __init__(self, SessionRunner session, step_read):
        self.session = session
        self.variable = track_global_step(session)
        self.step_read = step_read
        if self.variable is not None:
            # Of a variable that has one: not every class of variables is known to plans.
            self.element_read = session.graph.as_graph_element(self.variable)
        elif not session.sess_str:
            self.element_read = step_read
        self.fetched_by = {} if step_read is None else {OWN_READ: step_read}
        if self.variable is not None:
            self.fetched_by[VARIABLE] = session.graph.as_graph_element(self.variable)
            # A reference variable shows what the run has made of it.
            if is_resource_variable(self.variable):
                self.variable_read = self.variable
        for tensor in self.fetched_by.values():
            self.numpy_type = tensor.dtype.base_dtype.as_numpy_dtype

    cdef int prepare_fetch(self) except -1:
        """To be called before the step is fetched in a run: finds out, once, whether that needs its guard."""
        cdef SessionRunner session = self.session
        if self.fetch_prepared:
            return 0
        self.fetch_prepared = True
        if not session.graph.finalized:
            return 0
        variable = training_util.get_global_step(session.graph)
        if variable is not None and isinstance(variable.op, Operation) and can_be_read(session, variable):
            session.finder.read_step_directly(variable)
        return 0

    cdef bint know(self) except -1:
        """Whether `value` is the global step now. Reads it if need be, which fails as long as it isn't initialised."""
        cdef SessionRunner session = self.session
        cdef uint64_t step_epoch = session.step_epoch
        cdef int64_t counted
        if self.known and step_epoch == self.epoch_seen:
            return True
        self.known = False
        # What is read while a run that writes the step is under way may hold its increment already, or not.
        if self.variable is None or session.writers_running:
            return False
        counted = session.steps_counted
        step = self.read()
        if step is None:
            return False
        if session.writers_running or session.step_epoch != step_epoch or session.steps_counted != counted:
            return False
        if not self.ever_known:
            self.ever_known = self.fetch_prepared = True
            session.finder.read_step_directly(self.variable)
        self.base = <int64_t> int(step) - counted
        self.epoch_seen = step_epoch
        self.known = True
        return True

    cdef object read(self):
        """The step now, by a run that does nothing else; None where it has no value, or that would be a call of a server."""
        cdef SessionRunner session = self.session
        cdef Plan plan
        if self.element_read is None or not session.lifetime.open:
            return None
        if self.plan is None or self.plan.callable is None or self.plans_seen is not session.cache.plans:
            # Another thread, or the look-up itself, may have them dropped: then it is looked up again next time.
            plans = session.cache.plans
            self.plan = session.find_plan(self.element_read, None)
            self.plans_seen = plans
        plan = self.plan
        if plan is None:
            return None
        plan.last_used = session.cache.clock
        try:
            with session_part_here("step read"):
                return plan.structure.build(session.execute(plan, None))
        except errors.OpError:
            return None

    cdef int64_t value(self) noexcept:
        return self.base + self.session.steps_counted

    cdef bint is_step(self, object fetch, int fed) noexcept:
        """Whether what is fetched is the global step before the run: its variable, or TensorFlow's own read of it.

        Args:
          fetch: what is fetched.
          fed: what the run is fed, as `fed_of` says. A fetch of that gives what is fed.
        """
        if fetch is None:
            return False
        return (fetch is self.step_read and not fed & OWN_READ) or (fetch is self.variable_read and not fed & VARIABLE)

    cdef int fed_of(self, Plan plan) except -1:
        """Which of OWN_READ and VARIABLE a run of the plan is fed, or is fed something for that they are computed from."""
        if plan.step_fed < 0:
            plan.step_fed = self.is_step_fed([slot.tensor for slot in plan.feeds])
        return plan.step_fed

    cdef int is_step_fed(self, object feeds) except -1:
        """The same of what is fed: graph elements or their names. Keys outside the graph are left for the run to reject."""
        cdef int fed = 0
        if self.upstream is None:
            self.upstream = {by: upstream_operations((tensor,)) for by, tensor in self.fetched_by.items()}
        try:
            feeds = iter(feeds)
        except TypeError:
            return 0  # Something else than a dictionary is left for the run to reject, too.
        for feed in feeds:
            if type(feed) not in element_types:
                try:
                    feed = self.session.graph.as_graph_element(feed)
                except (TypeError, ValueError, KeyError):
                    continue
            for by, operations in self.upstream.items():
                if getattr(feed, "op", feed) in operations:
                    fed |= <int> by
        return fed

    cdef bint can_be_fetched(self) except -1:
        """False if `Graph.prevent_fetching` excludes the step."""
        cdef object unfetchable = self.session.finder.unfetchable
        if len(unfetchable) > 0:
            for tensor in self.fetched_by.values():
                if tensor.op in unfetchable:
                    return False
        return True

    cdef object as_fetched(self, int64_t step):
        """A step as a run returns it."""
        return self.numpy_type(step)
