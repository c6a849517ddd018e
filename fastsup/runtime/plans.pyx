"""Run plans: combinations of fetches and feeds that are resolved once, each with the runtime's callable for it.

PlanFinder finds the plan of a run. PlanCache limits the number of compiled plans.
"""

from cpython.object cimport PyObject
from libc.math cimport fabs
from libc.stdint cimport int64_t, uint64_t

from time import perf_counter

import numpy

from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import errors

from fastsup.common.interpreter_end import no_interpreter_exit
from fastsup.core.probe import session_part_here
from fastsup.runtime.callables cimport CompiledCallable, SessionLifetime, bytes_to_copy, own_values, views_from
from fastsup.runtime.fetches cimport Fetch, add_to_key, element_types
from fastsup.runtime.session_run import LARGE_RESULTS_BYTES as _LARGE_RESULTS_BYTES, SessionRun

cdef object ndarray = numpy.ndarray
cdef object generic = numpy.generic

cdef Py_ssize_t LARGE_RESULTS_BYTES = _LARGE_RESULTS_BYTES
cdef int64_t FOREVER = 1 << 62
# A fed array counts as another step if it has this many times the rows with which its plan was tried.
cdef Py_ssize_t MORE_ROWS = 4

# The function with which Session.run creates arrays; numpy.asarray before TensorFlow 2.17.
if hasattr(tf_session, "numpy_compat"):
    as_array = tf_session.numpy_compat.np_asarray
else:
    as_array = numpy.asarray


cdef object key_of_feed(object feed):
    """Returns a feed's entry in a plan's key: its name, or the graph element's address, because elements may be
    unhashable."""
    return feed if type(feed) is str else <size_t> <PyObject*> feed


cdef class FeedSlot:
    """A fed tensor, with the conversion of values to its array."""

    def __init__(self, tensor, key=None, place=0):
        self.tensor = tensor
        self.key = key
        self.place = place
        self.rows_tried = -1
        self.numpy_type = tensor.dtype.as_numpy_dtype
        self.dtype = numpy.dtype(self.numpy_type)
        self.read_shape()
        # The largest integer that each dtype represents exactly. Session.run checks larger integers.
        self.largest_int = {"f4": 2.0**24, "f8": 2.0**53, "i4": 2.0**31 - 1, "i8": 2.0**53}.get(self.dtype.str[1:], -1.0)

    cdef int read_shape(self) except -1:
        shape = self.tensor.shape
        # Keep the object itself: set_shape() replaces it, so a change is detected by identity.
        self.static_shape = self.tensor._shape_val
        self.exact_shape = shape.is_fully_defined()
        self.dims = None if shape.rank is None else tuple(shape.as_list())
        return 0

    cdef object convert(self, object value):
        """Returns the array to feed, or None if Session.run must check the value itself."""
        cdef object shape
        cdef object kind = type(value)
        if kind is ndarray:
            if value.dtype is not self.dtype:
                value = as_array(value, self.numpy_type)
        elif kind is int:
            # An integer that doesn't fit the tensor's type is an error.
            if not fabs(value) <= self.largest_int:
                return None
            value = as_array(value, self.numpy_type)
        elif kind in (float, list, tuple, str, bytes) or isinstance(value, generic):
            value = as_array(value, self.numpy_type)
        else:
            return None
        # A fully defined shape can't change, and reading it from TensorFlow takes time.
        if not self.exact_shape and self.tensor._shape_val is not self.static_shape:
            self.read_shape()
        shape = value.shape
        if self.dims is not None and shape != self.dims:
            if self.exact_shape or len(<tuple> shape) != len(self.dims):
                return None
            for actual, expected in zip(shape, self.dims):
                if expected is not None and actual != expected:
                    return None
        if not self.exact_shape and len(<tuple> shape) > 0 and <Py_ssize_t> (<tuple> shape)[0] > self.rows_tried:
            self.rows_tried = MORE_ROWS * <Py_ssize_t> (<tuple> shape)[0]
            self.has_grown = True
        return value


