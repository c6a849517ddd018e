# The kinds of graph elements that a plan may fetch: ELEMENT_TYPES.
cdef frozenset element_types

cdef list stored_attributes(object fetch)

cdef bint add_to_key(list key, object fetch) except -1


cdef class Fetch:
    cdef bint calls_program

    cdef object build(self, list values)


cdef class FetchList(Fetch):
    cdef tuple items

    cdef object build_item(self, list values, Py_ssize_t i)
