"""The clock of timers and schedules: C, unless the program has replaced `time.time`."""

import time

from cpython.dict cimport PyDict_GetItem

cdef extern from "clock.h":
    double fs_clock_seconds() nogil
    bint fs_clock_reached(double seconds) nogil

cdef dict time_namespace = time.__dict__
cdef object builtin_time = time.time


cdef bint is_replaced() noexcept:
    """Returns True if the program, or a test, has replaced `time.time`."""
    return PyDict_GetItem(time_namespace, "time") is not <void*> builtin_time


cdef double seconds() except? -1.0:
    """Seconds since the epoch, by the replacement of `time.time` if there is one."""
    return time.time() if is_replaced() else fs_clock_seconds()


cdef bint reached(double due) except -1:
    """Returns True if the clock has reached a time, given in seconds since the epoch."""
    return time.time() >= due if is_replaced() else fs_clock_reached(due)


def now():
    """Returns the seconds since the epoch, as `time.time()` does."""
    return seconds()
