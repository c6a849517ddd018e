# The fields of the wrapped sessions that each step reads.
cdef class WrappedBase:
    cdef public object _sess
    cdef public bint _wrapped_is_stoppable


cdef class CoordinatedBase(WrappedBase):
    cdef public object _coord
