"""Writes a GraphDef as text, much faster than protobuf, with the same result as `tf.io.write_graph`.

Protobuf writes a message field by field, by reflection, and the bytes of a constant one by one. The nodes of a graph
have few fields and mostly equal attributes, so most of the text is cached, and bytes are escaped all at once.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from google.protobuf import text_encoding, text_format
from tensorflow.core.framework import attr_value_pb2, graph_pb2, node_def_pb2
from tensorflow.python.framework import versions
from tensorflow.python.lib.io import file_io

from fastsup.common.file_system import write_whole
from fastsup.common.interpreter_end import no_interpreter_exit

# The escape sequence of each byte. NumPy pads shorter ones with zero bytes, which no escape sequence contains.
_ESCAPED = np.array([text_encoding.CEscape(bytes([byte]), False) for byte in range(256)], "S4").view(np.uint32)
# Before 2.21, TensorFlow formats a float as Python formats the double with the same value. Protobuf 7 lacks the
# argument for this, and TensorFlow 2.20's own `tf.io.write_graph` fails with it.
_BEFORE_2_21 = tuple(map(int, versions.VERSION.split(".")[:2])) < (2, 21)
_HAS_FLOAT_FORMAT = "float_format" in inspect.signature(text_format.MessageToString).parameters
_FLOATS = {"float_format": ""} if _BEFORE_2_21 and _HAS_FLOAT_FORMAT else {}
# Size in bytes above which attributes aren't cached, because they are rarely equal.
_MANY_BYTES = 1024
_WRITTEN_BY_NAME = frozenset({"name", "op", "input", "device", "attr"})
_UP_TO_CONTENT = frozenset({"dtype", "tensor_shape", "version_number", "tensor_content"})


def write_graph_as_text(graph_def: graph_pb2.GraphDef, directory: str, name: str) -> None:
    """Atomically writes the same file as `tf.io.write_graph`."""
    if not directory.startswith("gs:"):  # Google Cloud Storage has no directories.
        file_io.recursive_create_dir(directory)
    write_whole(os.path.join(directory, name), graph_as_text(graph_def))


def graph_as_text(graph_def: graph_pb2.GraphDef) -> str:
    """Converts a graph to the same text as `tf.io.write_graph`."""
    without_nodes = graph_pb2.GraphDef()
    for field, value in graph_def.ListFields():
        if field.name == "node":
            continue
        if field.message_type is None:
            setattr(without_nodes, field.name, value)
        else:
            getattr(without_nodes, field.name).CopyFrom(value)
    lines = [line for node in graph_def.node for line in _lines(node)]
    return "".join(lines) + _text(without_nodes)


def _lines(node: node_def_pb2.NodeDef) -> Iterator[str]:
    # TensorFlow doesn't accept names that need escapes.
    yield f'node {{\n  name: "{node.name}"\n  op: "{node.op}"\n'
    for name in node.input:
        yield f'  input: "{name}"\n'
    if node.device:
        yield _device(node.device)
    attributes = node.attr
    for key in sorted(attributes):
        value = attributes[key]
        serialized = value.SerializeToString()
        if len(serialized) <= _MANY_BYTES:
            yield _attribute(key, serialized)
        elif _is_mostly_content(value):
            yield _large_tensor(key, value.tensor)
        else:
            yield _indented(attr={key: value})
    for field, value in node.ListFields():
        if field.name not in _WRITTEN_BY_NAME:
            yield _field(field.name, value.SerializeToString())
    yield "}\n"


def _text(message: Any, indent: int = 0) -> str:
    return str(text_format.MessageToString(message, indent=indent, **_FLOATS))


def _indented(**fields: Any) -> str:
    return _text(node_def_pb2.NodeDef(**fields), indent=2)


@lru_cache(maxsize=64)
def _device(name: str) -> str:
    return _indented(device=name)


@lru_cache(maxsize=1024)
def _attribute(key: str, serialized: bytes) -> str:
    return _indented(attr={key: attr_value_pb2.AttrValue.FromString(serialized)})


@lru_cache(maxsize=1024)
def _field(name: str, serialized: bytes) -> str:
    node = node_def_pb2.NodeDef()
    getattr(node, name).ParseFromString(serialized)
    return _text(node, indent=2)


def _is_mostly_content(value: Any) -> bool:
    if value.WhichOneof("value") != "tensor" or len(value.tensor.tensor_content) <= _MANY_BYTES // 2:
        return False
    return all(field.name in _UP_TO_CONTENT for field, _ in value.tensor.ListFields())


def _large_tensor(key: str, tensor: Any) -> str:
    before = type(tensor)(dtype=tensor.dtype, tensor_shape=tensor.tensor_shape, version_number=tensor.version_number)
    written = _ESCAPED.take(np.frombuffer(tensor.tensor_content, np.uint8)).tobytes()
    content = written.translate(None, delete=b"\0").decode("ascii")
    return (
        f'  attr {{\n    key: "{key}"\n    value {{\n      tensor {{\n{_text(before, indent=8)}'
        f'        tensor_content: "{content}"\n      }}\n    }}\n  }}\n'
    )


class GraphWriting:
    """Writes a file with a graph in a thread, which starts immediately."""

    def __init__(self, graph_def: Any, directory: str, name: str) -> None:
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._write, args=(graph_def, directory, name), name=f"writing {name}", daemon=True
        )
        self._thread.start()

    def _write(self, *args: Any) -> None:
        try:
            with no_interpreter_exit:
                write_graph_as_text(*args)
        except BaseException as error:
            self._error = error

    def wait(self) -> None:
        """Waits until the file is written."""
        self._thread.join()
        if self._error is not None:
            raise self._error
