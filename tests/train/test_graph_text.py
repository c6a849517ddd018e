"""A graph as text: to the letter what TensorFlow has protobuf make of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from fastsup.events.graph_text import graph_as_text, write_graph_as_text

v1 = tf.compat.v1


@pytest.fixture
def theirs(tmp_path: Any) -> Any:
    """What TensorFlow writes of a GraphDef."""

    def read(graph_def: Any) -> str:
        try:
            v1.train.write_graph(graph_def, str(tmp_path / "theirs"), "graph.pbtxt")
        except TypeError as error:  # TensorFlow 2.20 with protobuf 7, which TensorFlow 2.21 writes with.
            if "float_format" not in str(error):
                raise
            return text_format.MessageToString(graph_def)
        return str((tmp_path / "theirs" / "graph.pbtxt").read_text())

    return read


def nothing() -> None:
    """A graph without nodes."""


def small_step() -> None:
    weights = v1.get_variable("weights", [3, 1], initializer=v1.zeros_initializer())
    loss = tf.reduce_sum(v1.placeholder(tf.float32, [None, 3], "features") @ weights)
    v1.train.AdamOptimizer(0.1).minimize(loss, v1.train.get_or_create_global_step())
    v1.train.Saver()


def constants_of_all_sizes_and_types() -> None:
    for dtype in (np.float32, np.float16, np.int8, np.int64, np.bool_, np.complex64):
        for size in (0, 1, 3, 400, 2000):
            tf.constant(np.arange(size).astype(dtype), name=f"{np.dtype(dtype).name}_{size}")
    tf.constant(np.arange(256, dtype=np.uint8).repeat(40), name="each_byte")
    tf.constant(float("nan"))
    tf.constant([-float("inf"), 1e-42, 1 / 3])


def strings_that_are_escaped() -> None:
    tf.constant([b'a"b', b"'\\\n\t\r\0\xff", "ä€".encode()])
    tf.constant([b"many bytes \x80" * 50] * 30, name="long")
    v1.get_variable("v", shape=[], initializer=v1.zeros_initializer(), caching_device="/job:localhost/device:CPU:0")


def functions_and_devices() -> None:
    with tf.device("/device:CPU:0"):
        x = v1.placeholder(tf.float32, [], name="scope/x.1")
        tf.cond(x > 0, lambda: x + 1, lambda: x - 1)
        tf.while_loop(lambda i: i < 3, lambda i: [i + 1], [tf.constant(0)])
    dataset = tf.data.Dataset.range(10).map(lambda n: n * 2).shuffle(3).batch(2)
    v1.data.make_initializable_iterator(dataset).get_next()


@pytest.mark.parametrize(
    "build", [nothing, small_step, constants_of_all_sizes_and_types, strings_that_are_escaped, functions_and_devices]
)
@pytest.mark.parametrize("add_shapes", [False, True])
def test_is_what_tensorflow_writes(build: Any, add_shapes: bool, graph: Any, theirs: Any) -> None:
    build()
    graph_def = graph.as_graph_def(add_shapes=add_shapes)
    assert graph_as_text(graph_def) == theirs(graph_def)


def test_every_field_of_a_graph(theirs: Any) -> None:
    """Also those that no graph of today's TensorFlow has set."""
    graph_def = v1.GraphDef(version=21)
    graph_def.versions.producer = 2000
    graph_def.versions.bad_consumers.extend([1, 2])
    node = graph_def.node.add(name="n", op="Const", input=["a:1", "^b"], device='/job:"odd"/device:CPU:0')
    node.experimental_debug_info.original_node_names.append("elsewhere")
    node.experimental_type.type_id = 1
    node.attr["empty"].SetInParent()
    node.attr["list"].list.f.extend([0.1, 2.0])
    node.attr["function"].func.name = "f"
    node.attr["function"].func.attr["T"].type = tf.float32.as_datatype_enum
    node.attr["odd"].tensor.MergeFrom(tf.make_tensor_proto(np.zeros(4000, np.float32) + 1))
    node.attr["odd"].tensor.version_number = 3
    node.attr["odd"].tensor.float_val.append(2.0)  # A content and values: no tensor has both.
    node.attr["mixed"].placeholder = "p" * 3000
    graph_def.library.gradient.add(function_name="f", gradient_func="g")
    assert graph_as_text(graph_def) == theirs(graph_def)


def test_writes_the_file_into_a_new_folder(tmp_path: Any, graph: Any, theirs: Any) -> None:
    small_step()
    graph_def = graph.as_graph_def()
    ours = tmp_path / "new" / "ours"
    write_graph_as_text(graph_def, str(ours), "graph.pbtxt")
    assert (ours / "graph.pbtxt").read_text() == theirs(graph_def)
    assert [path.name for path in ours.iterdir()] == ["graph.pbtxt"]


def test_says_what_could_not_be_written(tmp_path: Any) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(tf.errors.FailedPreconditionError, match="file"):
        write_graph_as_text(v1.GraphDef(), str(tmp_path / "file"), "graph.pbtxt")
