from libc.stdint cimport int64_t

from fastsup.core.probe cimport Probe
from fastsup.profile.recording.statistics cimport SessionStats, SpanRegistry, SpanStats, fs_thread_trace


cdef class RecorderProbe(Probe):
    cdef readonly SpanRegistry recorder
    # The recorder's number of the session or loop (0 for none), and its statistics.
    cdef int64_t caller
    cdef SessionStats session
    cdef bint is_loop
    cdef object hooks
    # Function that restores the hooks whose saves are recorded, or None.
    cdef object unwatch

    # The last run whose hooks only watch fetches: the runtime's part, its fetches, its list of hooks, and whether the
    # step was fetched. Most runs find their part here.
    cdef SpanStats last_part
    cdef object last_fetches
    cdef object last_hooks
    cdef bint last_with_step

    # The statistics of the parts of a batch, by name. They are looked up for each batch.
    cdef dict batch_phases

    # The context managers that mark steps for another profiler, by the address of the step's scope.
    cdef dict markers
    # The number of running steps in all threads, and whether the recorder should forget the session after the last one.
    cdef int steps_under_way
    cdef bint closes_later

    cdef int setup(self, SpanRegistry recorder, int64_t caller, object hooks, bint is_loop) except -1
    cdef fs_thread_trace* trace(self) except NULL
    cdef SpanStats stats_of_phase(self, str phase)
    cdef object call(self, SpanStats stats, object function, tuple args, dict kwargs)
    cdef int begin_marker(self, size_t scope) except -1
    cdef int close_now(self) except -1


cdef RecorderProbe new_recorder_probe(SpanRegistry recorder, int64_t caller, object hooks, bint is_loop)
# The probe of this thread's current step if a recorder records the step, otherwise None.
cdef RecorderProbe recorded_here()
# The probe of this thread's current step if `recorder` records the step, otherwise None.
cdef RecorderProbe probe_within(SpanRegistry recorder)


cdef class Recorder(SpanRegistry):
    # True once a session or loop used another profiler while this one was on for the whole program.
    cdef readonly bint other_profilers_used

    cdef object clock
    # True if another recorder may be started for the program while this one is on.
    cdef bint replaceable
    # The recorder that this one replaces for the program while it is on, or None.
    cdef Recorder replaced

    cdef int calibrate(self) except -1
    cdef RecorderProbe probe_around(self)
