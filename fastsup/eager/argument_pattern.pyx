"""The patterns of arguments: whether a value goes to the same graph, and which tensors of it are fed."""

from cpython.object cimport PyObject
from cpython.weakref cimport PyWeakref_GetObject
from libc.stdint cimport int64_t, uint64_t

from fastsup.eager.devices.eager_session cimport (
    MOST_DIMENSIONS, dtype_of, handle_of, has_shape, memory_of, shape_of, tensor_of
)

import numpy as np

from tensorflow.core.function import trace_type
from tensorflow.python.framework import errors_impl, ops
from tensorflow.python.util import nest

cdef extern from "Python.h":
    # Not 0, with a Python error set, if that is too deep: 1 or -1, as the version of Python has it.
    int Py_EnterRecursiveCall(const char* where)
    void Py_LeaveRecursiveCall()


cdef object ndarray = np.ndarray
cdef object convert = ops.convert_to_tensor
cdef object from_value = trace_type.from_value
cdef object flatten = nest.flatten
# What the conversion of a value to a tensor raises. TensorFlow's call raises it again.
cdef tuple CONVERSION_ERRORS = (TypeError, ValueError, OverflowError, errors_impl.OpError)


cdef inline uint64_t mixed(uint64_t digest, uint64_t value) noexcept nogil:
    digest = (digest ^ value) * 0x9E3779B97F4A7C15ULL
    return digest ^ (digest >> 29)


cdef inline uint64_t address(object value) noexcept:
    return <uint64_t><size_t><PyObject*>value


cdef class Pattern:
    """What one argument, or a part of it, must be."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        """Whether a value fits. Nothing is converted here: another part may not fit.

        Args:
          value: the value.
          tensors: takes the handles of its tensors.
          kept: takes a pattern and a value for `fill`, if the value has to be converted.
        """
        raise NotImplementedError

    cdef object fill(self, object value, CallTensors* tensors):
        """Converts a value that fits, and writes the handles.

        Args:
          value: the value.
          tensors: takes the handles of the tensors that are made of it.

        Returns:
          What must live until the end of the call; None if the value doesn't fit after all.
        """
        raise NotImplementedError

    cdef uint64_t digest(self, object value, dict kinds) except? 0:
        """A number that is the same for values that fit the same pattern without open dimensions, and seldom for others.

        Args:
          value: a value of the type for which the pattern was made.
          kinds: a pattern for each type. See `digest_of`.
        """
        return address(type(value))


cdef uint64_t digest_of(object value, dict kinds) except? 0:
    """The digest of a value. Values of a type that no pattern was made for fit none.

    Raises:
      RecursionError: the value contains itself, or nearly so, which TensorFlow refuses in the same way.
    """
    pattern = kinds.get(type(value))
    if pattern is None:
        return 1
    if Py_EnterRecursiveCall(" in the digest of an argument"):
        raise RecursionError("an argument is nested too deeply.")
    try:
        return (<Pattern>pattern).digest(value, kinds)
    finally:
        Py_LeaveRecursiveCall()


cdef uint64_t digest_of_call(tuple args, dict kwargs, dict kinds) except? 0:
    """The digest of a call's arguments. See Pattern.digest."""
    cdef uint64_t digest = 7
    cdef Py_ssize_t i
    for i in range(len(args)):
        digest = mixed(digest, digest_of(args[i], kinds))
    return mixed(digest, digest_of_items(kwargs, kinds)) if kwargs else digest


cdef uint64_t digest_of_items(dict items, dict kinds) except? 0:
    """The digest of a dict, whose order doesn't matter."""
    cdef uint64_t sum = len(items)
    for key, value in items.items():
        sum += mixed(<uint64_t>hash(key), digest_of(value, kinds))
    return sum


