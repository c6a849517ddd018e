"""Adapts monitors, the predecessors of hooks, to hooks."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from tensorflow.python.framework import dtypes, ops
from tensorflow.python.training import session_run_hook, training_util

__all__ = ["RunHookAdapterForMonitors", "is_monitor", "output_key", "replace_monitors_with_hooks"]

_METHODS = ("begin", "end", "step_begin", "step_end", "post_step", "set_estimator")


def is_monitor(value: Any) -> bool:
    """Returns True for an object with a monitor's methods."""
    return all(callable(getattr(value, method, None)) for method in _METHODS)


def output_key(request: Any) -> Any:
    """Returns the key for a value that a monitor requested: its name or tensor, or the name of an unhashable tensor."""
    try:
        hash(request)
    except TypeError:
        # A tensor has no hash under TensorFlow 2 behavior.
        return request.name
    return request


def _requested_element(request: Any) -> Any:
    """Returns the tensor or operation of the default graph that a monitor requests."""
    graph = ops.get_default_graph()
    if not isinstance(request, str):
        if getattr(request, "graph", None) is not graph:
            raise ValueError(f"Passed {request} should have graph attribute that is equal to current graph {graph}.")
        return request
    if ":" in request:
        return _value_of(graph.as_graph_element(request), graph)
    element = graph.as_graph_element(f"{request}:0")
    if len(element.op.outputs) > 1:
        raise ValueError(
            f"Name {request} is ambiguous, as this `Operation` has multiple outputs (at least 2). Add the number of "
            f'one, such as "{request}:0".'
        )
    return _value_of(element, graph)


def _value_of(element: Any, graph: Any) -> Any:
    """Returns a variable's value for its handle, which has the variable's name. Returns other tensors unchanged."""
    if element.dtype != dtypes.resource:
        return element
    variables = (*graph.get_collection(ops.GraphKeys.GLOBAL_VARIABLES), *graph.get_collection("local_variables"))
    values = (variable._graph_element for variable in variables if getattr(variable, "handle", None) is element)
    return next(values, element)


class RunHookAdapterForMonitors(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """A hook that calls monitors. It calls them in each step, and counts steps from 1.

    Args:
      monitors: the monitors.
    """

    def __init__(self, monitors: Iterable[Any]) -> None:
        self._monitors = list(monitors)
        self._global_step_tensor: Any = None
        self._last_step: Any = None

    def begin(self) -> None:
        """Finds the global step, and calls the monitors' `begin`."""
        self._last_step = None
        self._global_step_tensor = training_util.get_global_step()
        if self._global_step_tensor is None:
            raise RuntimeError("Global step should be created to use monitors. Call tf.train.create_global_step().")
        for monitor in self._monitors:
            monitor.begin(max_steps=None)

    def before_run(self, run_context: Any) -> Any:
        """Calls the monitors' `step_begin`.

        Returns:
          The values that the monitors request.

        Raises:
          ValueError: If a monitor doesn't return a list, or requests a value that the graph doesn't have.
        """
        if self._last_step is None:
            self._last_step = run_context.session.run(self._global_step_tensor) + 1
        requests: dict[Any, Any] = {}
        for monitor in self._monitors:
            of_monitor = monitor.step_begin(self._last_step)
            if of_monitor and not isinstance(of_monitor, list):
                raise ValueError(f"Monitor.step_begin should return a list. {monitor} has returned {of_monitor!r}.")
            requests.update((output_key(request), _requested_element(request)) for request in of_monitor or [])
        return session_run_hook.SessionRunArgs(requests) if requests else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Calls the monitors' `step_end` and `post_step`. Ends training if a `step_end` returns True."""
        outputs = run_values.results or {}
        for monitor in self._monitors:
            if monitor.step_end(self._last_step, outputs):
                run_context.request_stop()
        for monitor in self._monitors:
            monitor.post_step(self._last_step, run_context.session)
        # Read the step in a separate run, because the step's own run may read it before or after its increment.
        self._last_step = run_context.session.run(self._global_step_tensor) + 1

    def end(self, session: Any) -> None:
        """Calls the monitors' `end`."""
        self._last_step = None
        for monitor in self._monitors:
            if "session" in inspect.signature(monitor.end).parameters:
                monitor.end(session=session)
            else:
                monitor.end()


def replace_monitors_with_hooks(monitors_or_hooks: Iterable[Any] | None, estimator: Any) -> list[Any]:
    """Replaces all monitors with one hook.

    Args:
      monitors_or_hooks: hooks and monitors, or None.
      estimator: the Estimator that is trained. If its task isn't the chief, keeps only the monitors with
        `run_on_all_workers`.

    Returns:
      The hooks. The last one calls the monitors.
    """
    given = list(monitors_or_hooks or [])
    hooks = [hook for hook in given if isinstance(hook, session_run_hook.SessionRunHook)]
    monitors = [monitor for monitor in given if not isinstance(monitor, session_run_hook.SessionRunHook)]
    if monitors and not estimator.config.is_chief:
        monitors = [monitor for monitor in monitors if monitor.run_on_all_workers]
    for monitor in monitors:
        monitor.set_estimator(estimator)
    return [*hooks, RunHookAdapterForMonitors(monitors)] if monitors else hooks
