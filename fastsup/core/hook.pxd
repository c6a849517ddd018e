from libc.stdint cimport int64_t

from fastsup.core.schedule cimport Scheduled

cdef extern from "fastsup/loop.h":
    ctypedef struct fs_loop:
        int64_t global_step
        int64_t steps
        double result
    ctypedef struct fs_schedule:
        int64_t every_steps
        double every_secs
    # These take and return what C does: no Python exception passes through them, and the GIL may be released.
    ctypedef int (*fs_step_fn)(fs_loop* loop, void* context) noexcept nogil
    ctypedef int (*fs_hook_fn)(const fs_loop* loop, void* context) noexcept nogil
    int FS_GO_ON
    int FS_STOP


cdef class LoopHook(Scheduled):
    # What is called in place of `on_due`, without the GIL, if it isn't NULL; for subclasses in Cython to set.
    cdef fs_hook_fn function
    cdef void* context
    cdef fs_schedule schedule

    # The loop's state by itself, for it is read without Python.
    cdef int on_due(self, object loop, const fs_loop* state) except -1


cdef class FunctionHook(LoopHook):
    cdef object kept
    cdef object owner


cdef str callback_after_steps(LoopHook hook)
