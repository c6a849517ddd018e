"""What the C++ binding to TensorFlow's runtime didn't expect is an error, after which the process goes on."""

from __future__ import annotations

import textwrap

import pytest
from processes import Processes

OPEN = """
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.eager import context

from fastsup.eager import tf_abi, eager_session

assert tf_abi.unavailable_reason() == ""
graph = tf.Graph()
with graph.as_default():
    name = tf.constant(3.0).name
session = eager_session.EagerSession(
    lambda: tf.compat.v1.Session(target=eager_session.SESSION_TARGET, graph=graph)
)
owner = session.session._make_callable_from_options(config_pb2.CallableOptions(fetch=[name]))
(three,) = session.callable(owner, owner._handle, 0, 1)()
assert float(three) == 3.0
"""


def run(processes: Processes, program: str) -> str:
    done = processes.python("-c", OPEN + textwrap.dedent(program))
    assert done.returncode == 0, done.stderr[-3000:]
    return str(done.stdout)


@pytest.mark.parametrize("count", [0, 2])
def test_another_number_of_results(processes: Processes, count: int) -> None:
    """As if a tensor of TensorFlow had another size than the C++ binding was written for."""
    program = f"""
        try:
            session.callable(owner, owner._handle, 0, {count})()
        except tf.errors.InternalError as error:
            print(error.message)
        print(float(session.callable(owner, owner._handle, 0, 1)()[0]))
    """
    message = "the runtime has not returned one tensor for each fetch of a lifted function"
    assert run(processes, program) == f"{message}\n3.0\n"


def test_another_context_than_that_of_the_sessions(processes: Processes) -> None:
    program = """
        context._reset_context()
        context.ensure_initialized()
        try:
            eager_session.share_context(context.context()._handle)
        except RuntimeError as error:
            print(error)
    """
    message = "lifted functions share the devices of another eager context, which was replaced."
    assert run(processes, program) == f"{message}\n"


def test_a_library_without_the_size_of_the_table(processes: Processes) -> None:
    program = """
        try:
            eager_session._size("environ", [eager_session.ctypes.CDLL(None)])
        except ImportError as error:
            print(error)
    """
    assert run(processes, program) == "TensorFlow's libraries don't say how large environ is.\n"
