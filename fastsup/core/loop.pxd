from libc.stdint cimport int64_t

from fastsup.core.hook cimport LoopHook, fs_loop


cdef class Loop:
    # The part that functions in C see. It lives as long as the loop.
    cdef const fs_loop* state

    cdef readonly tuple hooks
    cdef object step_function
    cdef object last_result
    cdef object owner
    cdef bint running
    # The Recorder that the loop was given, or None. Not typed, so that embedders don't need the recorder's headers.
    cdef object recorder

    cdef int allocate(self, tuple hooks) except -1
    cdef int begin_hook(self, LoopHook hook) except -1
    cdef int move_to(self, int64_t steps, int64_t global_step) except -1
    cdef int call_hooks_after(self, object result) except -1
    cdef int run_python(self) except -1
    cdef int run_c(self) except -1
    cdef int handle(self, int event) except -1
    cdef object begin_recording(self)
    cdef int end_recording(self, object recording) except -1
    cdef int run_recorded(self, object recording) except -1
    cdef bint step_once(self) except -1
    cdef int handle_recorded(self, int event, list hook_stats, void* recorded_trace) except -1
    cdef int call_hook(self, Py_ssize_t i, list hook_stats, void* recorded_trace) except -1
    cdef bint record_step(self, void* recorded_trace, object step, list hook_stats) except -1
