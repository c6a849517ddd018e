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
    # Wants nothing of the run but the step after it: `_act` will do in place of its callbacks.
    cdef bint acts_on_step

    # The global step after the run, while the hook's `after_run` is called and the session counts it; else None.
    cdef readonly object counted_step

    # Moves with every change that a schedule may depend on.
    cdef uint64_t version
    # What the schedule was computed from: that version, the timer, and the timer's version.
    cdef uint64_t scheduled_version
    cdef object scheduled_timer
    cdef uint64_t scheduled_timer_version
    cdef bint has_schedule

    cdef bint is_current(self) except -1
    cdef int set_current(self) except -1
    cdef bint accepts(self, object value) except -1
