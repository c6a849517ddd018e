from libc.stdint cimport int32_t, int64_t, uint64_t

from fastsup.core.probe cimport fs_scope

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
