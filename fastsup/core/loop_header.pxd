# fastsup/loop.h: the state of a loop that C functions get.

from libc.stdint cimport int64_t

cdef extern from "fastsup/loop.h":
    ctypedef struct fs_loop:
        int64_t global_step
        int64_t steps
        double result
    ctypedef struct fs_schedule:
        int64_t every_steps
        double every_secs
    # Functions in C, called with or without the GIL. They raise no Python exception by their return value.
    ctypedef int (*fs_step_fn)(fs_loop* loop, void* context) noexcept nogil
    ctypedef int (*fs_hook_fn)(const fs_loop* loop, void* context) noexcept nogil
    int FS_GO_ON
    int FS_STOP
