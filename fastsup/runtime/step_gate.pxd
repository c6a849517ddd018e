from cython cimport final
from libc.stdint cimport uint64_t


@final
cdef class StepGate:
    # Steps under way, and those that wait for the gate to open.
    cdef readonly Py_ssize_t running
    cdef Py_ssize_t held_back
    # Steps that have ended, well or not: as long as it stands, nothing has written a variable.
    cdef readonly uint64_t passed
    # Whether a save is under way, or waits for the steps to end.
    cdef readonly bint closed
    cdef object closed_by
    # Wakes up who waits for one of the above to change.
    cdef object changed
    # Held by the save under way: one at a time.
    cdef object saving
    cdef public double patience_secs
    cdef public double turn_secs

    cdef int enter(self) except -1
    cdef int leave(self) except -1
