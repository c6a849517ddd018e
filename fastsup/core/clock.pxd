cdef bint is_replaced() noexcept
cdef double seconds() except? -1.0
cdef bint reached(double due) except -1
