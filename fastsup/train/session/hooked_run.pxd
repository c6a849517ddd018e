from cython cimport final

from fastsup.core.spans cimport fs_thread_trace
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.scheduler.hook_scheduler cimport HookScheduler
from fastsup.train.session.recorded_session cimport RecordedSession
from fastsup.train.scheduler.step_view cimport StepView


@final
cdef class HookedRun:
    # The session that owns the hooks. The other two are None if the wrapped session isn't a `fastsup.Session`.
    cdef RecordedSession session
    cdef SessionRunner runner
    cdef HookScheduler scheduler
    cdef fs_thread_trace* trace
    # The SessionRunContext that the callbacks get.
    cdef object context

    # The caller's arguments, then with the hooks' feeds and options added; and the hooks' feeds alone, or None.
    cdef object fetches
    cdef object feed_dict
    cdef dict hook_feeds
    cdef object options
    cdef object metadata
    cdef bint has_options

    # The hooks called in the run. For each: the fetches that it asks for, or None; the StepRequest if the global step is
    # among them, or None; and its result.
    cdef list called
    cdef list wanted
    cdef list step_requests
    cdef list results
    # The global step before the run, if a hook asks for it and it is known without a fetch.
    cdef object step

    # The fetches of the run: the caller's, then those of each of `fetching`.
    cdef list requests
    cdef list fetching

    cdef object run(self, StepView* view)
    cdef int call_before_run(self, StepView* view) except -1
    cdef int find_step(self, StepView* view) except -1
    cdef int collect_requests(self, StepView* view) except -1
    cdef list fetch(self)
    cdef int distribute_results(self, list values) except -1
    cdef int call_after_run(self, StepView* view) except -1
    cdef int call_one_after_run(self, StepView* view, object hook, object result) except -1


cdef HookedRun hooked_run(
    RecordedSession session, SessionRunner runner, HookScheduler scheduler, list called, object fetches,
    object feed_dict, object options, object run_metadata
)
