"""Patterns of calls and arguments, which determine the graph of a call and the tensors to feed.

A pattern is at least as specific as TensorFlow's own retracing rules: two calls that fit one pattern get the same
ConcreteFunction. It is created from TensorFlow's types of the arguments (TraceTypes). If a trace has open dimensions,
so does its pattern. Arguments that no pattern describes are left to TensorFlow's look-up.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.object cimport PyObject
from cpython.weakref cimport PyWeakref_GetObject
from libc.stdint cimport int64_t, uint64_t

import collections
import weakref

import numpy as np

from tensorflow.core.function import trace_type
from tensorflow.core.function.trace_type import custom_nest_trace_type, default_types
from tensorflow.python.data.ops import dataset_ops, iterator_ops
from tensorflow.python.framework import dtypes, errors_impl, ops, tensor as tensors_of_graphs, type_spec
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.util import nest

from fastsup.eager.eager_session cimport MOST_DIMENSIONS, dtype_of, handle_of, has_shape, memory_of, shape_of, tensor_of

cdef extern from "Python.h":
    # If the recursion is too deep, returns 1 or -1 (depending on the Python version) with a Python error set.
    int Py_EnterRecursiveCall(const char* where)
    void Py_LeaveRecursiveCall()


cdef object ndarray = np.ndarray
cdef object convert = ops.convert_to_tensor
cdef object from_value = trace_type.from_value
cdef object flatten = nest.flatten
# Errors that the conversion of a value to a tensor may raise. TensorFlow's call raises them again.
cdef tuple CONVERSION_ERRORS = (TypeError, ValueError, OverflowError, errors_impl.OpError)


cdef inline uint64_t mixed(uint64_t digest, uint64_t value) noexcept nogil:
    digest = (digest ^ value) * 0x9E3779B97F4A7C15ULL
    return digest ^ (digest >> 29)


cdef inline uint64_t address(object value) noexcept:
    return <uint64_t><size_t><PyObject*>value


cdef class Pattern:
    """The pattern of an argument or a part of one."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        """Returns True if a value fits. Converts nothing here, because another part may not fit.

        Args:
          value: the value.
          tensors: receives the handles of its tensors.
          kept: receives a pattern and a value for `fill`, if the value must be converted.
        """
        raise NotImplementedError

    cdef object fill(self, object value, CallTensors* tensors):
        """Converts a value that fits, and writes the handles.

        Args:
          value: the value.
          tensors: receives the handles of the tensors created from it.

        Returns:
          An object that must be kept until the end of the call, or None if the value doesn't fit after all.
        """
        raise NotImplementedError

    cdef uint64_t digest(self, object value, dict kinds) except? 0:
        """Returns a number that is equal for values that match the same closed pattern, and usually differs for others.

        Args:
          value: a value of the type for which the pattern was created.
          kinds: a pattern for each type. See `digest_of`.
        """
        return address(type(value))


cdef uint64_t digest_of(object value, dict kinds) except? 0:
    """Returns the digest of a value. Values of a type without a pattern fit none."""
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
    """Returns the digest of a call's arguments. See Pattern.digest."""
    cdef uint64_t digest = 7
    cdef Py_ssize_t i
    for i in range(len(args)):
        digest = mixed(digest, digest_of(args[i], kinds))
    return mixed(digest, digest_of_items(kwargs, kinds)) if kwargs else digest


cdef uint64_t digest_of_items(dict items, dict kinds) except? 0:
    """Returns the digest of a dict, whose order doesn't matter."""
    cdef uint64_t sum = len(items)
    for key, value in items.items():
        sum += mixed(<uint64_t>hash(key), digest_of(value, kinds))
    return sum


