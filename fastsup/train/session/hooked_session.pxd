from libc.stdint cimport int64_t

from fastsup.core.spans cimport fs_thread_trace
from fastsup.runtime.plan cimport Plan
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.scheduler.hook_scheduler cimport HookScheduler
from fastsup.train.scheduler.step_view cimport StepView
from fastsup.train.session.hooks_probe cimport HooksProbe
from fastsup.train.session.wrapped_sessions cimport Call, Wrapped


cdef class Hooked(Wrapped):
    cdef public object _hooks
    cdef public bint _should_stop
    cdef HooksProbe probe
    # The wrapped session that was looked at last; the same as a `fastsup.Session`, and the schedules of the hooks around it.
    # The latter two are None for another session. Replaced together, by whichever thread runs the first step in a session.
    cdef object session_seen
    cdef SessionRunner runner
    cdef HookScheduler scheduler

    cdef bint has_scheduler(self) except -1
    cdef object run_steps(self, fs_thread_trace* trace, Call* call)
    cdef bint marks_steps(self, fs_thread_trace* trace) noexcept
    cdef object run_with_hooks(self, StepView* view, fs_thread_trace* trace, list hooks, Call* call)
    cdef object run_without_hooks_called(
        self, StepView* view, fs_thread_trace* trace, Plan plan, int64_t steps, Call* call
    )
    cdef object run_plan(
        self, StepView* view, fs_thread_trace* trace, Plan plan, tuple feeds, list watching, list extra,
        int64_t steps, Call* call
    )
    cdef Plan augmented_plan(self, Plan plan, object fetches, list extra, object feed_dict)
    cdef int call_after_run(self, StepView* view, fs_thread_trace* trace, Call* call, list rejected) except -1
