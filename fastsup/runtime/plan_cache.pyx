"""The plans of a session, and what is compiled of them, within a limit of memory.

A combination of fetches and feeds that comes back must cost a run. Compiling takes 5 to 200 ms, so a session that has
more combinations than there is room for can't compile one whenever its turn comes. Within the limit, each plan has
its own callable. Past it, TensorFlow's own executors run what is new, as they do in `Session.run`; TensorFlow keeps
those as long as the session lives.

A callable that is no longer used makes room for one that is: when it has been left out for many times as many look-ups as
there are plans. Combinations that take turns, in whatever order, are never so late. So nothing is compiled in turns.
"""

from libc.stdint cimport uint64_t

from fastsup.common.interpreter_end import completed_before_exit
from fastsup.runtime.plan cimport CompiledCallable, SessionLifetime, Plan
from fastsup.runtime.session_run import SessionRun

# A plan is stale after this many look-ups for each plan. Of combinations that are drawn by chance, one in 10 million is.
STALE_ROUNDS = 16

# What a plan takes without a callable (2.4 kB were measured with six feeds, as the growth of the resident memory for each of
# 3,000 plans), and the share of the memory that all plans may take besides.
PLAN_BYTES = 4 << 10

cdef Py_ssize_t PLANS_SHARE = 2
# This many callables are kept whatever they take. The sets of fetches that a training loop runs in turns are hardly more.
cdef Py_ssize_t FEWEST_CALLABLES = 4


cdef class PlanCache:
    """The plans of one session.

    Args:
      graph: the session's graph.
      session_handle: the C++ session.
      lifetime: whether the session is open.
      max_bytes: what the callables may take.
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
        """The callable of a plan: a new one, or that of a plan with the same options.

        Returns:
          `CompiledCallable`. None if the cache is full: from now on, TensorFlow's own executors run the plan.
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
        """A callable for another executor.

        Args:
          options: CallableOptions, serialised.
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
        """What was compiled with these options and is still there, or None."""
        cdef Plan plan
        found = self.kept.get(options)
        if found is not None:
            return found
        for plan in self.plans.values():
            if plan.callable is not None and plan.callable.options == options:
                return plan.callable
        return None

    cdef bint is_stale(self, uint64_t last_used) noexcept:
        """True if a plan that was used last at this time has dropped out of those in use."""
        return last_used + self.stale_rounds * <uint64_t> len(self.plans) < self.clock

    cdef bint has_room(self, Plan plan) except -1:
        """True if a plan may be compiled, perhaps in the place of stale ones. It isn't stale itself: it is used again."""
        # Where plans themselves have to go, one that is new may not stay for long.
        if plan.last_used > 0 or len(self.plans) + 1 < self.max_plans:
            if self.lifetime.callable_bytes + plan.size <= self.max_bytes or self.lifetime.callables < FEWEST_CALLABLES:
                return True
        return plan.last_used > 0 and not self.is_stale(plan.last_used) and self.make_room(plan.size)

    cdef bint make_room(self, Py_ssize_t size) except -1:
        """Takes the callables of stale plans until there is room. False if there isn't enough."""
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
            with completed_before_exit:
                self.lifetime.release_unused(self.session_handle)
        return True

    cdef bint can_add(self) except -1:
        """True if there is room for one more plan, perhaps in the place of a stale one. That is removed."""
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
            # A caller that still has the plan looks it up again.
            oldest.hand_over(SessionRun(self.graph, self.session_handle, oldest.options))
        return True

    cdef int drop(self) except -1:
        """Forgets every plan. Their callables are released when no thread runs them."""
        self.plans = {}
        self.callables_full_until = self.plans_full_until = 0
        return 0

    cdef int drop_with(self, object tensor) except -1:
        """The same for the plans that compute a tensor."""
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
        """Lets go what lives as long as the session: it ends."""
        self.kept = {}

    def compiled_plans(self):
        """The plans that have a callable, in the order in which they were made."""
        cdef Plan plan
        return [plan for plan in list(self.plans.values()) if plan.callable is not None]
