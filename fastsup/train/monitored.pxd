from fastsup.train.hooked_session cimport Hooked
from fastsup.train.wrapped_sessions cimport Wrapped


cdef class Monitored:
    cdef public object _sess
    # What the last step of run_loop returned, also where it then has raised; None before.
    cdef readonly object last_result
    cdef object inner_seen
    cdef Wrapped inner
    cdef Wrapped middle
    cdef Hooked innermost

    cdef Wrapped native_inner(self)
    cdef Hooked native_innermost(self)
    cdef object run_native(self, object fetches, object feed_dict, bint hooks)
