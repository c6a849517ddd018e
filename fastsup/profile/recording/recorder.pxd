from fastsup.profile.recording.recorder_probe cimport RecorderProbe
from fastsup.profile.recording.span_registry cimport SpanRegistry


cdef class Recorder(SpanRegistry):
    # True once a session or loop has got another profiler while this one was on for the whole program.
    cdef readonly bint other_profilers_used

    cdef object clock
    # True if another recorder may be started for the program while this one is on.
    cdef bint replaceable
    # The recorder that this one replaces for the program while it is on, or None.
    cdef Recorder replaced

    cdef int calibrate(self) except -1
    cdef RecorderProbe probe_around(self)
