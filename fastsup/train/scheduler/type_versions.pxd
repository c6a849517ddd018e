from cython cimport final

@final
cdef class TypeVersions:
    cdef list types
    cdef unsigned int* versions

    cdef bint changed(self) noexcept
