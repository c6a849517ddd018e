from libc.stdint cimport int64_t, uint64_t

cdef extern from "fastsup/timer.h":
    ctypedef struct fs_timer:
        int64_t every_steps
        double every_secs
        int64_t last_step
        double last_time
        bint triggered


cdef class Timer:
    cdef fs_timer c
    # Counts the changes of the timer.
    cdef uint64_t version
    cdef object every_secs
    cdef object every_steps
    cdef object last_step
    cdef object last_time

    cdef int64_t next_step(self) except? -1
    cdef double next_time(self) except? -1.0
