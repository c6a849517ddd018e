"""Every structure of fetches comes back as TensorFlow's Session builds it: types, order, and what is one object."""

from __future__ import annotations

import collections
import dataclasses
import types
from typing import Any, NamedTuple

import pytest
import tensorflow as tf
from tensorflow.python.trackable.data_structures import ListWrapper, _DictWrapper, _TupleWrapper


class Pair(NamedTuple):
    left: Any
    right: Any = None


class SummedPair(Pair):
    def total(self) -> Any:
        return self.left + self.right


Nothing = collections.namedtuple("Nothing", [])


class MyList(list):
    pass


class MyTuple(tuple):
    pass


class MyDict(dict):
    pass


@dataclasses.dataclass
class Data:
    left: Any


@pytest.mark.form
def a_list(make: Any):
    a, b = make.matrix(), make.scalar()
    return lambda: [a, b]


@pytest.mark.form
def a_tuple(make: Any):
    a, b = make.matrix(), make.scalar()
    return lambda: (a, b)


@pytest.mark.form
def a_list_of_one(make: Any):
    a = make.matrix()
    return lambda: [a]


@pytest.mark.form
def lists_in_lists(make: Any):
    a, b, op = make.matrix(), make.scalar(), make.operation()
    return lambda: [[a, [b, [op]]], (a, [(b,)]), [], [[]], a]


@pytest.mark.form
def forty_lists_deep(make: Any):
    a = make.scalar()

    def write() -> Any:
        nested: Any = a
        for depth in range(40):
            nested = [nested] if depth % 2 else (nested,)
        return nested

    return write


@pytest.mark.form
def namedtuples(make: Any):
    a, b = make.matrix(), make.scalar()
    return lambda: Pair(a, Pair(left=b, right=[a]))


@pytest.mark.form(raises=TypeError)
def a_namedtuple_with_its_default_none(make: Any):
    a = make.matrix()
    return lambda: Pair(a)


@pytest.mark.form
def a_subclass_of_a_namedtuple(make: Any):
    a, b = make.scalar(), make.scalar()
    return lambda: SummedPair(a, b)


@pytest.mark.form
def a_dictionary(make: Any):
    a, b, op = make.matrix(), make.scalar(), make.operation()
    return lambda: {"z": a, "a": b, "op": op}


@pytest.mark.form
def dictionaries_in_dictionaries(make: Any):
    a, b = make.matrix(), make.scalar()
    return lambda: {"z": {"y": {"x": a}}, "list": [{"b": b}, {}], "pair": Pair({"c": a}, b)}


@pytest.mark.form
def keys_of_all_kinds(make: Any):
    a, b = make.matrix(), make.scalar()
    return lambda: {1: a, "1": b, 1.5: a, None: b, ("t", 1): a, b"1": b, False: a, float: b}


@pytest.mark.form
def an_ordered_dict(make: Any):
    a, b = make.matrix(), make.scalar()
    return lambda: collections.OrderedDict([("z", a), ("a", [b])])


@pytest.mark.form
def a_defaultdict(make: Any):
    a, b = make.matrix(), make.scalar()
    return lambda: collections.defaultdict(list, z=a, a=b)


@pytest.mark.form
def a_defaultdict_without_a_factory(make: Any):
    a = make.matrix()
    return lambda: [collections.defaultdict(None, z=a)]


@pytest.mark.form
def a_subclass_of_dict(make: Any):
    a, b = make.matrix(), make.scalar()
    return lambda: MyDict(z=a, a=b)


@pytest.mark.form
def a_user_dict(make: Any):
    a, b = make.matrix(), make.scalar()
    return lambda: collections.UserDict(z=a, a=b)


@pytest.mark.form(raises=TypeError)
def a_mapping_proxy(make: Any):
    a = make.matrix()
    return lambda: types.MappingProxyType({"a": a})


@pytest.mark.form
def a_subclass_of_list(make: Any):
    a, b = make.matrix(), make.scalar()
    return lambda: MyList([a, MyList([b])])


@pytest.mark.form(raises=TypeError)
def a_subclass_of_tuple(make: Any):
    a, b = make.matrix(), make.scalar()
    return lambda: MyTuple([a, b])


@pytest.mark.form
def a_subclass_of_tuple_of_one(make: Any):
    a = make.matrix()
    return lambda: [MyTuple([a])]


@pytest.mark.form
def lists_and_tuples_that_a_module_tracks(make: Any):
    a, b = make.matrix(), make.scalar()
    return lambda: [ListWrapper([a, b]), _TupleWrapper((a, b))]


@pytest.mark.form
def a_dictionary_that_a_module_tracks(make: Any):
    a = make.matrix()
    return lambda: [_DictWrapper({"a": a})]


@pytest.mark.form(raises=TypeError)
def a_dataclass(make: Any):
    a = make.matrix()
    return lambda: Data(a)


def test_a_list_that_contains_itself(impl: Any, graph: Any) -> None:
    fetches: list[Any] = [tf.constant(1)]
    fetches.append(fetches)
    with impl.Session() as session, pytest.raises(RecursionError):
        session.run(fetches)


@pytest.mark.form
def an_empty_list():
    return list


@pytest.mark.form
def an_empty_tuple():
    return tuple


@pytest.mark.form
def an_empty_dictionary():
    return dict


@pytest.mark.form
def empty_containers_of_all_kinds():
    return lambda: [[], (), {}, Nothing(), collections.OrderedDict(), [[], [{}]], collections.defaultdict(int)]


@pytest.mark.form
def empty_containers_beside_a_tensor(make: Any):
    a = make.matrix()
    return lambda: {"none": [], "some": [a], "no": {}, "op": a.op}


@pytest.mark.form
def operations_only(make: Any):
    op, other = make.operation(), tf.no_op()
    return lambda: [op, (other, op), {"op": op}]


@pytest.mark.form
def duplicates(make: Any):
    a, b, op = make.matrix(), make.scalar(), make.operation()
    return lambda: [a, op, a, b, {"a": a, "b": [b, a]}, "matrix:0", op, "operation", a.op]


@pytest.mark.form
def several_outputs_of_one_operation():
    parts = tf.split(tf.constant([1, 2, 3, 4]), 4, name="parts")
    return lambda: [parts, parts[2], "parts:3", parts[0].op]


def test_form(form: Any, alike: Any) -> None:
    form.check(alike, lambda session, fetches: session.run(fetches))