cdef class TensorPattern(Pattern):
    """An EagerTensor of one type and of one shape, or of one with open dimensions."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        return self.writes(handle_of(value), tensors)

    cdef inline bint writes(self, void* handle, CallTensors* tensors) noexcept:
        """Writes the handle of a tensor. False if the tensor doesn't fit."""
        if handle is NULL or dtype_of(handle) != self.dtype:
            return False
        if not has_shape(handle, self.dimensions, self.rank):
            return False
        if self.memory is not NULL and memory_of(handle) != self.memory:
            return False
        tensors.handles[self.place] = handle
        return True

    cdef uint64_t digest(self, object value, dict kinds) except? 0:
        cdef int64_t dimensions[MOST_DIMENSIONS]
        cdef void* handle = handle_of(value)
        cdef uint64_t digest
        cdef int i, rank
        if handle is NULL:
            return 1
        rank = shape_of(handle, dimensions)
        digest = mixed(<uint64_t>dtype_of(handle) + 2, <uint64_t>rank)
        for i in range(rank):
            digest = mixed(digest, <uint64_t>dimensions[i])
        return digest


cdef class ConvertedPattern(TensorPattern):
    """A value of one type that TensorFlow makes a tensor of one type and shape of, whatever the value is."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        if type(value) is not self.kind:
            return False
        kept.append(self)
        kept.append(value)
        return True

    cdef object fill(self, object value, CallTensors* tensors):
        try:
            tensor = convert(value, self.tensor_dtype)
        except CONVERSION_ERRORS:
            return None
        return tensor if self.writes(handle_of(tensor), tensors) else None

    cdef uint64_t digest(self, object value, dict kinds) except? 0:
        return address(type(value))


cdef class ArrayPattern(ConvertedPattern):
    """An array of one type and of one shape, or of one with open dimensions."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        if type(value) is not ndarray:
            return False
        dtype = value.dtype
        if dtype is not self.array_dtype and dtype != self.array_dtype:
            if not self.holds_texts or dtype.kind != self.array_dtype.kind:
                return False
        cdef tuple shape
        cdef int64_t dimension
        cdef int i
        if self.rank >= 0:
            shape = value.shape
            if len(shape) != self.rank:
                return False
            for i in range(self.rank):
                dimension = shape[i]
                if self.dimensions[i] >= 0 and self.dimensions[i] != dimension:
                    return False
        kept.append(self)
        kept.append(value)
        return True

    cdef object fill(self, object value, CallTensors* tensors):
        # An array that another thread has changed since `fits` has another shape than the pattern: `writes` looks.
        if self.is_copied and value.dtype is self.array_dtype:
            tensor = tensor_of(value, self.dtype)
            if tensor is not None:
                return tensor if self.writes(handle_of(tensor), tensors) else None
        return ConvertedPattern.fill(self, value, tensors)

    cdef uint64_t digest(self, object value, dict kinds) except? 0:
        dtype = value.dtype
        cdef uint64_t kind = <uint64_t>hash(dtype.kind if dtype.kind in "US" else dtype)
        return mixed(kind, <uint64_t>hash(value.shape))


cdef class PlainPattern(Pattern):
    """A Python value of one type, equal to one value. A NaN is equal to a NaN here."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        if value is self.value:
            return True
        return type(value) is self.kind and (value == self.value or (value != value and self.value != self.value))

    cdef uint64_t digest(self, object value, dict kinds) except? 0:
        return mixed(address(type(value)), <uint64_t>hash(value) if value == value else 0)


cdef class ObjectPattern(Pattern):
    """One object, which the pattern doesn't keep alive."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        # A dead reference gives None, which is never the object of such a pattern.
        return PyWeakref_GetObject(self.reference) == <PyObject*>value

    cdef uint64_t digest(self, object value, dict kinds) except? 0:
        return address(value)


