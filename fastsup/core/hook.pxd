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
    # Functions in C, called with or without the GIL. They raise no Python exception by their return value.
    ctypedef int (*fs_step_fn)(fs_loop* loop, void* context) noexcept nogil
    ctypedef int (*fs_hook_fn)(const fs_loop* loop, void* context) noexcept nogil
    int FS_GO_ON
    int FS_STOP


cdef class LoopHook(Scheduled):
    # Called in place of `on_due`, and without the GIL if the step is in C; NULL for none. A subclass in Cython sets it.
    cdef fs_hook_fn function
    cdef void* context
    cdef fs_schedule schedule
    # The number of runs of loops under way that call it. They share its due positions.
    cdef int runs_under_way

    cpdef due_at_time(self, object time)

    # `state` is the loop's own, passed so that it can be read without a Python call. Returns FS_GO_ON or FS_STOP.
    cdef int on_due(self, object loop, const fs_loop* state) except -1


cdef class FunctionHook(LoopHook):
    # Kept alive for `function` and `context`: the capsule, and the object that owns the context.
    cdef object capsule
    cdef object owner


cdef str callback_after_steps(LoopHook hook)
cdef bint takes_several(LoopHook hook) except -1


cdef void* function_in(object capsule, str role, str signature) except NULL
