from libc.stdint cimport uint64_t

from fastsup.core.schedule cimport Scheduled


cdef class ScheduledHook(Scheduled):
    # A fetch that the hook wants of every run, and looks at in C; None if there is none.
    cdef object watched_fetch
    # Wants to be called in a run before which the global step has not moved.
    cdef bint watches_stall
    # Asks its timer after the run, not before it.
    cdef bint decides_after
    # Decides on the step after the run, however much the run adds to it: nothing less will do.
    cdef bint needs_true_step

    # Moves with every change that a schedule may depend on, and the sum with the timer's that it was computed for.
    cdef uint64_t version
    cdef uint64_t scheduled_version
    cdef bint has_schedule

    cdef uint64_t whole_version(self) except? 0
    cdef bint accepts(self, object value) except -1
