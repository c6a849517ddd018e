"""The one clock: C, unless `time.time` has been replaced in this process."""

import time

from cpython.dict cimport PyDict_GetItem

cdef extern from "clock.h":
    double fs_clock_seconds() nogil
    bint fs_clock_reached(double seconds) nogil

cdef dict time_namespace = time.__dict__
cdef object builtin_time = time.time


cdef bint is_replaced() noexcept:
    """Whether `time.time` is another function than the interpreter's."""
    return PyDict_GetItem(time_namespace, "time") is not <void*> builtin_time


cdef double seconds() except? -1.0:
    """Seconds since the epoch. A test or a program that replaces `time.time` is obeyed, at its price."""
    return time.time() if is_replaced() else fs_clock_seconds()


cdef bint reached(double due) except -1:
    """Whether the clock has reached a time, in seconds since the epoch."""
    return time.time() >= due if is_replaced() else fs_clock_reached(due)


def now():
    """Seconds since the epoch, as `time.time()` gives them."""
    return seconds()
