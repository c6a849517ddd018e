from cython cimport final
from libc.stdint cimport uint64_t

from fastsup.runtime.plan cimport CompiledCallable, SessionLifetime, Plan


@final
cdef class PlanCache:
    cdef object graph
    cdef object session_handle
    cdef SessionLifetime lifetime
    # By what identifies the fetches and feeds. Another dictionary once the plans have been dropped.
    cdef dict plans
    # By their options, the callables that live as long as the session.
    cdef dict kept
    cdef Py_ssize_t max_bytes
    cdef Py_ssize_t max_plans
    cdef uint64_t stale_rounds
    # Counts the look-ups: the time of `Plan.last_used`. And when a callable, or a plan, may be replaced at the earliest.
    cdef uint64_t clock
    cdef uint64_t callables_full_until
    cdef uint64_t plans_full_until
    # Runs by TensorFlow's own executors, because the limit of callables was reached.
    cdef uint64_t left_runs

    cdef bint is_stale(self, uint64_t last_used) noexcept
    cdef bint can_add(self) except -1
    cdef bint has_room(self, Plan plan) except -1
    cdef bint make_room(self, Py_ssize_t size) except -1
    cdef CompiledCallable callable_with(self, bytes options)
    cdef CompiledCallable new_callable(self, bytes options, Py_ssize_t size, bint is_releasable)
    cdef int drop(self) except -1
    cdef int drop_with(self, object tensor) except -1
