"""The devices of eager code: sessions that share them, their variables, and TensorFlow's placement of functions."""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from tensorflow.core.framework import tensor_shape_pb2
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session as tf_session
from tensorflow.python.eager import cancellation, context, execute
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.framework import constant_op, dtypes, errors, ops
from tensorflow.python.ops import gen_array_ops, gen_resource_variable_ops
from tensorflow.python.util import compat

from fastsup.common.interpreter_end import no_interpreter_exit
from fastsup.eager.eager_session import SESSION_TARGET
from fastsup.runtime.graph.placement import several_devices_error


class OfEagerContext:
    """Base of objects that belong to the eager context in which they were created."""

    # An object may be deleted after the names of this module.
    _process: Callable[[], int] = staticmethod(os.getpid)
    _context_names = vars(context)
    _completed_before_exit = no_interpreter_exit

    def _take_context(self) -> None:
        """Records the process and the context. Call this before anything can fail."""
        self._made_in = os.getpid()
        self._made_for = context.context()

    def _usable(self) -> bool:
        """Returns True if the object's runtime still exists: not in a child process, nor after its context ended."""
        return (
            self._process() == self._made_in
            and self._context_names.get("_context") is self._made_for
            and not self._completed_before_exit.is_over_for_this_thread()
        )


class SharedCallable(tf_session.BaseSession._Callable):  # type: ignore[misc]
    """TensorFlow's own callable of such a session. It isn't released if the session's runtime no longer exists."""

    _completed_before_exit = no_interpreter_exit

    def __del__(self) -> None:
        if self._session._usable():
            with self._completed_before_exit:
                super().__del__()


class SharedSession(OfEagerContext, tf_session.Session):  # type: ignore[misc]
    """A session over the eager context's devices. If it is left open, it lives as long as the process.

    Args:
      graph: its graph.
      config: its ConfigProto.
    """

    left_open = False

    def __init__(self, graph: ops.Graph, config: Any) -> None:
        self._session = None
        self._take_context()
        super().__init__(SESSION_TARGET, graph, config)

    def _usable(self) -> bool:
        return not self.left_open and super()._usable()

    def __del__(self) -> None:
        if self._usable():
            with self._completed_before_exit:
                super().__del__()


_HANDLE = re.compile(
    r'<ResourceHandle\(name="(.*)", device="([^"]*)", container="([^"]*)", type="tensorflow::Var"', re.DOTALL
)


class VariableHandle(NamedTuple):
    """The identity by which any graph finds an eager variable. Doesn't keep the variable alive.

    Args:
      shared_name: the variable's name among its device's resources.
      container: its container.
      device: its device.
      dtype: its type, as a number of TensorFlow's DataType.
      shape: its shape, as the bytes of a TensorShapeProto.
    """

    shared_name: str
    container: str
    device: str
    dtype: int
    shape: bytes

    def in_graph(self, name: str, is_placed: bool = True) -> Any:
        """Returns the handle of the variable in the default graph.

        Args:
          name: name of the operation.
          is_placed: Whether the operation requests the variable's device.
        """
        with ops.device(self.device if is_placed else None):
            return gen_resource_variable_ops.var_handle_op(
                dtype=self.dtype,
                shape=tensor_shape_pb2.TensorShapeProto.FromString(self.shape),
                shared_name=self.shared_name,
                container=self.container,
                name=name,
            )


def variable_handle(handle: Any) -> VariableHandle | None:
    """Describes the handle of an eager variable.

    Args:
      handle: an eager tensor.

    Returns:
      None if the tensor isn't the handle of a variable, or TensorFlow doesn't report its names.
    """
    found = _HANDLE.search(str(handle)) if handle.dtype == dtypes.resource else None
    if found is None or len(handle._handle_data.shape_and_type) != 1:
        return None
    (contents,) = handle._handle_data.shape_and_type
    return VariableHandle(found[1], found[3], handle.device, contents.dtype, contents.shape.SerializeToString())


_FIRST_CPU = "/device:CPU:0"
# The types that TensorFlow's sessions move between a run and a device's memory.
_MOVED = frozenset(
    {
        dtypes.bfloat16, dtypes.bool, dtypes.complex64, dtypes.complex128, dtypes.float16, dtypes.float32,
        dtypes.float64, dtypes.int8, dtypes.int16, dtypes.int64, dtypes.uint8, dtypes.uint16,
    }
)  # fmt: skip


def is_moved(dtype: Any) -> bool:
    """Returns True if TensorFlow's sessions move tensors of a type between a run and a device's memory."""
    return dtype in _MOVED


