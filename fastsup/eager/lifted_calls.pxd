from libc.stdint cimport int64_t

from fastsup.eager.routes cimport Route, RouteTable


cdef class Box:
    # The tensor that the box holds now.
    cdef readonly object tensor
    cdef object write
    cdef readonly object lock


cdef class CallCount:
    cdef object key
    cdef int64_t untold
    cdef object __weakref__


cdef class LiftedCalls:
    cdef public object original
    cdef Route latest
    cdef readonly RouteTable _routes
    cdef CallCount calls
    # Counts calls that TensorFlow runs for want of room. Steps keep the count at which they were called last.
    cdef int64_t now

    cdef object call_on(self, Route route, void** inputs, tuple args, dict kwargs)
    cdef object call_unlifted(self, Route route, tuple args, dict kwargs)
