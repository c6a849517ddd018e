"""Fetch structures, resolved once: how the runtime's flat list of values becomes what `Session.run` returns."""

from collections.abc import Mapping
from types import MemberDescriptorType

cdef extern from "Python.h":
    object PyObject_GenericGetAttr(object instance, object name)

cdef object plain_lookup = object.__getattribute__


cdef list stored_attributes(object fetch):
    """The attributes of an instance of a class made by attrs, as TensorFlow's session takes it: pairs of name and value.

    None for anything else, and where the attributes don't say what the session fetches: code of the class may compute one
    again each time, one has no value, or the class can't be called with their values in their order.
    """
    cdef object kind = type(fetch)
    cdef list attributes = []
    fields = getattr(kind, "__attrs_attrs__", None)
    if fields is None or kind.__getattribute__ is not plain_lookup:
        return None
    # In a separate test: Cython 3.3 doesn't look for an error of such a class where it is in a tuple with built-in ones.
    if isinstance(fetch, (list, tuple)) or isinstance(fetch, Mapping):
        return None
    try:
        for field in fields:
            name = field.name
            # A slot, or nothing in the class and the value in the instance.
            place = getattr(kind, name, None)
            if not field.init or field.kw_only or not (place is None or type(place) is MemberDescriptorType):
                return None
            attributes.append((name, PyObject_GenericGetAttr(fetch, name)))
    except AttributeError:
        return None
    return attributes


cdef class Fetch:
    """A fetch without a value, as an operation is; base of the others.

    `calls_program`: whether `build` calls code of the program, which may raise.
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
    """What several tensors stand for (a SparseTensor, say), put together by TensorFlow's registered function."""

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
        """One item of the result."""
        return (<Fetch> self.items[i]).build(values)

    cdef object build(self, list values):
        cdef list result = []
        for item in self.items:
            result.append((<Fetch> item).build(values))
        return result


cdef class FetchTuple(FetchList):
    cdef object build(self, list values):
        return tuple(FetchList.build(self, values))


cdef class FetchNamedTuple(FetchList):
    cdef object type

    def __init__(self, type, items):
        FetchList.__init__(self, items)
        self.type = type

    cdef object build(self, list values):
        return self.type(*FetchList.build(self, values))


cdef class FetchAttributes(FetchNamedTuple):
    """An instance of a class made by attrs, whose `__init__` has converters and validators of the program."""

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
