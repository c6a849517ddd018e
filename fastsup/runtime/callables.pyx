"""Callables of the C++ session, which run plans, and their lifetime."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uintptr_t
from libc.string cimport memcmp

from time import perf_counter

import numpy

from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import versions

from fastsup.common.interpreter_end import no_interpreter_exit
from fastsup.common.versions import unsupported_reason

# TensorFlow's runtime is called through pybind11, which accepts objects of its classes unchanged. For None, it looks up
# an attribute that another module's binding would have. Each look-up creates and drops an AttributeError with its text,
# which takes a fifth of a small step. Runs therefore get a buffer, which is emptied after each run.
#
# A buffer must be emptied in C, through the memory of its pybind11 object. With untested TensorFlow versions, or if the
# object's layout differs from the layout since pybind11 2.2, runs get None.

cdef struct Instance:
    PyObject head
    # The C++ object, and its C++ holder.
    void* value
    void* holder[2]
    PyObject* weak_references
    unsigned int flags


# Buffers that no callable is using. A buffer contains nothing that belongs to a session.
cdef list free_buffers = []


cdef bint is_laid_out_as_known() except -1:
    """Returns True if the buffer can be found in its pybind11 object."""
    cdef bytes text = b"fastsup looks for this"
    cdef TF_Buffer* found
    buffer = pywrap_tf_session.TF_NewBufferFromString(text)
    try:
        if type(buffer).__basicsize__ != sizeof(Instance):
            return False
        found = <TF_Buffer*> (<Instance*> <PyObject*> buffer).value
        return (
            found is not NULL
            and <uintptr_t> found % sizeof(void*) == 0
            and found.length == <size_t> len(text)
            and memcmp(found.data, <const char*> text, len(text)) == 0
        )
    finally:
        pywrap_tf_session.TF_DeleteBuffer(buffer)


cdef bint layout_is_known = not unsupported_reason(versions.__version__) and is_laid_out_as_known()


cdef object take_buffer():
    """Returns the argument for the runtime: an empty buffer, to be given back; or None."""
    if not layout_is_known:
        return None
    return free_buffers.pop() if free_buffers else pywrap_tf_session.TF_NewBuffer()


cdef int give_back(object buffer) except -1:
    """Takes back the result of `take_buffer`."""
    if buffer is not None:
        free_buffers.append(buffer)
    return 0


cdef TF_Buffer* seen_in(object buffer) noexcept:
    """Returns the buffer itself; NULL for None."""
    return NULL if buffer is None else <TF_Buffer*> (<Instance*> <PyObject*> buffer).value


def passes_buffers():
    """Returns True if runs get a buffer instead of None."""
    return layout_is_known


cdef object run_callable = pywrap_tf_session.TF_SessionRunCallable
cdef object release_callable = pywrap_tf_session.TF_SessionReleaseCallable
cdef object ndarray = numpy.ndarray
cdef object copy_array = numpy.ndarray.copy


cdef list own_values(list values):
    """Copies the values that share the runtime's memory, because a later step or the caller may write there."""
    cdef Py_ssize_t i
    for i in range(len(values)):
        if type(values[i]) is ndarray and values[i].base is not None:
            values[i] = copy_array(values[i])
    return values


cdef Py_ssize_t bytes_to_copy(list values) except -1:
    """Returns the number of bytes that `own_values` will copy."""
    cdef Py_ssize_t size = 0
    for value in values:
        if type(value) is ndarray and value.base is not None:
            size += value.nbytes
    return size


@cython.no_gc
cdef class SessionLifetime:
    """Whether a session is open, and the handles that it must release. The session and its callables share this object,
    so that they don't refer to each other."""

    def __cinit__(self):
        self.open = True
        self.unused = []

    cdef int release_unused(self, object session_handle) except -1:
        """Releases callables that are no longer referenced.

        Dropping the last reference doesn't release the callable, because releasing lets other threads run, in the
        middle of the assignment.
        """
        if self.open and self.unused:
            with no_interpreter_exit:
                while self.open and self.unused:
                    release_callable(session_handle, self.unused.pop())
        return 0


@cython.no_gc_clear
cdef class CompiledCallable:
    """A callable of the C++ session. Release it after its last reference is dropped, unless the session is closed.

    Args:
      session_handle: the C++ session.
      lifetime: whether the session is open.
      options: CallableOptions, serialized.
      size: an estimate of its memory, in bytes.
    """

    def __init__(self, session_handle, lifetime, options, size=0):
        self.session_handle = session_handle
        self.lifetime = lifetime
        self.options = options
        self.size = size
        started = perf_counter()
        buffer = pywrap_tf_session.TF_NewBufferFromString(options)
        # Count the memory first, because another thread may request room in the meantime.
        self.lifetime.callables += 1
        self.lifetime.callable_bytes += self.size
        try:
            with no_interpreter_exit:
                self.handle = pywrap_tf_session.TF_SessionMakeCallable(session_handle, buffer)
        finally:
            pywrap_tf_session.TF_DeleteBuffer(buffer)
            if self.handle is None:
                self.lifetime.callables -= 1
                self.lifetime.callable_bytes -= self.size
        self.compile_secs = perf_counter() - started
        self.function = run_callable
        self.metadata = take_buffer()
        self.metadata_seen = seen_in(self.metadata)
        self.metadata_is_free = self.metadata is not None
        self.arguments = (session_handle, self.handle, (), self.metadata)
        self.arguments_without = (session_handle, self.handle, (), None)

    def __dealloc__(self):
        if self.handle is not None and self.lifetime is not None:
            self.lifetime.callables -= 1
            self.lifetime.callable_bytes -= self.size
            if self.lifetime.open:
                self.lifetime.unused.append(self.handle)
        give_back(self.metadata)
