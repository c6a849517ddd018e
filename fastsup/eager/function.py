"""`fastsup.function`: a `tf.function` whose calls cost little more than the runtime."""

from __future__ import annotations

import functools
import inspect
import re
import threading
import types
import weakref
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, overload

import fastsup.runtime  # isort: skip  (its error names the missing extra if TensorFlow isn't installed)  # noqa: F401

from tensorflow.python.eager.polymorphic_function import atomic_function, concrete_function, polymorphic_function
from tensorflow.python.framework import dtypes, errors_impl
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.trackable import base as trackable
from tensorflow.python.util import compat

from fastsup.common.errors import is_user_error
from fastsup.common.interpreter_end import no_interpreter_exit
from fastsup.core.checks import check_choice, did_you_mean
from fastsup.core.probe import call_not_lifted, note_function, part_here
from fastsup.eager import tf_abi
from fastsup.eager.calls import CachedCall, LiftedCalls, LiftedStep, scope_of_devices, why_not_lifted_here
from fastsup.eager.devices import (
    HasRun,
    Placement,
    VariableHandle,
    placement_of,
    variables_on_devices,
    why_not_given,
    why_not_held,
)
from fastsup.eager.executor_choice import choose
from fastsup.eager.function_notes import FunctionNote
from fastsup.eager.lift import LiftedGraph, LiftLimit, NotLiftable, keeps_random_sequences, secs_to_lift
from fastsup.eager.patterns import CallPattern
from fastsup.eager.tracing import ConcreteTracer, FunctionTracer
from fastsup.runtime.executor import check_executor
from fastsup.runtime.graph.operations import PLAIN_CALLS
from fastsup.runtime.own_frames import OwnFrames

__all__ = ["FALLBACKS", "NOT_EARNED", "Function", "executor_of", "function", "lifted_function", "tf_function"]

FALLBACKS = ("warn", "raise", "silent")
#: TensorFlow's own `tf.function`, even if a program replaces its name.
tf_function: Callable[..., Any] = polymorphic_function.function
_ARGUMENTS = inspect.signature(tf_function).parameters
# Maximum seconds that lifting is assumed to save per call, to decide when it has paid off.
_MOST_SAVED_SECS = 1e-4
# The number of traces of one Python function, in all its functions, that are always lifted at their first call.
_LIFTS_ON_CREDIT = 4
_OPAQUE = (dtypes.resource, dtypes.variant)


class _Entry:
    """The state of a ConcreteFunction: its lifted step, or None if TensorFlow runs it.

    Args:
      concrete: the ConcreteFunction.
      placement: TensorFlow's placement in the calls of this entry, or None if TensorFlow has one device.
      variables: the variables on devices that are its arguments in these calls, by position.

    Attributes:
      step: the lifted step.
      may_be_lifted: True if it isn't lifted only because there is no room, or because lifting hasn't paid off yet.
      lift_secs: seconds that lifting takes and that must pay off first, or None if there is only no room.
      spent: seconds of its calls by TensorFlow, counting at most `most_saved` per call.
    """

    most_saved = _MOST_SAVED_SECS

    def __init__(
        self,
        concrete: Any,
        placement: Placement | None = None,
        variables: Mapping[int, VariableHandle] = MappingProxyType({}),
    ) -> None:
        self.concrete = concrete
        self.placement = placement
        self.variables = variables
        self.step: LiftedStep | None = None
        self.may_be_lifted = False
        self.lift_secs: float | None = None
        self.spent = 0.0


#: Why a function isn't lifted if its calls must first earn the lifting.
NOT_EARNED = "its calls haven't yet taken as long as lifting takes"
_IN_TEST = "the self-test of this installation hasn't finished, and TensorFlow runs the function until it passes"


