from cpython.object cimport PyObject
from cython cimport final
from libc.stdint cimport int64_t


cdef extern from "eager_session.h" nogil:
    enum:
        MOST_DIMENSIONS "FASTSUP_MOST_DIMENSIONS"

    cdef struct fastsup_eager_place:
        void* memory
        void* device


@final
cdef class EagerCallable:
    # The `tf.compat.v1.Session`, which owns the object at `pointer`.
    cdef readonly object session
    # TensorFlow's own callable, which has the same number.
    cdef object owner
    cdef void* pointer
    cdef readonly int64_t number
    cdef readonly int input_count
    cdef readonly int output_count
    # The device of each fetch. Null for the eager context's first device.
    cdef fastsup_eager_place* places

    cdef int take_places(self, places) except -1
    cdef list run(self, void** inputs)


cdef void* handle_of(object value) noexcept
cdef object tensor_of(object array, int dtype)
cdef bint records_gradients() except -1
cdef PyObject* scope_of_plain_thread(object context) except? NULL
cdef int dtype_of(void* handle) noexcept
cdef bint has_shape(void* handle, const int64_t* dimensions, int rank) noexcept
cdef int shape_of(void* handle, int64_t* dimensions) noexcept
cdef const char* memory_of(void* handle) noexcept
