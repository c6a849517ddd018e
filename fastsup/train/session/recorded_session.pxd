from libc.stdint cimport int64_t

from fastsup.core.recording cimport SpanStats
from fastsup.core.recorder cimport Recorder
from fastsup.core.spans cimport fs_thread_trace
from fastsup.train.scheduler.hook_scheduler cimport HookScheduler
from fastsup.train.session.wrapped_sessions cimport Wrapped


cdef class RecordedSession(Wrapped):
    cdef public object _hooks
    # Who has opened the session: an `Opened`, or None.
    cdef public object _opened

    # Where to look whether runs are recorded: the session's own recorder, or the one of the whole program.
    cdef void** recorded_by
    cdef void* own_recorder
    cdef object recorder
    # The one that knows the hooks, and what takes back what it did to them.
    cdef Recorder known_to
    cdef object unwatch
    # The number of our fetches there.
    cdef int64_t caller
    # Recording runs and loops under way, and whether the hooks are to be forgotten after them.
    cdef int under_way
    cdef bint forgets_later
    # For the fetches and the hooks that watch a fetch, seen last: where the runtime's time goes.
    cdef object watched_with
    cdef object watching_seen
    cdef bint watched_with_step
    cdef SpanStats watched_stats

    cdef int forget_now(self) except -1
    cdef int recording_ended(self) except -1
    cdef Recorder watching_recorder(self)
    cdef fs_thread_trace* trace_now(self) noexcept
    cdef SpanStats stats_of_watched(self, HookScheduler scheduler, object fetches, bint with_step)
    cdef SpanStats stats_of_asked(self, HookScheduler scheduler, object fetches, list asked, list requests)
    cdef object before_run(self, fs_thread_trace* trace, object hook, object context)
    cdef int after_run(self, fs_thread_trace* trace, object hook, object context, object values) except -1


cdef inline SpanStats stats_at_hand(RecordedSession session, HookScheduler scheduler, object fetches, bint with_step):
    """What `stats_of_watched` gives: mostly what it gave last."""
    if (
        session.watching_seen is scheduler.hooks.watching
        and session.watched_with is fetches
        and session.watched_with_step == with_step
    ):
        return session.watched_stats
    return session.stats_of_watched(scheduler, fetches, with_step)
