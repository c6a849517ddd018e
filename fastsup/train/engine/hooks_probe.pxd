from fastsup.core.recording cimport SpanStats
from fastsup.core.recorder cimport Recorder
from fastsup.core.spans cimport fs_thread_trace
from fastsup.runtime.session_probe cimport SessionProbe
from fastsup.train.scheduler.hook_scheduler cimport HookScheduler


cdef class HooksProbe(SessionProbe):
    cdef object hooks
    # Takes back what was done to the hooks to record their saves; None while no recorder knows them.
    cdef object unwatch
    # The statistics of the session's own work in runs that call hooks.
    cdef SpanStats dispatch_stats
    # The statistics of the runtime's time in the last run without hooks' requests: for which fetches, for which list of
    # watching hooks, and whether the step was fetched.
    cdef SpanStats watched_stats
    cdef object watched_with
    cdef object watching_seen
    cdef bint watched_with_step

    cdef tuple session_key(self, Recorder recorder)
    cdef SpanStats stats_of_watched(self, HookScheduler scheduler, object fetches, bint with_step)
    cdef SpanStats stats_of_requests(self, object fetches, list hooks, list requests, bint with_step)
    cdef object call_before_run(self, fs_thread_trace* trace, object hook, object context)
    cdef int call_after_run(self, fs_thread_trace* trace, object hook, object context, object values) except -1


cdef inline SpanStats runtime_stats(HooksProbe probe, HookScheduler scheduler, object fetches, bint with_step):
    """The statistics of the runtime's time in a run that calls no hook: mostly those of the last such run."""
    if (
        probe.watching_seen is scheduler.hooks.watching
        and probe.watched_with is fetches
        and probe.watched_with_step == with_step
    ):
        return probe.watched_stats
    return probe.stats_of_watched(scheduler, fetches, with_step)
