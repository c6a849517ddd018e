from libc.stdint cimport int64_t

from fastsup.core.recording cimport SpanStats
from fastsup.core.spans cimport fs_thread_trace
from fastsup.runtime.plan cimport Plan
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.scheduler.hook_scheduler cimport HookScheduler
from fastsup.train.session.recorded_session cimport RecordedSession
from fastsup.train.scheduler.step_view cimport StepView
from fastsup.train.session.wrapped_sessions cimport Call


cdef class Hooked(RecordedSession):
    cdef public bint _should_stop
    # Our session, and the schedules of the hooks around it; None where the session is somebody else's.
    cdef object session_seen
    cdef SessionRunner runner
    cdef HookScheduler scheduler


    cdef object steps(self, Call* call)
    cdef bint has_schedules(self) except -1
    cdef object run_unstopped(self, object fetches, object feed_dict, object options, object run_metadata)
    cdef object run_recorded(self, object fetches, object feed_dict, object options, object run_metadata)
    cdef object run_on(self, fs_thread_trace* trace, object fetches, object feed_dict, object options, object run_metadata)
    cdef bint fetches_more(self, StepView* view) except -1
    cdef bint is_compiled(self, Plan plan, bint watched) noexcept
    cdef object run_without_calls(self, StepView* view, Plan plan, object fetches, object feed_dict)
    cdef object run_without_calls_held(self, StepView* view, Plan plan, object fetches, object feed_dict)
    cdef Plan plan_with(self, Plan plan, object fetches, list extra, object feed_dict)
    cdef object loop_recorded(
        self, StepView* view, Plan plan, list watching, object fetches, int64_t steps, Call* call
    )
    cdef object loop_while_idle(
        self, StepView* view, fs_thread_trace* trace, SpanStats runtime, Plan plan, list watching, object fetches, int64_t steps, Call* call
    )
    cdef int call_after_run(self, StepView* view, object fetches, object feed_dict, list rejected) except -1
    cdef object run_calling(
        self, StepView* view, list called, object fetches, object feed_dict, object options, object run_metadata
    )
