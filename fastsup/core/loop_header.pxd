# fastsup/loop.h: the loop state that C functions receive.

from libc.stdint cimport int64_t

cdef extern from "fastsup/loop.h":
    ctypedef struct fs_loop:
        int64_t global_step
        int64_t steps
        double result
    ctypedef struct fs_schedule:
        int64_t every_steps
        double every_secs
    # C functions, called with or without the GIL. Their return value doesn't raise a Python exception.
    ctypedef int (*fs_step_fn)(fs_loop* loop, void* context) noexcept nogil
    ctypedef int (*fs_hook_fn)(const fs_loop* loop, void* context) noexcept nogil
    int FS_GO_ON
    int FS_STOP
