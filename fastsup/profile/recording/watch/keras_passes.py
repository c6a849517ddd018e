"""Records Keras: its passes, and calls for single batches."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from types import FrameType, ModuleType
from typing import Any

from fastsup.core.probe import RECORDS_METHOD, check_profiler, program_profiler_now
from fastsup.core.sessions import PlanExecutor, SessionOrigin, origin_of_call
from fastsup.core.timeline import phase
from fastsup.profile.recording.phases import (
    BATCH_CALLS,
    BY_PYTORCH,
    BY_TENSORFLOW_EAGERLY,
    BY_TENSORFLOW_FUNCTION,
    INPUT_WAIT,
    LOGS,
    OPEN_INPUT,
    PASS_FUNCTIONS,
    SAVE,
    WAIT_FOR_CALLBACKS,
    WEIGHTS,
)
from fastsup.profile.recording.recorder import Recorder
from fastsup.profile.recording.watch.probes import (
    PassProbe,
    enter_phase,
    leave_phase,
    pass_of_list,
    pass_of_this_thread,
    recorded_calls,
    timed,
)
from fastsup.profile.recording.watch.replacements import Replacement

__all__ = [
    "begin_batch",
    "begin_loop",
    "between_batches",
    "end_batch",
    "replacements",
    "replacements_of_keras_2",
    "timed_batch_part",
]

_Method = Callable[..., Any]


def begin_batch(method: _Method) -> _Method:
    """Wraps the method that is called when a batch starts."""

    @functools.wraps(method)
    def on_batch_begin(self: Any, batch: int, logs: Any = None) -> None:
        here = pass_of_list(self)
        if here is None:
            method(self, batch, logs)
            return
        here.begin_batch()
        method(self, batch, logs)
        here.begin_function()

    return on_batch_begin


def end_batch(method: _Method) -> _Method:
    """Wraps the method that is called when a batch ends."""

    @functools.wraps(method)
    def on_batch_end(self: Any, batch: int, logs: Any = None) -> None:
        here = pass_of_list(self)
        if here is None:
            method(self, batch, logs)
            return
        here.end_function()
        method(self, batch, logs)
        here.end_batch()

    return on_batch_end


def begin_loop(method: _Method, names: Sequence[str]) -> _Method:
    """Wraps the method that is called when the loop starts. From then on, records callbacks by these names."""

    @functools.wraps(method)
    def on_begin(self: Any, logs: Any = None) -> None:
        here = pass_of_this_thread()
        if here is not None:
            here.begin_loop(self, names)
        method(self, logs)

    return on_begin


def between_batches(method: _Method) -> _Method:
    """Wraps a method that is called when an epoch starts or ends, or when the loop ends."""

    @functools.wraps(method)
    def on_event(self: Any, *args: Any, **kwargs: Any) -> None:
        here = pass_of_list(self)
        if here is not None:
            here.leave_batches()
        method(self, *args, **kwargs)

    return on_event


def timed_batch_part(function: _Method, phase: str) -> _Method:
    """Wraps a function with one argument that is called for each batch, at lower cost than `timed`.

    Args:
      function: the function. A call whose argument is false, such as empty logs, isn't recorded.
      phase: name of the row.
    """

    @functools.wraps(function)
    def batch_part(argument: Any) -> Any:
        if not argument or not enter_phase(phase):
            return function(argument)
        try:
            return function(argument)
        finally:
            leave_phase()

    return batch_part


# Keras's methods that are passes, and the function that each calls for a batch.
_PASSES = dict(zip(("fit", "evaluate", "predict"), PASS_FUNCTIONS, strict=True))
# The phases of these passes in a profile of the whole program.
_PHASES = {"fit": "train", "evaluate": "evaluate", "predict": "predict"}
_MODES = ("train", "test", "predict")
_EVENTS = (
    "set_model",
    *("on_epoch_begin", "on_epoch_end", "on_batch_begin", "on_batch_end"),
    *(f"on_{mode}_{event}" for mode in _MODES for event in ("begin", "end", "batch_begin", "batch_end")),
)
# Keras's backend names as a profile spells them.
_BACKENDS = {"tensorflow": BY_TENSORFLOW_FUNCTION, "jax": "JAX", "torch": BY_PYTORCH}
_KERAS_2 = "TensorFlow (Keras 2)"
# The attribute that `fastsup.keras.accelerate` sets on a model.
_ACCELERATION = "_fastsup_acceleration"
# The attribute that holds the `TimedInput` of an iterator over epochs.
_TIMED_INPUT = "_fastsup_timed_input"
# The value that marks the end of an iterator.
_END = object()
# Takes a batch from a Python iterator, and records the wait.
_wait: Callable[[Iterator[Any]], Any] = timed_batch_part(lambda batches: next(batches, _END), INPUT_WAIT)
# Records the conversion of logs to numbers.
_timed_logs = functools.partial(timed_batch_part, phase=LOGS)
# Takes the first batch of an epoch, and records the time as opening the input.
_first = timed(next, OPEN_INPUT)


def replacements(keras: ModuleType) -> Iterator[Replacement]:
    """Yields the replacements of methods of Keras classes while a profiler is on."""
    package = keras.Model.__module__.partition(".")[0]
    yield from _of_models(keras.Model)
    yield from _of_callbacks(keras.callbacks.CallbackList)
    yield import_module(f"{package}.src.utils.python_utils"), "pythonify_logs", _timed_logs
    iterators: Any = import_module(f"{package}.src.trainers.epoch_iterator").EpochIterator
    yield iterators, "_enumerate_iterator", _opens_input
    trainers: dict[str, Any] = {name: sys.modules.get(f"{package}.src.backend.{name}.trainer") for name in _BACKENDS}
    if trainers["tensorflow"] is not None:
        yield trainers["tensorflow"].TFEpochIterator, "__init__", _with_timed_input
    if trainers["jax"] is not None:
        yield trainers["jax"].JAXEpochIterator, "_get_iterator", _with_timed_batches
    if trainers["torch"] is not None:
        yield trainers["torch"].TorchEpochIterator, "_get_iterator", _with_timed_batches


def replacements_of_keras_2(tf_keras: ModuleType) -> Iterator[Replacement]:
    """Yields the replacements for Keras 2, whose step takes its input internally."""
    yield from _of_models(tf_keras.Model)
    yield from _of_callbacks(tf_keras.callbacks.CallbackList)


def _of_models(model: Any) -> Iterator[Replacement]:
    for name, function in _PASSES.items():
        yield _class_with(model, name), name, functools.partial(_as_pass, name=name, function=function)
        make = f"make_{function}"
        yield _class_with(model, make), make, functools.partial(timed, phase=make, of_session=True)
    for name in BATCH_CALLS:
        yield (
            _class_with(model, name),
            name,
            functools.partial(
                recorded_calls,
                phase=name,
                key_of=None,
                origin_of=functools.partial(_origin_of, name),
                session_info_of=functools.partial(_runner_of_calls, name),
            ),
        )
    for name in ("save", "save_weights"):
        yield _class_with(model, name), name, functools.partial(timed, phase=SAVE)
    yield _class_with(model, "get_weights"), "get_weights", functools.partial(timed, phase=WEIGHTS)


def _of_callbacks(callbacks: Any) -> Iterator[Replacement]:
    for mode in _MODES:
        yield callbacks, f"on_{mode}_batch_begin", begin_batch
        yield callbacks, f"on_{mode}_batch_end", end_batch
        yield callbacks, f"on_{mode}_begin", functools.partial(begin_loop, names=_EVENTS)
        yield callbacks, f"on_{mode}_end", between_batches
    for name in ("on_epoch_begin", "on_epoch_end"):
        yield callbacks, name, between_batches
    for name in ("_flush_futures", "_on_end"):
        yield callbacks, name, functools.partial(timed, phase=WAIT_FOR_CALLBACKS)


def _class_with(kind: type, name: str) -> type:
    return next(base for base in kind.__mro__ if name in vars(base))


def _as_pass(method: Callable[..., Any], name: str, function: str) -> Callable[..., Any]:
    """Records `fit`, `evaluate` or `predict` if a profiler is on or among the callbacks."""
    place = list(inspect.signature(method).parameters).index("callbacks") - 1

    @functools.wraps(method)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        around = pass_of_this_thread()
        recorder = program_profiler_now() if around is None else around.recorder
        profiled = _profiler_among(args[place] if len(args) > place else kwargs.get("callbacks"))
        if around is not None or profiled is None:
            if not isinstance(recorder, Recorder):
                return method(self, *args, **kwargs)
            return record(recorder, self, args, kwargs)
        if profiled.profiler is not recorder:
            check_profiler(profiled.profiler)
        try:
            return record(profiled.profiler, self, args, kwargs)
        finally:
            profiled.on_profile_end()

    def record(recorder: Recorder, self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        role = "validation" if kwargs.get("_use_cached_eval_dataset") else name
        origin = origin_of_call(f"{type(self).__name__}.{name}", role, sys._getframe(2), "keras")
        info = functools.partial(_runner_of, self, function)
        with phase(_PHASES[name]), PassProbe(recorder, origin, function, info):
            return method(self, *args, **kwargs)

    setattr(recorded, RECORDS_METHOD, method)
    return recorded


def _runner_of(model: Any, function: str, row: str | None = None) -> dict[str, Any]:
    """Returns the executor of a model's function, as required by `Recorder.new_caller`."""
    if getattr(model, function, None) is None:
        return {}
    keras: Any = sys.modules.get("keras")
    is_keras_3 = keras is not None and isinstance(model, keras.Model)
    backend = keras.backend.backend() if is_keras_3 else _KERAS_2
    runner, seconds = BY_TENSORFLOW_EAGERLY if model.run_eagerly else _BACKENDS.get(backend, backend), None
    for part in _accelerated(model):
        if not function.startswith(part.name):
            continue
        if not part.called:
            return {}
        if part.lifted:
            runner, seconds = f"{part.executor}{', many steps a call' if part.fused else ''}", part.seconds
    plan = PlanExecutor((row or function,), (), runner, False, seconds)
    return {"asked": runner, "plans": [plan._asdict()], "operations": 0}


