from cpython.object cimport PyObject

from fastsup.eager.argument_pattern cimport CallTensors


cdef class CallPattern:
    cdef tuple positional
    cdef tuple keywords
    cdef tuple names
    # Pairs of a pattern and the default value of a parameter that is left out. TensorFlow feeds it.
    cdef tuple defaults
    cdef Py_ssize_t feeds
    # The device of the `tf.device` scope of its calls; empty without a scope. None where TensorFlow has one device.
    cdef readonly str scope
    # Patterns of calls that fit this one, but go to another trace.
    cdef tuple rivals
    # Weak references to the objects that the pattern knows by identity. Once one is gone, no call fits.
    cdef readonly tuple objects
    cdef readonly bint is_open

    cdef bint is_of(self, PyObject* scope) except -1
    cdef bint fits(self, tuple args, dict kwargs, CallTensors* tensors, list kept) except -1
    cdef bint takes(self, tuple args, dict kwargs, CallTensors* tensors, list kept) except -1
