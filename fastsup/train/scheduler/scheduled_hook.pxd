from libc.stdint cimport uint64_t

from fastsup.core.schedule cimport Scheduled, fs_due


cdef tuple callbacks_of(object kind)


cdef class ScheduledHookBase(Scheduled):
    # Set by the hook's `_schedule`.
    # A fetch that the hook wants of every run, and looks at in C; None if there is none.
    cdef object watched_fetch
    # Whether an in-run hook decides on the step that the run leads to (see due_in_run).
    cdef bint by_coming_step
    # Whether the hook decides after the run (see hook_list.pyx).
    cdef bint is_after_run
    # Of an after-run hook: it wants to be called after a run before which the global step has not moved; and it decides on
    # the step after the run, however much the run adds to it, not on the step before the run plus 1.
    cdef bint watches_stall
    cdef bint needs_true_step

    # The global step after the run, while the hook's `after_run` is called and the session counts it; else None.
    cdef readonly object counted_step

    # Moves with every change that a schedule may depend on.
    cdef uint64_t version
    # What the schedule was computed from: that version, the timer, and the timer's version.
    cdef uint64_t scheduled_version
    cdef object scheduled_timer
    cdef uint64_t scheduled_timer_version
    # What else the schedule was computed from: the due positions of another object, and what they were; or None.
    cdef Scheduled followed
    cdef fs_due followed_due
    # Whether that schedule can be relied on. Set by the HookList.
    cdef bint is_scheduled

    cdef int clear_schedule(self) except -1
    cdef bint follows(self) noexcept
    cdef bint is_current(self) except -1
    cdef int set_current(self) except -1
    cdef bint accepts(self, object value) except -1
