from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from fastsup.eager.eager_session cimport MOST_DIMENSIONS


cdef enum:
    # A call with at most this many tensors keeps their handles on the stack.
    FEW_TENSORS = 64


cdef struct CallTensors:
    # The handles of a call's tensors, in the order of the feeds.
    void** handles
    void* few[FEW_TENSORS]


cdef class Pattern:
    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1
    cdef object fill(self, object value, CallTensors* tensors)
    cdef uint64_t digest(self, object value, dict kinds) except? 0


cdef class TensorPattern(Pattern):
    cdef int place
    cdef int dtype
    # -1 stands for any rank or dimension.
    cdef int rank
    cdef int64_t dimensions[MOST_DIMENSIONS]
    # The device with the tensor's memory, as named by `memory_of`. Null if there is one device.
    cdef const char* memory

    cdef inline bint writes(self, void* handle, CallTensors* tensors) noexcept


cdef class ConvertedPattern(TensorPattern):
    cdef object kind
    cdef object tensor_dtype


cdef class ArrayPattern(ConvertedPattern):
    cdef object array_dtype
    # In TensorFlow, texts of any length have the same type.
    cdef bint holds_texts
    # True if the tensor is an unconverted copy of the array, in the host's memory.
    cdef bint is_copied


cdef class PlainPattern(Pattern):
    cdef object kind
    cdef object value


cdef class ObjectPattern(Pattern):
    cdef object reference


cdef class EqualPattern(ObjectPattern):
    cdef object kind


cdef class SequencePattern(Pattern):
    cdef object kind
    cdef tuple items


cdef class FieldsPattern(Pattern):
    cdef object kind
    cdef tuple names
    cdef tuple items

    cdef list fields(self, object value)


cdef class FlattenedPattern(Pattern):
    cdef object kind
    cdef object metadata
    cdef tuple items


cdef class DictPattern(Pattern):
    cdef object kind
    cdef dict items


cdef class TracedPattern(Pattern):
    cdef object kind
    # The TraceType. If it is open, values with a subtype also match. Otherwise only values with this type match.
    cdef object known
    cdef bint is_open
    cdef int place
    cdef tuple dtypes
    # The devices of its tensors' memory, as addresses of their names. None if there is one device.
    cdef tuple memories
    # True if nest flattens the value like TensorFlow's type, at a fraction of the cost.
    cdef bint is_nested

    cdef list parts(self, object value)


cdef uint64_t digest_of_call(tuple args, dict kwargs, dict kinds) except? 0


cdef class CallPattern:
    cdef tuple positional
    cdef tuple keywords
    cdef tuple names
    # Pairs of a pattern and the default value of an omitted parameter. TensorFlow feeds it.
    cdef tuple defaults
    cdef Py_ssize_t feeds
    # The device of the `tf.device` scope of its calls, or "" without a scope. None if TensorFlow has one device.
    cdef readonly str scope
    # Patterns of calls that fit this one but use another trace.
    cdef tuple rivals
    # Weak references to the objects that the pattern compares by identity. If one is deleted, no call matches.
    cdef readonly tuple objects
    cdef readonly bint is_open

    cdef bint is_of(self, PyObject* scope) except -1
    cdef bint fits(self, tuple args, dict kwargs, CallTensors* tensors, list kept) except -1
    cdef bint takes(self, tuple args, dict kwargs, CallTensors* tensors, list kept) except -1