cdef class TensorPattern(Pattern):
    """An EagerTensor with one type, and one shape or open dimensions."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        return self.writes(handle_of(value), tensors)

    cdef inline bint writes(self, void* handle, CallTensors* tensors) noexcept:
        """Writes the handle of a tensor. Returns False if the tensor doesn't fit."""
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
    """A value of one type that TensorFlow always converts to a tensor with the same type and shape."""

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
    """An array with one type, and one shape or open dimensions."""

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
        # If another thread has changed the array since `fits`, its shape may not fit any longer. `writes` checks this.
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
    """A Python value of one type that equals a given value. A NaN equals a NaN here."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        if value is self.value:
            return True
        return type(value) is self.kind and (value == self.value or (value != value and self.value != self.value))

    cdef uint64_t digest(self, object value, dict kinds) except? 0:
        return mixed(address(type(value)), <uint64_t>hash(value) if value == value else 0)


cdef class ObjectPattern(Pattern):
    """A specific object, which the pattern doesn't keep alive."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        # A dead reference returns None, which is never the object of such a pattern.
        return PyWeakref_GetObject(self.reference) == <PyObject*>value

    cdef uint64_t digest(self, object value, dict kinds) except? 0:
        return address(value)


cdef class EqualPattern(ObjectPattern):
    """An object of one type that equals another object, which the pattern doesn't keep alive."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        if type(value) is not self.kind:
            return False
        known = self.reference()
        return known is value or (known is not None and bool(known == value))

    cdef uint64_t digest(self, object value, dict kinds) except? 0:
        return mixed(address(type(value)), <uint64_t>hash(value))


cdef class SequencePattern(Pattern):
    """A tuple, namedtuple or list of one length whose items all fit."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        if type(value) is not self.kind or len(value) != len(self.items):
            return False
        return fit_all(self.items, value, tensors, kept)

    cdef uint64_t digest(self, object value, dict kinds) except? 0:
        return mixed(address(type(value)), digest_of_all(value, kinds))


cdef bint fit_all(tuple patterns, object values, CallTensors* tensors, list kept) except -1:
    """Returns True if each value of a sequence fits the pattern at its position."""
    cdef Py_ssize_t i
    for i in range(len(patterns)):
        if not (<Pattern>patterns[i]).fits(values[i], tensors, kept):
            return False
    return True


cdef uint64_t digest_of_all(object values, dict kinds) except? 0:
    """Returns the digest of a sequence."""
    cdef uint64_t digest = len(values)
    for value in values:
        digest = mixed(digest, digest_of(value, kinds))
    return digest


cdef class FieldsPattern(Pattern):
    """An object of one attrs class whose attributes all fit."""

    cdef bint fits(self, object value, CallTensors* tensors, list kept) except -1:
        return type(value) is self.kind and fit_all(self.items, self.fields(value), tensors, kept)

    cdef list fields(self, object value):
        return [getattr(value, name) for name in self.names]

    cdef uint64_t digest(self, object value, dict kinds) except? 0:
        return mixed(address(type(value)), digest_of_all(self.fields(value), kinds))


cdef class FlattenedPattern(Pattern):
    """An object, usually a dataclass, that lists its parts with `__tf_flatten__`."""

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
    """A dict with the same keys whose values all fit."""

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
    """Any other value, compared by its TraceType: ragged and sparse tensors, extension types."""

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


cdef object EagerTensor = ops.EagerTensor
# Types that TensorFlow compares by type and value. A bool equals an int, but isn't treated as one here.
cdef frozenset PLAIN_TYPES = frozenset((bool, int, float, complex, str, bytes, type(None)))
cdef frozenset DICT_TYPES = frozenset((dict, collections.OrderedDict, collections.defaultdict))
cdef tuple KNOWN_BY_IDENTITY = (
    resource_variable_ops.BaseResourceVariable, iterator_ops.OwnedIterator, dataset_ops.DatasetV2
)
cdef tuple OPAQUE = (dtypes.resource, dtypes.variant)


