"""The one clock: C, unless `time.time` has been replaced in this process."""

import time

from cpython.dict cimport PyDict_GetItem

cdef extern from "clock.h":
    double fs_clock_seconds() nogil
    bint fs_clock_reached(double seconds) nogil

cdef dict time_namespace = time.__dict__
cdef object builtin_time = time.time


cdef double seconds() except? -1.0:
    """Seconds since the epoch. A test or a program that replaces `time.time` is obeyed, at its price."""
    if PyDict_GetItem(time_namespace, "time") is <void*> builtin_time:
        return fs_clock_seconds()
    return time.time()


cdef bint reached(double due) except -1:
    """Whether the clock has reached a time, in seconds since the epoch."""
    if PyDict_GetItem(time_namespace, "time") is <void*> builtin_time:
        return fs_clock_reached(due)
    return seconds() >= due


def now():
    """Seconds since the epoch, as `time.time()` gives them."""
    return seconds()
