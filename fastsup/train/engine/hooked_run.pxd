from cython cimport final

from fastsup.core.probe cimport Probe
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.scheduler.hook_scheduler cimport HookScheduler
from fastsup.train.scheduler.run_snapshot cimport RunSnapshot
from fastsup.train.engine.run_request cimport RunRequest


# One run between the callbacks of hooks. It belongs to the thread that makes the run.
@final
cdef class HookedRun:
    # The wrapped session; and as a `fastsup.Session`, with the schedules of the hooks. Both None for another session.
    cdef object session
    cdef SessionRunner runner
    cdef HookScheduler scheduler
    cdef Probe probe
    # The SessionRunContext that the callbacks get.
    cdef object context

    # The caller's arguments, then with the hooks' feeds and options added; and the hooks' feeds alone, or None.
    cdef object fetches
    cdef object feed_dict
    cdef dict hook_feeds
    cdef object options
    cdef object metadata
    cdef bint has_options

    # The hooks called in the run. For each: the fetches that it requests, or None; the fetches that the run makes for it, or
    # None; the StepRequest if the global step is among those that it requests, or None; and its result.
    cdef list hooks
    cdef list requests
    cdef list fetched
    cdef list step_requests
    cdef list results
    # The global step before the run, if a hook requests it and it is known without a fetch.
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


cdef HookedRun new_hooked_run(
    object session, SessionRunner runner, HookScheduler scheduler, RunRequest request
)
