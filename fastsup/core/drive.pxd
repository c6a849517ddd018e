from libc.stdint cimport int64_t, uint64_t

from fastsup.core.loop_header cimport fs_hook_fn, fs_loop, fs_schedule, fs_step_fn
from fastsup.core.schedule cimport fs_due, fs_due_table, fs_time_reached_fn

cdef extern from "drive.h":
    ctypedef enum fs_event:
        FS_NOTHING_DUE
        FS_HOOK_DUE
        FS_SCHEDULES_CHANGED
        FS_SIGNALS_DUE
        FS_ENDED
        FS_STEP_FAILED
        FS_STEP_RAISED
        FS_HOOK_FAILED
    ctypedef struct fs_slot:
        fs_hook_fn function
        void* context
        fs_schedule schedule
        fs_due* due
        bint takes_several
    ctypedef struct fs_drive_clock:
        fs_time_reached_fn reached
        double (*now)() noexcept
    const fs_drive_clock fs_steady_clock
    ctypedef struct fs_drive:
        fs_loop loop
        int64_t max_steps
        fs_step_fn step
        void* step_context
        size_t n_slots
        fs_slot* slots
        fs_due_table table
        const fs_drive_clock* clock
        bint calls_no_hook
        bint makes_several
        size_t next_slot
        fs_slot* due_slot
        int code
        char* message
    fs_drive* fs_drive_new(size_t n, const uint64_t* changes)
    void fs_drive_free(fs_drive* drive)
    void fs_drive_reload(fs_drive* drive)
    bint fs_drive_is_done(const fs_drive* drive) nogil
    void fs_drive_request_stop(const fs_loop* loop) noexcept nogil
    int fs_drive_fail(const fs_loop* loop, const char* message) noexcept nogil
    void fs_slot_advance(fs_slot* slot, int64_t global_step, double now) nogil
    fs_event fs_drive_call(fs_drive* drive, fs_slot* slot)
    fs_event fs_drive_failed(fs_drive* drive, fs_event event, int code)
    fs_event fs_drive_step_done(fs_drive* drive)
    int64_t fs_drive_steps_until_due(const fs_drive* drive)
    fs_event fs_drive_steps_done(fs_drive* drive, int64_t steps)
    fs_event fs_drive_call_due(fs_drive* drive)
    fs_event fs_drive_run(fs_drive* drive) nogil
