from cpython.object cimport PyObject
from libc.stdint cimport int64_t


# One call of `run`, or of a part of `run_loop`, on its way through the wrapped sessions. It belongs to the caller, which
# holds all that it refers to; but for `last_result`, which belongs to the call (see `take_last_result`).
cdef struct Call:
    PyObject* fetches
    PyObject* feed_dict
    PyObject* options
    PyObject* run_metadata
    # Whether hooks are called.
    bint hooks
    # Of a loop: the steps that are left, counted down, at least one is run; and the coordinator's event that ends the loop,
    # or NULL, which has it ask after each step. NULL: exactly one step.
    int64_t* steps_left
    PyObject* stop_event
    # The result of the last step that ended well in a loop that raises; NULL if there was none.
    PyObject* last_result


cdef Call new_call(object fetches, object feed_dict, object options, object run_metadata, bint hooks) noexcept
cdef int keep_last_result(Call* call, object result) except -1
cdef tuple take_last_result(Call* call)


cdef class Wrapped:
    cdef public object _sess
    cdef public bint _wrapped_is_stoppable
    # The wrapped session that was looked at last; the same if steps can be run in it without a detour through Python, or None.
    cdef object inner_seen
    cdef Wrapped inner

    cdef Wrapped compiled_inner(self)
    cdef object step(self, Call* call)
    cdef object on_error(self, Call* call, object error)
    cdef bint is_stopped(self) except -1


cdef class Coordinated(Wrapped):
    cdef public object _coord
    cdef public object _stop_grace_period_secs


cdef class Recoverable(Wrapped):
    cdef public object _sess_creator
    cdef public object _max_recoveries
    # Failures in a row, since a step last ended well; and the number of steps that had ended in the session when it was made.
    cdef int failures
    # The same for saves that have failed, since one last ended well.
    cdef int failed_saves
    cdef object runs_ended
    # The error that was the last one of too many.
    cdef object given_up_with
    # The error that the last session was given up after, while there is no new one.
    cdef object lost_with

    cdef int give_up_session(self, str occasion, object error) except -1
    cdef int count_failure(self, str occasion, object error) except -1


cdef object still_open(object session)
cdef Wrapped as_compiled(object session)
