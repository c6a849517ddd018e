from libc.stdint cimport int32_t

from fastsup.core.probe cimport fs_scope
from fastsup.profile.recording.recorder cimport RecorderProbe
from fastsup.profile.recording.statistics cimport SpanStats


cdef class CallProbe(RecorderProbe):
    # The default part to which a call is charged, unless `called` determines another.
    cdef SpanStats main_stats

    cdef int setup_calls(self, object recorder, object origin, object session_info, str phase, str detail) except -1
    cdef object make(self, object function, tuple args, dict kwargs)
    cdef int called(self) except -1
    cdef int charge_to(self, SpanStats stats) except -1


cdef class PassProbe(RecorderProbe):
    cdef fs_scope scope
    cdef bint entered
    # The number of spans around the pass.
    cdef int32_t depth
    # Whether a batch is running, and whether the loop's function for it is running.
    cdef bint in_batch
    cdef bint in_function
    # The pass's own code: before the loop, around each batch, and between epochs. Then its function for each batch.
    cdef SpanStats setup_stats
    cdef SpanStats loop_stats
    cdef SpanStats epochs_stats
    cdef SpanStats function_stats
    # The list of callbacks whose batches are counted, or None before it is known.
    cdef object callback_list
    # The probe of callbacks in other threads.
    cdef RecorderProbe of_threads
    # The methods of callbacks that are replaced.
    cdef list timed_methods
    # The `TimedInput`s that the pass takes batches from, each with the wait before the pass.
    cdef list inputs
    # True if steps are skipped, so that the waits in them aren't counted.
    cdef bint skips_waits

    cdef int unwind(self) except -1
    cdef int watch(self, object callbacks, object names) except -1
    cdef int leave_batch(self) except -1
    cdef int settle(self) except -1
    cdef int leave_loop(self) except -1
    cdef SpanStats stats_of_method(self, object callback, str name, bint aside)


cdef class TimedMethod:
    # The method, its callback, and the previous value in the callback's dictionary, or None.
    cdef object method
    cdef object callback
    cdef str name
    cdef object replaced
    # The current function.
    cdef object placed
    cdef PassProbe probe
    cdef SpanStats stats
