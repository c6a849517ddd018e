"""Finds the plan of a combination of fetches and feeds: among the last ones, by a key, or by having it made."""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import errors

from fastsup.core.probe import session_part_here
from fastsup.runtime.graph_elements import ELEMENT_TYPES
from fastsup.common.interpreter_end import completed_before_exit
from fastsup.runtime.fetches cimport stored_attributes
from fastsup.runtime.plan cimport FeedSlot, SessionLifetime, Plan, key_of_feed
from fastsup.runtime.plan_cache cimport PlanCache

cdef extern from "Python.h":
    int Py_EnterRecursiveCall(const char* where) except *
    void Py_LeaveRecursiveCall()

cdef frozenset element_types = ELEMENT_TYPES
cdef list registered_expansions = tf_session._REGISTERED_EXPANSIONS
cdef object OpError = errors.OpError

# A graph that grows mostly takes names for what is new, and counting those costs nothing. Asking it for its version takes
# a fortieth of a small step, so that is done once in this many runs.
cdef uint64_t GRAPH_LOOKS = 64

# How many plans are at hand without a key: those of a program that runs a few sets of fetches in turns.
cdef Py_ssize_t PLANS_AT_HAND = 4


cdef bint add_to_key(list key, object fetch) except -1:
    """Appends what identifies a fetch structure. False if that can't be said in a key, and so can't be cached.

    Graph elements never change what they stand for and are named by address; the plan keeps them alive.
    """
    cdef object kind = type(fetch)
    if kind in element_types:
        key.append(<size_t> <PyObject*> fetch)
        return True
    if kind is str:
        key.append(fetch)
        return True
    # A structure may contain itself.
    Py_EnterRecursiveCall(" in the fetches of a run")
    try:
        return add_parts_to_key(key, kind, fetch)
    finally:
        Py_LeaveRecursiveCall()


cdef bint add_parts_to_key(list key, object kind, object fetch) except -1:
    """The same for a structure of fetches, of this type."""
    cdef list attributes
    if kind is list or kind is tuple or (isinstance(fetch, tuple) and hasattr(kind, "_fields")):
        key.append(kind)
        key.append(len(fetch))
        for item in fetch:
            if not add_to_key(key, item):
                return False
        return True
    if kind is dict:
        key.append(kind)
        key.append(len(<dict> fetch))
        for name, item in (<dict> fetch).items():
            if type(name) is not str:
                # Other keys can be equal without being the same (1 and True), and a result has its own fetch's keys.
                key.append(type(name))
                if type(name) in element_types:
                    name = <size_t> <PyObject*> name
                elif type(name) is not int and type(name) is not bytes:
                    return False
            key.append(name)
            if not add_to_key(key, item):
                return False
        return True
    attributes = stored_attributes(fetch)
    if attributes is not None:
        key.append(kind)
        key.append(len(attributes))
        for _, item in attributes:
            if not add_to_key(key, item):
                return False
        return True
    return False


cdef bint add_feeds_to_key(list key, object feed_dict) except -1:
    """The same for what is fed, in whatever order."""
    cdef set feeds = set()
    if not feed_dict:
        return True
    if type(feed_dict) is not dict:
        return False
    for feed in <dict> feed_dict:
        if type(feed) not in element_types and type(feed) is not str:
            return False
        feeds.add(key_of_feed(feed))
    key.append(frozenset(feeds))
    return True


cdef bint is_of(Plan plan, object fetches, object feed_dict) except -1:
    """Whether these are the fetches and feeds of a plan: the same elements, in the same order."""
    cdef list known
    cdef tuple slots
    cdef Py_ssize_t i = 0
    if fetches is not plan.cached_fetches:
        if type(fetches) is not list or type(plan.cached_fetches) is not list:
            return False
        known = <list> plan.cached_fetches
        if len(<list> fetches) != len(known):
            return False
        for fetch in <list> fetches:
            if fetch is not known[i]:
                return False
            i += 1
    slots = plan.feed_order
    if not feed_dict:
        return len(slots) == 0
    if type(feed_dict) is not dict or len(<dict> feed_dict) != len(slots):
        return False
    i = 0
    for feed in <dict> feed_dict:
        if feed is not (<FeedSlot> slots[i]).key:
            return False
        i += 1
    return True


