from fastsup.train.hooked_session cimport Hooked
from fastsup.train.wrapped_sessions cimport Wrapped


cdef class Monitored:
    cdef public object _sess
    # What the last step of run_loop returned, also where it then has raised; None before. With a feed_fn, that of the step
    # before, also inside the loop.
    cdef readonly object last_result
    cdef object inner_seen
    cdef Wrapped inner
    cdef Wrapped middle
    cdef Hooked innermost

    cdef Wrapped native_inner(self)
    cdef Hooked native_innermost(self)
    cdef object run_native(self, object fetches, object feed_dict, bint hooks)
    cdef bint runs_itself(self) except -1
    cdef int check_open(self) except -1
