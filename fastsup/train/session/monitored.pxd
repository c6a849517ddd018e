from cython cimport final

from fastsup.train.engine cimport RunRequest, StepEngine

# The fields of the wrapped sessions that each step reads. They are compiled, so that a step compares and reads them
# without a look-up.
cdef class WrappedBase:
    cdef public object _sess
    cdef public bint _wrapped_is_stoppable


cdef class CoordinatedBase(WrappedBase):
    cdef public object _coord


@final
cdef class SessionChain:
    cdef object outermost
    # The unmodified sessions, from the outermost inwards. From the first modified one on, all are None.
    cdef WrappedBase recoverable
    cdef object in_recoverable
    cdef CoordinatedBase coordinated
    cdef object in_coordinated
    cdef WrappedBase hooked
    # The engine in which steps can start; None if a step must go through each session.
    cdef StepEngine engine

    cdef bint is_current(self, object outermost) noexcept
    cdef object stop_event(self)


cdef class MonitoredSessionBase:
    cdef public object _sess
    # The result of the last step of run_loop, even if the loop then raised an error; None before the first step. With a
    # feed_fn, the previous step's result, also inside the loop.
    cdef readonly object last_result
    cdef SessionChain chain

    cdef SessionChain current_chain(self)
    cdef object step(self, RunRequest request)
    cdef object step_through(self, RunRequest request)
    cdef object loop(self, RunRequest request, object feed_fn, bint takes_result)
    cdef object run_step(self, object fetches, object feed_dict)
    cdef bint runs_itself(self) except -1
    cdef int check_open(self) except -1
