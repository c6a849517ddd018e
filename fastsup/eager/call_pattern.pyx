"""The pattern of a call's arguments, and how it is made: whether another call goes to the same graph.

A pattern is as fine as TensorFlow's own rules of retracing, or finer: two calls that fit one pattern would be given the
same ConcreteFunction. It is made from what TensorFlow knows of the arguments (its TraceTypes). Where a trace has open
dimensions, so has its pattern. What no pattern describes is left to TensorFlow's look-up.
"""

import weakref

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.object cimport PyObject

from fastsup.eager.argument_pattern cimport (
    FEW_TENSORS, ArrayPattern, CallTensors, ConvertedPattern, DictPattern, EqualPattern, FieldsPattern, FlattenedPattern,
    ObjectPattern, Pattern, PlainPattern, SequencePattern, TensorPattern, TracedPattern
)
from fastsup.eager.devices.eager_session cimport MOST_DIMENSIONS, dtype_of, handle_of, memory_of

import collections

import numpy as np

from tensorflow.core.function import trace_type
from tensorflow.core.function.trace_type import custom_nest_trace_type, default_types
from tensorflow.python.data.ops import dataset_ops, iterator_ops
from tensorflow.python.framework import dtypes, ops, tensor as tensors_of_graphs, type_spec
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.util import nest

cdef object EagerTensor = ops.EagerTensor
cdef object ndarray = np.ndarray
cdef object convert = ops.convert_to_tensor
cdef object from_value = trace_type.from_value
cdef object flatten = nest.flatten
# What TensorFlow compares by type and value. A bool is equal to an int, but isn't one here.
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
      types: the CallTypes of the trace that the call goes to.
      kinds: takes a pattern for each type of value, for `digest_of_call`.
      scope: the device of the `tf.device` scope that the call is in, an empty string outside of one, where TensorFlow has
        several devices; None where it has one. With several, the tensors of a call must lie where those of this one do.

    Attributes:
      objects: weak references to the objects that it knows by identity. Once one of them is gone, no call fits.
      is_open: whether calls of several shapes, or of several values that are converted, fit.

    Raises:
      TypeError: no pattern describes such arguments.
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
        """Whether its calls are in this `tf.device` scope: see `scope_of_devices`."""
        return <PyObject*>self.scope == scope or (scope is not NULL and self.scope == <object>scope)

    cdef bint fits(self, tuple args, dict kwargs, CallTensors* tensors, list kept) except -1:
        """Whether the arguments of a call fit. Writes the handles of its tensors.

        Args:
          args: the positional arguments.
          kwargs: the keyword arguments.
          tensors: takes the handles.
          kept: an empty list, or one that was passed before; takes what must live until the end of the call.
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
        """Whether the arguments of a call have the types and shapes of the pattern."""
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
        """Whether the arguments of a call fit.

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
    """An object that is among the arguments isn't one that a trace takes."""


def _rivals(args, kwargs, types):
    """The patterns of the traces that TensorFlow prefers where they fit."""
    for one in types:
        try:
            yield CallPattern(args, kwargs, one, {})
        except _NeverFits:
            continue


def _feeds(kind):
    """The tensors of a TraceType that are fed."""
    return [leaf for leaf in kind.flatten() if leaf.dtype not in OPAQUE]


class _PatternMaker:
    """Makes the patterns of one call's arguments, in the order in which TensorFlow takes their tensors.

    Args:
      kinds: takes a pattern for each type of value.
      is_exact: whether the patterns have the shapes of the values rather than those of the trace.
      has_devices: whether the patterns tell on which devices the tensors are.
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
        """The pattern of an argument of which the trace has an ArgumentType."""
        self._place = kind.feed
        self._is_cast = kind.is_cast
        return self._pattern(value, kind.kind)

    def _pattern(self, value, kind):
        made = self._made(value, kind)
        self._kinds.setdefault(type(value), made)
        return made

    def _made(self, value, kind):
        """The pattern of a value of which the trace has a TraceType."""
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
        """The pattern of a tensor, or of a value that becomes one."""
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
        """The pattern of an object that TensorFlow knows by its identity, or whose TraceType stays."""
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
        """The pattern of a value that TensorFlow takes apart."""
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
    """The name of the device that has a tensor's memory, as an address."""
    cdef void* handle = handle_of(tensor)
    if handle is NULL:
        raise TypeError("a tensor of a custom device.")
    return <size_t>memory_of(handle)


def _is_plain_namedtuple(kind):
    """Whether a type is a namedtuple whose items are what its fields are."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields") and kind.__iter__ is tuple.__iter__ and (
        kind.__getitem__ is tuple.__getitem__ and kind.__len__ is tuple.__len__
    )


def _is_compared(value):
    """Whether an object is equal to others, as its class says."""
    return type(value).__eq__ is not object.__eq__ and not hasattr(value, "__wrapped__")


def _may_take(kind, value):
    """Whether a trace takes an object where it has a TraceType."""
    if isinstance(value, resource_variable_ops.BaseResourceVariable):
        return value.shape.is_subtype_of(kind.shape) and value.dtype == kind.dtype
    return not isinstance(kind, type_spec.TypeSpec) or from_value(value).is_subtype_of(kind)
