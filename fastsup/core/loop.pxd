from libc.stdint cimport int64_t

from fastsup.core.hook cimport LoopHook, fs_loop


cdef class Loop:
    # The part of the loop that C functions read. It lives as long as the loop.
    cdef const fs_loop* state

    cdef readonly tuple hooks
    cdef object step_function
    # The Stepper of the current or last run. The stepper, the probe and its finder aren't typed, so that embedders
    # don't need their headers.
    cdef object stepper
    cdef object owner
    # The number of steps for the loop to run; INT64_MAX without a limit.
    cdef int64_t own_steps
    cdef bint running
    # The ProbeFinder of the steps.
    cdef object probes
    # The Probe of the current run; None in a loop whose steps run elsewhere.
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
