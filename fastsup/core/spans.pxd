from libc.stdint cimport int32_t, int64_t, uint64_t

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
    ctypedef struct fs_cell:
        fs_histogram times
        int32_t id
    ctypedef struct fs_span_event:
        int64_t start
        int64_t duration
        int64_t step
        int32_t cell
        int32_t thread
    ctypedef struct fs_slow_step:
        int64_t step
        int64_t duration
        int32_t n_events
        fs_span_event* events
    ctypedef struct fs_span_log:
        fs_cell steps
        fs_cell between
        int64_t skip
        int64_t begun
        int64_t wall
        int64_t cost_in_span
        int64_t cost_between
        int64_t taken_off
        uint64_t spans
        int64_t stride
        int32_t n_events
        fs_span_event* events
        int32_t n_slow
        fs_slow_step* slow
    ctypedef struct fs_frame:
        fs_cell* cell
    ctypedef struct fs_track:
        fs_track* next
        fs_span_log* log
        const void* ident
        int32_t thread
        int32_t nested
        int32_t muted
        int32_t counts
        int32_t depth
        fs_frame* frames
    ctypedef struct fs_scope:
        fs_scope* next
        fs_track* track
        void* recorder
        int64_t caller
    const void* fs_thread() noexcept
    void fs_scope_begin(fs_scope* scope, fs_track* track, void* recorder, bint counts) noexcept
    void fs_scope_end(fs_scope* scope) noexcept
    fs_scope* fs_scope_of(fs_scope* open, const void* thread) noexcept
    void fs_log_init(fs_span_log* log, fs_span_clock clock, void* context, fs_scope** open, int64_t skip) noexcept
    void fs_track_init(fs_track* track, fs_span_log* log, int32_t thread) noexcept
    void fs_track_settle(fs_track* track) noexcept
    void fs_track_unfold(fs_track* track) noexcept
    void fs_track_interrupt(fs_track* track) noexcept
    void fs_track_pause(fs_track* track) noexcept
    void fs_track_abandon(fs_track* track) noexcept
    void fs_step_begin(fs_track* track, bint counts) noexcept
    void fs_step_next(fs_track* track, fs_cell* cell) noexcept
    void fs_step_end(fs_track* track) noexcept
    void fs_step_discount(fs_track* track) noexcept
    void fs_span_enter(fs_track* track, fs_cell* cell) noexcept
    void fs_span_enter_first(fs_track* track, fs_cell* cell) noexcept
    void fs_span_leave(fs_track* track) noexcept
    void fs_span_leave_last(fs_track* track) noexcept
