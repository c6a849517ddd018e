"""Has Keras's passes recorded while a profiler is on, by standing in the place of methods of Keras's classes."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ClassVar

from fastsup.core.probe import RECORDS_METHOD, program_profiler_now
from fastsup.core.session_origin import origin_of_call
from fastsup.profile.recording.passes.pass_probe import (
    PassProbe,
    begin_batch,
    begin_loop,
    between_batches,
    end_batch,
    pass_of_this_thread,
    timed,
    timed_logs,
)
from fastsup.profile.recording.phases import OPEN_INPUT, PASS_FUNCTIONS, SAVE, TRACING, WAIT_FOR_CALLBACKS
from fastsup.profile.recording.recorder import Recorder

__all__ = ["KerasWatch"]

# Keras's methods that are passes, and what each calls for a batch.
_PASSES = dict(zip(("fit", "evaluate", "predict"), PASS_FUNCTIONS, strict=True))
_MODES = ("train", "test", "predict")
_EVENTS = (
    "set_model",
    *("on_epoch_begin", "on_epoch_end", "on_batch_begin", "on_batch_end"),
    *(f"on_{mode}_{event}" for mode in _MODES for event in ("begin", "end", "batch_begin", "batch_end")),
)
# The attribute of an iterator over epochs that has its `TimedInput`.
_TIMED_INPUT = "_fastsup_timed_input"
# Takes the first batch of an epoch.
_first = timed(next, OPEN_INPUT)
_FUNC_GRAPH = "tensorflow.python.framework.func_graph"


class KerasWatch:
    """Watches Keras from `start` to `stop`. Several profilers may start it; the last `stop` restores Keras."""

    _lock = threading.Lock()
    _users = 0
    # Of each attribute that is replaced: its owner, its name, what it was.
    _replaced: ClassVar[list[tuple[Any, str, Any]]] = []
    _finder: _AfterImport | None = None

    def __init__(self) -> None:
        self._started = False

    def start(self) -> None:
        """Begins to watch: now, or as soon as the program imports Keras."""
        with self._lock:
            if self._started:
                return
            self._started = True
            KerasWatch._users += 1
            if KerasWatch._users > 1:
                return
            if "keras" in sys.modules:
                _replace_all(self._replaced)
            else:
                KerasWatch._finder = _AfterImport("keras", self._imported)
                sys.meta_path.insert(0, KerasWatch._finder)

    def stop(self) -> None:
        """Ends watching."""
        with self._lock:
            if not self._started:
                return
            self._started = False
            KerasWatch._users -= 1
            if KerasWatch._users > 0:
                return
            if self._finder in sys.meta_path:
                sys.meta_path.remove(self._finder)
            KerasWatch._finder = None
            while self._replaced:
                owner, name, original = self._replaced.pop()
                setattr(owner, name, original)

    def _imported(self) -> None:
        with self._lock:
            if self._users and not self._replaced:
                _replace_all(self._replaced)


class _AfterImport(MetaPathFinder, Loader):
    """Calls a function after the first import of a module.

    Args:
      name: name of the module.
      then: the function.
    """

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then
        self._loader: Any = None

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Finds the module by the other finders, once."""
        if name != self._name or self._loader is not None:
            return None
        self._loader = self
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            self._loader = None
            return None
        self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Makes the module, as its own loader does."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Runs the module's code, and then the function."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _replace_all(replaced: list[tuple[Any, str, Any]]) -> None:
    keras = sys.modules["keras"]

    def replace(owner: Any, name: str, made_of: Callable[[Any], Any]) -> None:
        original = vars(owner).get(name)
        if original is not None:
            replaced.append((owner, name, original))
            setattr(owner, name, made_of(original))

    model: Any = keras.Model
    for name, function in _PASSES.items():
        replace(_class_with(model, name), name, functools.partial(_as_pass, name=name, function=function))
        make = f"make_{function}"
        replace(_class_with(model, make), make, functools.partial(timed, phase=make))
    for name in ("save", "save_weights"):
        replace(_class_with(model, name), name, functools.partial(timed, phase=SAVE))
    callbacks: Any = keras.callbacks.CallbackList
    for mode in _MODES:
        replace(callbacks, f"on_{mode}_batch_begin", begin_batch)
        replace(callbacks, f"on_{mode}_batch_end", end_batch)
        replace(callbacks, f"on_{mode}_begin", functools.partial(begin_loop, names=_EVENTS))
        replace(callbacks, f"on_{mode}_end", between_batches)
    for name in ("on_epoch_begin", "on_epoch_end"):
        replace(callbacks, name, between_batches)
    for name in ("_flush_futures", "_on_end"):
        replace(callbacks, name, functools.partial(timed, phase=WAIT_FOR_CALLBACKS))
    package = keras.Model.__module__.partition(".")[0]
    replace(import_module(f"{package}.src.utils.python_utils"), "pythonify_logs", timed_logs)
    iterators: Any = import_module(f"{package}.src.trainers.epoch_iterator").EpochIterator
    replace(iterators, "_enumerate_iterator", _opens_input)
    trainer = sys.modules.get(f"{package}.src.backend.tensorflow.trainer")
    if trainer is not None:
        replace(trainer.TFEpochIterator, "__init__", _with_timed_input)
    if _FUNC_GRAPH in sys.modules:
        replace(sys.modules[_FUNC_GRAPH], "func_graph_from_py_func", functools.partial(timed, phase=TRACING))


def _class_with(kind: type, name: str) -> type:
    return next(base for base in kind.__mro__ if name in vars(base))


def _as_pass(method: Callable[..., Any], name: str, function: str) -> Callable[..., Any]:
    """`fit`, `evaluate` or `predict`, recorded where a profiler is on."""

    @functools.wraps(method)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = program_profiler_now()
        if not isinstance(recorder, Recorder):
            return method(self, *args, **kwargs)
        role = "validation" if kwargs.get("_use_cached_eval_dataset") else name
        origin = origin_of_call(f"{type(self).__name__}.{name}", role, sys._getframe(1))
        with PassProbe(recorder, origin, function):
            return method(self, *args, **kwargs)

    setattr(recorded, RECORDS_METHOD, method)
    return recorded


def _with_timed_input(method: Callable[..., Any]) -> Callable[..., Any]:
    """The constructor of an iterator over epochs, whose dataset is timed."""

    @functools.wraps(method)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> None:
        method(self, *args, **kwargs)
        if pass_of_this_thread() is None:
            return
        from fastsup.profile.recording.passes.timed_input import timed_input

        timed = timed_input(self._distributed_dataset)
        if timed is not None:
            self._distributed_dataset = timed.dataset
            setattr(self, _TIMED_INPUT, timed)

    return recorded


def _opens_input(method: Callable[..., Any]) -> Callable[..., Any]:
    """The generator of an epoch's batches, whose first one opens the input."""

    @functools.wraps(method)
    def recorded(self: Any) -> Any:
        batches = method(self)
        timed_input, around = vars(self).get(_TIMED_INPUT), pass_of_this_thread()
        if timed_input is not None and around is not None:
            around.waits_for(timed_input)
        try:
            yield _first(batches)
        except StopIteration:
            return
        yield from batches

    return recorded
