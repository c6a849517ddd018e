"""The pattern of a call's arguments: whether another call goes to the same graph, and which tensors it feeds.

A pattern is as fine as TensorFlow's own rules of retracing, or finer: two calls that fit one pattern would be given the
same ConcreteFunction. What no pattern describes is left to TensorFlow's look-up.
"""

import weakref

from cpython.object cimport PyObject
from cpython.weakref cimport PyWeakref_GetObject
from libc.stdint cimport int64_t

from fastsup.eager.eager_session cimport MOST_DIMENSIONS, dtype_of, handle_of, has_shape, shape_of

import numpy as np

from tensorflow.python.framework import ops
from tensorflow.python.ops import array_ops

cdef object EagerTensor = ops.EagerTensor
cdef object ndarray = np.ndarray
cdef object identity = array_ops.identity
cdef object convert = ops.convert_to_tensor
# What TensorFlow compares by type and value. A bool is equal to an int, but isn't one here.
cdef frozenset PLAIN_TYPES = frozenset((bool, int, float, str, bytes, type(None)))


cdef class Pattern:
    """What one argument, or a part of it, must be."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        """Whether a value fits.

        Args:
          value: the value.
          tensors: takes the handles of its tensors.
          kept: takes the tensors that are made here, which must live until the end of the call.
        """
        raise NotImplementedError


cdef class TensorPattern(Pattern):
    """An EagerTensor of one type and shape, or an array of one type and shape that becomes such a tensor."""

    cdef int place
    cdef int dtype
    cdef int rank
    cdef int64_t dimensions[MOST_DIMENSIONS]
    # The type of the array, and that of the tensor made of it. None for tensors.
    cdef object array_dtype
    cdef object tensor_dtype

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        if self.array_dtype is not None:
            if type(value) is not ndarray or value.dtype != self.array_dtype or value.ndim != self.rank:
                return False
            value = convert(value, self.tensor_dtype)
            kept.append(value)
        cdef void* handle = handle_of(value)
        if handle is NULL or dtype_of(handle) != self.dtype:
            return False
        if not has_shape(handle, self.dimensions, self.rank):
            return False
        tensors.handles[self.place] = handle
        return True


cdef class PlainPattern(Pattern):
    """A Python value of one type, equal to one value."""

    cdef object kind
    cdef object value

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        return value is self.value or (type(value) is self.kind and value == self.value)


cdef class ObjectPattern(Pattern):
    """One object, which the pattern doesn't keep alive."""

    cdef object reference

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        # A dead reference gives None, which is never the object of such a pattern.
        return PyWeakref_GetObject(self.reference) == <PyObject*>value


cdef class SequencePattern(Pattern):
    """A tuple or list of one length, each of whose items fits."""

    cdef object kind
    cdef tuple items

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        if type(value) is not self.kind or len(value) != len(self.items):
            return False
        cdef Py_ssize_t i
        cdef Pattern pattern
        for i in range(len(self.items)):
            pattern = <Pattern>self.items[i]
            if not pattern.fits(value[i], tensors, kept):
                return False
        return True


cdef class DictPattern(Pattern):
    """A dict of the same keys, each of whose values fits."""

    cdef dict items

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        if type(value) is not dict or len(<dict>value) != len(self.items):
            return False
        cdef Pattern pattern
        for key, pattern in self.items.items():
            if key not in <dict>value or not pattern.fits((<dict>value)[key], tensors, kept):
                return False
        return True


