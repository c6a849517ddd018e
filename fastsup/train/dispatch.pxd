from cython cimport final
from libc.stdint cimport int64_t, uint64_t

from fastsup.core.schedule cimport ScheduleTable
from fastsup.runtime.plan cimport Plan
from fastsup.runtime.step_count cimport StepCount
from fastsup.train.scheduled cimport ScheduledHook
from fastsup.train.type_versions cimport TypeVersions


# What was seen before a run, and is needed after it. Each run has its own: other threads run in the same session.
cdef struct Look:
    # Whether it is known where the global step stands, and what the run adds to it; or that something happens to it which
    # isn't known, and then whether it is fetched in the run, as it can't be read before.
    bint step_known
    bint step_unforeseen
    bint step_fetched
    # Whether the run is fed the step: what a hook gets is what is fed. That is known of a plan, else it is to be found out.
    bint step_fed
    bint feeds_known
    # Whether the step was moved by a hook's before_run.
    bint moved
    # The step before the run; NO_STEP if that isn't known (yet).
    int64_t step_before
    # Whether a hook that was left out of the run acts on the step after it.
    bint acting
    # What the run adds to the global step.
    int64_t delta
    int64_t counted_before
    uint64_t disturbances_before


@final
cdef class Dispatch:
    cdef object hooks
    cdef object step_read
    cdef StepCount count
    cdef ScheduleTable table
    cdef TypeVersions types
    cdef list hooks_seen
    cdef list schedulable
    # Whether a hook is there twice: it is called twice in every run.
    cdef bint has_twins
    cdef list every_run
    cdef set every_run_ids
    cdef list quiet
    cdef list quiet_types
    cdef list quiet_dicts
    cdef list quiet_sizes
    cdef list watching
    cdef list watched_fetches
    cdef bint needs_step
    cdef bint watches_stall
    # Where the step is fetched: whether a hook wants that after the run, and the step that the others may be due at.
    cdef bint wants_true_step
    cdef int64_t earliest_foreseen
    cdef double time_before
    cdef double time_after

    # The runs made, and for each scheduled hook the run that it was called in last, by its id.
    cdef int64_t runs
    cdef dict called_in
    # The global step before the run made last, and before the one before that.
    cdef int64_t stale_step
    cdef int64_t stale_step_before

    cdef bint hooks_changed(self) noexcept
    cdef bint is_outdated(self) noexcept
    cdef bint quiet_hook_changed(self) noexcept
    cdef int refresh(self) except -1
    cdef int sort_hooks(self) except -1
    cdef int sum_up(self, ScheduleTable table) except -1
    cdef bint follows_schedule(self, object candidate, bint anew) except -1
    cdef bint set_schedule(self, ScheduledHook hook) except -1
    cdef bint nothing_due(self, Look* look, Plan plan) except -1
    cdef bint idle_run_ended(self, Look* look) except -1
    cdef bint anything_due(self, Look* look, Plan plan) except -1
    cdef int look_at_step(self, Look* look, Plan plan) except -1
    cdef int64_t delta_of(self, Plan plan) except? -2
    cdef int64_t idle_runs(self, Look* look, Plan plan) except -1
    cdef bint comes_due_by_time(self) except -1
    cdef int begin_next_run(self, Look* look) except -1
    cdef list due(self, Look* look)
    cdef bint hook_is_due(self, Look* look, Py_ssize_t i, ScheduledHook hook) except -1
    cdef int64_t position(self, Look* look) noexcept
    cdef int catch_up(self, object hook) except -1
    cdef int catch_up_late(self, ScheduledHook hook) except -1
    cdef bint left_out_too_much(self, Look* look) except -1
    cdef bint step_moved_unforeseen(self, Look* look) noexcept
    cdef int tell_step(self, Look* look, ScheduledHook hook) except -1
    cdef bint wanted_late(self, Look* look, object hook) except -1
    cdef bint can_act(self, Look* look, ScheduledHook hook) noexcept
    cdef int act(self, Look* look, ScheduledHook hook) except -1
    cdef int find_step(self, Look* look) except -1
    cdef int look_again(self, Look* look, object feed_dict, bint fed_by_hooks) except -1
    cdef object known_step(self, Look* look)
    cdef object late_values(self, Look* look, object fetches)
    cdef int run_ended(self, Look* look, list called, object fetched_step) except -1
    cdef int failed_at(self, object failed, list hooks) except -1
    cdef int call_all(self, Look* look) except -1
    cdef void note_run(self, Look* look) noexcept
