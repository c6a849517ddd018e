"""Buffers for the metadata of runs whose metadata isn't wanted: quicker to pass to the runtime than None.

TensorFlow's runtime is called through pybind11, which takes objects of its classes as they are. Of None's type it asks
for an attribute that another module's binding would have, and each time an AttributeError is made, with its text, and
dropped: a fifth of a small step. So runs get a buffer, which is emptied after each of them.

A buffer has to be emptied in C, which means looking into pybind11's object for it. With versions of TensorFlow that
weren't tried, and where the object isn't laid out as it has been since pybind11 2.2, runs get None.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uintptr_t
from libc.string cimport memcmp

from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import versions

from fastsup.common.tried_versions import untried_reason


cdef struct Instance:
    PyObject head
    # The object in C++, and what owns it there.
    void* value
    void* holder[2]
    PyObject* weak_references
    unsigned int flags


# Those that no callable has now. There is nothing in a buffer that belongs to a session.
cdef list free_buffers = []


cdef bint is_laid_out_as_known() except -1:
    """Whether a buffer can be found in pybind11's object for it."""
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


cdef bint layout_is_known = not untried_reason(versions.__version__) and is_laid_out_as_known()


cdef object take_buffer():
    """What to pass to the runtime: an empty buffer, to be given back; or None."""
    if not layout_is_known:
        return None
    return free_buffers.pop() if free_buffers else pywrap_tf_session.TF_NewBuffer()


cdef int give_back(object buffer) except -1:
    """Takes back what `take_buffer` has returned."""
    if buffer is not None:
        free_buffers.append(buffer)
    return 0


cdef TF_Buffer* seen_in(object buffer) noexcept:
    """The buffer itself; NULL of None."""
    return NULL if buffer is None else <TF_Buffer*> (<Instance*> <PyObject*> buffer).value


def passes_buffers():
    """Whether runs get a buffer, and not None."""
    return layout_is_known
