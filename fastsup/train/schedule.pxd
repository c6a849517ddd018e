from cython cimport final
from libc.stdint cimport int64_t, uint64_t

from fastsup.core.schedule cimport Scheduled, ScheduleTable, fs_due
from fastsup.runtime.plans cimport Plan
from fastsup.runtime.runner cimport StepCount
from fastsup.train.run_snapshot cimport RunSnapshot


cdef class ScheduledHookBase(Scheduled):
    # The hook's `_schedule` sets the following fields.
    # A fetch that the hook needs in every run and checks in C, or None.
    cdef object watched_fetch
    # True if an in-run hook decides on the step after the run (see due_in_run).
    cdef bint by_coming_step
    # True if the hook decides after the run (see schedule.pyx).
    cdef bint is_after_run
    # For an after-run hook: it must be called after a run before which the global step didn't change; and it decides on
    # the step after the run with its actual increment, instead of the step before the run plus 1.
    cdef bint watches_stall
    cdef bint needs_true_step

    # The global step after the run, while the hook's `after_run` is called and the session counts the step. Otherwise
    # None.
    cdef readonly object counted_step

    # Every change that may affect a schedule increments the version.
    cdef uint64_t version
    # The basis of the schedule: the version above, the timer, and the timer's version.
    cdef uint64_t scheduled_version
    cdef object scheduled_timer
    cdef uint64_t scheduled_timer_version
    # The rest of the schedule's basis: another object with due positions, and these positions; or None.
    cdef Scheduled followed
    cdef fs_due followed_due
    # True if the schedule is reliable. The HookList sets it.
    cdef bint is_scheduled

    cdef int clear_schedule(self) except -1
    cdef bint follows(self) noexcept
    cdef bint is_current(self) except -1
    cdef int set_current(self) except -1
    cdef bint accepts(self, object value) except -1


@final
cdef class TypeVersions:
    cdef list types
    cdef unsigned int* versions

    cdef bint changed(self) noexcept


@final
cdef class HookList:
    # The program's list, and its contents when it was last sorted.
    cdef object hooks
    cdef list hooks_seen
    # The tensor that the graph's global step is read from.
    cdef object step_read
    cdef TypeVersions types

    # Every hook is in one of these four, in the order of the list. The four are replaced as a whole, with the lock
    # held.
    cdef ScheduleTable in_run
    cdef ScheduleTable after_run
    cdef list every_run
    cdef list no_op

    # The basis of the four lists, and derived values.
    cdef list schedulable
    cdef set every_run_ids
    cdef list no_op_types
    cdef list no_op_dicts
    cdef list no_op_sizes
    # True if a hook is in the list twice. It is then called twice in every run.
    cdef bint has_twins
    # Hooks that watch a fetch, and the fetches.
    cdef list watching
    cdef list watched_fetches
    # Whether a schedule depends on the global step, and whether an after-run hook must be called if it hasn't changed.
    cdef bint needs_step
    cdef bint watches_stall
    # Whether an after-run hook decides on the step after the run with its actual increment.
    cdef bint needs_true_step

    # How often the clock had been set back when the schedules were last computed.
    cdef const uint64_t* times_set_back
    cdef uint64_t set_back_seen

    # The number of the last run whose effects a scheduled hook has, by the hook's id.
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


@final
cdef class StepRequest:
    # The type of the request: list, tuple or dict, or None for a single step.
    cdef object kind
    cdef list keys
    # For each fetch, whether it is the step.
    cdef list is_step
    # The values to fetch, or None if there are none.
    cdef readonly list rest

    cdef object build(self, object step, list values)


cdef StepRequest request_for_step(StepCount count, object fetches, int fed)


@final
cdef class HookScheduler:
    # The session's hooks and its global step. Neither is replaced.
    cdef HookList hooks
    cdef StepCount count
    # The tensor that the graph's global step is read from, or None.
    cdef object step_read
    # Number of finished runs, and the global step before the last one. Only `close_step` changes them, with the lock
    # held.
    cdef int64_t runs
    cdef int64_t previous_step

    cdef int refresh(self) except -1
    cdef int open_step(self, RunSnapshot* snapshot, Plan plan) except -1
    cdef int find_step(self, RunSnapshot* snapshot) except -1
    cdef int read_counters(self, RunSnapshot* snapshot) except -1
    cdef int reopen_step(self, RunSnapshot* snapshot, object feed_dict, bint fed_by_hooks) except -1
    cdef int next_step(self, RunSnapshot* snapshot) except -1
    cdef int close_step(self, RunSnapshot* snapshot, object fetched) except -1
    cdef int64_t delta_of(self, Plan plan) except? -2
    cdef int find_step_after(self, RunSnapshot* snapshot) noexcept
    cdef int find_latest(self, RunSnapshot* snapshot) noexcept

    cdef bint any_in_run(self, RunSnapshot* snapshot) except -1
    cdef list hooks_in_run(self, RunSnapshot* snapshot)
    cdef list hooks_in_unknown_run(self, RunSnapshot* snapshot)
    cdef bint any_after_run(self, RunSnapshot* snapshot) except -1
    cdef bint is_due_after_run(self, RunSnapshot* snapshot, object candidate) except -1
    cdef int64_t idle_steps(self, RunSnapshot* snapshot) except -1
    cdef bint due_by_time(self) except -1

    cdef int sync_before_run(self, object hook) except -1
    cdef int mark_synced(self, object hook) except -1
    cdef int sync_after_run(self, RunSnapshot* snapshot, object hook) except -1
    cdef int skip_remaining(self, RunSnapshot* snapshot, object failed, list hooks) except -1
    cdef object known_step(self, RunSnapshot* snapshot)
    cdef object step_before(self, RunSnapshot* snapshot)
    cdef int tell_step_after(self, RunSnapshot* snapshot, ScheduledHookBase hook) except -1
