cdef int pending_signal() noexcept
cdef bint hold_signals() except -1
cdef int release_signals(bint held) except -1
