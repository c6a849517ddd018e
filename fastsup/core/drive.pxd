from libc.stdint cimport int64_t, uint64_t

from fastsup.core.hook cimport fs_hook_fn, fs_loop, fs_schedule, fs_step_fn
from fastsup.core.schedule cimport fs_due

cdef extern from "drive.h":
    ctypedef enum fs_event:
        FS_NOTHING_DUE
        FS_HOOKS_DUE
        FS_SIGNALS_DUE
        FS_ENDED
        FS_STEP_FAILED
        FS_HOOK_FAILED
    ctypedef struct fs_slot:
        fs_hook_fn function
        void* context
        fs_schedule schedule
        fs_due* due
    ctypedef struct fs_drive:
        fs_loop loop
        int64_t max_steps
        fs_step_fn step
        void* step_context
        fs_slot* slots
        fs_due earliest
        bint clock_replaced
        const uint64_t* changes
        uint64_t changes_seen
        int code
        char* message
    fs_drive* fs_drive_new(size_t n)
    void fs_drive_free(fs_drive* drive)
    void fs_drive_reload(fs_drive* drive)
    bint fs_drive_is_done(const fs_drive* drive) nogil
    void fs_drive_request_stop(const fs_loop* loop) noexcept nogil
    int fs_drive_fail(const fs_loop* loop, const char* message) noexcept nogil
    void fs_slot_advance(fs_slot* slot, int64_t global_step, double now) nogil
    fs_event fs_drive_call(fs_drive* drive, const fs_slot* slot)
    bint fs_drive_count_step(fs_drive* drive)
    fs_event fs_drive_step_done(fs_drive* drive)
    fs_event fs_drive_run(fs_drive* drive) nogil
