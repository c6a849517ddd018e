"""Every graph element that can be fetched gives what TensorFlow's Session gives, and what can't, the same error."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

tf1 = tf.compat.v1


class MyName(str):
    pass


class ExtensionType(tf.experimental.ExtensionType):
    value: tf.Tensor


class Element:
    """Something that the graph takes for one of its elements, and not always the same one."""

    def __init__(self, *tensors: tf.Tensor) -> None:
        self.tensors = collections.deque(tensors)

    def _as_graph_element(self) -> tf.Tensor:
        self.tensors.rotate()
        return self.tensors[0]


@pytest.mark.form
def a_tensor(make: Any):
    a = make.matrix()
    return lambda: a


@pytest.mark.form
def a_scalar_tensor(make: Any):
    a = make.scalar()
    return lambda: a


@pytest.mark.form
def an_operation(make: Any):
    op = make.operation()
    return lambda: op


@pytest.mark.form
def an_operation_with_outputs(make: Any):
    op = make.matrix().op
    return lambda: op


@pytest.mark.form
def the_name_of_a_tensor(make: Any):
    make.matrix()
    return lambda: "matrix:0"


@pytest.mark.form
def the_name_of_an_operation(make: Any):
    make.operation()
    return lambda: "operation"


@pytest.mark.form
def the_name_of_an_operation_with_outputs(make: Any):
    make.matrix()
    return lambda: "matrix"


@pytest.mark.form
def a_name_of_a_subclass_of_str(make: Any):
    make.matrix()
    return lambda: [MyName("matrix:0"), np.str_("matrix:0")]


@pytest.mark.form
def a_name_in_bytes(make: Any):
    make.matrix()
    return lambda: b"matrix:0"


@pytest.mark.form
def a_resource_variable():
    v = tf1.get_variable("v", initializer=[1.0, 2.0], use_resource=True)
    return lambda: [v, v.value(), v.op]


@pytest.mark.form
def a_reference_variable():
    v = tf1.get_variable("v", initializer=[1.0, 2.0], use_resource=False)
    return lambda: [v, v.value(), v._ref(), v.op, "v:0"]


@pytest.mark.form
def a_scalar_variable_alone():
    v = tf1.get_variable("v", initializer=1.5)
    return lambda: v


@pytest.mark.form
def a_string_variable():
    v = tf1.get_variable("v", initializer=["a", "b"])
    return lambda: v


@pytest.mark.form
def a_changing_variable():
    v = tf1.get_variable("v", initializer=0, use_resource=True)
    add = v.assign_add(1)
    return lambda: [add]


@pytest.mark.form
def an_update_operation():
    v = tf1.get_variable("v", initializer=0, use_resource=False)
    add = v.assign_add(3, use_locking=True)
    return lambda: (add, add.op)


@pytest.mark.form
def an_object_whose_element_changes():
    element = Element(tf.constant(1), tf.constant(2), tf.constant(3))
    return lambda: [element]


@pytest.mark.form
def a_sparse_tensor():
    sparse = tf.SparseTensor([[0, 1], [2, 0]], [1.5, 2.5], [3, 4])
    return lambda: sparse


@pytest.mark.form
def sparse_tensors_in_structures():
    sparse = tf.SparseTensor([[0, 1], [2, 0]], ["a", "b"], [3, 4])
    return lambda: {"sparse": sparse, "parts": [sparse.values, sparse], "shape": sparse.dense_shape}


@pytest.mark.form
def an_empty_sparse_tensor():
    sparse = tf.SparseTensor(np.zeros([0, 2], np.int64), np.zeros([0], np.float32), [3, 4])
    return lambda: (sparse,)


@pytest.mark.form
def indexed_slices_without_a_shape():
    slices = tf.IndexedSlices(tf.constant([[1.0], [2.0]]), tf.constant([0, 3]))
    return lambda: slices


@pytest.mark.form
def indexed_slices_with_a_shape():
    slices = tf.IndexedSlices(tf.constant([[1.0], [2.0]]), tf.constant([0, 3]), tf.constant([5, 1]))
    return lambda: [slices, slices.values]


@pytest.mark.form
def a_ragged_tensor():
    ragged = tf.RaggedTensor.from_row_splits([1, 2, 3], [0, 0, 2, 3])
    return lambda: ragged


@pytest.mark.form
def nested_ragged_tensors():
    inner = tf.RaggedTensor.from_row_splits(["a", "b", "c"], [0, 1, 3])
    outer = tf.RaggedTensor.from_row_splits(inner, [0, 2, 2])
    return lambda: {"outer": outer, "inner": [inner, inner.values]}


@pytest.mark.form(raises=TypeError)
def an_extension_type(make: Any):
    value = ExtensionType(make.matrix())
    return lambda: value


@pytest.mark.form(raises=tf.errors.InternalError)
def a_tensor_list(make: Any):
    tensors = tf.raw_ops.TensorListFromTensor(tensor=make.matrix(), element_shape=[3])
    return lambda: tensors


@pytest.mark.form
def session_handles(make: Any):
    a = make.matrix()
    handle = tf1.get_session_handle(a)
    return lambda: [handle, a]


@pytest.mark.form(raises=TypeError)
def none():
    return lambda: None


@pytest.mark.form(raises=TypeError)
def none_in_a_list(make: Any):
    a = make.matrix()
    return lambda: [a, None]


@pytest.mark.form(raises=TypeError)
def none_in_a_dictionary(make: Any):
    a = make.matrix()
    return lambda: {"a": a, "b": [a, (None,)]}


@pytest.mark.form(raises=TypeError)
def an_int():
    return lambda: 37


@pytest.mark.form(raises=TypeError)
def numbers_in_a_list(make: Any):
    a = make.matrix()
    return lambda: [a, 1.5]


@pytest.mark.form(raises=TypeError)
def an_array():
    return lambda: np.ones(3)


@pytest.mark.form(raises=TypeError)
def a_set(make: Any):
    a = make.matrix()
    return lambda: {a.name}


@pytest.mark.form(raises=TypeError)
def a_generator(make: Any):
    a = make.matrix()
    return lambda: (a for _ in range(2))


@pytest.mark.form(raises=TypeError)
def the_values_of_a_dictionary(make: Any):
    a = make.matrix()
    return lambda: {"a": a}.values()


@pytest.mark.form(raises=TypeError)
def an_object():
    return object


@pytest.mark.form(raises=TypeError)
def a_class():
    return lambda: tf.Tensor


@pytest.mark.form(raises=ValueError)
def an_empty_name():
    return lambda: ""


@pytest.mark.form(raises=ValueError)
def a_name_of_nothing():
    return lambda: ["nothing:0"]


@pytest.mark.slow
def test_form(form: Any, alike: Any) -> None:
    form.check(alike, lambda session, fetches: session.run(fetches))


def test_resource_handle(alike: Any) -> None:
    """Its contents are an address; its type and rank can be compared. TensorFlow 2.16 can't fetch one, and says so."""

    def program(new_session: Any, attempt: Any) -> None:
        v = tf1.get_variable("v", initializer=[1.0, 2.0], use_resource=True)

        def fetch_with_handle(session: Any, fetch: Any) -> list[Any]:
            handle, value = session.run([fetch, v])
            return [str(handle.dtype), handle.ndim, handle.size > 0, value]

        with new_session() as session:
            session.run(v.initializer)
            for fetch in ("v:0", v.handle, "v:0", v.handle):
                attempt(fetch_with_handle, session, fetch)

    assert alike(program).errors in ([""] * 4, ["InternalError"] * 4)
