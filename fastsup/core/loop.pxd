from libc.stdint cimport int64_t

from fastsup.core.hook cimport LoopHook, fs_loop


cdef class Loop:
    # The part that functions in C see. It lives as long as the loop.
    cdef const fs_loop* state

    cdef readonly tuple hooks
    cdef object step_function
    # The Stepper of the run under way, or of the last one. It isn't typed, and neither are the probe and its finder: embedders
    # don't need the headers of these.
    cdef object stepper
    cdef object owner
    # The number of steps that the loop is to make; INT64_MAX if none was given.
    cdef int64_t own_steps
    cdef bint running
    # The ProbeFinder of the steps.
    cdef object probes
    # The Probe of the run under way; None in a loop whose steps are made elsewhere.
    cdef object probe

    cdef int allocate(self, tuple hooks) except -1
    cdef int hold(self, object hooks) except -1
    cdef int limit_own_steps(self) except -1
    cdef int begin_hook(self, LoopHook hook) except -1
    cdef int move_to(self, int64_t steps, int64_t global_step) except -1
    cdef int call_hooks_after(self, object result) except -1
    cdef object run_to_end(self)
    cdef int make_steps(self, object probe) except -1
    cdef int step_failed(self, object error) except -1
    cdef int raise_set(self, int event) except -1
    cdef int handle(self, int event) except -1
    cdef object probe_of_run(self)
    cdef int call_hook(self, Py_ssize_t i) except -1
    cdef int note_hook(self, object error) except -1
