from libc.stdint cimport int64_t, uint64_t

from fastsup.eager.eager_session cimport MOST_DIMENSIONS


cdef enum:
    # Tensors of one call whose handles stay on the stack.
    FEW_TENSORS = 64


cdef struct CallTensors:
    # The handles of a call's tensors, each in the place of its feed.
    void** handles
    void* few[FEW_TENSORS]


cdef class Pattern:
    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1
    cdef object fill(self, object value, CallTensors* tensors)
    cdef uint64_t digest(self, object value, dict kinds) except? 0


cdef class CallPattern:
    cdef tuple positional
    cdef tuple keywords
    cdef tuple names
    # Pairs of a pattern and the default value of a parameter that is left out. TensorFlow feeds it.
    cdef tuple defaults
    cdef Py_ssize_t feeds
    # Patterns of calls that fit this one, but go to another trace.
    cdef tuple rivals
    # Weak references to the objects that the pattern knows by identity. Once one is gone, no call fits.
    cdef readonly tuple objects
    cdef readonly bint is_open

    cdef bint fits(self, tuple args, dict kwargs, CallTensors* tensors, list kept) except -1
    cdef bint takes(self, tuple args, dict kwargs, CallTensors* tensors, list kept) except -1


cdef uint64_t digest_of_call(tuple args, dict kwargs, dict kinds) except? 0