cdef class EqualPattern(ObjectPattern):
    """An object of one type that is equal to another object, which the pattern doesn't keep alive."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        if type(value) is not self.kind:
            return False
        known = self.reference()
        return known is value or (known is not None and bool(known == value))

    cdef uint64_t digest(self, object value, dict kinds) except? 0:
        return mixed(address(type(value)), <uint64_t>hash(value))


cdef class SequencePattern(Pattern):
    """A tuple, namedtuple or list of one length, whose items all fit."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        if type(value) is not self.kind or len(value) != len(self.items):
            return False
        return fit_all(self.items, value, tensors, kept)

    cdef uint64_t digest(self, object value, dict kinds) except? 0:
        return mixed(address(type(value)), digest_of_all(value, kinds))


cdef bint fit_all(tuple patterns, object values, CallTensors* tensors, list kept) except -1:
    """Whether each value of a sequence fits the pattern in its place."""
    cdef Py_ssize_t i
    for i in range(len(patterns)):
        if not (<Pattern>patterns[i]).fits(values[i], tensors, kept):
            return False
    return True


cdef uint64_t digest_of_all(object values, dict kinds) except? 0:
    """The digest of a sequence."""
    cdef uint64_t digest = len(values)
    for value in values:
        digest = mixed(digest, digest_of(value, kinds))
    return digest


cdef class FieldsPattern(Pattern):
    """An object of one class of the package attrs, whose attributes all fit."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        return type(value) is self.kind and fit_all(self.items, self.fields(value), tensors, kept)

    cdef list fields(self, object value):
        return [getattr(value, name) for name in self.names]

    cdef uint64_t digest(self, object value, dict kinds) except? 0:
        return mixed(address(type(value)), digest_of_all(self.fields(value), kinds))


cdef class FlattenedPattern(Pattern):
    """An object, a dataclass as a rule, that says itself which parts it has, by `__tf_flatten__`."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        if type(value) is not self.kind:
            return False
        metadata, parts = value.__tf_flatten__()
        if len(parts) != len(self.items) or not metadata == self.metadata:
            return False
        return fit_all(self.items, parts, tensors, kept)

    cdef uint64_t digest(self, object value, dict kinds) except? 0:
        return mixed(address(type(value)), digest_of_all(value.__tf_flatten__()[1], kinds))


cdef class DictPattern(Pattern):
    """A dict of the same keys, whose values all fit."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        if type(value) is not self.kind or len(<dict>value) != len(self.items):
            return False
        cdef Pattern pattern
        for key, pattern in self.items.items():
            if key not in <dict>value or not pattern.fits((<dict>value)[key], tensors, kept):
                return False
        return True

    cdef uint64_t digest(self, object value, dict kinds) except? 0:
        return mixed(address(type(value)), digest_of_items(<dict>value, kinds))


cdef class TracedPattern(Pattern):
    """Any other value: what TensorFlow itself knows of it is compared. Ragged and sparse tensors, extension types."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        if type(value) is not self.kind:
            return False
        found = from_value(value)
        if not (found == self.known or (self.is_open and found.is_subtype_of(self.known))):
            return False
        if self.dtypes:
            kept.append(self)
            kept.append(value)
        return True

    cdef list parts(self, object value):
        return flatten(value, expand_composites=True) if self.is_nested else self.known.to_tensors(value)

    cdef object fill(self, object value, CallTensors* tensors):
        cdef list parts
        cdef void* handle
        cdef Py_ssize_t i
        try:
            parts = self.parts(value)
        except CONVERSION_ERRORS:
            return None
        if len(parts) != len(self.dtypes):
            return None
        for i in range(len(parts)):
            handle = handle_of(parts[i])
            if handle is NULL or dtype_of(handle) != <int>self.dtypes[i]:
                return None
            if self.memories is not None and <size_t>memory_of(handle) != <size_t>self.memories[i]:
                return None
            tensors.handles[self.place + i] = handle
        return parts

    cdef uint64_t digest(self, object value, dict kinds) except? 0:
        return mixed(address(type(value)), <uint64_t>hash(from_value(value)))
