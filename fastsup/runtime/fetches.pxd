cdef class Fetch:
    cdef object build(self, list values)


cdef class FetchList(Fetch):
    cdef tuple items

    cdef object build_item(self, list values, Py_ssize_t i)
