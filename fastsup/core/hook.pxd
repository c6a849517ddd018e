from fastsup.core.loop_header cimport FS_GO_ON, FS_STOP, fs_hook_fn, fs_loop, fs_schedule, fs_step_fn
from fastsup.core.schedule cimport Scheduled


cdef class LoopHook(Scheduled):
    # C function that is called instead of `on_due`, without the GIL if the step is in C; NULL if not used. A subclass
    # in Cython sets it.
    cdef fs_hook_fn function
    cdef void* context
    cdef fs_schedule schedule
    # The number of running loops that call the hook. They share its due positions.
    cdef int runs_under_way

    cpdef due_at_time(self, object time)

    # `state` is the state of the loop, passed so that it can be read without a Python call. Returns FS_GO_ON or
    # FS_STOP.
    cdef int on_due(self, object loop, const fs_loop* state) except -1


cdef class FunctionHook(LoopHook):
    # Kept alive for `function` and `context`: the capsule, and the object that owns the context.
    cdef object capsule
    cdef object owner


cdef str callback_after_steps(LoopHook hook)
cdef bint takes_several(LoopHook hook) except -1


cdef void* function_in(object capsule, str role, str signature) except NULL
