cdef list stored_attributes(object fetch)


cdef class Fetch:
    cdef bint calls_program

    cdef object build(self, list values)


cdef class FetchList(Fetch):
    cdef tuple items

    cdef object build_item(self, list values, Py_ssize_t i)
