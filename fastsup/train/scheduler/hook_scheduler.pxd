from cython cimport final
from libc.stdint cimport int64_t

from fastsup.runtime.plans cimport Plan
from fastsup.runtime.runner cimport StepCount
from fastsup.train.scheduler.hook_list cimport HookList
from fastsup.train.scheduler.scheduled_hook cimport ScheduledHookBase
from fastsup.train.scheduler.run_snapshot cimport RunSnapshot


@final
cdef class HookScheduler:
    # The session's hooks and its global step. Neither is replaced.
    cdef HookList hooks
    cdef StepCount count
    # The tensor that the graph's global step is read from, or None.
    cdef object step_read
    # Runs that have ended, and the global step before the last one. Only `close_step` and `close_steps` change them, with the lock held.
    cdef int64_t runs
    cdef int64_t previous_step

    cdef int refresh(self) except -1
    cdef int open_step(self, RunSnapshot* snapshot, Plan plan) except -1
    cdef int find_step(self, RunSnapshot* snapshot) except -1
    cdef int read_counters(self, RunSnapshot* snapshot) except -1
    cdef int reopen_step(self, RunSnapshot* snapshot, object feed_dict, bint fed_by_hooks) except -1
    cdef int next_step(self, RunSnapshot* snapshot) except -1
    cdef int close_step(self, RunSnapshot* snapshot, object fetched) except -1
    cdef int close_steps(self, RunSnapshot* snapshot, int64_t steps) except -1
    cdef int64_t delta_of(self, Plan plan) except? -2
    cdef int find_step_after(self, RunSnapshot* snapshot) noexcept
    cdef int find_latest(self, RunSnapshot* snapshot) noexcept

    cdef bint any_in_run(self, RunSnapshot* snapshot) except -1
    cdef list hooks_in_run(self, RunSnapshot* snapshot)
    cdef list hooks_in_unknown_run(self, RunSnapshot* snapshot)
    cdef bint any_after_run(self, RunSnapshot* snapshot) except -1
    cdef bint is_due_after_run(self, RunSnapshot* snapshot, object candidate) except -1
    cdef int64_t idle_steps(self, RunSnapshot* snapshot) except -1
    cdef int64_t steps_at_once(self, RunSnapshot* snapshot) except -1
    cdef double seconds_until_due(self) except? -1.0
    cdef bint due_by_time(self) except -1

    cdef int sync_before_run(self, object hook) except -1
    cdef int mark_synced(self, object hook) except -1
    cdef int sync_after_run(self, RunSnapshot* snapshot, object hook) except -1
    cdef int skip_remaining(self, RunSnapshot* snapshot, object failed, list hooks) except -1
    cdef object known_step(self, RunSnapshot* snapshot)
    cdef object step_before(self, RunSnapshot* snapshot)
    cdef int tell_step_after(self, RunSnapshot* snapshot, ScheduledHookBase hook) except -1
