from fastsup.core.hook cimport fs_loop


cdef int halve(fs_loop* loop, void* context) noexcept nogil
cdef int stop_at_10(const fs_loop* loop, void* context) noexcept nogil