def _origin_of(name: str, model: Any, frame: FrameType) -> SessionOrigin:
    return origin_of_call(f"{type(model).__name__}.{name}", name, frame, "keras")


def _runner_of_calls(name: str, model: weakref.ref[Any]) -> dict[str, Any]:
    """Returns the executor of a model's method for a single batch, like `_runner_of`, or {} if the model is deleted."""
    found = model()
    return {} if found is None else _runner_of(found, f"{name.partition('_')[0]}_function", name)


def _accelerated(model: Any) -> Sequence[Any]:
    """Returns the `fastsup.keras.FunctionReport`s of an accelerated model, or an empty sequence."""
    acceleration = getattr(model, _ACCELERATION, None)
    functions: Sequence[Any] = () if acceleration is None else acceleration.report(model)
    return functions


def _with_timed_input(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the constructor of an iterator over epochs whose dataset is timed."""

    @functools.wraps(method)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> None:
        method(self, *args, **kwargs)
        if pass_of_this_thread() is None:
            return
        from fastsup.profile.recording.watch.timed_input import timed_input

        # The input of an accelerated model contains the dataset.
        dataset = self._distributed_dataset
        is_ours = getattr(dataset, "has_own_dataset", False)
        timed = timed_input(dataset.dataset if is_ours else dataset)
        if timed is not None:
            if is_ours:
                dataset.dataset = timed.dataset
            else:
                self._distributed_dataset = timed.dataset
            setattr(self, _TIMED_INPUT, timed)

    return recorded


def _profiler_among(callbacks: Any) -> Any:
    """Returns the callback whose `profiler` is a recorder and that is notified of the recording's end, or None."""
    callbacks = getattr(callbacks, "callbacks", callbacks)
    for callback in callbacks if isinstance(callbacks, list | tuple) else (callbacks,):
        if isinstance(getattr(callback, "profiler", None), Recorder) and hasattr(callback, "on_profile_end"):
            return callback
    return None


def _with_timed_batches(method: Callable[..., Any]) -> Callable[..., Any]:
    """Creates a Python iterator over batches that times the wait for each batch."""

    def waited_for(batches: Iterator[Any]) -> Iterator[Any]:
        while (batch := _wait(batches)) is not _END:
            yield batch

    @functools.wraps(method)
    def recorded(self: Any) -> Any:
        batches = method(self)
        return batches if pass_of_this_thread() is None else waited_for(iter(batches))

    return recorded


def _opens_input(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the generator of an epoch's batches. The first batch opens the input."""

    def first_of(self: Any, batches: Iterator[Any]) -> Iterator[Any]:
        timed_input, around = vars(self).get(_TIMED_INPUT), pass_of_this_thread()
        if timed_input is not None and around is not None:
            around.waits_for(timed_input)
        try:
            yield _first(batches)
        except StopIteration:
            return

    @functools.wraps(method)
    def recorded(self: Any) -> Iterator[Any]:
        batches = method(self)
        # Return the remaining batches without a fastsup frame in between.
        return itertools.chain(first_of(self, batches), batches)

    return recorded
