from libc.stdint cimport int64_t

from fastsup.core.schedule cimport Scheduled, ScheduleTable


cdef class LoopHook(Scheduled):
    pass


cdef class Loop:
    cdef object step_function
    cdef ScheduleTable table
    cdef int64_t steps_done
    cdef int64_t first_step
    cdef int64_t max_steps
    cdef bint stop_requested

    cdef int call_due(self, int64_t run, object value) except -1
