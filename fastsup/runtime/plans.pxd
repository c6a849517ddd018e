from cython cimport final
from libc.stdint cimport int64_t, uint64_t

from fastsup.runtime.callables cimport CompiledCallable, SessionLifetime, values_from
from fastsup.runtime.fetches cimport Fetch


@final
cdef class FeedSlot:
    cdef readonly object tensor
    # The key in the feed dictionary, and the index among the callable's feeds.
    cdef object key
    cdef Py_ssize_t place
    cdef object dtype
    cdef object numpy_type
    cdef object static_shape
    cdef tuple dims
    cdef bint exact_shape
    cdef double largest_int
    # The largest number of rows that counts as the same step, and whether more rows were fed. Used only if shapes may
    # differ.
    cdef Py_ssize_t rows_tried
    cdef bint has_grown

    cdef int read_shape(self) except -1
    cdef object convert(self, object value)


@final
cdef class Plan:
    cdef readonly Fetch structure
    cdef readonly tuple feeds
    # The feed slots in the order of the last feed dictionary, and by the feed's entry in the plan's key.
    cdef readonly tuple feed_order
    cdef dict slots_by_key
    # Whether the result contains fed values.
    cdef bint returns_feeds
    cdef readonly tuple elements
    cdef readonly object pinned
    # CallableOptions, serialized, and an estimate of the bytes of the compiled callable; 0 while unknown.
    cdef readonly bytes options
    cdef readonly Py_ssize_t size
    # Whether the callable may be released before the session is closed.
    cdef readonly bint is_releasable
    # None if the plan was only analyzed, or if TensorFlow's own executors run it through `session_run`.
    cdef readonly CompiledCallable callable
    # Number of runs until the next watched run; 0 if every run is watched.
    cdef int64_t unwatched_runs
    cdef readonly object trial
    # The object that makes large results cheaper; the replacement for the callable, or None; and whether the size of
    # results is watched. Whenever another thread may read a plan that can run, it has a callable or a replacement.
    cdef object large_results
    cdef object session_run
    cdef bint watches_results
    cdef int64_t look_distance
    # The run's access to variables: a VariableAccess.
    cdef readonly int access
    # The run's increment of the global step; negative if unknown. Set when it is first read.
    cdef int64_t step_delta
    cdef bint step_delta_known
    # The fed parts of the global step, from StepCount.fed_of; negative until a run needs them.
    cdef int step_fed
    cdef uint64_t last_used
    # The fetches by which the plan is recognized, if they are one element or a list of elements.
    cdef object cached_fetches
    # The plan of the same run with additional fetches for hooks, and these fetches.
    cdef Plan augmented
    cdef list extra_fetches

    cdef int order_feeds(self, object feed_dict) except -1
    cdef tuple convert_feeds(self, dict feed_dict)
    cdef int hand_over(self, object session_run) except -1
    cdef list call_watched(self, tuple feeds)
    cdef int64_t runs_until_look(self, object trial) except -1


cdef object key_of_feed(object feed)


cdef inline list call_plan(Plan plan, tuple feeds):
    """Computes a plan's fetches from the fed arrays, or from None without feeds."""
    if plan.unwatched_runs > 0:
        plan.unwatched_runs -= 1
        return values_from(plan.callable, feeds)
    return plan.call_watched(feeds)


@final
cdef class PlanCache:
    cdef object graph
    cdef object session_handle
    cdef SessionLifetime lifetime
    # The plans, by the key of their fetches and feeds. Dropping the plans replaces the dictionary.
    cdef dict plans
    # The callables that live as long as the session, by their options.
    cdef dict kept
    cdef Py_ssize_t max_bytes
    cdef Py_ssize_t max_plans
    cdef uint64_t stale_rounds
    # The number of look-ups, which is the clock of `Plan.last_used`; and the earliest times at which a callable or a
    # plan may be replaced.
    cdef uint64_t clock
    cdef uint64_t callables_full_until
    cdef uint64_t plans_full_until
    # Number of runs by TensorFlow's own executors, because the limit of callables was reached.
    cdef uint64_t left_runs

    cdef bint is_stale(self, uint64_t last_used) noexcept
    cdef bint can_add(self) except -1
    cdef bint has_room(self, Plan plan) except -1
    cdef bint make_room(self, Py_ssize_t size) except -1
    cdef CompiledCallable callable_with(self, bytes options)
    cdef CompiledCallable new_callable(self, bytes options, Py_ssize_t size, bint is_releasable)
    cdef int drop(self) except -1
    cdef int drop_with(self, object tensor) except -1


@final
cdef class PlanFinder:
    cdef PlanCache cache
    cdef SessionLifetime lifetime
    cdef object maker
    # Number of look-ups of compiled combinations, and number of other look-ups.
    cdef uint64_t hits
    cdef uint64_t misses

    # The last plan that was looked up. Most loops run only this plan.
    cdef Plan last_plan
    cdef list other_plans

    # The conditions under which a plan was created. When a condition changes, plans are created again.
    cdef object graph
    cdef uint64_t graph_version
    cdef dict names_in_use
    cdef Py_ssize_t names_seen
    cdef bint graph_is_final
    cdef set unfetchable
    cdef set unfeedable
    cdef Py_ssize_t rules_seen

    cdef Py_ssize_t rules(self)
    cdef Plan find(self, object session, object fetches, object feed_dict, bint to_run)
    cdef Plan recent_plan(self, object fetches, object feed_dict)
    cdef bint keep_up_with_graph(self, object session) except -1
    cdef int remember_last(self, Plan plan, object fetches, object feed_dict) except -1
    cdef int know_plan_by(self, Plan plan, object fetches, object feed_dict) except -1
    cdef Plan make_plan(self, object session, object key, object fetches, object feed_dict, bint to_run)
    cdef bint compile_known(self, object session, Plan plan) except -1
    cdef int read_step_directly(self, object variable) except -1
    cdef int put_first(self, Plan plan) noexcept
    cdef int forget(self) except -1
    cdef int drop(self, object session) except -1
    cdef int drop_with(self, object tensor) except -1
