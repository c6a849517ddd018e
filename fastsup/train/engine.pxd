from cython cimport final
from libc.stdint cimport int64_t, uint64_t

from fastsup.core.probe cimport Probe, ProbeFinder, fs_scope
from fastsup.runtime.plans cimport Plan
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.run_snapshot cimport RunSnapshot
from fastsup.train.schedule cimport HookScheduler


# A request belongs to the thread that executes the runs.
@final
cdef class RunRequest:
    # The caller's arguments.
    cdef object fetches
    cdef object feed_dict
    cdef object options
    cdef object run_metadata

    # The state of a loop: the remaining steps, counted down; the coordinator's event that ends the loop, or None to
    # check after each step; and (result,) of the last step that succeeded before one that raised, or None.
    cdef bint in_loop
    cdef int64_t steps_left
    cdef object stop_event
    cdef tuple last_result

    # The current run: its snapshot, the number of such runs in sequence (1 outside a loop), and the probe that records
    # the step.
    cdef RunSnapshot snapshot
    cdef int64_t steps
    cdef Probe probe
    cdef fs_scope scope


cdef RunRequest new_request(object fetches, object feed_dict, object options, object run_metadata)


# One run between the callbacks of hooks. It belongs to the thread that executes the run.
@final
cdef class HookedRun:
    # The wrapped session; the same session as a `fastsup.Session`; and the schedules of the hooks. The latter two are
    # None for a session of another class.
    cdef object session
    cdef SessionRunner runner
    cdef HookScheduler scheduler
    cdef Probe probe
    # The SessionRunContext for the callbacks.
    cdef object context

    # The caller's arguments, later with the hooks' feeds and options added; and only the hooks' feeds, or None.
    cdef object fetches
    cdef object feed_dict
    cdef dict hook_feeds
    cdef object options
    cdef object metadata
    cdef bint has_options

    # The hooks called in the run. For each hook: the fetches that it requests, or None; the fetches that the run adds
    # for it, or None; the StepRequest if the hook requests the global step, or None; and the hook's result.
    cdef list hooks
    cdef list requests
    cdef list fetched
    cdef list step_requests
    cdef list results
    # The global step before the run, if a hook requests the step and the step is known without a fetch.
    cdef object step

    cdef object run(self, RunSnapshot* snapshot)
    cdef int call_before_run(self, RunSnapshot* snapshot) except -1
    cdef int find_step(self, RunSnapshot* snapshot) except -1
    cdef list fetch(self, RunSnapshot* snapshot)
    cdef list fetch_by_hook(self)
    cdef int distribute_results(self, list values) except -1
    cdef int call_after_run(self, RunSnapshot* snapshot, list hooks) except -1
    cdef int call_one_after_run(self, RunSnapshot* snapshot, object hook, object result) except -1
    cdef int call_in_part(self, object hook, object values) except -1


cdef class StepEngine:
    cdef public object hooks
    cdef public bint should_stop
    # The number of completed steps, including their hooks.
    cdef readonly uint64_t runs_ended
    cdef ProbeFinder probes
    # The session of the last step; the same session as a `fastsup.Session`; and the schedules of the hooks around it.
    # The latter two are None for a session of another class. The three fields are replaced together, by whichever
    # thread runs the first step in a session.
    cdef object session
    cdef SessionRunner runner
    cdef HookScheduler scheduler

    cpdef object step_without_hooks(self, object session, object fetches, object feed_dict)
    cdef object run(self, object session, RunRequest request)
    cdef bint attach(self, object session) except -1
    cdef object run_steps(self, object session, RunRequest request)
    cdef object run_with_hooks(self, RunRequest request, list hooks)
    cdef void count_ended(self, int64_t steps) noexcept
    cdef object call_hooks(self, RunRequest request, list hooks, list results)
    cdef object run_bare(self, RunRequest request, Plan plan)
    cdef object run_plan(self, RunRequest request, Plan plan, tuple feeds, list watching, list extra)
    cdef Plan augmented_plan(self, Plan plan, RunRequest request, list extra)


cpdef object still_open(object session)