cdef class CallPattern:
    """The pattern of all arguments of a call.

    Args:
      args: the positional arguments of a call that has this pattern.
      kwargs: its keyword arguments.
      types: the CallTypes of the call's trace.
      kinds: receives a pattern for each type of value, for `digest_of_call`.
      scope: the device of the call's `tf.device` scope, or "" outside of one, or None if TensorFlow has one device.
        With several devices, the tensors of a call must be on the same devices as in this call.

    Attributes:
      objects: weak references to the objects that it compares by identity. If one is deleted, no call matches.
      is_open: Whether calls with several shapes, or several converted values, fit.

    Raises:
      TypeError: If no pattern describes these arguments.
    """

    def __init__(self, tuple args, dict kwargs, types, dict kinds, scope=None):
        self.scope = scope
        maker = _PatternMaker(kinds, types.rivals is None, scope is not None)
        self.positional = tuple(map(maker.argument, args, types.positional))
        self.names = tuple(kwargs)
        self.keywords = tuple([maker.argument(value, types.keywords[name]) for name, value in kwargs.items()])
        made = [(maker.argument(value, kind), value) for value, kind in types.defaults]
        self.defaults = tuple([pair for pair, (_, kind) in zip(made, types.defaults) if _feeds(kind.kind)])
        self.feeds = types.feeds
        self.objects = tuple(maker.objects)
        self.is_open = maker.is_open
        self.rivals = tuple(_rivals(args, kwargs, types.rivals)) if maker.is_open and types.rivals else ()

    cdef bint is_of(self, PyObject* scope) except -1:
        """Returns True if its calls are in this `tf.device` scope. See `scope_of_devices`."""
        return <PyObject*>self.scope == scope or (scope is not NULL and self.scope == <object>scope)

    cdef bint fits(self, tuple args, dict kwargs, CallTensors* tensors, list kept) except -1:
        """Returns True if the arguments of a call fit. Writes the handles of its tensors.

        Args:
          args: the positional arguments.
          kwargs: the keyword arguments.
          tensors: receives the handles.
          kept: a list that receives the objects to keep until the end of the call.
        """
        cdef Py_ssize_t i
        cdef CallTensors others
        if kept:
            kept.clear()
        if not self.takes(args, kwargs, tensors, kept):
            return False
        if self.rivals:
            others.handles = others.few
            for rival in self.rivals:
                if (<CallPattern>rival).takes(args, kwargs, &others, []):
                    return False
        if kept:
            for i in range(0, len(kept), 2):
                if kept[i] is not None:
                    made = (<Pattern>kept[i]).fill(kept[i + 1], tensors)
                    if made is None:
                        return False
                    kept[i + 1] = made
        return True

    cdef bint takes(self, tuple args, dict kwargs, CallTensors* tensors, list kept) except -1:
        """Returns True if the arguments of a call have the types and shapes of the pattern."""
        cdef Py_ssize_t i, count = len(self.positional)
        if len(args) != count or len(kwargs) != len(self.names):
            return False
        if self.feeds > FEW_TENSORS:
            room = bytearray(self.feeds * sizeof(void*))
            tensors.handles = <void**>PyByteArray_AS_STRING(room)
            kept.append(None)
            kept.append(room)
        for i in range(count):
            if not (<Pattern>self.positional[i]).fits(args[i], tensors, kept):
                return False
        if kwargs:
            for i in range(len(self.names)):
                name = self.names[i]
                if name not in kwargs or not (<Pattern>self.keywords[i]).fits(kwargs[name], tensors, kept):
                    return False
        if self.defaults:
            for pattern, value in self.defaults:
                if not (<Pattern>pattern).fits(value, tensors, kept):
                    return False
        return True

    def matches(self, tuple args, dict kwargs):
        """Returns True if the arguments of a call fit.

        Args:
          args: the positional arguments.
          kwargs: the keyword arguments.

        Returns:
          True or False.
        """
        cdef CallTensors tensors
        tensors.handles = tensors.few
        return self.fits(args, kwargs, &tensors, [])


class _NeverFits(TypeError):
    """Raised if an object among the arguments isn't accepted by a trace."""


