from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from fastsup.core.recording cimport SpanStats, Recording, SessionStats
from fastsup.core.spans cimport fs_scope, fs_scope_begin, fs_thread, fs_thread_trace


# The two phases that every hook has, at hand.
cdef class HookStats:
    cdef object hook
    cdef readonly str name
    # What tells it apart from hooks of that name in other sessions.
    cdef tuple key
    cdef SessionStats of
    cdef SpanStats before_run
    cdef SpanStats after_run


cdef class Recorder(Recording):
    # The runtime's stats seen last: at hand for steps without hooks.
    cdef object last_fetches
    cdef int64_t last_caller
    cdef SpanStats last_runtime
    cdef readonly bint step_markers
    # Whether a session or loop was given another recorder while this one was on for the whole program.
    cdef readonly bint saw_others

    cdef int64_t cost_in_span
    cdef int64_t cost_between
    cdef object clock
    cdef dict stats_by_name
    cdef dict hooks
    # How many sessions have had fetches of their own here.
    cdef int64_t n_callers
    cdef dict sessions_by_place
    # For what is no session's.
    cdef SessionStats no_session
    # Runtime statistics of sessions that are gone: for others.
    cdef list spare_stats
    # Whether another recorder may be turned on for the program in place of this one; and the one in whose place this is.
    cdef bint gives_way
    cdef Recorder in_place_of

    cdef fs_thread_trace* trace_of(self, const void* ident) except NULL
    cdef int calibrate(self) except -1
    cdef SpanStats stats_of(self, SessionStats of, str owner, str phase, str detail)
    cdef SpanStats new_stats(self, SessionStats of, str owner, str phase, str detail)
    cdef SessionStats new_session(self, object opened)
    cdef SessionStats session_of(self, int64_t caller)
    cdef HookStats stats_of_hook(self, object hook)
    cdef SpanStats stats_of_step(self, object hook)
    cdef int retire(self, int64_t caller) except -1
    cdef SpanStats runtime_alone(self, int64_t caller, object fetches)
    cdef SpanStats runtime_stats(self, int64_t caller, object fetches, tuple names)


cdef inline int begin_scope(fs_scope* scope, Recorder recorder, bint counts, int64_t caller) except -1:
    """Begins a step of a session in this thread. Whoever does ends it with `fs_scope_end`, on every way out."""
    cdef fs_thread_trace* trace = recorder.traces
    if trace is NULL or trace.ident is not fs_thread():
        trace = recorder.trace_of(fs_thread())
    fs_scope_begin(scope, trace, <PyObject*> recorder, counts)
    scope.caller = caller
    return 0


cdef fs_thread_trace* active_trace() noexcept
cdef Recorder active_recorder()
# Where this thread's step is recorded, which must be under way.
cdef SessionStats active_session()
# The recorder that is on for the whole program, or NULL: what a session looks at that was given none.
cdef void** program_wide() noexcept
