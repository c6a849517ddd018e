from libc.stdint cimport int32_t, int64_t, uint64_t

from fastsup.core.probe cimport Part, Profiler, fs_scope

cdef extern from "histogram.h":
    int FS_BUCKETS
    ctypedef struct fs_histogram:
        uint64_t count
        int64_t total
        int64_t max
        int64_t max_step
        uint64_t* buckets
    void fs_histogram_bounds(int bucket, int64_t* low, int64_t* high) noexcept
    double fs_histogram_quantile(const fs_histogram* histogram, double share) noexcept
    void fs_histogram_merge(fs_histogram* histogram, const fs_histogram* other) noexcept
    void fs_histogram_add(fs_histogram* histogram, int64_t ns, int64_t step) noexcept

cdef extern from "spans.h":
    int FS_TRACE_EVENTS
    ctypedef int64_t (*fs_span_clock)(void* context) noexcept
    ctypedef struct fs_span_stats:
        fs_histogram times
        int32_t id
        int32_t aside
    int FS_BESIDE, FS_STEP, FS_PASS, FS_ASIDE
    ctypedef struct fs_span_event:
        int64_t start
        int64_t duration
        int64_t step
        int32_t stats
        int32_t thread
    ctypedef struct fs_slow_step:
        int64_t step
        int64_t duration
        int32_t n_events
        fs_span_event* events
    ctypedef struct fs_span_log:
        fs_span_stats steps
        fs_span_stats between
        fs_scope** open_scopes
        int64_t skip_steps
        int64_t begun
        int64_t wall_ns
        int64_t cost_in_span
        int64_t cost_between
        int64_t cost_subtracted
        uint64_t n_spans
        int64_t stride
        int32_t n_events
        fs_span_event* events
        int32_t n_slow
        fs_slow_step* slow
    ctypedef struct fs_frame:
        fs_span_stats* stats
    ctypedef struct fs_thread_trace:
        fs_thread_trace* next
        fs_span_log* log
        const void* ident
        int32_t thread
        int32_t nested
        int32_t muted
        int32_t kind
        int32_t depth
        fs_frame* frames
    const void* fs_thread() noexcept
    void fs_scope_begin(fs_scope* scope, fs_thread_trace* trace, void* probe, int kind) noexcept
    void fs_scope_end(fs_scope* scope) noexcept
    void fs_log_init(
        fs_span_log* log, fs_span_clock clock, void* context, fs_scope** open_scopes, int64_t skip_steps
    ) noexcept
    void fs_trace_init(fs_thread_trace* trace, fs_span_log* log, int32_t thread) noexcept
    void fs_trace_flush(fs_thread_trace* trace) noexcept
    void fs_trace_expand(fs_thread_trace* trace) noexcept
    void fs_trace_interrupt(fs_thread_trace* trace) noexcept
    void fs_trace_interrupt_between_steps(fs_thread_trace* trace) noexcept
    void fs_trace_abandon(fs_thread_trace* trace) noexcept
    void fs_step_begin(fs_thread_trace* trace, int kind) noexcept
    void fs_step_switch(fs_thread_trace* trace, int kind, fs_span_stats* stats) noexcept
    void fs_step_end(fs_thread_trace* trace) noexcept
    void fs_step_next(fs_thread_trace* trace, fs_span_stats* stats) noexcept
    void fs_step_uncount(fs_thread_trace* trace) noexcept
    void fs_span_enter(fs_thread_trace* trace, fs_span_stats* stats) noexcept
    void fs_span_enter_first(fs_thread_trace* trace, fs_span_stats* stats) noexcept
    void fs_span_leave(fs_thread_trace* trace) noexcept
    void fs_span_leave_last(fs_thread_trace* trace) noexcept
    void fs_span_charge_to(fs_thread_trace* trace, fs_span_stats* stats) noexcept


cdef class SessionStats


cdef class SpanStats(Part):
    cdef fs_span_stats c
    cdef readonly str owner
    cdef readonly str phase
    # The fetches of a runtime phase, or the class of a listener, or "".
    cdef readonly str detail
    cdef SessionStats session
    # True for the runtime's spans. Such a span starts with the step if it is the step's first span.
    cdef bint begins_steps


cdef class SessionStats:
    cdef readonly int32_t index
    cdef readonly object origin
    cdef readonly int64_t n_sessions
    # The span in which the first session was opened, or None.
    cdef SpanStats within
    # The names of the currently registered hooks.
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
    # Descriptions of PlanExecutors as dictionaries, by (fetches, feeds, executor in Keras or "").
    cdef dict executors
    cdef set asked_executors
    cdef int64_t operations_added
    # The wait for input that was measured within other rows.
    cdef int64_t input_calls
    cdef int64_t input_ns
    cdef int64_t input_max_ns


# An open session or loop.
cdef class Caller:
    cdef SessionStats stats
    # Function that returns the executors and the graph size of the session or loop.
    cdef object session_info
    # The size of the graph when `session_info` was last called, or None.
    cdef object operations


cdef class Recording(Profiler):
    # The traces of all threads, the last used one first, because every step reads the first one.
    cdef fs_thread_trace* traces
    cdef fs_span_log* log
    # The index is the id of the statistics.
    cdef list stats_by_id
    cdef list sessions
    # The open sessions and loops, by the caller's number.
    cdef dict callers
    # Pairs (SpanStats, fetches), by ((caller, key of its fetches), keys of the hooks with fetches in the run).
    cdef dict runtime_stats_by_run
    # The estimated cost of a hook's fetches in ended sessions, by the hook's key.
    cdef dict past_estimates
    # The number of values that a hook fetches in a run in which it fetches any, by the hook's key.
    cdef dict values_fetched
    # The cost of fetching one small value, in nanoseconds.
    cdef public double value_ns
    # The part of the cost of recording a span or a step that the recording itself doesn't measure, in nanoseconds.
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


# The statistics of a hook's two callbacks, which are looked up in every run.
cdef class HookStats:
    cdef object hook
    cdef readonly str name
    # (index of the session's statistics, name), which distinguishes the hook from others with that name.
    cdef tuple key
    cdef SessionStats session
    cdef SpanStats before_run
    cdef SpanStats after_run


cdef class SpanRegistry(Recording):
    cdef readonly bint step_markers
    # A context manager that is entered while the names of fetches are read.
    cdef public object description_guard

    # The statistics of spans, by (session's index, owner, phase, detail).
    cdef dict stats_by_name
    # The statistics of hooks, by id(hook).
    cdef dict hooks
    cdef int64_t n_callers
    cdef dict sessions_by_origin
    # The entry for spans that belong to no session.
    cdef SessionStats no_session
    # The runtime statistics of ended sessions, for reuse.
    cdef list free_runtime_stats

    cdef SpanStats stats_of(self, SessionStats session, str owner, str phase, str detail)
    cdef SpanStats new_stats(self, SessionStats session, str owner, str phase, str detail)
    cdef SessionStats new_session(self, object origin)
    cdef SessionStats session_of(self, int64_t caller)
    cdef HookStats stats_of_hook(self, object hook)
    cdef SpanStats enclosing_span(self)
    cdef int end_caller(self, int64_t caller) except -1
    cdef SpanStats runtime_stats(self, int64_t caller, object fetches, tuple names)
