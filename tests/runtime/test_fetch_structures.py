"""Every structure of fetches comes back as TensorFlow's Session builds it: types, order, and what is one object."""

from __future__ import annotations

import collections
import dataclasses
import types
from typing import Any, NamedTuple

import attrs
import pytest
import tensorflow as tf
from tensorflow.python.trackable.data_structures import ListWrapper, _DictWrapper, _TupleWrapper


def matrix() -> tf.Tensor:
    return tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], name="matrix")


def scalar() -> tf.Tensor:
    return tf.constant(7, name="scalar")


def operation() -> tf.Operation:
    return tf.no_op(name="operation")


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


@attrs.define
class Both:
    left: Any
    _right: Any


@attrs.frozen
class Frozen:
    left: Any


@dataclasses.dataclass
class Data:
    left: Any


@pytest.mark.form
def a_list():
    a, b = matrix(), scalar()
    return lambda: [a, b]


@pytest.mark.form
def a_tuple():
    a, b = matrix(), scalar()
    return lambda: (a, b)


@pytest.mark.form
def a_list_of_one():
    a = matrix()
    return lambda: [a]


@pytest.mark.form
def lists_in_lists():
    a, b, op = matrix(), scalar(), operation()
    return lambda: [[a, [b, [op]]], (a, [(b,)]), [], [[]], a]


@pytest.mark.form
def forty_lists_deep():
    a = scalar()

    def write() -> Any:
        nested: Any = a
        for depth in range(40):
            nested = [nested] if depth % 2 else (nested,)
        return nested

    return write


@pytest.mark.form
def namedtuples():
    a, b = matrix(), scalar()
    return lambda: Pair(a, Pair(left=b, right=[a]))


@pytest.mark.form(raises=TypeError)
def a_namedtuple_with_its_default_none():
    a = matrix()
    return lambda: Pair(a)


@pytest.mark.form
def a_subclass_of_a_namedtuple():
    a, b = scalar(), scalar()
    return lambda: SummedPair(a, b)


@pytest.mark.form
def a_dictionary():
    a, b, op = matrix(), scalar(), operation()
    return lambda: {"z": a, "a": b, "op": op}


@pytest.mark.form
def dictionaries_in_dictionaries():
    a, b = matrix(), scalar()
    return lambda: {"z": {"y": {"x": a}}, "list": [{"b": b}, {}], "pair": Pair({"c": a}, b)}


@pytest.mark.form
def keys_of_all_kinds():
    a, b = matrix(), scalar()
    return lambda: {1: a, "1": b, 1.5: a, None: b, ("t", 1): a, b"1": b, False: a, float: b}


@pytest.mark.form
def an_ordered_dict():
    a, b = matrix(), scalar()
    return lambda: collections.OrderedDict([("z", a), ("a", [b])])


@pytest.mark.form
def a_defaultdict():
    a, b = matrix(), scalar()
    return lambda: collections.defaultdict(list, z=a, a=b)


@pytest.mark.form
def a_defaultdict_without_a_factory():
    a = matrix()
    return lambda: [collections.defaultdict(None, z=a)]


@pytest.mark.form
def a_subclass_of_dict():
    a, b = matrix(), scalar()
    return lambda: MyDict(z=a, a=b)


@pytest.mark.form
def a_user_dict():
    a, b = matrix(), scalar()
    return lambda: collections.UserDict(z=a, a=b)


@pytest.mark.form(raises=TypeError)
def a_mapping_proxy():
    a = matrix()
    return lambda: types.MappingProxyType({"a": a})


@pytest.mark.form
def a_subclass_of_list():
    a, b = matrix(), scalar()
    return lambda: MyList([a, MyList([b])])


@pytest.mark.form(raises=TypeError)
def a_subclass_of_tuple():
    a, b = matrix(), scalar()
    return lambda: MyTuple([a, b])


@pytest.mark.form
def a_subclass_of_tuple_of_one():
    a = matrix()
    return lambda: [MyTuple([a])]


@pytest.mark.form
def lists_and_tuples_that_a_module_tracks():
    a, b = matrix(), scalar()
    return lambda: [ListWrapper([a, b]), _TupleWrapper((a, b))]


@pytest.mark.form
def a_dictionary_that_a_module_tracks():
    a = matrix()
    return lambda: [_DictWrapper({"a": a})]


@pytest.mark.form
def attrs_classes():
    a, b = matrix(), scalar()
    return lambda: [Both(a, right=[b]), Frozen({"b": b})]


@pytest.mark.form
def an_attrs_class_alone():
    a, b = matrix(), scalar()
    return lambda: Both(a, b)


@pytest.mark.form(raises=TypeError)
def a_dataclass():
    a = matrix()
    return lambda: Data(a)


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
def empty_containers_beside_a_tensor():
    a = matrix()
    return lambda: {"none": [], "some": [a], "no": {}, "op": a.op}


@pytest.mark.form
def operations_only():
    op, other = operation(), tf.no_op()
    return lambda: [op, (other, op), {"op": op}]


@pytest.mark.form
def duplicates():
    a, b, op = matrix(), scalar(), operation()
    return lambda: [a, op, a, b, {"a": a, "b": [b, a]}, "matrix:0", op, "operation", a.op]


@pytest.mark.form
def several_outputs_of_one_operation():
    parts = tf.split(tf.constant([1, 2, 3, 4]), 4, name="parts")
    return lambda: [parts, parts[2], "parts:3", parts[0].op]


def test_form(form: Any, alike: Any) -> None:
    form.check(alike, lambda session, fetches: session.run(fetches))
