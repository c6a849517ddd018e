"""The bases of the wrapped sessions: compiled, so that a step compares and reads their fields without a look-up."""


cdef class WrappedBase:
    """Base of `WrappedSession`."""


cdef class CoordinatedBase(WrappedBase):
    """Base of `CoordinatedSession`."""
