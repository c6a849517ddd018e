from cython cimport final
from libc.stdint cimport uint64_t

from fastsup.runtime.plan cimport SessionLifetime, Plan
from fastsup.runtime.plan_cache cimport PlanCache


cdef bint add_to_key(list key, object fetch) except -1


@final
cdef class PlanFinder:
    cdef PlanCache cache
    cdef SessionLifetime lifetime
    cdef object maker
    # Runs of compiled combinations, and the other runs.
    cdef uint64_t hits
    cdef uint64_t misses

    # The plan looked up last: most loops run only that one.
    cdef Plan last_plan
    cdef list other_plans

    # What a plan was made under. When one of these changes, plans are made again.
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
