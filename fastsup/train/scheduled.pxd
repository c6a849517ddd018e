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

    cdef bint accepts(self, object value) except -1
