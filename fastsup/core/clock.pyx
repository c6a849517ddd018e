"""The clock of timers and schedules: C, unless the program has replaced `time.time`."""

import time

from libc.stdint cimport uint64_t
from cpython.dict cimport PyDict_GetItem

cdef extern from "clock.h":
    double fs_clock_seconds() nogil
    bint fs_clock_reached(double seconds, double* latest, int* set_back) nogil
    double fs_clock_steady() nogil
    bint fs_clock_steady_reached(double seconds) nogil

cdef dict time_namespace = time.__dict__
cdef object builtin_time = time.time

# The GIL guards both.
cdef double latest = 0.0
cdef uint64_t set_back_count = 0


cdef bint is_replaced() noexcept:
    """Returns True if the program, or a test, has replaced `time.time`."""
    return PyDict_GetItem(time_namespace, "time") is not <void*> builtin_time


cdef double seconds() except? -1.0:
    """Returns the seconds since the epoch, from the replacement of `time.time` if there is one."""
    return time.time() if is_replaced() else fs_clock_seconds()


cdef bint reached(double due) except -1:
    """Returns True if the clock has reached a time, given in seconds since the epoch."""
    global latest, set_back_count
    cdef int set_back = 0
    cdef bint is_reached
    if is_replaced():
        return time.time() >= due
    is_reached = fs_clock_reached(due, &latest, &set_back)
    set_back_count += set_back
    return is_reached


cdef uint64_t* times_set_back() noexcept:
    """Returns the address of the counter that `reached` increments when the clock is set back by over a second."""
    return &set_back_count


cdef double steady_seconds() except? -1.0:
    """Returns seconds from a clock that can't be set, or from the replacement of `time.time` if there is one."""
    return time.time() if is_replaced() else fs_clock_steady()


cdef int steady_reached(double due) except -1:
    """Returns 1 if the clock of `steady_seconds` has reached a time."""
    return time.time() >= due if is_replaced() else fs_clock_steady_reached(due)


cdef double as_steady(double due) except? -1.0:
    """Converts a time of the clock that `now` reads to one of the clock that `steady` reads."""
    if is_replaced():
        return due
    cdef double set_back_by = fs_clock_steady() - fs_clock_seconds()
    # Unless the clock was set, the two clocks differ only by the time between the reads and by clock adjustments.
    return due if -0.1 < set_back_by < 0.1 else due + set_back_by


def now():
    """Returns the seconds since the epoch, as `time.time()` does."""
    return seconds()


def steady():
    """Returns seconds from a clock that can't be set, for durations; if `time.time` is replaced, the replacement's
    value."""
    return steady_seconds()
