from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from fastsup.core.recording cimport SessionStats, trace_of_this_thread
from fastsup.core.span_registry cimport SpanRegistry
from fastsup.core.spans cimport fs_scope, fs_scope_begin, fs_thread, fs_thread_trace


cdef class Recorder(SpanRegistry):
    cdef readonly bint step_markers
    # True once a session or loop has got another profiler while this one was on for the whole program.
    cdef readonly bint other_profilers_used

    cdef object clock
    # True if another recorder may be started for the program while this one is on.
    cdef bint replaceable
    # The recorder that this one replaces for the program while it is on, or None.
    cdef Recorder replaced

    cdef int calibrate(self) except -1


cdef inline int begin_scope(fs_scope* scope, Recorder recorder, bint is_step, int64_t caller) except -1:
    """Begins a step of this thread, or work beside the steps. The caller ends it with `fs_scope_end` on every path.

    Args:
      scope: its memory, which must stay in place until the end.
      recorder: the recorder.
      is_step: False for work beside the steps.
      caller: number of the session or loop, from `new_caller`; 0 for none.
    """
    fs_scope_begin(scope, trace_of_this_thread(recorder), <PyObject*> recorder, is_step)
    scope.caller = caller
    return 0


# The trace of the step that this thread is in, ready to be read; NULL outside a step.
cdef fs_thread_trace* active_trace() noexcept
# The recorder of the step that this thread is in; None outside a step.
cdef Recorder active_recorder()
# The statistics of the session whose step this thread is in. There must be a step.
cdef SessionStats active_session()
# Address of a pointer to the recorder of the whole program, which is NULL while there is none. A session without a
# profiler reads it in each step.
cdef void** program_wide() noexcept
