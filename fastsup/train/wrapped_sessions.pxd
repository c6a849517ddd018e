from libc.stdint cimport int64_t


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
    cdef tuple last_of_loop(self)
    cdef bint stop_native(self) except -1
    cdef int tell_hooks(self, object error) except -1


cdef class Coordinated(Wrapped):
    cdef public object _coord
    cdef public object _stop_grace_period_secs

    cdef int raise_root_cause(self, object error) except -1


cdef class Recoverable(Wrapped):
    cdef public object _sess_creator
    cdef public object _max_recoveries
    # Failures since something last ran well, and what had run by then.
    cdef int failures
    cdef object steps_ended
    # The error that was the last one of too many.
    cdef object given_up_with
    # The error that the last session was given up after, while there is no new one.
    cdef object lost_with

    cdef int give_up_session(self, object error) except -1
    cdef int note_failure(self, str occasion, object error) except -1
    cdef int note_runs(self) except -1


cdef Wrapped as_native(object session)
