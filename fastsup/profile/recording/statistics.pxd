from libc.stdint cimport int32_t, int64_t

from fastsup.core.probe cimport Part, Profiler
from fastsup.profile.recording.spans cimport fs_span_event, fs_span_log, fs_span_stats, fs_thread, fs_thread_trace


cdef class SessionStats


cdef class SpanStats(Part):
    cdef fs_span_stats c
    cdef readonly str owner
    cdef readonly str phase
    # The fetches of a runtime phase, or the class of a listener; "" for any other phase.
    cdef readonly str detail
    cdef SessionStats session
    # True for the runtime's: such a span that is the first of its step begins with the step.
    cdef bint begins_steps


cdef class SessionStats:
    cdef readonly int32_t index
    cdef readonly object origin
    cdef readonly int64_t n_sessions
    # The span within which the first of the sessions was opened, or None.
    cdef SpanStats within
    # The names of the hooks that are registered now.
    cdef set hook_names
    # The class names of hooks that are TensorFlow's own.
    cdef set tensorflow_hooks
    cdef SpanStats feed_stats
    cdef SpanStats fetch_stats
    # The session's own work in a run that calls hooks.
    cdef SpanStats dispatch_stats
    # The runtime's time for fetches beyond the limit.
    cdef SpanStats other_runtime
    # The fetches that keep a row after their session has ended.
    cdef set kept_fetches
    # By (fetches, feeds, what runs them in Keras or ""): the PlanExecutor as a dictionary.
    cdef dict executors
    cdef set asked_executors
    cdef int64_t operations_added
    # The wait for input that was measured within other rows.
    cdef int64_t input_calls
    cdef int64_t input_ns
    cdef int64_t input_max_ns


# A session or loop that is open.
cdef class Caller:
    cdef SessionStats stats
    # Function that returns its executors and the size of its graph.
    cdef object session_info
    # The size of its graph when `session_info` was last called, or None.
    cdef object operations


cdef class Recording(Profiler):
    # The traces of all threads, the one used last in front: every step reads the first.
    cdef fs_thread_trace* traces
    cdef fs_span_log* log
    # The index is the id of the statistics.
    cdef list stats_by_id
    cdef list sessions
    # By the caller's number.
    cdef dict callers
    # By ((caller, key of its fetches), keys of the hooks with fetches in the run): (SpanStats, fetches).
    cdef dict runtime_stats_by_run
    # By key of a hook: the estimated cost of its fetches in sessions that have ended.
    cdef dict past_estimates
    # By key of a hook: how many values it fetches in a run in which it fetches any.
    cdef dict values_fetched
    # The cost of fetching one small value, in nanoseconds.
    cdef public double value_ns
    # The cost of recording a span, or a step, that the span or step doesn't measure itself, in nanoseconds.
    cdef double cost_outside_span
    cdef double cost_outside_step

    cdef fs_thread_trace* trace_of(self, const void* ident) except NULL
    cdef int flush(self) except -1
    cdef int read_session_info(self, int64_t number) except -1
    cdef int add_estimates(self, dict estimates, dict runtime_stats_by_run) except -1
    cdef double counted_cost(self, object hook) except? -1.0
    cdef double compared_cost(self, dict medians, object fetches, tuple hooks, object hook) except? -1.0
    cdef int32_t threads(self) noexcept
    cdef dict event(self, const fs_span_event* event)


cdef inline fs_thread_trace* trace_of_this_thread(Recording recording) except NULL:
    cdef fs_thread_trace* trace = recording.traces
    if trace is NULL or trace.ident is not fs_thread():
        trace = recording.trace_of(fs_thread())
    return trace
