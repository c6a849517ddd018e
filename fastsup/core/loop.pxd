from libc.stdint cimport int64_t

from fastsup.core.hook cimport LoopHook, fs_loop


cdef class Loop:
    # The part that functions in C see. It lives as long as the loop.
    cdef const fs_loop* state

    cdef readonly tuple hooks
    cdef object step_function
    cdef object last_result
    cdef object owner
    # A method of the step that makes several steps at once; None if it has none.
    cdef object run_steps
    # The results of the steps that were made at once last, None if no hook takes them; and the number of steps before.
    cdef object results
    cdef int64_t steps_before
    # The number of steps that the loop is to make; INT64_MAX if none was given.
    cdef int64_t own_steps
    cdef bint running
    # The ProbeFinder of the steps. It and the probe aren't typed, so that embedders don't need the headers of probes.
    cdef object probes
    # The Probe of the run under way; None in a loop whose steps are made elsewhere.
    cdef object probe

    cdef int allocate(self, tuple hooks) except -1
    cdef int hold(self, object hooks) except -1
    cdef int limit_own_steps(self) except -1
    cdef int begin_hook(self, LoopHook hook) except -1
    cdef int move_to(self, int64_t steps, int64_t global_step) except -1
    cdef int call_hooks_after(self, object result) except -1
    cdef int run_python(self) except -1
    cdef int run_several(self) except -1
    cdef int64_t steps_at_once(self) except? -1
    cdef bint takes_results(self) except -1
    cdef int several_done(self, int64_t steps) except -1
    cdef int run_c(self) except -1
    cdef int step_failed(self, object error) except -1
    cdef int raise_set(self, int event) except -1
    cdef int handle(self, int event) except -1
    cdef object probe_of_run(self)
    cdef int run_recorded(self, object probe) except -1
    cdef bint step_once(self) except -1
    cdef int call_hook(self, Py_ssize_t i) except -1
    cdef int note_hook(self, object error) except -1