cdef class CallPattern:
    """The pattern of all arguments of a call.

    Args:
      args: the positional arguments of a call that has this pattern.
      kwargs: its keyword arguments.
      feeds: function that is given positional and keyword arguments and returns the list of tensors that TensorFlow
        makes of them, in the order of the feeds.
      is_identified: function that tells whether TensorFlow knows an object by its identity alone.

    Attributes:
      objects: weak references to the objects that it knows by identity. Once one of them is gone, no call fits.

    Raises:
      TypeError: no pattern describes such arguments.
    """

    def __init__(self, tuple args, dict kwargs, feeds, is_identified):
        maker = _PatternMaker(is_identified)
        probes = tuple([maker.probe(value) for value in args])
        keyword_probes = {name: maker.probe(value) for name, value in kwargs.items()}
        maker.find_places(feeds(probes, keyword_probes))
        self.positional = tuple([maker.pattern(value, probe) for value, probe in zip(args, probes)])
        self.names = tuple(kwargs)
        self.keywords = tuple([maker.pattern(value, keyword_probes[name]) for name, value in kwargs.items()])
        self.objects = tuple(maker.objects)

    cdef bint fits(self, tuple args, dict kwargs, CallTensors* tensors, list kept) except -1:
        """Whether the arguments of a call fit. See Pattern.fits."""
        cdef Py_ssize_t i, count = len(self.positional)
        if len(args) != count or len(kwargs) != len(self.names):
            return False
        for i in range(count):
            if not (<Pattern>self.positional[i]).fits(args[i], tensors, kept):
                return False
        if kwargs:
            for i in range(len(self.names)):
                name = self.names[i]
                if name not in kwargs or not (<Pattern>self.keywords[i]).fits(kwargs[name], tensors, kept):
                    return False
        return True

    def matches(self, tuple args, dict kwargs):
        """Whether the arguments of a call fit.

        Args:
          args: the positional arguments.
          kwargs: the keyword arguments.

        Returns:
          True or False.
        """
        cdef CallTensors tensors
        return self.fits(args, kwargs, &tensors, [])


class _PatternMaker:
    """Makes the patterns of one call's arguments.

    The place of a tensor among the feeds is found with a copy of the arguments in which each tensor is another object.
    """

    def __init__(self, is_identified):
        self._is_identified = is_identified
        self._places = {}
        self._probes = []
        self.objects = []

    def probe(self, value):
        """A copy of the value with tensors of its own."""
        kind = type(value)
        if kind is EagerTensor or kind is ndarray:
            if kind is EagerTensor and handle_of(value) is NULL:
                raise TypeError("a tensor of a custom device.")
            made = identity(value) if kind is EagerTensor else convert(value)
            self._probes.append(made)
            return made
        if kind is tuple or kind is list:
            return kind([self.probe(item) for item in value])
        if kind is dict:
            return {key: self.probe(item) for key, item in value.items()}
        return value

    def find_places(self, feeds):
        """Takes the tensors that TensorFlow makes of the copies, in the order of the feeds."""
        if len(feeds) > MOST_TENSORS:
            raise TypeError(f"more than {MOST_TENSORS} tensors.")
        self._places = {id(tensor): place for place, tensor in enumerate(feeds)}
        if len(feeds) != len(self._probes) or any(id(probe) not in self._places for probe in self._probes):
            raise TypeError("a value that TensorFlow converts.")

    def pattern(self, value, probe):
        """The pattern of a value."""
        cdef TensorPattern tensor
        cdef PlainPattern plain
        cdef ObjectPattern by_identity
        cdef SequencePattern sequence
        cdef DictPattern mapping
        cdef void* handle
        kind = type(value)
        if kind is EagerTensor or kind is ndarray:
            tensor = TensorPattern()
            tensor.place = self._places[id(probe)]
            handle = handle_of(probe)
            tensor.dtype = dtype_of(handle)
            tensor.rank = shape_of(handle, tensor.dimensions)
            if tensor.rank < 0:
                raise TypeError(f"a tensor of more than {MOST_DIMENSIONS} dimensions.")
            if kind is ndarray:
                tensor.array_dtype = value.dtype
                tensor.tensor_dtype = probe.dtype
            return tensor
        if kind in PLAIN_TYPES:
            plain = PlainPattern()
            plain.kind = kind
            plain.value = value
            return plain
        if kind is tuple or kind is list:
            sequence = SequencePattern()
            sequence.kind = kind
            sequence.items = tuple([self.pattern(item, other) for item, other in zip(value, probe)])
            return sequence
        if kind is dict:
            mapping = DictPattern()
            mapping.items = {key: self.pattern(item, probe[key]) for key, item in value.items()}
            return mapping
        if not self._is_identified(value):
            raise TypeError(f"an argument of type {kind.__name__}.")
        by_identity = ObjectPattern()
        by_identity.reference = weakref.ref(value)
        self.objects.append(by_identity.reference)
        return by_identity
