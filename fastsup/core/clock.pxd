cdef bint is_replaced() noexcept
cdef double seconds() except? -1.0
cdef double steady_seconds() except? -1.0
cdef double as_steady(double due) except? -1.0
cdef bint reached(double due) except -1
