# As TensorFlow's C API has it, tensorflow/c/tf_buffer.h.
cdef struct TF_Buffer:
    const void* data
    size_t length
    void (*data_deallocator)(void* data, size_t length) noexcept


cdef object take_buffer()
cdef int give_back(object buffer) except -1
cdef TF_Buffer* seen_in(object buffer) noexcept


cdef inline void empty_buffer(TF_Buffer* buffer) noexcept:
    """Makes a buffer as good as new: the runtime refuses one that isn't empty."""
    if buffer.data is not NULL:
        buffer.data_deallocator(<void*> buffer.data, buffer.length)
        buffer.data = NULL
        buffer.length = 0
        buffer.data_deallocator = NULL
