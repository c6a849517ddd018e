from cpython.object cimport PyObject
from cython cimport final


# As in TensorFlow's C API, tensorflow/c/tf_buffer.h.
cdef struct TF_Buffer:
    const void* data
    size_t length
    void (*data_deallocator)(void* data, size_t length) noexcept



cdef inline void empty_buffer(TF_Buffer* buffer) noexcept:
    """Makes a buffer as good as new: the runtime refuses one that isn't empty."""
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
    # How many callables are still referenced, and an estimate of the memory that they take.
    cdef Py_ssize_t callables
    cdef readonly Py_ssize_t callable_bytes

    cdef int release_unused(self, object session_handle) except -1


@final
cdef class CompiledCallable:
    cdef object session_handle
    cdef object handle
    cdef SessionLifetime lifetime
    cdef object function
    # What the runtime writes a run's unwanted metadata to; and whether no run has it now.
    cdef object metadata
    cdef TF_Buffer* metadata_seen
    cdef bint metadata_is_free
    # Of a run without feeds that has it, and of one that hasn't.
    cdef tuple arguments
    cdef tuple arguments_without
    cdef readonly bytes options
    cdef Py_ssize_t size
    cdef readonly double compile_secs


cdef list own_values(list values)
cdef Py_ssize_t bytes_to_copy(list values) except -1

# What every step passes through is compiled into the modules that run steps: the code of another one, in other pages of
# memory, is cold again after each step.

cdef inline list views_from(CompiledCallable compiled, tuple feeds):
    """Computes the fetches: a list of NumPy values, in the order of the options. They may show the runtime's memory."""
    if not compiled.metadata_is_free:
        # Another thread runs it, or what it runs does.
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
    """The same, with arrays that are the caller's own."""
    cdef list values = views_from(compiled, feeds)
    return own_values(values) if len(values) > 0 else values
