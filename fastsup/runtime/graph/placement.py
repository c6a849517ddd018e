"""Determines which executors may run a step, by its devices and by the threads that its conditionals block."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from tensorflow.python.framework import device as device_lib
from tensorflow.python.framework import errors, kernels, ops

from fastsup.runtime.graph.operations import (
    CONDITIONALS,
    FUNCTION_CALLS,
    FUNCTIONAL_CONTROL_FLOW,
    PLAIN_CALLS,
    called_functions,
    nodes_of_functions,
)

# Operations that the placer puts on the device of the tensor that they describe.
_OF_METADATA = frozenset({"Shape", "Size", "Rank"})


def check_one_device(
    operations: Iterable[ops.Operation], feeds: Sequence[Any], devices: Sequence[str], remedy: str
) -> None:
    """Rejects a step of the single-threaded executor with operations on several devices.

    That executor runs one device's operations after another's. An operation that needs another device's result would
    wait forever.

    Args:
      operations: the operations of the step.
      feeds: the fed tensors. Their values come from the first CPU device.
      devices: the names of the session's devices.
      remedy: a sentence with the alternative to the executor.

    Raises:
      tf.errors.UnimplementedError: If the step has operations on several devices.
    """
    found = devices_of_step(operations, feeds, devices)
    if len(found) > 1:
        places = ", ".join(f"{what} on {name}" for name, what in found.items())
        raise several_devices_error(places, remedy)


def several_devices_error(places: str, remedy: str) -> errors.UnimplementedError:
    """Returns the error for the single-threaded executor if a step is on several devices.

    Args:
      places: the contents of each device, as a list for the message.
      remedy: a sentence with the alternative to the executor.
    """
    return errors.UnimplementedError(
        None,
        None,
        f"The single-threaded executor can't run a step on several devices: {places}. {remedy} "
        "Or place all of the step's operations on one device.",
    )


def devices_of_step(
    operations: Iterable[ops.Operation], values: Sequence[Any], devices: Sequence[str]
) -> dict[str, str]:
    """Returns the devices of a step, as far as the graph shows, each with its first element, for a message.

    Args:
      operations: the operations of the step.
      values: the fed and fetched tensors. Their values are on the first CPU device.
      devices: the names of the session's devices.
    """
    placement = _Placement(devices)
    found: dict[str, str] = {}
    for tensor in values:
        found.setdefault(placement.cpu, f"the value of {tensor.name!r}")
    for op in sorted(operations, key=lambda op: op._id):
        for name in placement.devices_of(op):
            found.setdefault(name, f"operation {op.name!r}")
    return found


def is_on_one_device(operations: Iterable[ops.Operation], values: Sequence[Any], devices: Sequence[str]) -> bool:
    """Returns True if a step is on a single device.

    Args:
      operations: the operations of the step.
      values: the fed and fetched tensors. Their values are on the first CPU device.
      devices: the names of the session's devices.
    """
    if len(devices) == 1:
        return True
    if _Placement(devices).has_accelerators and any(op.type in FUNCTION_CALLS for op in operations):
        return False  # The placer may put operations of a function on an accelerator.
    return len(devices_of_step(operations, values, devices)) <= 1


def is_on_first_cpu(operations: Iterable[ops.Operation], devices: Sequence[str]) -> bool:
    """Returns True if operations are only on the first CPU device, regardless of feeds and fetches.

    Args:
      operations: the operations.
      devices: the names of the session's devices.
    """
    cpu = _Placement(devices).cpu
    return is_on_one_device(operations, (), devices) and devices_of_step(operations, (), devices).keys() <= {cpu}


class _Placement:
    """The placement of operations, as far as the graph shows."""

    def __init__(self, devices: Sequence[str]) -> None:
        self._by_type: dict[str, list[str]] = {}
        for name in devices:
            spec = device_lib.DeviceSpec.from_string(name)
            self._by_type.setdefault(spec.device_type, []).append(f"/device:{spec.device_type}:{spec.device_index}")
        self.cpu = self._by_type.get("CPU", ["/device:CPU:0"])[0]
        self._others = [kind for kind in self._by_type if kind != "CPU"]

    @property
    def has_accelerators(self) -> bool:
        """True if not all devices are CPUs."""
        return bool(self._others)

    def devices_of(self, op: ops.Operation) -> set[str]:
        """Returns the devices that an operation and the functions that it calls request.

        An operation that is placed with others requests none.
        """
        found = set()
        name = self._device_of(op)
        if name is not None:
            found.add(name)
        if op.type in FUNCTION_CALLS:
            for node in nodes_of_functions(op):
                if node.device:
                    found.add(self._named(node.device, node.op))
        return found

    def _device_of(self, op: ops.Operation) -> str | None:
        while not op.device:
            resources = [tensor.op for tensor in op.inputs if tensor.dtype == "resource"]
            if resources:
                op = resources[0]
            elif op.type in _OF_METADATA:
                op = op.inputs[0].op
            elif not op.inputs and (op.type in ("NoOp", "Placeholder") or _makes_values(op)):
                return None
            else:
                return self._default(op.type)
        return self._named(op.device, op.type)

    def _named(self, device: str, op_type: str) -> str:
        spec = device_lib.DeviceSpec.from_string(device)
        if spec.device_type is None:
            return self._default(op_type)
        names = self._by_type.get(spec.device_type.upper(), [])
        name = f"/device:{spec.device_type.upper()}:{spec.device_index or 0}"
        # Soft placement uses the CPU if there is no such device. Without it, TensorFlow refuses the step.
        return name if name in names else self.cpu

    def _default(self, op_type: str) -> str:
        """Returns the device of an operation that doesn't request one: an accelerator that has a kernel for it."""
        for kind in self._others:
            if any(kernel.device_type == kind for kernel in kernels.get_registered_kernels_for_op(op_type).kernel):
                return self._by_type[kind][0]
        return self.cpu


