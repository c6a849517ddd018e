"""What is recorded of TensorFlow's traces: each function that becomes a graph, and why again."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from fastsup.profile.recording.phases import INPUT_TRACES, KERAS_STEPS, MADE_AGAIN, TRACING
from fastsup.profile.recording.watch.replacements import Replacement
from fastsup.profile.recording.watch.signatures import difference, leaves
from fastsup.profile.recording.watch.timed import timed

__all__ = ["Traces", "replacements"]

_MOST_FUNCTIONS = 64
_MOST_SIGNATURES = 8
_MOST_DETAILS = 32
# How Keras names what it calls for a batch.
_OF_KERAS = ("one_step", "multi_step", "train_function", "test_function", "predict_function")
# How tf.data names the functions of a dataset.
_OF_INPUT = "Dataset_"


class Traces:
    """The traces that have been made, of which a new one is told apart."""

    def __init__(self) -> None:
        # By label: a weak reference to the Python function, and the leaves of its last signatures.
        self._known: dict[str, tuple[Any, list[dict[str, str]]]] = {}
        self._details: set[str] = set()

    def detail(
        self,
        within: str,
        name: str,
        function: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *_: Any,
        **named: Any,
    ) -> str:
        """Describes a trace: the function, and if it has been traced before, in what this one differs.

        Args:
          within: the phase that makes it.
          name: the function's name.
          function: the Python function.
          args: its arguments in the trace.
          kwargs: its keyword arguments.
        """
        if str(name).startswith(_OF_INPUT):
            return INPUT_TRACES
        # Keras's functions have names without meaning to the user.
        is_of_keras = within in KERAS_STEPS and str(name).startswith(_OF_KERAS)
        signature = leaves(named.get("arg_names") or (), args, kwargs)
        return self._limited(self._described(within if is_of_keras else str(name), inspect.unwrap(function), signature))

    def _limited(self, detail: str) -> str:
        if detail not in self._details and len(self._details) >= _MOST_DETAILS:
            return "of other functions"
        self._details.add(detail)
        return detail

    def _described(self, label: str, function: Any, signature: dict[str, str]) -> str:
        reference, signatures = self._known.get(label, (None, []))
        if reference is None:
            if len(self._known) < _MOST_FUNCTIONS:
                self._known[label] = (_reference(function), [signature])
            return label
        if reference() is not function:
            self._known[label] = (_reference(function), [signature])
            return f"{label}: {MADE_AGAIN}"
        # Of those that differ least, the last one.
        closest = min(
            reversed(signatures), key=lambda other: sum(other.get(place) != text for place, text in signature.items())
        )
        signatures.append(signature)
        del signatures[:-_MOST_SIGNATURES]
        what = difference(closest, signature)
        # TensorFlow traces a function that makes variables twice in its first call.
        return f"{label}: {what}" if what else label


def _reference(function: Any) -> Any:
    try:
        return weakref.ref(function)
    except TypeError:  # A callable without weak references.
        return functools.partial(lambda held: held, function)


def replacements(func_graph: ModuleType) -> Iterator[Replacement]:
    """What stands in the place of functions of TensorFlow while a profiler is on.

    Args:
      func_graph: the module of TensorFlow's function that traces.
    """
    detail = Traces().detail
    yield func_graph, "func_graph_from_py_func", functools.partial(timed, phase=TRACING, detail_of=detail)
