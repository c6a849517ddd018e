from libc.stdint cimport int64_t

from fastsup.runtime.plan cimport Plan
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.dispatch cimport Dispatch


cdef class Wrapped:
    cdef public object _sess
    cdef public bint _wrapped_is_stoppable
    # The wrapped session that was looked at last, as one that can be called without a detour through Python.
    cdef object inner_seen
    cdef Wrapped inner

    cdef Wrapped native_inner(self)
    cdef object run_native(self, object fetches, object feed_dict, bint hooks)
    cdef object run_failed(self, object error, object fetches, object feed_dict)
    cdef object loop_native(self, object fetches, int64_t* left, object stop_event)
    cdef bint stop_native(self) except -1


cdef class Hooked(Wrapped):
    cdef public object _hooks
    cdef public bint _should_stop
    # Our session, and the schedules of the hooks around it; None where the session is somebody else's.
    cdef object session_seen
    cdef SessionRunner runner
    cdef Dispatch dispatch

    cdef bint has_schedules(self) except -1
    cdef object run_unstopped(self, object fetches, object feed_dict, object options, object run_metadata)
    cdef object run_leaving_out(self, Plan plan, object fetches, object feed_dict)
    cdef object run_calling(self, list called, object fetches, object feed_dict, object options, object run_metadata)
    cdef int call_late(self, object hook, object run_context, object options, object metadata) except -1


cdef class Coordinated(Wrapped):
    cdef public object _coord
    cdef public object _stop_grace_period_secs

    cdef int raise_root_cause(self, object error) except -1


cdef class Recoverable(Wrapped):
    cdef public object _sess_creator

    cdef int give_up_session(self, object error) except -1


cdef class Monitored:
    cdef public object _sess
    cdef object inner_seen
    cdef Wrapped inner
    cdef Wrapped middle
    cdef Hooked innermost

    cdef Wrapped native_inner(self)
    cdef Hooked native_innermost(self)
    cdef object run_native(self, object fetches, object feed_dict, bint hooks)
