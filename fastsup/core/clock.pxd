from libc.stdint cimport uint64_t


cdef bint is_replaced() noexcept
cdef double seconds() except? -1.0
cdef double steady_seconds() except? -1.0
cdef double as_steady(double due) except? -1.0
cdef int steady_reached(double due) except -1
cdef uint64_t* times_set_back() noexcept
cdef bint reached(double due) except -1