cdef class Plan:
    """The data for a run with given fetches and feed keys.

    Args:
      structure: the `Fetch` that builds the result.
      feeds: (key of the feed dictionary, tensor) pairs, in the order of the options.
      elements: the graph elements (tensors and operations) that the run computes.
      pinned: objects whose addresses are in the plan's key. They are kept alive, so that no other object gets the
        address.
      options: CallableOptions, serialized.
      access: the run's access to variables: a VariableAccess.
      returns_feeds: whether a fed tensor is fetched. The result is then built from the runtime's values and the feeds.
    """

    def __init__(self, structure, feeds, elements, pinned, options, access=0, returns_feeds=False):
        cdef FeedSlot slot
        self.structure = structure
        self.feeds = tuple([FeedSlot(tensor, key, place) for place, (key, tensor) in enumerate(feeds)])
        self.feed_order = self.feeds
        self.slots_by_key = {key_of_feed(slot.key): slot for slot in self.feeds}
        self.elements = tuple(elements)
        self.pinned = pinned
        self.options = options
        self.access = access
        self.returns_feeds = returns_feeds
        self.is_releasable = True
        self.step_fed = -1 if feeds else 0

    def set_size(self, size, is_releasable):
        """Sets the memory of the plan's callable.

        Args:
          size: an estimate, in bytes.
          is_releasable: whether that memory may be freed before the session is closed.
        """
        self.size = size
        self.is_releasable = is_releasable

    def compiled_to(self, CompiledCallable callable, trial=None, large_results=None):
        """Makes a callable run the plan from now on.

        Args:
          callable: the `CompiledCallable`.
          trial: `Trial` of the executors to choose from; None without a choice.
          large_results: `LargeResults` of a plan whose results may be large; None for a plan whose results are small.
        """
        self.trial = trial
        self.large_results = large_results
        self.callable = callable
        self.unwatched_runs = 0 if trial is not None or large_results is not None else FOREVER
        self.session_run = None

    cdef int hand_over(self, object session_run) except -1:
        """Makes a `SessionRun` run the plan from now on, and releases the callable."""
        # Keep the callable until all is replaced, because releasing it may let other threads run.
        replaced = (self.callable, self.trial, self.large_results)
        self.session_run = session_run
        self.unwatched_runs = 0
        self.callable = None
        self.trial = None
        self.large_results = None
        del replaced
        return 0

    cdef int order_feeds(self, object feed_dict) except -1:
        """Sets the expected order of feeds to the order of this feed dictionary."""
        if feed_dict:
            self.feed_order = tuple([self.slots_by_key[key_of_feed(key)] for key in feed_dict])
        return 0

    cdef tuple convert_feeds(self, dict feed_dict):
        """Returns the arrays to feed, or None if Session.run must check a value itself."""
        cdef tuple expected = self.feed_order
        cdef list arrays = [None] * len(expected)
        cdef FeedSlot slot
        cdef Py_ssize_t i = 0
        for key, value in feed_dict.items():
            slot = <FeedSlot> expected[i]
            if key is not slot.key:
                slot = self.slots_by_key[key_of_feed(key)]
            try:
                array = slot.convert(value)
            except Exception:
                return None  # Session.run also fails for this value, with the reason.
            if array is None:
                return None
            if slot.has_grown:
                slot.has_grown = False
                if self.trial is not None and self.session_run is None:
                    self.trial.restart()
                    self.unwatched_runs = 0
            arrays[slot.place] = array
            i += 1
        return tuple(arrays)

    cdef list call_watched(self, tuple feeds):
        """Runs the plan, and measures the run's time if executors are on trial, and the size of its results."""
        cdef CompiledCallable candidate
        cdef list values
        cdef Py_ssize_t size = 0
        cdef int64_t runs
        run = self.session_run
        if run is not None:
            return run(feeds)
        candidate = self.callable
        trial = self.trial
        # The cost of large results is measured after the executor is chosen.
        if trial is not None and not trial.on_trial and (not self.watches_results or trial.is_open):
            trial.recheck()
        if trial is not None and trial.on_trial:
            candidate = trial.next()
            started = perf_counter()
            values = views_from(candidate, feeds)
            chosen = trial.record(candidate, perf_counter() - started)
            # Another thread may have handed the plan over in the meantime, here and below.
            if chosen is not None and self.trial is trial:
                self.callable = candidate = chosen
        else:
            values = views_from(candidate, feeds)
        large_results = self.large_results
        if large_results is not None:
            size = bytes_to_copy(values)
        self.watches_results = size >= LARGE_RESULTS_BYTES
        if trial is None or not trial.on_trial:
            if self.watches_results and (trial is None or not trial.is_open):
                run = large_results.copied(size, candidate.options)
                if run is not None:
                    self.session_run = run
            else:
                runs = self.runs_until_look(trial)
                if self.callable is not None:
                    self.unwatched_runs = runs
        return own_values(values)

    cdef int64_t runs_until_look(self, object trial) except -1:
        if trial is not None:
            return trial.runs_until_look
        self.look_distance = 2 * self.look_distance + 1
        return self.look_distance


# Running a combination of fetches and feeds again must only cost a run. Compiling takes 5 to 200 ms, so a session with
# more combinations than there is room for can't compile a combination each time it recurs. Within the limit, each plan
# has its own callable. Beyond the limit, TensorFlow's own executors run new combinations, as in `Session.run`;
# TensorFlow keeps these executors as long as the session lives.
#
# An unused callable makes room for a new one after a number of look-ups that is many times the number of plans.
# Combinations that alternate, in any order, are used again before that, so they don't evict each other.

