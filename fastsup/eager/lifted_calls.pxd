from fastsup.eager.call_pattern cimport CallPattern
from fastsup.eager.lifted_step cimport LiftedStep


cdef class Box:
    # The tensor that the box holds now.
    cdef readonly object tensor
    cdef object write
    cdef object lock


cdef class Route:
    cdef CallPattern pattern
    # None: calls of this pattern are TensorFlow's.
    cdef readonly LiftedStep step
    # Pairs of a box and the tensor that it must hold. The tensor of an iterator, and its threads, must not outlive the
    # iterator: `watched`, weak references to the objects of the pattern, empties the list when one of them goes.
    cdef list boxed
    cdef tuple watched

    cdef bint may_be_taken(self) except -1


cdef class LiftedCalls:
    cdef public object original
    cdef Route latest
    cdef list routes

    cdef object call_on(self, Route route, void** inputs, tuple args, dict kwargs)
