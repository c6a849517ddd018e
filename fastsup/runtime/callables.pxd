from cpython.object cimport PyObject
from cython cimport final


# The struct in TensorFlow's C API, tensorflow/c/tf_buffer.h.
cdef struct TF_Buffer:
    const void* data
    size_t length
    void (*data_deallocator)(void* data, size_t length) noexcept



cdef inline void empty_buffer(TF_Buffer* buffer) noexcept:
    """Empties a buffer, because the runtime refuses a buffer that isn't empty."""
    if buffer.data is not NULL:
        buffer.data_deallocator(<void*> buffer.data, buffer.length)
        buffer.data = NULL
        buffer.length = 0
        buffer.data_deallocator = NULL


cdef extern from "Python.h":
    object PyObject_Call(object callable, object args, PyObject* kwargs)


@final
cdef class SessionLifetime:
    cdef public bint open
    # Handles of callables that are no longer referenced.
    cdef list unused
    # The number of referenced callables, and an estimate of their memory.
    cdef Py_ssize_t callables
    cdef readonly Py_ssize_t callable_bytes

    cdef int release_unused(self, object session_handle) except -1


@final
cdef class CompiledCallable:
    cdef object session_handle
    cdef object handle
    cdef SessionLifetime lifetime
    cdef object function
    # The buffer for metadata that a run's caller doesn't request, and whether no run is using the buffer.
    cdef object metadata
    cdef TF_Buffer* metadata_seen
    cdef bint metadata_is_free
    # The arguments of a run without feeds, with the metadata buffer and without it.
    cdef tuple arguments
    cdef tuple arguments_without
    cdef readonly bytes options
    cdef Py_ssize_t size
    cdef readonly double compile_secs


cdef list own_values(list values)
cdef Py_ssize_t bytes_to_copy(list values) except -1

# These functions are inlined into the modules that run steps. Code in another module's memory pages would be out of the
# cache again after each step.

cdef inline list views_from(CompiledCallable compiled, tuple feeds):
    """Computes the fetches, a list of NumPy values in the order of the options. They may share the runtime's memory."""
    if not compiled.metadata_is_free:
        # Another thread is running this callable, or the callable runs itself.
        if feeds is None:
            return PyObject_Call(compiled.function, compiled.arguments_without, NULL)
        return PyObject_Call(compiled.function, (compiled.session_handle, compiled.handle, feeds, None), NULL)
    compiled.metadata_is_free = False
    try:
        if feeds is None:
            return PyObject_Call(compiled.function, compiled.arguments, NULL)
        return PyObject_Call(
            compiled.function, (compiled.session_handle, compiled.handle, feeds, compiled.metadata), NULL
        )
    finally:
        empty_buffer(compiled.metadata_seen)
        compiled.metadata_is_free = True


cdef inline list values_from(CompiledCallable compiled, tuple feeds):
    """Computes the fetches, as arrays that belong to the caller."""
    cdef list values = views_from(compiled, feeds)
    return own_values(values) if len(values) > 0 else values
