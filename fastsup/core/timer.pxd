from libc.stdint cimport int64_t, uint64_t

cdef extern from "timer.h":
    ctypedef struct fs_timer:
        int64_t every_steps
        double every_secs
        int64_t last_step
        double last_time
        bint triggered
    ctypedef enum fs_timer_answer:
        FS_TIMER_NO
        FS_TIMER_YES
        FS_TIMER_ASK_CLOCK
    fs_timer_answer fs_timer_ask_step(const fs_timer* timer, int64_t step) nogil
    bint fs_timer_time_due(const fs_timer* timer, double now) nogil


cdef class Timer:
    cdef fs_timer c
    # Moves with every change.
    cdef uint64_t version
    cdef object every_secs
    cdef object every_steps
    cdef object last_step
    cdef object last_time

    cdef int64_t next_step(self) except? -1
    cdef double next_time(self) except? -1.0
