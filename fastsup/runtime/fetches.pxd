cdef class Fetch:
    cdef object build(self, list values)
