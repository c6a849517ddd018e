from cython cimport final
from libc.stdint cimport int64_t, uint64_t

from fastsup.core.schedule cimport ScheduleTable
from fastsup.train.scheduler.scheduled_hook cimport ScheduledHookBase
from fastsup.train.scheduler.type_versions cimport TypeVersions


@final
cdef class HookList:
    # The program's list, and its contents when it was sorted last.
    cdef object hooks
    cdef list hooks_seen
    # The tensor that the graph's global step is read from.
    cdef object step_read
    cdef TypeVersions types

    # Every hook is in one of these four, in the order of the list. Replaced whole, with the lock held.
    cdef ScheduleTable in_run
    cdef ScheduleTable after_run
    cdef list every_run
    cdef list no_op

    # What the four were made from, and what follows from them.
    cdef list schedulable
    cdef set every_run_ids
    cdef list no_op_types
    cdef list no_op_dicts
    cdef list no_op_sizes
    # A hook that is in the list twice is called twice in every run.
    cdef bint has_twins
    # Hooks that watch a fetch, and the fetches.
    cdef list watching
    cdef list watched_fetches
    # Whether a schedule depends on the global step, and whether an after-run hook wants to know that it hasn't moved.
    cdef bint needs_step
    cdef bint watches_stall
    # Whether an after-run hook decides on the step after the run, however much the run adds.
    cdef bint needs_true_step

    # How often the clock had been set back when the hooks were asked for their schedules last.
    cdef const uint64_t* times_set_back
    cdef uint64_t set_back_seen

    # For each scheduled hook, by its id, the number of the last run that it knows of.
    cdef dict synced_to

    cdef bint is_outdated(self) noexcept
    cdef bint hooks_changed(self) noexcept
    cdef bint no_op_hook_changed(self) noexcept
    cdef int refresh(self, int64_t run, int64_t previous_step) except -1
    cdef int sort(self, int64_t run, int64_t previous_step) except -1
    cdef int recompute_aggregates(self, ScheduleTable in_run, ScheduleTable after_run) except -1
    cdef bint has_schedule(self, object candidate, int64_t run, int64_t previous_step, bint ask) except -1
    cdef bint update_schedule(self, ScheduledHookBase hook, int64_t run, int64_t previous_step) except -1
    cdef int sync(self, ScheduledHookBase hook, int64_t run, int64_t previous_step) except -1