def variables_on_devices(inputs: Sequence[Any]) -> dict[int, VariableHandle]:
    """Returns a function's input variables that aren't on the first CPU device, by position.

    Args:
      inputs: the flat inputs.
    """
    found = {}
    for place, value in enumerate(inputs):
        if value.dtype == dtypes.resource and _FIRST_CPU not in value.device:
            handle = variable_handle(value)
            if handle is not None:
                found[place] = handle
    return found


def why_not_held(values: Iterable[Any]) -> str:
    """Returns the reason why one of the values can't be put into a slot, which is on the host.

    Args:
      values: the resources and variants.

    Returns:
      The reason, or "" if there is none.
    """
    for value in values:
        if _FIRST_CPU not in value.device:
            return f"one of its arguments is a {value.dtype.name} on {value.device}"
    return ""


def why_not_given(feeds: Iterable[Any]) -> str:
    """Returns the reason why a session can't use one of the tensors in its current memory.

    Args:
      feeds: the inputs that aren't resources or variants.

    Returns:
      The reason, or "" if there is none.
    """
    for value in feeds:
        if not is_moved(value.dtype) and "/device:CPU:" not in value.backing_device:
            return f"one of its arguments is a tensor of {value.dtype.name} in the memory of {value.backing_device}"
    return ""


_HOST = "/job:localhost/replica:0/task:0/device:CPU:0"
# Types that accelerators' operations keep in the host's memory.
_ON_HOST = (dtypes.int32, dtypes.string, dtypes.resource)

# Values of ConfigProto.placement_period, which has no effect on a function. Each new value makes TensorFlow prepare it.
_own_periods = itertools.count(7741)
# Maximum number of times that a function is prepared until TensorFlow reports its graph.
_MOST_TRIES = 5
# A thread holds this lock while TensorFlow collects the graphs of the functions that it prepares, in all threads.
_collecting = threading.Lock()
# The devices on which TensorFlow calls functions, by the scope of the call.
_devices_of_calls: dict[str, str] = {}


@dataclass(frozen=True)
class Placement:
    """The devices of a function's operations, arguments and results, by full name.

    Args:
      feeds: for each argument that isn't a resource or a variant, the device with its memory.
      results: for each result, the device with its memory, and the device that TensorFlow reports.
      operations: devices by operation name, including the arguments. In called functions, the names start with the
        call's name. Not all operations are there, because TensorFlow's optimizer replaces some.
    """

    feeds: tuple[str, ...]
    results: tuple[tuple[str, str], ...]
    operations: dict[str, str]

    @property
    def only_device(self) -> str:
        """The single device of everything, or "" if there are several."""
        found = {*self.operations.values(), *self.feeds, *(memory for memory, _ in self.results)}
        return found.pop() if len(found) == 1 else ""

    def check_one_device(self, remedy: str) -> None:
        """Rejects the single-threaded executor for a function that isn't on a single device.

        Args:
          remedy: a sentence with the alternative to the executor.

        Raises:
          tf.errors.UnimplementedError: If the function is on several devices.
        """
        if not self.only_device:
            places = ", ".join(f"{what} on {device}" for device, what in self._examples().items())
            raise several_devices_error(places, remedy)

    def _examples(self) -> dict[str, str]:
        """Returns the devices, each with an example of an operation or value."""
        found: dict[str, str] = {}
        for name, device in self.operations.items():
            found.setdefault(device, f"operation {name!r}")
        for number, memory in enumerate(self.feeds):
            found.setdefault(memory, f"the value of input {number}")
        for number, (memory, _) in enumerate(self.results):
            found.setdefault(memory, f"the value of result {number}")
        return found


def is_compiled_by_xla(definition: Any) -> bool:
    """Returns True if XLA compiles a function as a whole.

    Args:
      definition: its FunctionDef.
    """
    return bool(definition.attr["_XlaMustCompile"].b) if "_XlaMustCompile" in definition.attr else False


class HasRun(Exception):
    """Raised if TensorFlow ran a function that it should only have prepared.

    Attributes:
      flat: list of the function's results.
    """

    def __init__(self, flat: list[Any]) -> None:
        super().__init__("TensorFlow has run a function that was cancelled before it was called.")
        self.flat = flat


