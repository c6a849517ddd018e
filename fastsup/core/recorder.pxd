from cpython.object cimport PyObject
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
        int32_t fresh
        int32_t open
        int32_t muted
        int32_t counts
        int32_t depth
        fs_frame* frames
    ctypedef struct fs_scope:
        fs_scope* next
        fs_track* track
        void* recorder
    const void* fs_thread() noexcept
    void fs_scope_begin(fs_scope* scope, fs_track* track, void* recorder, bint counts) noexcept
    void fs_scope_end(fs_scope* scope) noexcept
    fs_scope* fs_scope_of(fs_scope* open, const void* thread) noexcept
    void fs_log_init(fs_span_log* log, fs_span_clock clock, void* context, fs_scope** open, int64_t skip) noexcept
    void fs_track_init(fs_track* track, fs_span_log* log, int32_t thread) noexcept
    void fs_log_settle(fs_span_log* log) noexcept
    void fs_step_begin(fs_track* track, bint counts) noexcept
    void fs_step_next(fs_track* track, fs_cell* cell) noexcept
    void fs_step_end(fs_track* track) noexcept
    void fs_span_enter(fs_track* track, fs_cell* cell) noexcept
    void fs_span_enter_first(fs_track* track, fs_cell* cell) noexcept
    void fs_span_leave(fs_track* track) noexcept
    void fs_span_leave_last(fs_track* track) noexcept


cdef class Cell:
    cdef fs_cell c
    cdef readonly str owner
    cdef readonly str phase


# The two phases that every hook has, at hand.
cdef class HookCells:
    cdef object hook
    cdef readonly str name
    cdef Cell before_run
    cdef Cell after_run


cdef class Recorder:
    # What every step looks at: the tracks of all threads, the one used last in front; and the runtime's cell seen last.
    cdef fs_track* tracks
    cdef object last_fetches
    cdef Cell last_runtime
    cdef readonly bint step_markers

    cdef fs_span_log* log
    cdef int64_t cost_in_span
    cdef int64_t cost_between
    cdef double cost_beside_span
    cdef double cost_beside_step
    cdef object clock
    cdef list cells
    cdef dict cells_by_name
    cdef dict hooks
    cdef set names
    # What the runtime took for the same fetches of a caller, by the hooks that had fetches of their own in the run.
    cdef dict runtime_cells
    # Moves when fetches are let go: others may then be of the same identity.
    cdef int64_t generation
    cdef dict values_fetched
    cdef Cell other_runtime
    cdef Cell feed_cell
    cdef Cell fetch_cell
    cdef public double value_ns
    # Whether another recorder may be turned on for the program in place of this one; and the one in whose place this is.
    cdef bint gives_way
    cdef Recorder in_place_of

    cdef fs_track* track_of(self, const void* ident) except NULL
    cdef int calibrate(self) except -1
    cdef int32_t threads(self) noexcept
    cdef Cell cell(self, str owner, str phase)
    cdef Cell new_cell(self, str owner, str phase)
    cdef dict event(self, const fs_span_event* event)
    cdef HookCells cells_of(self, object hook)
    cdef Cell cell_of_step(self, object hook)
    cdef Cell runtime_alone(self, object fetches)
    cdef Cell runtime_cell(self, object fetches, tuple names)


cdef inline int begin_scope(fs_scope* scope, Recorder recorder, bint counts) except -1:
    """Begins a step in this thread. Whoever does ends it with `fs_scope_end`, on every way out."""
    cdef fs_track* track = recorder.tracks
    if track is NULL or track.ident is not fs_thread():
        track = recorder.track_of(fs_thread())
    fs_scope_begin(scope, track, <PyObject*> recorder, counts)
    return 0


cdef fs_track* active_track() noexcept
cdef Recorder active_recorder()
# The recorder that is on for the whole program, or NULL: what a session looks at that was given none.
cdef void** program_wide() noexcept
