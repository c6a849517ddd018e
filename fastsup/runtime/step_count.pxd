from cython cimport final
from libc.stdint cimport int64_t, uint64_t

from fastsup.runtime.runner cimport SessionRunner


@final
cdef class StepCount:
    cdef readonly SessionRunner session
    cdef object variable
    cdef object numpy_type
    cdef int64_t base
    cdef uint64_t disturbances_seen
    cdef bint known
    cdef bint ever_known
    cdef bint fetch_prepared

    cdef int prepare_fetch(self) except -1
    cdef bint know(self) except -1
    cdef int64_t value(self) noexcept
    cdef object as_fetched(self, int64_t step)
