from libc.stdint cimport int64_t

from fastsup.core.recorder cimport Recorder, fs_track
from fastsup.core.schedule cimport Scheduled, ScheduleTable


cdef class LoopHook(Scheduled):
    pass


cdef class Loop:
    # What records the loop, as it was given, and as it is for the run under way.
    cdef Recorder recorder
    cdef Recorder recording
    cdef object step_function
    cdef ScheduleTable table
    cdef int64_t steps_done
    cdef int64_t first_step
    cdef int64_t max_steps
    cdef bint stop_requested

    cdef int call_due(self, int64_t run, object value, fs_track* track) except -1
    cdef int begin_recording(self) except -1
    cdef int end_recording(self) except -1
    cdef object run_steps(self)
    cdef object recorded_step(self, object step)
