cdef double seconds() except? -1.0
