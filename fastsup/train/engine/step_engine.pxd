from libc.stdint cimport int64_t, uint64_t

from fastsup.core.probe cimport ProbeFinder
from fastsup.runtime.plans cimport Plan
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.scheduler.hook_scheduler cimport HookScheduler
from fastsup.train.engine.run_request cimport RunRequest


cdef class StepEngine:
    cdef public object hooks
    cdef public bint should_stop
    # The number of steps that have run with their hooks.
    cdef readonly uint64_t runs_ended
    cdef ProbeFinder probes
    # The session that the last step was run in; the same as a `fastsup.Session`, and the schedules of the hooks around it. The
    # latter two are None for another session. Replaced together, by whichever thread runs the first step in a session.
    cdef object session
    cdef SessionRunner runner
    cdef HookScheduler scheduler

    cpdef object step_without_hooks(self, object session, object fetches, object feed_dict)
    cdef object run(self, object session, RunRequest request)
    cdef bint attach(self, object session) except -1
    cdef int64_t run_at_once(self, object session, RunRequest request) except -1
    cdef int64_t make_at_once(self, RunRequest request) except -1
    cdef object run_steps(self, object session, RunRequest request)
    cdef object run_with_hooks(self, RunRequest request, list hooks)
    cdef void count_ended(self, int64_t steps) noexcept
    cdef object call_hooks(self, RunRequest request, list hooks, list results)
    cdef object run_without_hooks_called(self, RunRequest request, Plan plan)
    cdef object run_plan(self, RunRequest request, Plan plan, tuple feeds, list watching, list extra)
    cdef Plan augmented_plan(self, Plan plan, RunRequest request, list extra)


cpdef object still_open(object session)