def _makes_values(op: ops.Operation) -> bool:
    """Returns True for an operation without inputs whose values the placer computes where they are needed."""
    return not any(output.dtype == "resource" for output in op.outputs)


# The single-threaded executor runs the chosen branch of a conditional in a thread of the inter-op pool, and the
# conditional's thread waits for it. A conditional in a branch therefore needs another thread. A step whose conditionals
# are nested deeper than the pool has threads never ends (measured with TensorFlow 2.21).

_WITH_BRANCHES = FUNCTIONAL_CONTROL_FLOW | PLAIN_CALLS


def threads_held(operations: Iterable[ops.Operation]) -> dict[ops.Operation, int]:
    """Returns the maximum number of threads that each operation with branches or a function blocks at a time.

    Args:
      operations: operations of one graph.
    """
    with_branches = [op for op in operations if op.type in _WITH_BRANCHES]
    if not with_branches:
        return {}
    nesting = _Nesting(with_branches[0].graph)
    return {op: nesting.threads([op.node_def], 0) for op in with_branches}


def check_threads(operations: Iterable[ops.Operation], config: Any, remedy: str) -> None:
    """Rejects a step of the single-threaded executor that would wait for a thread forever.

    Args:
      operations: the operations of the step.
      config: the session's ConfigProto.
      remedy: a sentence with the alternative to the executor.

    Raises:
      tf.errors.UnimplementedError: If the conditionals are nested deeper than the inter-op pool has threads.
    """
    threads = config.inter_op_parallelism_threads or _cores()
    for op, held in threads_held(operations).items():
        if held > threads:
            raise errors.UnimplementedError(
                op.node_def,
                op,
                f"The single-threaded executor can't run operation {op.name!r}: its conditionals hold {held} threads "
                f"of the inter-op pool at a time, and the pool has {threads}. {remedy}",
            )


def _cores() -> int:
    """Returns the number of processor cores that this process may use."""
    # macOS doesn't have this function.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Nesting:
    """The nesting of conditionals in the functions of a graph."""

    def __init__(self, graph: ops.Graph) -> None:
        self._graph = graph
        self._known: dict[tuple[str, bool], int] = {}

    def threads(self, nodes: Iterable[Any], held: int) -> int:
        """Returns the number of threads that NodeDefs block, including those of the conditionals around them."""
        return max((self._threads_of(node, held) for node in nodes if node.op in _WITH_BRANCHES), default=held)

    def _threads_of(self, node: Any, held: int) -> int:
        if node.op in PLAIN_CALLS and held:
            # Inside a conditional, the function isn't inlined. TensorFlow's ordinary executor runs it, and its
            # conditionals wait without blocking a thread.
            return held + 1
        inside = held + (node.op in CONDITIONALS)
        names = called_functions(self._graph, node)
        return max((self._threads_in(name, inside) for name in names), default=inside)

    def _threads_in(self, name: str, held: int) -> int:
        key = (name, bool(held))
        if key not in self._known:
            self._known[key] = 0  # A recursive function adds nothing to its own nesting here.
            function = self._graph._functions[name].cached_definition
            inlined = held or not function.attr["_noinline"].b
            self._known[key] = self.threads(function.node_def, held) - held if inlined else 0
        return held + self._known[key]
