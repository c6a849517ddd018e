from fastsup.profile.recording.recorder_probe cimport RecorderProbe
from fastsup.profile.recording.statistics cimport SpanStats


cdef class CallProbe(RecorderProbe):
    # What a call is charged to, unless `called` knows better.
    cdef SpanStats main_stats

    cdef int setup_calls(self, object recorder, object origin, object session_info, str phase, str detail) except -1
    cdef object make(self, object function, tuple args, dict kwargs)
    cdef int called(self) except -1
    cdef int charge_to(self, SpanStats stats) except -1
