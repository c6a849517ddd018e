"""Fetches: builds a result from the runtime's values, and the key that identifies a set of fetches."""

from cpython.object cimport PyObject

from collections.abc import Mapping
from types import MemberDescriptorType

from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import indexed_slices, ops, sparse_tensor, tensor
from tensorflow.python.ops import ref_variable, resource_variable_ops
from tensorflow.python.ops.ragged import ragged_tensor

cdef extern from "Python.h":
    object PyObject_GenericGetAttr(object instance, object name)
    int Py_EnterRecursiveCall(const char* where) except *
    void Py_LeaveRecursiveCall()

cdef object plain_lookup = object.__getattribute__


cdef list stored_attributes(object fetch):
    """Returns the (name, value) pairs of an attrs instance that TensorFlow's session would fetch.

    Returns None for another object, and if the stored attributes may differ from the session's fetches: code of the
    class may compute an attribute each time, an attribute may have no value, or the class may not accept the values
    in their order.
    """
    cdef object kind = type(fetch)
    cdef list attributes = []
    fields = getattr(kind, "__attrs_attrs__", None)
    if fields is None or kind.__getattribute__ is not plain_lookup:
        return None
    # Test Mapping separately: in a tuple with built-in classes, Cython 3.3 doesn't check for an error of such a class.
    if isinstance(fetch, (list, tuple)) or isinstance(fetch, Mapping):
        return None
    try:
        for field in fields:
            name = field.name
            # Accept a slot, or an attribute that only the instance has.
            place = getattr(kind, name, None)
            if not field.init or field.kw_only or not (place is None or type(place) is MemberDescriptorType):
                return None
            attributes.append((name, PyObject_GenericGetAttr(fetch, name)))
    except AttributeError:
        return None
    return attributes


cdef class Fetch:
    """A fetch without a value, such as an operation. Base class of the other fetches.

    `calls_program` is True if `build` calls the program's code, which may raise.
    """

    cdef object build(self, list values):
        return None


cdef class FetchOne(Fetch):
    """A tensor: one of the values."""

    cdef Py_ssize_t index

    def __init__(self, index):
        self.index = index

    cdef object build(self, list values):
        return values[self.index]


cdef class FetchContracted(Fetch):
    """A fetch made up of several tensors, such as a SparseTensor. TensorFlow's registered function builds the result."""

    cdef tuple indices
    cdef object contract

    def __init__(self, indices, contract):
        self.indices = tuple(indices)
        self.contract = contract

    cdef object build(self, list values):
        return self.contract([values[i] for i in self.indices])


cdef class FetchList(Fetch):
    def __init__(self, items):
        cdef Fetch item
        self.items = tuple(items)
        for item in self.items:
            self.calls_program = self.calls_program or item.calls_program

    cdef object build_item(self, list values, Py_ssize_t i):
        """Builds one item of the result."""
        return (<Fetch> self.items[i]).build(values)

    cdef object build(self, list values):
        cdef list result = []
        for item in self.items:
            result.append((<Fetch> item).build(values))
        return result


cdef class FetchTuple(FetchList):
    cdef object build(self, list values):
        return tuple(FetchList.build(self, values))


cdef bint is_plain_named_tuple(object kind) except -1:
    """Returns True if a named tuple class has the constructor of `collections.namedtuple`, not the program's own."""
    module = getattr(kind.__new__, "__module__", None)
    return type(kind) is type and kind.__init__ is object.__init__ and str(module).startswith("namedtuple_")


cdef class FetchNamedTuple(FetchList):
    cdef object type

    def __init__(self, type, items):
        FetchList.__init__(self, items)
        self.type = type
        self.calls_program = self.calls_program or not is_plain_named_tuple(type)

    cdef object build(self, list values):
        return self.type(*FetchList.build(self, values))


cdef class FetchAttributes(FetchNamedTuple):
    """An attrs instance. Its class's `__init__` runs the program's converters and validators."""

    def __init__(self, type, items):
        FetchNamedTuple.__init__(self, type, items)
        self.calls_program = True


cdef class FetchDict(FetchList):
    cdef tuple keys

    def __init__(self, keys, items):
        FetchList.__init__(self, items)
        self.keys = tuple(keys)

    cdef object build(self, list values):
        cdef dict result = {}
        cdef Py_ssize_t i
        for i in range(len(self.keys)):
            result[self.keys[i]] = (<Fetch> self.items[i]).build(values)
        return result