cdef class PlanFinder:
    """PlanFinder(graph, cache, lifetime, maker)\n--\n
    The plans of a session, as its runs find them.

    Args:
      graph: the session's graph.
      cache: the `PlanCache`.
      lifetime: whether the session is open.
      maker: the `PlanMaker`.
    """

    def __init__(self, graph, PlanCache cache, SessionLifetime lifetime, maker):
        self.maker = maker
        self.cache = cache
        self.lifetime = lifetime
        self.other_plans = []
        self.graph = graph
        self.graph_version = graph.version
        self.names_in_use = graph._names_in_use
        self.names_seen = len(self.names_in_use)
        self.graph_is_final = graph.finalized
        self.unfetchable = graph._unfetchable_ops
        self.unfeedable = graph._unfeedable_tensors._storage
        self.rules_seen = self.rules()

    cdef Py_ssize_t rules(self):
        """Grows when something becomes unfeedable or unfetchable, or a type gets its own conversion."""
        return len(self.unfetchable) + len(self.unfeedable) + len(registered_expansions)

    cdef Plan find(self, object session, object fetches, object feed_dict, bint to_run):
        """The plan for this combination, made if need be; None if only `Session.run` can handle it.

        Args:
          session: the session, which makes and compiles plans. Not kept: it would keep itself alive.
          fetches: what is fetched.
          feed_dict: what is fed.
          to_run: whether it is to be run. Else it may be one that says what a run does and isn't compiled yet.
        """
        cdef list key
        cdef object full_key
        cdef Plan plan
        if not self.graph_is_final and (len(self.names_in_use) != self.names_seen or self.cache.clock % GRAPH_LOOKS == 0):
            if not self.keep_up_with_graph(session):
                return None
        if self.rules() != self.rules_seen:
            self.rules_seen = self.rules()
            self.drop(session)
        self.cache.clock += 1
        plan = self.recent_plan(fetches, feed_dict)
        if plan is not None and (plan.callable is not None or not to_run):
            plan.last_used = self.cache.clock
            self.hits += 1
            return plan
        key = []
        if not add_to_key(key, fetches) or not add_feeds_to_key(key, feed_dict):
            return None
        full_key = tuple(key)
        plan = self.cache.plans.get(full_key)
        if plan is None:
            plan = self.make_plan(session, full_key, fetches, feed_dict, to_run)
            session._release_unused()
            if plan is None:
                return None
        elif plan.callable is not None or not to_run:
            self.hits += 1
        elif not self.compile_known(session, plan):
            return None
        plan.last_used = self.cache.clock
        self.remember_last(plan, fetches, feed_dict)
        return plan

    cdef Plan recent_plan(self, object fetches, object feed_dict):
        """The plan for this combination, if it is one of those at hand: programs run several in turns."""
        cdef Plan plan = self.last_plan
        cdef Py_ssize_t i
        if plan is None or is_of(plan, fetches, feed_dict):
            return plan
        cdef list others = self.other_plans
        for i in range(len(others)):
            plan = others[i]
            if is_of(plan, fetches, feed_dict):
                others[i] = self.last_plan
                self.last_plan = plan
                return plan
        return None

    cdef bint keep_up_with_graph(self, object session) except -1:
        """Has new operations there before anything runs. False where they are refused, which Session.run says."""
        cdef Py_ssize_t names = len(self.names_in_use)
        cdef uint64_t version = self.graph.version
        if version != self.graph_version:
            try:
                session._extend_graph()
            except OpError:
                return False
            self.graph_version = version
        self.names_seen = names
        return True

    cdef int remember_last(self, Plan plan, object fetches, object feed_dict) except -1:
        """Keeps a plan for the next run. Its fetches and feeds are kept in the plan: threads replace both together."""
        if plan.cached_fetches is None:
            if type(fetches) is list and all([type(fetch) in element_types for fetch in fetches]):
                fetches = list(fetches)
            elif type(fetches) not in element_types:
                return 0
            self.know_plan_by(plan, fetches, feed_dict)
        elif len(plan.feeds) > 1:
            plan.order_feeds(feed_dict)
        if plan is not self.last_plan:
            if self.last_plan is not None:
                others = [other for other in self.other_plans if other is not plan and other is not self.last_plan]
                self.other_plans = [self.last_plan, *others[: PLANS_AT_HAND - 2]]
            self.last_plan = plan
        return 0

    cdef int know_plan_by(self, Plan plan, object fetches, object feed_dict) except -1:
        """Has a plan recognised by these fetches, objects that don't change."""
        plan.order_feeds(feed_dict)
        plan.cached_fetches = fetches
        return 0

    cdef Plan make_plan(self, object session, object key, object fetches, object feed_dict, bint to_run):
        cdef Plan plan, other
        self.misses += to_run
        if not self.lifetime.open:
            return None
        if not self.cache.can_add():
            self.cache.left_runs += to_run
            return None
        with completed_before_exit, session_part_here("plan making"):
            plan = self.maker.make(session, fetches, () if not feed_dict else tuple(feed_dict), to_run)
        if plan is None:
            return None
        other = self.cache.plans.get(key)
        if other is not None and (other.callable is not None or not to_run):
            return other  # Another thread has made it meanwhile.
        self.cache.plans[key] = plan
        self.cache.left_runs += to_run and plan.callable is None
        return plan

    cdef bint compile_known(self, object session, Plan plan) except -1:
        """Compiles a plan that was only looked at, or was left to TensorFlow's own executors, if there is room by now.

        Returns:
          True if the plan can be run.
        """
        self.misses += 1
        if plan.session_run is None or self.cache.has_room(plan):
            with completed_before_exit, session_part_here("plan making"):
                if not self.maker.compile(session, plan):
                    return False
            session._release_unused()
        self.cache.left_runs += plan.callable is None
        return True

    cdef int read_step_directly(self, object variable) except -1:
        """Fetches the global step from its variable from now on. See `PlanMaker.read_step_directly`."""
        stale = self.maker.read_step_directly(variable)
        if stale is not None:
            self.drop_with(stale)
        return 0

    cdef int put_first(self, Plan plan) noexcept:
        """Has the next run look first at a plan that the caller has kept."""
        self.last_plan = plan
        return 0

    cdef int forget(self) except -1:
        """Forgets every plan; their callables are to be released when no thread runs them any longer."""
        self.last_plan = None
        self.other_plans = []
        return self.cache.drop()

    cdef int drop(self, object session) except -1:
        """Forgets every plan, and releases the callables that no thread runs."""
        self.forget()
        session._release_unused()
        return 0

    cdef int drop_with(self, object tensor) except -1:
        """Forgets the plans that compute a tensor."""
        self.last_plan = None
        self.other_plans = []
        self.cache.drop_with(tensor)
        return 0
