"""The metrics of an accelerated model, reset and read in one call to a lifted function each.

Keras assigns and reads the variables one by one, which takes longer than a small step.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import MethodType
from typing import Any

import keras
from keras.src.backend.common.global_state import get_global_attribute

from fastsup.eager.function import lifted_function, tf_function
from fastsup.keras.calls import original_of

__all__ = ["replace_metrics_methods"]

# Seconds that Keras's own method runs in total before it is lifted: about as long as tracing and lifting takes.
_WORTH_SECS = 0.05


def replace_metrics_methods(model: Any, acceleration: Any) -> None:
    """Replaces a model's `reset_metrics` and `get_metrics_result`, unless they are the program's.

    Args:
      model: the model.
      acceleration: its `Acceleration`.
    """
    for name, kind in (("reset_metrics", _Reset), ("get_metrics_result", _Result)):
        method = original_of(getattr(model, name))
        if getattr(method, "__func__", None) is getattr(keras.Model, name):
            object.__setattr__(model, name, kind(method, acceleration))


class _LiftedMethod:
    """Replaces a method of a model that calls a method of each metric.

    Args:
      original: the model's method.
      acceleration: the `Acceleration` of the model.
    """

    def __init__(self, original: MethodType, acceleration: Any) -> None:
        self._fastsup_original = original
        self._acceleration = acceleration
        self._secs = 0.0
        # The metrics with their variables, their ids, and the function for them. They are replaced together, because
        # several threads may call this object.
        self._lifted: tuple[list[Any], list[int], Any] = [], [], None

    def __call__(self) -> Any:
        """Does as Keras's method."""
        original = self._fastsup_original
        model: Any = original.__self__
        metrics = model.metrics
        state = self._state_of(metrics) if self._acceleration.lifts_metrics(model) else None
        if not state or get_global_attribute("stateless_scope") is not None:
            return original()
        _, ids, function = self._lifted
        now = list(map(id, state))
        if now != ids:
            if self._secs < _WORTH_SECS:
                started = time.perf_counter()
                result = original()
                self._secs += time.perf_counter() - started
                return result
            traced = tf_function(lambda: self._on_each(metrics), autograph=False)
            function = lifted_function(traced, self._acceleration.executor, "silent")
            function.__name__ = f"{model.name}.{original.__name__}"
            self._secs, self._lifted = 0.0, (state, now, function)
        return self._run(model, metrics, function)

    def _state_of(self, metrics: list[Any]) -> list[Any] | None:
        """Each metric with its variables; None if a metric may do anything when its method is called."""
        state: list[Any] = []
        for metric in _each(metrics):
            if not self._is_known(metric):
                return None
            state += (metric, *metric.variables)
        return state

    def _is_known(self, metric: Any) -> bool:
        raise NotImplementedError

    def _on_each(self, metrics: list[Any]) -> Any:
        raise NotImplementedError

    def _run(self, model: Any, metrics: list[Any], function: Any) -> Any:
        raise NotImplementedError


class _Reset(_LiftedMethod):
    """Replaces `reset_metrics`. Keras's metrics only assign variables."""

    def _is_known(self, metric: Any) -> bool:
        return type(metric).reset_state.__module__.startswith("keras.src.") and "reset_state" not in vars(metric)

    def _on_each(self, metrics: list[Any]) -> None:
        for metric in metrics:
            metric.reset_state()

    def _run(self, model: Any, metrics: list[Any], function: Any) -> None:
        function()


class _Result(_LiftedMethod):
    """Replaces `get_metrics_result`. Means and sums are lifted: in a graph, TensorFlow may compute others by other
    operations, and round otherwise."""

    def _is_known(self, metric: Any) -> bool:
        result = type(metric).result
        is_known = result in (keras.metrics.Mean.result, keras.metrics.Sum.result) or _contains_metrics(metric)
        return is_known and "result" not in vars(metric)

    def _on_each(self, metrics: list[Any]) -> list[Any]:
        return [metric.result() for metric in metrics]

    def _run(self, model: Any, metrics: list[Any], function: Any) -> Any:
        results = zip(metrics, function(), strict=True)
        return keras.Model.get_metrics_result(_WithResults(model, [_Known(metric.name, it) for metric, it in results]))


class _WithResults:
    """A model whose metrics have results already.

    Args:
      model: the model.
      metrics: the metrics.
    """

    def __init__(self, model: Any, metrics: list[_Known]) -> None:
        self._model = model
        self.metrics = metrics

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class _Known:
    """A metric with a result.

    Args:
      name: its name.
      result: the result.
    """

    def __init__(self, name: str, result: Any) -> None:
        self.name = name
        self._result = result

    def result(self) -> Any:
        return self._result


def _contains_metrics(metric: Any) -> bool:
    """Returns True for a Keras object with the metrics that `compile` has got."""
    return type(metric).__module__ == "keras.src.trainers.compile_utils"


def _each(metrics: list[Any]) -> Iterator[Any]:
    """The metrics, and those that are in the metrics of `compile`."""
    for metric in metrics:
        yield metric
        if _contains_metrics(metric):
            yield from _each(metric.metrics)