# The kinds of graph elements that a plan may fetch. They are immutable and always represent the same tensors.
ELEMENT_TYPES = frozenset(
    {
        ops.Operation,
        tensor.Tensor,
        getattr(ops, "SymbolicTensor", tensor.Tensor),
        ref_variable.RefVariable,
        resource_variable_ops.ResourceVariable,
        # The class of the result of assign() and assign_add(). A fetch reads the variable after the assignment.
        getattr(resource_variable_ops, "_UnreadVariable", resource_variable_ops.ResourceVariable),
        sparse_tensor.SparseTensor,
        indexed_slices.IndexedSlices,
        ragged_tensor.RaggedTensor,
    }
)


def structure_of(fetches, graph, position, leaves):
    """Returns the structure of `fetches`, which `Session.run` has already accepted.

    Args:
      fetches: graph elements, names, and nested lists, tuples, named tuples, dictionaries and attrs objects of them.
      graph: the graph they belong to.
      position: dictionary from a tensor's id to its index in the runtime's values.
      leaves: list to which the leaves and the dictionaries' keys are appended.
    """
    if isinstance(fetches, (list, tuple)):
        items = [structure_of(fetch, graph, position, leaves) for fetch in fetches]
        if type(fetches) is list:
            return FetchList(items)
        if type(fetches) is tuple:
            return FetchTuple(items)
        return FetchNamedTuple(type(fetches), items)
    if isinstance(fetches, dict):
        leaves.extend(fetches)
        return FetchDict(fetches, [structure_of(fetch, graph, position, leaves) for fetch in fetches.values()])
    attributes = getattr(type(fetches), "__attrs_attrs__", None)
    if attributes is not None:
        values = [getattr(fetches, attribute.name) for attribute in attributes]
        return FetchAttributes(type(fetches), [structure_of(value, graph, position, leaves) for value in values])
    leaves.append(fetches)
    for kind, expand, _, _ in tf_session._REGISTERED_EXPANSIONS:
        if isinstance(fetches, kind):
            parts, contract = expand(fetches)
            break
    elements = [graph.as_graph_element(part) for part in parts]
    if kind is object:
        element = elements[0]
        return Fetch() if isinstance(element, ops.Operation) else FetchOne(position[id(element)])
    return FetchContracted([position[id(element)] for element in elements], contract)


cdef frozenset element_types = ELEMENT_TYPES


cdef bint add_to_key(list key, object fetch) except -1:
    """Appends the key of a fetch structure. Returns False if no key can identify it, so that it can't be cached.

    Graph elements always represent the same tensors, so a key contains their address. The plan keeps them alive.
    """
    cdef object kind = type(fetch)
    if kind in element_types:
        key.append(<size_t> <PyObject*> fetch)
        return True
    if kind is str:
        key.append(fetch)
        return True
    # Guard against a structure that contains itself.
    Py_EnterRecursiveCall(" in the fetches of a run")
    try:
        return add_parts_to_key(key, kind, fetch)
    finally:
        Py_LeaveRecursiveCall()


cdef bint add_parts_to_key(list key, object kind, object fetch) except -1:
    """Appends the key of a structure of fetches of this type."""
    cdef list attributes
    if kind is list or kind is tuple or (isinstance(fetch, tuple) and hasattr(kind, "_fields")):
        key.append(kind)
        key.append(len(fetch))
        for item in fetch:
            if not add_to_key(key, item):
                return False
        return True
    if kind is dict:
        key.append(kind)
        key.append(len(<dict> fetch))
        for name, item in (<dict> fetch).items():
            if type(name) is not str:
                # Other keys can be equal without being identical (1 and True), but a result must have the keys of its
                # own fetch.
                key.append(type(name))
                if type(name) in element_types:
                    name = <size_t> <PyObject*> name
                elif type(name) is not int and type(name) is not bytes:
                    return False
            key.append(name)
            if not add_to_key(key, item):
                return False
        return True
    attributes = stored_attributes(fetch)
    if attributes is not None:
        key.append(kind)
        key.append(len(attributes))
        for _, item in attributes:
            if not add_to_key(key, item):
                return False
        return True
    return False
