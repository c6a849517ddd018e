from fastsup.train.hooked_session cimport Hooked
from fastsup.train.wrapped_sessions cimport Wrapped


cdef class Monitored:
    cdef public object _sess
    cdef object inner_seen
    cdef Wrapped inner
    cdef Wrapped middle
    cdef Hooked innermost

    cdef Wrapped native_inner(self)
    cdef Hooked native_innermost(self)
    cdef object run_native(self, object fetches, object feed_dict, bint hooks)