class Function(LiftedCalls, trackable.Trackable):  # type: ignore[misc]
    """A callable like the `tf.function` or ConcreteFunction in it. It also has all of that function's attributes.

    `fastsup.function` creates it. TensorFlow and Keras treat it like the function in it: `isinstance` is true, and
    modules, checkpoints and SavedModels keep it.

    Args:
      original: a `tf.function` or a ConcreteFunction.
      executor: the executor mode.
      fallback: what to do if it can't be lifted: "warn", "raise" or "silent".
      earns: Whether TensorFlow runs the calls to a trace until they have taken as long as lifting takes. If None, this
        applies from the fifth trace of one Python function on, unless lifting the earlier ones has paid off.
    """

    #: Marks the object for AutoGraph, which calls functions with this attribute unchanged.
    autograph_info__: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self, original: Any, executor: str = "auto", fallback: str = "warn", earns: bool | None = False
    ) -> None:
        # The call checks if the object has certain attributes, which an original may have.
        self._maybe_initialize_trackable()
        self._tracer = self._tracer_of(original)
        super().__init__(original, self._tracer.calls)
        self._executor = executor
        self._fallback = fallback
        self._earns = earns
        self._lifting = threading.RLock()
        # The key is the ConcreteFunction's identity, and with several devices also the call's devices.
        self._entries: dict[tuple[Any, ...], _Entry] = {}
        self._why_not_lifted = ""
        self._why_elsewhere = ""
        # True if TensorFlow ran a call because a self-test was running.
        self._has_run_in_test = False
        self._limit = LiftLimit()
        self.__name__: str = compat.as_str(original.name)

    def __repr__(self) -> str:
        return f"<fastsup.function {self.__name__} of {self.original!r}>"

    def __getattr__(self, name: str) -> Any:
        # Python looks up names such as __deepcopy__ for this object, not for the original.
        if name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.original, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Supports copies, deep copies and pickles, which behave as for the `tf.function`."""
        return type(self), (self.original, self._executor, self._fallback, self._earns)

    def _tracer_of(self, original: Any) -> ConcreteTracer:
        raise NotImplementedError

    # Methods of TensorFlow's interface for saving. Python finds a class's own methods before it calls __getattr__.

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> Any:
        with OwnFrames():  # The call may trace the function.
            return self.original._trackable_children(save_type, **kwargs)

    def _deserialization_dependencies(self, children: Any) -> Any:
        return self.original._deserialization_dependencies(children)

    def _export_to_saved_model_graph(self, object_map: Any, tensor_map: Any, options: Any, **kwargs: Any) -> Any:
        tensors = self.original._export_to_saved_model_graph(object_map, tensor_map, options=options, **kwargs)
        if self.original in object_map:
            object_map[self] = object_map[self.original]
        return tensors

    @property
    def lifted(self) -> bool:
        """True if there were calls, and all ConcreteFunctions called so far are lifted."""
        entries = list(self._entries.values())
        return bool(entries) and all(entry.step is not None for entry in entries)

    @property
    def why_not_lifted(self) -> str:
        """Reason why the function, or the last called unlifted ConcreteFunction, isn't lifted, or "".

        If nothing could be lifted in the context of all calls so far, for example under a gradient tape, it contains
        that reason.
        """
        if not self._entries:
            is_over = self._why_elsewhere == _IN_TEST and not tf_abi.is_testing()
            return self._why_not_lifted or ("" if is_over else self._why_elsewhere)
        entry = list(self._entries.values())[-1]
        if self._why_not_lifted or entry.step is not None or entry.lift_secs is None:
            return self._why_not_lifted
        return (
            f"{NOT_EARNED}: {1e3 * entry.lift_secs:,.1f} ms (a call counts for {1e3 * entry.most_saved:.1f} ms at most)"
        )

    @property
    def executor(self) -> str:
        """The executor of the last lifted ConcreteFunction, or the requested one before that."""
        step = self._last_step()
        return self._executor if step is None else executor_of(step)

    @property
    def seconds(self) -> float | None:
        """Seconds per call in that executor, as "auto" measured them, or None."""
        step = self._last_step()
        return None if step is None or step.trial is None else step.trial.seconds

    @property
    def python_function(self) -> Any:
        """The Python function. Raises AttributeError for a ConcreteFunction."""
        return self.original.python_function

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> Any:
        """Returns TensorFlow's ConcreteFunction for arguments.

        Args:
          *args: arguments, or their `tf.TensorSpec`s.
          **kwargs: keyword arguments, or their `tf.TensorSpec`s.

        Returns:
          The ConcreteFunction, which isn't lifted.
        """
        with OwnFrames():
            return self.original.get_concrete_function(*args, **kwargs)

    def _last_step(self) -> LiftedStep | None:
        steps = self._steps()
        return steps[-1] if steps else None

    def _may_be_lifted_now(self) -> bool:
        """Returns True if a call may be lifted although no lifted graph could run before. Records the reason if not."""
        if globals()["tf_abi"] is None:
            return False  # The interpreter exits, and has cleared the names of this module.
        if self._entries and tf_abi.forked_reason():
            raise RuntimeError(f"{self.__name__} can't be called: {tf_abi.forked_reason()}.")
        if tf_abi.is_testing() and self._fallback != "raise":
            self._has_run_in_test = True
            self._why_elsewhere = _IN_TEST
            return False
        if self._why_elsewhere == _IN_TEST:
            self._why_elsewhere = ""
        if not tf_abi.unavailable_reason() and not self._entries and not self._why_not_lifted:
            if not why_not_lifted_here():  # The C++ binding was just opened.
                return True
        elif tf_abi.unavailable_reason():
            self._say(tf_abi.unavailable_reason())
        if not self._why_elsewhere and not self._entries:
            self._why_elsewhere = why_not_lifted_here()
        return False

    def _call_new(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a call of a new pattern."""
        reason = self._tracer.why_untraceable()
        if reason:
            return self._call_tensorflow(args, kwargs, reason)
        has_run, result, concrete, is_new = self._tracer.trace(args, kwargs)
        if has_run:
            return result
        try:
            inputs = self._tracer.inputs(concrete, args, kwargs)
        except (TypeError, ValueError) as error:
            return self._call_tensorflow(args, kwargs, f"its arguments can't be converted to tensors: {error}")
        feeds = [value for value in inputs if value.dtype not in _OPAQUE]
        scope = scope_of_devices()
        key: tuple[Any, ...] = (id(concrete),)
        placement, variables = None, {}
        if scope is not None:
            variables = variables_on_devices(inputs)
            key += (scope, *[value.backing_device for value in feeds], *variables.items())
        if scope is not None and key not in self._entries:
            held = [value for place, value in enumerate(inputs) if value.dtype in _OPAQUE and place not in variables]
            reason = why_not_held(held) or why_not_given(feeds)
            if reason:
                self._entries[key] = _Entry(concrete)
                return self._call_tensorflow(args, kwargs, reason)
            try:
                with no_interpreter_exit:
                    placement = placement_of(concrete, inputs, feeds)
            except HasRun as run:
                self._entries[key] = _Entry(concrete)
                self._say(str(run))
                self._tracer.told(is_new)
                return concrete.function_type.pack_output(run.flat)
            except errors_impl.OpError as error:
                return self._call_tensorflow(args, kwargs, error.message)  # Usually raises the error.
        entry = self._entry(key, concrete, placement, variables)
        step = entry.step
        if step is None:
            self._cache_call(entry, [], args, kwargs)
            self._tracer.calls.by_tensorflow += 1
            result = concrete._call_flat(inputs, concrete.captured_inputs)
            self._tracer.told(is_new)
            return result
        reason = _why_unfit(concrete, inputs)
        if reason:
            return self._call_tensorflow(args, kwargs, reason)
        slot_tensors = [(slot.slot, inputs[place]) for place, slot in step.graph.opaque_inputs]
        self._cache_call(entry, slot_tensors, args, kwargs)
        result = self._run(step, feeds, slot_tensors, args, kwargs)
        self._tracer.told(is_new)
        return result

    def _call_tensorflow(self, args: tuple[Any, ...], kwargs: dict[str, Any], reason: str) -> Any:
        """Runs a call that can't be lifted. If TensorFlow doesn't refuse the call either, reports the reason."""
        call_not_lifted(self, reason)
        self._tracer.calls.tell()
        self._tracer.calls.by_tensorflow += 1
        with OwnFrames():
            result = self.original(*args, **kwargs)
        self._say(reason)
        return result

    def _cache_call(
        self, entry: _Entry, slot_tensors: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if not self._call_cache.takes_more():
            return
        try:
            types = self._tracer.types(entry.concrete, args, kwargs)
            pattern = CallPattern(args, kwargs, types, self._call_cache.kinds, scope_of_devices())
        except (TypeError, ValueError, AttributeError, NotImplementedError):
            return  # No pattern describes the arguments, or one of them has no TraceType.
        cached_call = CachedCall(pattern, entry.step, slot_tensors, entry if entry.may_be_lifted else None)
        self._add_cached_call(cached_call, args, kwargs)

    def _explained(self, error: Any, step: LiftedStep, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Adds the operation that raised a step's error to the error."""
        try:
            inputs = self._tracer.inputs(step.graph.concrete, args, kwargs)
            named = step.graph.with_operation(error, inputs)
            if self._executor == "auto" and not isinstance(error, errors_impl.OutOfRangeError):
                # A program that continues after such an error may raise many, and a search takes up to two seconds.
                step.run_inline()
            return with_lines(named, step.graph.concrete)
        except Exception as other:
            if is_user_error(other):
                raise
            return error  # The original error is more useful than an error in the search.

    def _entry(
        self,
        key: tuple[Any, ...],
        concrete: Any,
        placement: Placement | None,
        variables: dict[int, VariableHandle],
    ) -> _Entry:
        entry = self._entries.get(key)
        if entry is not None:
            return entry
        with self._lifting:
            entry = self._entries.get(key)
            if entry is None:
                entry = _Entry(concrete, placement, variables)
                why_full = self._limit.why_full(concrete, len(self._steps()))
                if why_full:
                    self._say(why_full)
                    entry.may_be_lifted = True
                elif self._has_to_earn() and not keeps_random_sequences(concrete):
                    entry.lift_secs = secs_to_lift(concrete)
                    entry.may_be_lifted = True
                else:
                    entry.step = self._lift(entry)
                self._entries[key] = entry
            return entry

    def _has_to_earn(self) -> bool:
        """Returns True if TensorFlow runs the calls to a new trace until they have taken as long as lifting takes."""
        if self._earns is not None:
            return self._earns
        # A program that creates a function from the same code for every few calls would pay more than it saves.
        calls = self._tracer.calls
        return calls.lifts >= _LIFTS_ON_CREDIT and calls.lift_secs > _MOST_SAVED_SECS * calls.lifted

    def _lift_late(self, entry: _Entry, since: int) -> None:
        """Lifts a trace that exceeded the limit, in place of the least recently called one.

        Args:
          entry: the trace's entry.
          since: the count of calls by TensorFlow, as in LiftedStep.used_at. A trace that was called since then remains.
        """
        with self._lifting:
            if entry.step is not None or not entry.may_be_lifted:
                return
            while self._limit.why_full(entry.concrete, len(self._steps())):
                lifted = [(step, other) for other in self._entries.values() if (step := other.step) and _may_go(step)]
                oldest, other = min(lifted, key=lambda pair: pair[0].used_at, default=(None, None))
                if oldest is None or other is None or oldest.used_at >= since:
                    return
                self._drop_cached_calls(oldest)
                other.step, other.may_be_lifted = None, True
            step = self._lift(entry)
            entry.may_be_lifted = False
            # The random sequences of a trace that TensorFlow already ran would restart.
            if step is not None and _may_go(step):
                entry.step = step
            self._drop_cached_calls(entry=entry)

    def _steps(self) -> list[LiftedStep]:
        return [entry.step for entry in list(self._entries.values()) if entry.step is not None]

    def _lift(self, entry: _Entry) -> LiftedStep | None:
        note = FunctionNote(self.__name__)
        concrete = entry.concrete
        try:
            with no_interpreter_exit, part_here("lifting"):
                graph = LiftedGraph(concrete, placement=entry.placement, variables=entry.variables)
                if self._has_run_in_test and graph.keeps_random_sequences:
                    raise NotLiftable(
                        "TensorFlow ran it during the self-test of this installation, and lifting would restart its "
                        "random sequences. The next process lifts it"
                    )
                note.is_compiled = graph.is_one_xla_call
                chooser = functools.partial(choose, graph, self._executor, note.take_choice)
                step = LiftedStep(graph, chooser, concrete.function_type.pack_output)
        except NotLiftable as reason:
            self._say(str(reason))
            return None
        except errors_impl.UnimplementedError as error:
            if self._executor != "auto":
                raise
            self._say(error.message)
            return None
        except Exception as error:
            if is_user_error(error):
                raise
            # Whatever the error is, TensorFlow's own function can still run the call.
            self._say(f"{type(error).__name__}: {error}")
            return None
        tf_abi.keep_track(step)
        self._limit.add(step)
        self._tracer.calls.lifts += 1
        self._tracer.calls.lift_secs += secs_to_lift(concrete)
        if step.trial is None:
            note.executor = executor_of(step)
        note_function(note)
        return step

    def _say(self, reason: str) -> None:
        is_new = not self._why_not_lifted
        self._why_not_lifted = self._tracer.calls.why_not = reason
        if is_new:
            note_function(FunctionNote(self.__name__, why_not_lifted=reason))
        text = f"{self.__name__} isn't lifted: {reason}."
        if self._fallback == "raise":
            raise RuntimeError(f'{text} fallback="warn" lets TensorFlow run it.')
        if self._fallback == "warn" and is_new:
            logging.warning("%s TensorFlow runs it.", text)


def _of_original(name: str) -> property:
    """Returns a property that sets an attribute of the function inside, where TensorFlow reads it."""
    return property(lambda self: getattr(self.original, name), lambda self, value: setattr(self.original, name, value))


class LiftedFunction(Function):
    """A `Function` with a `tf.function` in it."""

    _shared_rendezvous = _of_original("_shared_rendezvous")
    _omit_frequent_tracing_warning = _of_original("_omit_frequent_tracing_warning")

    def __init__(
        self, original: Any, executor: str = "auto", fallback: str = "warn", earns: bool | None = False
    ) -> None:
        super().__init__(original, executor, fallback, earns)
        self._bound: weakref.WeakKeyDictionary[Any, Function] = weakref.WeakKeyDictionary()
        # A functools.partial and a callable object have no name.
        functools.update_wrapper(self, original.python_function, updated=())

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Creates methods from functions that are defined in a class."""
        if instance is None:
            return self
        bound = self.original.__get__(instance, owner)
        if bound is self.original:
            return self
        if isinstance(bound, types.MethodType):
            return types.MethodType(self, instance)
        with self._lifting:
            method = self._bound.get(instance)
            if method is None or method.original is not bound:
                method = self._bound[instance] = LiftedFunction(bound, self._executor, self._fallback, self._earns)
            return method

    def _clone(self, python_function: Any) -> LiftedFunction:
        """Wraps the function's Python function. TensorFlow calls this for a strategy."""
        return LiftedFunction(self.original._clone(python_function), self._executor, self._fallback, self._earns)

    def _tracer_of(self, original: Any) -> ConcreteTracer:
        return FunctionTracer(original)


class LiftedConcreteFunction(Function):
    """A `Function` with a ConcreteFunction in it."""

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the ConcreteFunction, regardless of the arguments."""
        return self.original

    def _tracer_of(self, original: Any) -> ConcreteTracer:
        return ConcreteTracer(original)


# TensorFlow uses isinstance to check for its two classes. It then looks up the wrapped function's attributes.
polymorphic_function.Function.register(LiftedFunction)
concrete_function.ConcreteFunction.register(LiftedConcreteFunction)


def _why_unfit(concrete: Any, inputs: list[Any]) -> str:
    """Returns the reason why a ConcreteFunction wasn't traced for these inputs, or "". TensorFlow may accept them."""
    graph = concrete.graph
    arguments = graph.inputs[: len(graph.inputs) - len(graph.captures)]
    if len(arguments) != len(inputs):
        return f"it was traced for {len(arguments)} inputs, and was called with {len(inputs)}"
    for inside, value in zip(arguments, inputs, strict=True):
        if inside.dtype != value.dtype or not inside.shape.is_compatible_with(value.shape):
            return (
                f"it was traced for {inside.dtype.name} of shape {inside.shape}, and was called with "
                f"{value.dtype.name} of shape {value.shape}"
            )
    return ""


def _may_go(step: LiftedStep) -> bool:
    """Returns True if TensorFlow can take over a step with the same results, because it has no random sequences."""
    return not step.graph.keeps_random_sequences


def executor_of(step: LiftedStep) -> str:
    """Returns the executor mode that runs a lifted step, or "auto" during its trial."""
    if step.trial is not None:
        return str(step.trial.executor)
    return str(step.graph.executor)


@overload
def function(
    func: Callable[..., Any], *, executor: str = "auto", fallback: str = "warn", **arguments: Any
) -> Function: ...


@overload
def function(
    func: None = None, *, executor: str = "auto", fallback: str = "warn", **arguments: Any
) -> Callable[[Callable[..., Any]], Function]: ...


def function(
    func: Callable[..., Any] | None = None,
    *,
    executor: str = "auto",
    fallback: str = "warn",
    **arguments: Any,
) -> Any:
    """Creates a `tf.function` that runs with low call overhead.

    It is called like a `tf.function`, with the same arguments, results, variables and retracing rules. A
    ConcreteFunction is lifted at its first call: its graph runs in a session that shares the devices and variables of
    eager code. (From the fifth trace of the same Python code on, TensorFlow runs it first, unless lifting the earlier
    ones has paid off.) TensorFlow itself runs calls under a gradient tape, in another graph, or in a strategy's scope.
    If TensorFlow has several devices, operations run where TensorFlow would run them, and arguments and results stay on
    their devices.

    Args:
      func: a Python function, a `tf.function`, or a ConcreteFunction. If None, returns a decorator.
      executor: "auto", "thread_pool" (TensorFlow's), "inline" (in the calling thread) or "single_threaded"
        (TensorFlow's SINGLE_THREADED_EXECUTOR). "auto" measures and chooses the fastest one that gives correct results.
      fallback: what to do if a ConcreteFunction can't be lifted and TensorFlow runs it instead: "warn" logs the reason
        once, "raise" raises a RuntimeError, "silent" logs nothing. `why_not_lifted` contains the reason.
      **arguments: arguments of `tf.function` (`input_signature`, `autograph`, `jit_compile`, ...), for a Python
        function.

    Returns:
      A `Function`, or a decorator that creates one.

    Raises:
      TypeError: If `func` isn't a function, `executor` isn't a string, or `tf.function` doesn't have an argument.
      ValueError: If `executor` or `fallback` isn't one of the names above, or arguments of `tf.function` are given for
        an existing TensorFlow function.
    """
    check_executor(executor)
    check_choice("fallback", fallback, FALLBACKS)
    for name in arguments:
        if name not in _ARGUMENTS:
            hint = did_you_mean(name, ["executor", "fallback", *_ARGUMENTS])
            raise TypeError(f"function() got an unexpected keyword argument {name!r}.{hint}")
    if func is None:
        return functools.partial(function, executor=executor, fallback=fallback, **arguments)
    if isinstance(func, Function):
        func = func.original
    if isinstance(func, concrete_function.ConcreteFunction | polymorphic_function.Function):
        for name, value in arguments.items():
            if value is not None:
                raise ValueError(
                    f"{name} must be None for {func!r}, which is already a TensorFlow function; got {value!r}. Pass "
                    "it to tf.function."
                )
        original = func
    else:
        original = tf_function(func, **arguments)
    return lifted_function(original, executor, fallback, earns=False if fallback == "raise" else None)


def lifted_function(
    original: Any, executor: str = "auto", fallback: str = "warn", earns: bool | None = False
) -> Function:
    """Creates a `Function` from a TensorFlow function.

    Args:
      original: a `tf.function` or a ConcreteFunction.
      executor, fallback: as for `function`.
      earns: as for `Function`.
    """
    kind = LiftedConcreteFunction if isinstance(original, concrete_function.ConcreteFunction) else LiftedFunction
    return kind(original, executor, fallback, earns)


# Matches an operation whose function the runtime doesn't name.
_NODE = re.compile(r"(?<!\}\})\{\{node ([^}]*)\}\}")


def with_lines(error: Any, concrete: Any) -> Any:
    """Gives a lifted graph's error the same text as in TensorFlow's call to the function.

    Args:
      error: a `tf.errors.OpError`.
      concrete: the ConcreteFunction.

    Returns:
      The error.
    """
    function = concrete.inference_fn
    name = compat.as_str(function.name)

    def with_functions(found: re.Match[str]) -> str:
        functions, node = _path(concrete.graph, found[1])
        return "".join(f"{{{{function_node {inside}}}}}" for inside in functions) + f"{{{{node {node}}}}}"

    message = _NODE.sub(with_functions, error.message)
    error._message = f"{{{{function_node {name}}}}} {message} [Op:{name}]"
    # The call adds the lines of each operation in the text, and removes the names of functions.
    atomic_function.InterpolateRuntimeError(function).__exit__(type(error), error, None)
    return error


def _path(graph: Any, name: str) -> tuple[list[str], str]:
    """Returns the functions around an operation of a flattened graph, outermost first, and its innermost name."""
    functions = []
    parts = name.split("/")
    start = 0
    for end in range(1, len(parts)):
        call = _operation(graph, "/".join(parts[start:end]))
        if call is None or call.type not in PLAIN_CALLS:
            continue
        function = compat.as_str(call.get_attr("f").name)
        functions.append(function)
        graph, start = graph._get_function(function).graph, end
    return functions, "/".join(parts[start:])


def _operation(graph: Any, name: str) -> Any:
    try:
        return graph.get_operation_by_name(name)
    except (KeyError, ValueError):
        return None
