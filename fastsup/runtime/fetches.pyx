"""Fetch structures, resolved once: how the runtime's flat list of values becomes what `Session.run` returns."""


cdef class Fetch:
    """A fetch without a value, as an operation is; base of the others."""

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
        self.items = tuple(items)

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
