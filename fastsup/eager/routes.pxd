from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from fastsup.eager.argument_pattern cimport CallTensors
from fastsup.eager.call_pattern cimport CallPattern
from fastsup.eager.lifted_step cimport LiftedStep


cdef class Route:
    cdef CallPattern pattern
    # None: calls of this pattern are TensorFlow's.
    cdef readonly LiftedStep step
    # Pairs of a box and the tensor that it must hold. The tensor of an iterator, and its threads, must not outlive the
    # iterator: `watched`, weak references to the objects of the pattern, empties the list when one of them goes.
    cdef list boxed
    cdef tuple watched
    # Of a route without a step: see LiftedCalls.call_unlifted.
    cdef readonly object entry
    cdef Py_ssize_t calls
    cdef int64_t since

    cdef bint may_be_taken(self) except -1


cdef class RouteTable:
    cdef readonly Py_ssize_t most
    # The routes of calls of one shape, by their digest; the entry that was used last comes last.
    cdef dict by_digest
    cdef Py_ssize_t count
    # The count at which those are looked for that can't be taken any longer.
    cdef Py_ssize_t look_at
    cdef tuple open_routes
    cdef Py_ssize_t refused
    # A pattern for each type of value that was seen.
    cdef readonly dict kinds

    cdef Route find(self, PyObject* scope, tuple args, dict kwargs, CallTensors* tensors, list kept)