def _rivals(args, kwargs, types):
    """Returns the patterns of the traces that TensorFlow prefers if they match."""
    for one in types:
        try:
            yield CallPattern(args, kwargs, one, {})
        except _NeverFits:
            continue


def _feeds(kind):
    """Returns the tensors of a TraceType that are fed."""
    return [leaf for leaf in kind.flatten() if leaf.dtype not in OPAQUE]


class _PatternMaker:
    """Creates the patterns of one call's arguments, in TensorFlow's order of their tensors.

    Args:
      kinds: receives a pattern for each type of value.
      is_exact: Whether the patterns have the values' shapes instead of the trace's.
      has_devices: Whether the patterns include the tensors' devices.
    """

    def __init__(self, kinds, is_exact, has_devices):
        self._kinds = kinds
        self._is_exact = is_exact
        self._has_devices = has_devices
        self._place = 0
        self._is_cast = False
        self.is_open = False
        self.objects = []

    def argument(self, value, kind):
        """Returns the pattern of an argument for which the trace has an ArgumentType."""
        self._place = kind.feed
        self._is_cast = kind.is_cast
        return self._pattern(value, kind.kind)

    def _pattern(self, value, kind):
        made = self._made(value, kind)
        self._kinds.setdefault(type(value), made)
        return made

    def _made(self, value, kind):
        """Returns the pattern of a value for which the trace has a TraceType."""
        cdef PlainPattern plain
        cdef SequencePattern sequence
        cdef DictPattern mapping
        cdef FieldsPattern fields
        cdef FlattenedPattern flattened
        of = type(value)
        if isinstance(kind, tensors_of_graphs.TensorSpec) and (
            of is EagerTensor or of is ndarray or isinstance(value, np.generic) or self._is_cast
        ):
            return self._tensor(value, kind)
        if isinstance(value, KNOWN_BY_IDENTITY) or isinstance(kind, default_types.Weakref):
            return self._object(value, kind)
        if of in PLAIN_TYPES:
            plain = PlainPattern()
            plain.kind = of
            plain.value = value
            return plain
        if of is list or of is tuple or _is_plain_namedtuple(of):
            parts = kind.components_tuple if of is list else kind.attributes if of is not tuple else kind
            sequence = SequencePattern()
            sequence.kind = of
            sequence.items = tuple(map(self._pattern, value, parts.components))
            return sequence
        if of in DICT_TYPES:
            mapping = DictPattern()
            mapping.kind = of
            mapping.items = {key: self._pattern(value[key], kind.mapping[key]) for key in sorted(kind.mapping)}
            return mapping
        if isinstance(kind, default_types.Attrs):
            fields = FieldsPattern()
            fields.kind = of
            fields.names = kind.named_attributes.attribute_names
            components = kind.named_attributes.attributes.components
            fields.items = tuple(map(self._pattern, fields.fields(value), components))
            return fields
        if isinstance(kind, custom_nest_trace_type.CustomNestTraceType):
            flattened = FlattenedPattern()
            flattened.kind = of
            flattened.metadata, parts = value.__tf_flatten__()
            flattened.items = tuple(map(self._pattern, parts, kind.components))
            return flattened
        return self._traced(value, kind)

    def _tensor(self, value, kind):
        """Returns the pattern of a tensor, or of a value that is converted to one."""
        cdef TensorPattern tensor
        cdef ConvertedPattern converted
        cdef ArrayPattern array
        if kind.dtype in OPAQUE:
            raise TypeError("a resource or a variant.")
        if type(value) is EagerTensor:
            tensor = TensorPattern()
            made = value
        elif type(value) is ndarray:
            tensor = array = ArrayPattern()
            array.array_dtype = value.dtype
            array.holds_texts = value.dtype.kind in "US"
            array.is_copied = (
                not self._has_devices and value.dtype.kind in "biufc" and value.dtype.isnative
                and kind.dtype.as_numpy_dtype is value.dtype.type
            )
            array.tensor_dtype = kind.dtype
            made = convert(value, kind.dtype)
        else:
            tensor = converted = ConvertedPattern()
            converted.kind = type(value)
            converted.tensor_dtype = kind.dtype
            made = convert(value, kind.dtype)
            # The digest of a number depends on its value.
            self.is_open = self.is_open or self._is_cast
        cdef void* handle = handle_of(made)
        if handle is NULL:
            raise TypeError("a tensor of a custom device.")
        tensor.place = self._next()
        tensor.dtype = dtype_of(handle)
        if self._has_devices:
            tensor.memory = memory_of(handle)
        shape = kind.shape
        if self._is_exact:
            shape = made.shape
        if shape.rank is not None and shape.rank > MOST_DIMENSIONS:
            raise TypeError(f"a tensor of more than {MOST_DIMENSIONS} dimensions.")
        tensor.rank = -1 if shape.rank is None else shape.rank
        for i, dimension in enumerate(shape.as_list() if shape.rank else ()):
            tensor.dimensions[i] = -1 if dimension is None else dimension
        self.is_open = self.is_open or not shape.is_fully_defined()
        return tensor

    def _next(self, count=1):
        place = self._place
        self._place += count
        return place

    def _object(self, value, kind):
        """Returns the pattern of an object that TensorFlow compares by identity, or whose TraceType is constant."""
        cdef ObjectPattern known
        cdef EqualPattern equal
        if not _may_take(kind, value):
            raise _NeverFits(f"{value!r} isn't a {kind!r}.")
        if isinstance(kind, default_types.Weakref) and _is_compared(value):
            known = equal = EqualPattern()
            equal.kind = type(value)
        else:
            known = ObjectPattern()
        known.reference = weakref.ref(value)
        self.objects.append(known.reference)
        self._next(len(_feeds(kind)))
        return known

    def _traced(self, value, kind):
        """Returns the pattern of a value that TensorFlow flattens."""
        cdef TracedPattern traced = TracedPattern()
        leaves = kind.flatten()
        if len(_feeds(kind)) != len(leaves):
            raise TypeError("a resource or a variant in an object.")
        found = from_value(value)
        traced.kind = type(value)
        traced.is_open = not self._is_exact and found != kind
        traced.known = kind if traced.is_open else found
        traced.dtypes = tuple([leaf.dtype.as_datatype_enum for leaf in leaves])
        traced.place = self._next(len(leaves))
        if leaves:
            nested = flatten(value, expand_composites=True)
            tensors = kind.to_tensors(value)
            if self._has_devices:
                traced.memories = tuple([_address_of_memory(tensor) for tensor in tensors])
            traced.is_nested = len(nested) == len(tensors) and all([a is b for a, b in zip(nested, tensors)])
        self.is_open = self.is_open or traced.is_open
        return traced


def _address_of_memory(tensor):
    """Returns the name of the device with a tensor's memory, as an address."""
    cdef void* handle = handle_of(tensor)
    if handle is NULL:
        raise TypeError("a tensor of a custom device.")
    return <size_t>memory_of(handle)


def _is_plain_namedtuple(kind):
    """Returns True if a type is a namedtuple whose items equal its fields."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields") and kind.__iter__ is tuple.__iter__ and (
        kind.__getitem__ is tuple.__getitem__ and kind.__len__ is tuple.__len__
    )


def _is_compared(value):
    """Returns True if an object's class defines equality."""
    return type(value).__eq__ is not object.__eq__ and not hasattr(value, "__wrapped__")


def _may_take(kind, value):
    """Returns True if a trace accepts an object for a TraceType."""
    if isinstance(value, resource_variable_ops.BaseResourceVariable):
        return value.shape.is_subtype_of(kind.shape) and value.dtype == kind.dtype
    return not isinstance(kind, type_spec.TypeSpec) or from_value(value).is_subtype_of(kind)