def placement_of(concrete: Any, inputs: Sequence[Any], feeds: Sequence[Any]) -> Placement:
    """Makes TensorFlow prepare a function for a call, and reads where TensorFlow would run each operation.

    TensorFlow prepares a function when it is called. This call is cancelled beforehand, so nothing runs.

    Args:
      concrete: the ConcreteFunction.
      inputs: its flat inputs, except captured tensors.
      feeds: the inputs that aren't resources or variants.

    Raises:
      HasRun: If TensorFlow ran the function anyway.
      tf.errors.OpError: If TensorFlow can't prepare the function.
    """
    definition = concrete.function_def
    called_on = _called_on(context.context().device_name)
    names = list(_names_of_results(definition))
    # For XLA-compiled functions, TensorFlow reports nothing, and doesn't check whether the call is cancelled.
    is_compiled = is_compiled_by_xla(definition)
    operations = dict.fromkeys(names, called_on) if is_compiled else _placed(concrete, inputs)
    made_on = [operations[name] for name in names]
    memory = tuple([tensor.backing_device for tensor in feeds])
    kinds = [output.dtype for output in concrete.function_type.flat_outputs]
    results = tuple([(_memory_of(kind, device), called_on) for kind, device in zip(kinds, made_on, strict=True)])
    return Placement(memory, results, operations)


def _called_on(scope: str) -> str:
    """Returns the device on which TensorFlow calls functions in a scope. All results of a function report it."""
    device = _devices_of_calls.get(scope)
    if device is None:
        device = polymorphic_function.Function(lambda: constant_op.constant(0.0), "device_of_calls")().device
        _devices_of_calls[scope] = device
    return device


def _graphs_of_call(concrete: Any, inputs: Sequence[Any]) -> list[Any]:
    """Returns the graphs that TensorFlow prepares for a call that is cancelled beforehand."""
    here = context.context()
    cancelled = cancellation.CancellationManager()
    cancelled.start_cancel()
    with _collected_graphs(here) as graphs:
        try:
            # Don't use a CancellationManagerContext, which would cancel the calls of all threads.
            flat = execute.execute_with_cancellation(
                compat.as_str(concrete.function_def.signature.name),
                num_outputs=len(concrete.function_type.flat_outputs),
                inputs=[*inputs, *concrete.captured_inputs],
                attrs=_attributes_as_new(here),
                ctx=here,
                cancellation_manager=cancelled,
            )
        except errors.CancelledError:
            return graphs
    raise HasRun(flat or [])


def _attributes_as_new(here: Any) -> tuple[Any, ...]:
    """Returns call attributes that make TensorFlow prepare the function again and report its graphs."""
    options = here.function_call_options
    config = config_pb2.ConfigProto.FromString(options.config_proto_serialized)
    config.placement_period = next(_own_periods)
    attributes = context.FunctionCallOptions(options.executor_type, config).as_attrs()
    return tuple(itertools.chain(*attributes.items()))


def _memory_of(kind: Any, device: str) -> str:
    """Returns the device with the memory of a result that is computed on a device."""
    return _HOST if kind in _ON_HOST else device


@contextmanager
def _collected_graphs(here: Any) -> Iterator[list[Any]]:
    """Yields a list that contains, at the end, the graphs of the functions that TensorFlow prepared in the block."""
    graphs: list[Any] = []
    with _collecting:
        _hand_over()  # The first time, TensorFlow prepares a function for this call.
        here.enable_graph_collection()
        try:
            yield graphs
        finally:
            _hand_over()
            graphs.extend(here.export_run_metadata().function_graphs)
            here.disable_graph_collection()


def _hand_over() -> None:
    """Runs an operation, with which TensorFlow reports the graphs of a function that was cancelled before."""
    with ops.device(_HOST):
        gen_array_ops.identity(constant_op.constant(0))


def _placed(concrete: Any, inputs: Sequence[Any]) -> dict[str, str]:
    """Returns the devices of a function's operations.

    Raises HasRun, or UnimplementedError if TensorFlow hasn't reported a graph.
    """
    definition = concrete.function_def
    arguments = {argument.name for argument in definition.signature.input_arg}
    results = _names_of_results(definition).keys()
    for _ in range(_MOST_TRIES):
        # Other threads' operations report the existing graphs when they end. The list may therefore
        # contain only the graph before the optimizer, or another thread's new function.
        for graph in _graphs_of_call(concrete, inputs):
            nodes = graph.post_optimization_graph.node
            is_complete = results == {node.name for node in nodes if node.op == "_Retval"}
            if nodes and is_complete and arguments >= {node.name for node in nodes if node.op == "_Arg"}:
                return {node.name: node.device for node in nodes}
    raise errors.UnimplementedError(None, None, "TensorFlow doesn't report where it runs the operations")


def _names_of_results(definition: Any) -> dict[str, None]:
    """Returns the names of the results in the graphs that TensorFlow prepares, in order."""
    return dict.fromkeys(f"{output.name}_RetVal" for output in definition.signature.output_arg)
