from libc.stdint cimport int64_t

from fastsup.profile.recording.statistics cimport Recording, SessionStats, SpanStats


# The statistics of a hook's two callbacks, which are looked up in every run.
cdef class HookStats:
    cdef object hook
    cdef readonly str name
    # (index of the session's statistics, name): tells the hook from hooks of that name in other sessions.
    cdef tuple key
    cdef SessionStats session
    cdef SpanStats before_run
    cdef SpanStats after_run


cdef class SpanRegistry(Recording):
    cdef readonly bint step_markers
    # A context manager that is entered while the names of fetches are read.
    cdef public object description_guard

    # By (session's index, owner, phase, detail).
    cdef dict stats_by_name
    # By id(hook).
    cdef dict hooks
    cdef int64_t n_callers
    cdef dict sessions_by_origin
    # For spans that belong to no session.
    cdef SessionStats no_session
    # The runtime statistics of ended sessions, to be used again.
    cdef list free_runtime_stats

    cdef SpanStats stats_of(self, SessionStats session, str owner, str phase, str detail)
    cdef SpanStats new_stats(self, SessionStats session, str owner, str phase, str detail)
    cdef SessionStats new_session(self, object origin)
    cdef SessionStats session_of(self, int64_t caller)
    cdef HookStats stats_of_hook(self, object hook)
    cdef SpanStats enclosing_span(self)
    cdef int end_caller(self, int64_t caller) except -1
    cdef SpanStats runtime_stats(self, int64_t caller, object fetches, tuple names)
