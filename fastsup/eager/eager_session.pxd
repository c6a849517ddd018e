from cython cimport final
from libc.stdint cimport int64_t


cdef extern from "eager_session.h" nogil:
    enum:
        MOST_DIMENSIONS "FASTSUP_MOST_DIMENSIONS"


@final
cdef class EagerCallable:
    # The `tf.compat.v1.Session`, which owns what `pointer` points to.
    cdef readonly object session
    # TensorFlow's own callable, whose number this one has.
    cdef object owner
    cdef void* pointer
    cdef readonly int64_t number
    cdef readonly int input_count
    cdef readonly int output_count

    cdef list run(self, void** inputs)


cdef void* handle_of(object value) noexcept
cdef bint records_gradients() except -1
cdef bint is_plain_thread(object context, str device) except -1
cdef int dtype_of(void* handle) noexcept
cdef bint has_shape(void* handle, const int64_t* dimensions, int rank) noexcept
cdef int shape_of(void* handle, int64_t* dimensions) noexcept
