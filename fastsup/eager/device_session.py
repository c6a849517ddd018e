"""`fastsup.DeviceSession`: a session whose callables take and give eager tensors, in the memory of a device."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session as tf_session
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.framework import tensor as tensor_lib
from tensorflow.python.ops import array_ops

from fastsup.eager import bridge
from fastsup.eager.calls import LiftedStep
from fastsup.eager.choice import compile_for
from fastsup.eager.devices import OverEagerContext, SharedCallable, is_moved
from fastsup.eager.eager_session import SESSION_TARGET, EagerCallable, EagerSession
from fastsup.runtime.executor import CALLING_THREAD, INLINE, REMEDY, SINGLE, decide
from fastsup.runtime.graph.operations import upstream_operations
from fastsup.runtime.graph.placement import several_devices_error
from fastsup.runtime.session import Session

__all__ = ["DeviceSession"]


class DeviceSession(OverEagerContext, Session):
    """A `fastsup.Session` over the devices that eager code uses.

    Its `make_device_callable` takes eager tensors, and gives eager tensors, without a copy through the host. All else
    is as in a `fastsup.Session`, but for one thing: variables belong to the devices, not to the session. Variables of
    the same name in several such sessions are one variable, and their memory is kept until the process ends.

    Args:
      graph: the graph to launch. Defaults to the default graph.
      config: a `tf.compat.v1.ConfigProto`, or None.
      executor: as in `fastsup.Session`.

    Raises:
      RuntimeError: the devices of eager code can't be shared here; the message says why.
      TypeError, ValueError, tf.errors.OpError: as in `fastsup.Session`.
    """

    def __init__(self, graph: ops.Graph | None = None, config: Any = None, executor: str = "auto") -> None:
        reason = bridge.unavailable_reason() or bridge.forked_reason()
        if reason:
            raise RuntimeError(
                f"A DeviceSession can't share the devices of eager code: {reason}. fastsup.Session has its own."
            )

        def opened() -> Any:
            super(DeviceSession, self).__init__(SESSION_TARGET, graph, config, executor)
            return weakref.proxy(self)  # What is made of it is this session's.

        self._shared = EagerSession(opened)
        # Its devices are in this process: from here on it is as one that was given no target.
        self._target: Any = ""
        bridge.keep_track(self)

    def leave_open(self) -> None:
        """Lets the session live as long as the process."""
        self.left_open = True

    def release_all(self) -> None:
        """There are none."""

    def make_device_callable(
        self, fetches: Any, feed_list: list[Any] | None = None, device: str = ""
    ) -> Callable[..., Any]:
        """Makes a function that runs one step with tensors in the memory of a device.

        A call returns when its work is in the device's queue, as a call of eager code does. Tensors of the types that
        sessions keep on the host (int32, uint32, uint64, strings) are in the host's memory.

        Args:
          fetches: as for `make_callable`.
          feed_list: list of the tensors that the function is given the values of, in their order.
          device: name of the device that has the arguments and the results, such as "/gpu:0"; empty for the first CPU.

        Returns:
          A function with an argument for each tensor of `feed_list`: an eager tensor, or what can be made into one.
          What lies elsewhere is copied. It returns what `fetches` asks for, with eager tensors; None for operations.

        Raises:
          ValueError: TensorFlow has no such device, or a tensor of `feed_list` can't be fed.
          TypeError, ValueError: as from `make_callable`.
          tf.errors.UnimplementedError: the executor is the single-threaded one, and the device isn't the first CPU.
        """
        memory, host = _full_name(device), _full_name("")
        if self.executor == SINGLE and memory != host:
            raise several_devices_error(f"the arguments and results on {memory}", REMEDY)
        handler = tf_session._FetchHandler(self.graph, fetches, {})
        feeds = [self.graph.as_graph_element(feed, allow_operation=False) for feed in feed_list or ()]
        for feed in feeds:
            if not self.graph.is_feedable(feed):
                raise ValueError(f"Tensor {feed.name} may not be fed.")
        arguments = [_Argument(feed, memory if is_moved(feed.dtype) else host) for feed in feeds]
        results = {fetch.name: memory if is_moved(fetch.dtype) else host for fetch in handler.fetches()}
        options = config_pb2.CallableOptions(
            feed=[feed.name for feed in feeds],
            fetch=list(results),
            target=[target.name for target in handler.targets()],
            feed_devices={argument.name: argument.memory for argument in arguments if argument.memory != host},
            fetch_devices={name: place for name, place in results.items() if place != host},
            fetch_skip_sync=True,
        )
        operations = upstream_operations([*handler.fetches(), *handler.targets()], feeds)
        self._executor.check(self, lambda: operations, feeds)
        self._extend_graph()
        graph = _StepGraph(self, self._shared, options, list(results.values()))
        executor = decide(self.executor, operations)
        choose = functools.partial(compile_for, executor, graph.compile, lambda trial: None)
        run_step = LiftedStep(graph, choose, functools.partial(handler.build_results, None))

        def run(*args: Any) -> Any:
            if len(args) != len(arguments):
                raise TypeError(f"The function takes {len(arguments)} tensors, as feed_list has; got {len(args)}.")
            if not self.lifetime.open:
                raise RuntimeError("Attempted to use a closed Session.")
            tensors = [argument.given(value) for argument, value in zip(arguments, args, strict=True)]
            self._begin_unknown_run()
            try:
                return run_step(tensors)
            finally:
                self._end_unknown_run()

        return run


class _StepGraph:
    """What a LiftedStep compiles: a step of a session.

    Args:
      session: the session.
      shared: the same with its place in the runtime.
      options: the CallableOptions of the step.
      results: for each fetch, the device that has its memory.
    """

    keeps_random_sequences = False

    def __init__(self, session: DeviceSession, shared: EagerSession, options: Any, results: list[str]) -> None:
        self._session, self._shared, self._options, self._results = session, shared, options, results
        self.executor = ""

    def compile(self, executor: str) -> EagerCallable:
        """Makes what runs the step in an executor."""
        self.executor = executor
        options = config_pb2.CallableOptions()
        options.CopyFrom(self._options)
        if executor == INLINE:
            options.run_options.inter_op_thread_pool = CALLING_THREAD
        owner = SharedCallable(self._session, options)
        places = [(place, place) for place in self._results]
        return self._shared.callable(owner, owner._handle, len(options.feed), len(places), places)


# Shapes of arguments that are known to fit.
_MOST_SHAPES = 64


class _Argument:
    """A tensor that a step is fed, in the memory of a device."""

    def __init__(self, feed: Any, memory: str) -> None:
        self.name, self.memory = feed.name, memory
        self._dtype, self._shape = feed.dtype.base_dtype, feed.shape
        self._number = self._dtype.as_datatype_enum
        self._fitting: set[Any] = set()

    def given(self, value: Any) -> Any:
        """A value as an eager tensor in that memory. ValueError if its shape doesn't fit."""
        if not (
            isinstance(value, ops.EagerTensor)
            and value._datatype_enum() == self._number
            and value.backing_device == self.memory
        ):
            if isinstance(value, tensor_lib.Tensor) and not isinstance(value, ops.EagerTensor):
                raise TypeError(
                    f"{self.name} must be given an eager tensor or a value, got {value!r}, a tensor of a graph. Within "
                    "`with session:`, make tensors in `with tf.init_scope():`."
                )
            with context.eager_mode(), ops.device(self.memory):
                value = array_ops.identity(ops.convert_to_tensor(value, dtype=self._dtype))
        shape = value._shape_tuple()
        if shape not in self._fitting:
            if not self._shape.is_compatible_with(shape):
                raise ValueError(
                    f"Cannot feed value of shape {shape} for Tensor {self.name}, which has shape {self._shape}"
                )
            if len(self._fitting) < _MOST_SHAPES:
                self._fitting.add(shape)
        return value


def _full_name(device: str) -> str:
    """The full name of a device, such as "/job:localhost/replica:0/task:0/device:GPU:0"."""
    devices: list[str] = context.context().devices()
    wanted = device.lower().removeprefix("/").removeprefix("device:") or "cpu:0"
    for name in devices:
        if name.lower().endswith(f"/device:{wanted}") or name.lower() == device.lower():
            return name
    raise ValueError(f"device must be one of {', '.join(devices)}, or its end, such as '/gpu:0'; got {device!r}.")
