from fastsup.train.session.hooked_session cimport Hooked
from fastsup.train.session.wrapped_sessions cimport Call, Wrapped


cdef class Monitored:
    cdef public object _sess
    # What the last step of run_loop returned, also where it then has raised; None before. With a feed_fn, that of the step
    # before, also inside the loop.
    cdef readonly object last_result
    cdef object inner_seen
    cdef Wrapped inner
    cdef Wrapped middle
    cdef Hooked innermost

    cdef Wrapped compiled_inner(self)
    cdef Hooked compiled_innermost(self)
    cdef object step(self, Call* call)
    cdef object run_step(self, object fetches, object feed_dict)
    cdef bint runs_itself(self) except -1
    cdef int check_open(self) except -1