# A plan is stale after this many look-ups per plan. Of randomly drawn combinations, one in 10 million is stale.
STALE_ROUNDS = 16

# The memory of a plan without a callable (measured: 2.4 kB with six feeds, as the growth of the resident memory per
# plan for 3,000 plans), and the share of the memory that all plans may take in addition.
PLAN_BYTES = 4 << 10

cdef Py_ssize_t PLANS_SHARE = 2
# Number of callables that are kept regardless of their memory. A training loop rarely alternates between more sets of
# fetches.
cdef Py_ssize_t FEWEST_CALLABLES = 4


cdef class PlanCache:
    """The plans of one session.

    Args:
      graph: the session's graph.
      session_handle: the C++ session.
      lifetime: whether the session is open.
      max_bytes: maximum memory of the callables.
    """

    def __init__(self, graph, session_handle, lifetime, max_bytes):
        self.graph = graph
        self.session_handle = session_handle
        self.lifetime = lifetime
        self.plans = {}
        self.kept = {}
        self.max_bytes = max_bytes
        self.stale_rounds = STALE_ROUNDS
        self.max_plans = max(max_bytes // PLANS_SHARE // PLAN_BYTES, FEWEST_CALLABLES)

    def compile(self, Plan plan):
        """Returns a plan's callable, either new or shared with a plan that has the same options.

        Returns:
          `CompiledCallable`. None if the cache is full; TensorFlow's own executors then run the plan from now on.
        """
        cdef CompiledCallable found = self.callable_with(plan.options)
        if found is not None:
            return found
        if self.has_room(plan):
            return self.new_callable(plan.options, plan.size, plan.is_releasable)
        if plan.session_run is None:
            plan.hand_over(SessionRun(self.graph, self.session_handle, plan.options))
        return None

    def compile_variant(self, bytes options, Py_ssize_t size, bint is_releasable):
        """Creates a callable for another executor.

        Args:
          options: CallableOptions, serialized.
          size: an estimate of its bytes.
          is_releasable: whether it may be released before the session is closed.

        Returns:
          `CompiledCallable`, or None if the cache is full.
        """
        cdef CompiledCallable found = self.kept.get(options)
        if found is None and self.make_room(size):
            found = self.new_callable(options, size, is_releasable)
        return found

    cdef CompiledCallable new_callable(self, bytes options, Py_ssize_t size, bint is_releasable):
        cdef CompiledCallable made = CompiledCallable(self.session_handle, self.lifetime, options, size)
        if not is_releasable:
            self.kept[options] = made
        return made

    cdef CompiledCallable callable_with(self, bytes options):
        """Returns the existing callable with these options, or None."""
        cdef Plan plan
        found = self.kept.get(options)
        if found is not None:
            return found
        for plan in self.plans.values():
            if plan.callable is not None and plan.callable.options == options:
                return plan.callable
        return None

    cdef bint is_stale(self, uint64_t last_used) noexcept:
        """Returns True if a plan with this time of last use is no longer in use."""
        return last_used + self.stale_rounds * <uint64_t> len(self.plans) < self.clock

    cdef bint has_room(self, Plan plan) except -1:
        """Returns True if a plan, which isn't stale, may be compiled, possibly by replacing stale plans."""
        # If plans themselves must be removed, a new plan may not stay for long.
        if plan.last_used > 0 or len(self.plans) + 1 < self.max_plans:
            if self.lifetime.callable_bytes + plan.size <= self.max_bytes or self.lifetime.callables < FEWEST_CALLABLES:
                return True
        return plan.last_used > 0 and not self.is_stale(plan.last_used) and self.make_room(plan.size)

    cdef bint make_room(self, Py_ssize_t size) except -1:
        """Releases callables of stale plans until there is room. Returns False if that isn't enough."""
        cdef Plan plan, oldest
        while self.lifetime.callable_bytes + size > self.max_bytes:
            if self.clock < self.callables_full_until or self.lifetime.callables <= FEWEST_CALLABLES:
                return False
            oldest = None
            for plan in self.plans.values():
                if plan.callable is not None and plan.is_releasable:
                    if oldest is None or plan.last_used < oldest.last_used:
                        oldest = plan
            if oldest is None or not self.is_stale(oldest.last_used):
                self.callables_full_until = self.stale_rounds * <uint64_t> len(self.plans) + (
                    self.clock if oldest is None else oldest.last_used
                )
                return False
            oldest.hand_over(SessionRun(self.graph, self.session_handle, oldest.options))
            with no_interpreter_exit:
                self.lifetime.release_unused(self.session_handle)
        return True

    cdef bint can_add(self) except -1:
        """Returns True if there is room for one more plan. May remove a stale plan to make room."""
        cdef Plan plan, oldest = None
        if len(self.plans) < self.max_plans:
            return True
        if self.clock < self.plans_full_until:
            return False
        oldest_key = None
        for key, plan in self.plans.items():
            if oldest is None or plan.last_used < oldest.last_used:
                oldest_key, oldest = key, plan
        if not self.is_stale(oldest.last_used):
            self.plans_full_until = oldest.last_used + self.stale_rounds * <uint64_t> len(self.plans)
            return False
        self.plans.pop(oldest_key, None)
        if oldest.callable is not None:
            # A caller that still has the plan must look it up again.
            oldest.hand_over(SessionRun(self.graph, self.session_handle, oldest.options))
        return True

    cdef int drop(self) except -1:
        """Removes all plans. Their callables are released when no thread runs them."""
        self.plans = {}
        self.callables_full_until = self.plans_full_until = 0
        return 0

    cdef int drop_with(self, object tensor) except -1:
        """Removes the plans that compute a tensor."""
        cdef Plan plan
        cdef dict left = {}
        for key, plan in self.plans.items():
            for element in plan.elements:
                if element is tensor:
                    break
            else:
                plan.augmented = None
                left[key] = plan
        self.drop()
        self.plans = left
        return 0

    def release_kept(self):
        """Releases the callables that live as long as the session, which ends."""
        self.kept = {}

    def compiled_plans(self):
        """Returns the plans with a callable, in the order of their creation."""
        cdef Plan plan
        return [plan for plan in list(self.plans.values()) if plan.callable is not None]


cdef list registered_expansions = tf_session._REGISTERED_EXPANSIONS
cdef object OpError = errors.OpError

# A growing graph usually adds names, and counting the names costs nothing. Reading the graph's version takes a fortieth
# of a small step, so it is read once per this many runs.
cdef uint64_t GRAPH_LOOKS = 64

# Number of recent plans that are found without a key, for programs that alternate between a few sets of fetches.
cdef Py_ssize_t PLANS_AT_HAND = 4

cdef bint add_feeds_to_key(list key, object feed_dict) except -1:
    """Appends the key of the feeds, independently of their order. Returns False if no key can identify them."""
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
    """Returns True if the fetches and feeds are a plan's: the same elements in the same order."""
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
    Finds the plans for a session's runs.

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
        """Returns a count that grows when an element becomes unfeedable or unfetchable, or a type gets a conversion."""
        return len(self.unfetchable) + len(self.unfeedable) + len(registered_expansions)

    cdef Plan find(self, object session, object fetches, object feed_dict, bint to_run):
        """Returns the plan for a combination, and creates it if needed; None if only `Session.run` can handle it.

        Args:
          session: the session, which creates and compiles plans. It isn't stored, because it would keep itself alive.
          fetches: the fetches.
          feed_dict: the feeds.
          to_run: whether the plan will run. If False, the plan may be only analyzed and not yet compiled.
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
        """Returns the plan for a combination if it is one of the recent plans."""
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
        """Adds new operations to the runtime. Returns False if they are refused; Session.run then raises."""
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
        """Keeps a plan, with its fetches and feeds, for the next run. Threads replace all of these together."""
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
        """Makes a plan recognizable by these fetches, which are immutable objects."""
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
        with no_interpreter_exit, session_part_here("plan making"):
            plan = self.maker.make(session, fetches, () if not feed_dict else tuple(feed_dict), to_run)
        if plan is None:
            return None
        other = self.cache.plans.get(key)
        if other is not None and (other.callable is not None or not to_run):
            return other  # Another thread created the plan in the meantime.
        self.cache.plans[key] = plan
        self.cache.left_runs += to_run and plan.callable is None
        return plan

    cdef bint compile_known(self, object session, Plan plan) except -1:
        """Compiles a plan that was only analyzed or is run by TensorFlow's own executors, if there is room now.

        Returns True if the plan can be run.
        """
        self.misses += 1
        if plan.session_run is None or self.cache.has_room(plan):
            with no_interpreter_exit, session_part_here("plan making"):
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
        """Makes the next run check a plan that the caller has kept first."""
        self.last_plan = plan
        return 0

    cdef int forget(self) except -1:
        """Removes all plans. Their callables must be released when no thread runs them."""
        self.last_plan = None
        self.other_plans = []
        return self.cache.drop()

    cdef int drop(self, object session) except -1:
        """Removes all plans, and releases the callables that no thread runs."""
        self.forget()
        session._release_unused()
        return 0

    cdef int drop_with(self, object tensor) except -1:
        """Removes the plans that compute a tensor."""
        self.last_plan = None
        self.other_plans = []
        self.cache.drop_with(tensor)
        return 0
