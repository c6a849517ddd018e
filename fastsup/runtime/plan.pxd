from cython cimport final
from libc.stdint cimport int64_t, uint64_t

from fastsup.runtime.fetches cimport Fetch


@final
cdef class Liveness:
    cdef public bint open


@final
cdef class CompiledCallable:
    cdef object session_handle
    cdef object handle
    cdef Liveness liveness
    cdef tuple arguments
    cdef readonly bytes options

    cdef list call(self, tuple feeds)
    cdef list call_for_views(self, tuple feeds)


@final
cdef class FeedSlot:
    cdef readonly object tensor
    cdef object dtype
    cdef object numpy_type
    cdef object static_shape
    cdef tuple dims
    cdef bint exact_shape
    cdef double largest_int

    cdef int read_shape(self) except -1
    cdef object convert(self, object value)


@final
cdef class Plan:
    cdef readonly Fetch structure
    cdef readonly tuple feeds
    cdef readonly tuple elements
    cdef readonly object pinned
    cdef readonly CompiledCallable callable
    cdef object trial
    # What the run does to variables: 0 reads, 1 writes, 2 saves them.
    cdef readonly int access
    # What a run adds to the global step: 0 nothing, below 0 unknown. Filled in when somebody asks.
    cdef int64_t step_delta
    cdef bint step_delta_known
    cdef uint64_t last_used

    cdef tuple convert_feeds(self, dict feed_dict)
    cdef list call(self, tuple feeds)
    cdef list call_on_trial(self, object trial, tuple feeds)
