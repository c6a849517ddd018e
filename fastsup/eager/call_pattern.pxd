from libc.stdint cimport int64_t

from fastsup.eager.eager_session cimport MOST_DIMENSIONS


cdef enum:
    # Tensors of one call that a pattern can hold.
    MOST_TENSORS = 64


cdef struct CallTensors:
    # The handles of a call's tensors, each in the place of its feed.
    void* handles[MOST_TENSORS]


cdef class Pattern:
    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1


cdef class CallPattern:
    cdef tuple positional
    cdef tuple keywords
    cdef tuple names
    # Weak references to the objects that the pattern knows by identity. Once one is gone, no call fits.
    cdef readonly tuple objects

    cdef bint fits(self, tuple args, dict kwargs, CallTensors* tensors, list kept) except -1
