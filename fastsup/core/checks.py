"""Checks of arguments: intervals, numbers of steps, durations, flags, lists of hooks, and misspelled names."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import types
from collections.abc import Callable, Collection, Iterable
from difflib import SequenceMatcher, get_close_matches
from typing import Any, ParamSpec, TypeVar

from fastsup.core.errors import is_from_call, safe_repr

__all__ = [
    "check_choice",
    "check_flag",
    "check_fuse",
    "check_interval",
    "check_keywords",
    "check_members",
    "check_no_pattern",
    "check_number",
    "check_plain_function",
    "check_range",
    "check_step_function",
    "check_takes",
    "did_you_mean",
    "doubt_about",
    "doubt_about_text",
    "hint_for_class",
    "is_number",
    "misspelt_callbacks",
    "path_argument",
    "pattern_in",
    "runs_several",
    "suggest_keywords",
    "why_begin_failed",
    "why_no_loop_hook",
    "why_step_needs_arguments",
]


def is_number(value: Any) -> bool:
    """Returns True for a value that converts to a float like a number. A string isn't a number."""
    return hasattr(value, "__float__")


def check_flag(**flags: Any) -> None:
    """Raises TypeError for flags that aren't bools, because any non-empty string, even "off", is true.

    Args:
      **flags: values of the arguments, by name.

    Raises:
      TypeError: If a value isn't a bool. The message names argument and value.
    """
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, got {value!r}.")


def doubt_about_text(name: str, value: Any) -> str:
    """Returns a warning about a string for a TensorFlow flag, which accepts any truth value: "no" is true.

    Args:
      name: the argument.
      value: its value.

    Returns:
      The warning; an empty string for a value of another kind.
    """
    if not isinstance(value, str | bytes):
        return ""
    return f"{name}={value!r} counts as {bool(value)}. Pass True or False, as in {name}=(text == 'true')."


def check_choice(name: str, value: Any, choices: Collection[Any]) -> None:
    """Raises ValueError for an argument with a value that isn't allowed.

    Args:
      name: name of the argument, for the message.
      value: value of the argument.
      choices: the allowed values.

    Raises:
      ValueError: If the value isn't one of these. The message names them all.
    """
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}.")


def check_fuse(fuse: Any) -> None:
    """Rejects an invalid value of the argument `fuse`.

    Args:
      fuse: the argument of that name.

    Raises:
      ValueError: If `fuse` isn't "auto", "always" or "never".
    """
    check_choice("fuse", fuse, ("auto", "always", "never"))


def check_number(name: str, value: Any, what: str = "a number") -> None:
    """Rejects an argument that can't be compared with a number.

    Args:
      name: name of the argument, for the message.
      value: value of the argument.
      what: kind of number that the argument must be, for the message.

    Raises:
      TypeError: If the value isn't a number. The message names argument, value and type.
    """
    try:
        bool(value > 0)
    except (TypeError, ValueError):  # An array with several numbers raises ValueError.
        raise TypeError(f"{name} must be {what}, got {value!r} of type {type(value).__name__}.") from None


def path_argument(name: str, value: Any, what: str) -> Any:
    """Converts a path that was given for an argument.

    Args:
      name: name of the argument, for the message.
      value: a string, bytes or a `pathlib.Path`.
      what: kind of file, for the message.

    Returns:
      The path as a string, or as bytes if bytes were given.

    Raises:
      TypeError: If `value` isn't a path. The message names argument and value.
    """
    try:
        return os.fspath(value)
    except TypeError as error:
        raise TypeError(f"{error}: {name}={value!r} must be the path of a {what}.") from None


def check_range(value: Any, is_in_range: Callable[[Any], Any], no_number: str, out_of_range: str) -> None:
    """Rejects a number that is out of its range, with the given messages.

    Args:
      value: value of the argument.
      is_in_range: predicate of the value. Raises TypeError for a value that it doesn't support.
      no_number: message for such a value.
      out_of_range: message for a value for which the predicate is False.

    Raises:
      TypeError: If the predicate can't be applied to the value.
      ValueError: If the predicate is False.
    """
    try:
        accepted = is_in_range(value)
    except TypeError:
        raise TypeError(no_number) from None
    if not accepted:
        raise ValueError(out_of_range)


def check_interval(name: str, value: Any, optional: bool = True) -> None:
    """Rejects an interval that isn't positive.

    Args:
      name: name of the argument, for the message.
      value: the interval, in seconds or steps.
      optional: Whether the argument may also be None, for the message.

    Raises:
      ValueError: If the interval isn't positive.
      TypeError: If the interval isn't a number.
    """
    check_number(name, value)
    if isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}. Pass 1 for every step or second.")
    if not value > 0:
        remedy = "Pass a positive number" + (", or None to omit it." if optional else ".")
        raise ValueError(f"{name} must be positive, got {value!r}. {remedy}")


def doubt_about(name: str, value: Any, nan_means: str, negative_means: str, section: str) -> str | None:
    """Returns a warning about an interval that TensorFlow accepts but that is likely a mistake.

    Args:
      name: name of the argument.
      value: the interval, a number.
      nan_means: clause with the effect of an interval that is NaN.
      negative_means: clause with the effect of a negative interval.
      section: anchor of the section in docs/dropin.md for the message.

    Returns:
      The warning for the caller to log, or None for an interval of 0 or more.
    """
    if value != value:
        return f"{name} is NaN: {nan_means}. Pass a number of 0 or more. See `python -m fastsup docs dropin#{section}`."
    if value < 0:
        return (
            f"{name}={value!r} is negative: {negative_means}. Pass a number of 0 or more. "
            f"See `python -m fastsup docs dropin#{section}`."
        )
    return None


def check_takes(name: str, function: Any, arguments: str) -> None:
    """Rejects a function that can't be called with the required arguments.

    Args:
      name: name of the argument, for the message.
      function: value of the argument.
      arguments: names of the function's arguments, separated by commas. Classes, partial functions and other callables
        aren't checked, because their signatures may belong to the wrapped object.

    Raises:
      TypeError: If the function can't be called, or not with these arguments.
    """
    if not callable(function):
        raise TypeError(f"{name} must be a function of {arguments}, got {function!r}.")
    error = _binding_error(function, arguments.split(","))
    if error is not None:
        raise TypeError(f"{name} must be a function of {arguments}, got {function!r}: {error}.")


def _binding_error(function: Any, arguments: Collection[Any]) -> TypeError | None:
    """Returns the error of calling a Python function with positional arguments, or None."""
    plain = function.__func__ if type(function) is types.MethodType else function
    if type(plain) is not types.FunctionType or hasattr(plain, "__signature__"):
        return None
    try:
        inspect.signature(function, follow_wrapped=False).bind(*arguments)
    except TypeError as error:
        return error
    return None


_STEP_REMEDY = (
    "A loop calls its step without arguments. Pass fastsup.bind(step, ...) with the arguments of all steps, or "
    "fastsup.bind_batches(step, batches) for a step that takes the next batch."
)


def check_plain_function(name: str, function: Any) -> None:
    """Rejects objects that can't be called, and functions whose call doesn't run their body.

    Args:
      name: name of the argument, for the message.
      function: value of the argument.

    Raises:
      TypeError: If the function can't be called, or is a coroutine or generator function.
    """
    if not callable(function):
        raise TypeError(f"{name} must be callable, got {function!r}.")
    for is_kind, kind in (
        (inspect.iscoroutinefunction, "a coroutine function"),
        (inspect.isasyncgenfunction, "an asynchronous generator function"),
        (inspect.isgeneratorfunction, "a generator function"),
    ):
        if is_kind(function):
            raise TypeError(f"{name} must be a function whose call runs its body, got {function!r}: it is {kind}.")


def runs_several(step: Any) -> bool:
    """Returns True if a step's class has a method `run_steps`. An object may have attributes of any name.

    Args:
      step: the step.
    """
    return hasattr(type(step), "run_steps")


def check_step_function(step: Any, remedy: str = _STEP_REMEDY) -> None:
    """Rejects a step that a loop can't call.

    Args:
      step: the step function of a loop.
      remedy: advice for a step that needs arguments.

    Raises:
      TypeError: If the step can't be called, or needs arguments.
    """
    check_plain_function("step", step)
    error = _binding_error(step, ())
    if error is not None:
        raise TypeError(f"step must be callable without arguments, got {step!r}: {error}. {remedy}")


def why_step_needs_arguments(step: Any) -> str | None:
    """Returns the remedy for a step whose first call raised TypeError, if its signature has required arguments.

    Args:
      step: the step function, for example a `tf.function`, whose signature isn't reliable before the call.

    Returns:
      The text, or None for a step without required arguments or without a signature.
    """
    try:
        inspect.signature(step).bind()
    except TypeError as error:
        return f"The step needs arguments: {error}. {_STEP_REMEDY}"
    except Exception:
        return None
    return None


def why_begin_failed(hook: Any, error: AttributeError) -> str | None:
    """Returns the remedy for a hook whose `__init__` doesn't call its base class's `__init__`.

    Args:
      hook: the hook whose `begin` raised the error.
      error: the error about a missing attribute.

    Returns:
      The text, or None if the error has another cause.
    """
    inits = [kind for kind in type(hook).__mro__ if isinstance(vars(kind).get("__init__"), types.FunctionType)]
    if error.obj is not hook or len(inits) < 2:
        return None
    return (
        f"Does {inits[0].__name__}.__init__ call super().__init__(...)? {inits[1].__name__}.__init__, which sets the "
        "attributes of its hooks, requires it."
    )


# Characters that TensorFlow's file functions treat as a pattern. An unclosed bracket matches itself.
_PATTERN = re.compile(r"[*?\\]|\[[^/]*\]")


def pattern_in(path: Any) -> str:
    """Returns the part of a path that TensorFlow treats as a pattern, or "".

    Args:
      path: the path, as a string, bytes or a `pathlib.Path`.
    """
    found = _PATTERN.search(os.fsdecode(path))
    return found[0] if found else ""


def check_no_pattern(name: str, directory: Any) -> None:
    """Rejects a directory of checkpoints whose path TensorFlow treats as a pattern.

    TensorFlow finds and deletes checkpoints by patterns of their names. It would never find those in `runs/a[1]` again,
    and for `runs/*` it would also delete old checkpoints in other directories.

    Args:
      name: name of the argument, for the message.
      directory: the path, as a string, bytes or a `pathlib.Path`.

    Raises:
      ValueError: If the path is a pattern.
    """
    found = pattern_in(directory)
    if found:
        raise ValueError(
            f"{name}={os.fsdecode(directory)!r} can't hold checkpoints: TensorFlow treats {found!r} in it as "
            "a pattern, so it would not find them again, or would delete checkpoints in other directories. Rename the "
            "directory. See `python -m fastsup docs dropin#checkpoints`."
        )


def hint_for_class(hook: Any) -> str:
    """Returns the hint for a class that was passed instead of a hook.

    Args:
      hook: the argument.

    Returns:
      Text to append to an error, or "" for an object that isn't a class, or for a class that is a valid session hook
      because its `begin` is a static method.
    """
    try:
        needs_object = inspect.isclass(hook) and bool(inspect.signature(hook.begin).parameters)  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):
        return ""
    return f". {hook.__name__} is a class: pass an object, {hook.__name__}(...)." if needs_object else ""


def why_no_loop_hook(hook: Any) -> str:
    """Returns the hint for an object that was passed to a `StepLoop` instead of a hook.

    Args:
      hook: the object.

    Returns:
      Text to append to an error, or "" unless the object is a function, a session hook or a hook's class.
    """
    if inspect.isroutine(hook):
        return ". For a function of the loop, pass fastsup.loop.every(steps=...)(function)."
    if any(kind.__name__ == "Callback" for kind in type(hook).__mro__):
        return f". {type(hook).__name__} is a callback of another library's loop; fastsup.loop has ready-made hooks."
    if inspect.isclass(hook) or not hasattr(hook, "before_run"):
        return hint_for_class(hook)
    return (
        f". {type(hook).__name__} is a session hook, and requires a session. A subclass of fastsup.core.Hook works in "
        "a StepLoop and in sessions; fastsup.loop has ready-made ones."
    )


def check_members(
    name: str,
    members: Any,
    accepts: Callable[[Any], bool],
    no_iterable: str,
    no_member: str,
    error_type: type[Exception] = TypeError,
) -> list[Any]:
    """Returns the hooks or listeners given for an argument as a list, and refuses other members.

    The messages are templates for `str.format`, because TensorFlow has its own text for each argument.

    Args:
      name: name of the argument.
      members: value of the argument: an iterable, or None.
      accepts: predicate of a member.
      no_iterable: message for a value that isn't iterable. Fields: `name`, `value`, and `cause`, Python's error.
      no_member: message for a refused member. Fields: `name`, `value` (the member), `hint` (see `hint_for_class`),
        and `hint_or_stop`, which is "." without a hint.
      error_type: class of the error.

    Returns:
      The members, or an empty list for None.

    Raises:
      Exception: An error of `error_type`, if the value isn't iterable or a member is refused.
    """
    try:
        found = list(members or [])
    except TypeError as cause:
        raise error_type(no_iterable.format(name=name, value=members, cause=cause)) from None
    for member in found:
        if not accepts(member):
            hint = hint_for_class(member)
            raise error_type(no_member.format(name=name, value=member, hint=hint, hint_or_stop=hint or "."))
    return found


# Methods that a loop calls, or a PeriodicHook for `act`.
_CALLBACKS = ("begin", "after_step", "after_steps", "end", "on_error", "act")
# Other attributes that a hook may have.
_OPTIONAL = ("on_evaluation", "state_dict", "load_state_dict")
# Callbacks of other kinds of hooks, with the equivalent in a loop hook that is written in Python.
_ELSEWHERE = {
    "on_due": "after_step",
    "after_run": "after_step",
    "on_batch_end": "after_step",
    "on_train_batch_end": "after_step",
    "on_step_end": "after_step",
    "on_fit_start": "begin",
    "on_train_begin": "begin",
    "on_train_start": "begin",
    "on_train_end": "end",
    "on_fit_end": "end",
    "on_exception": "on_error",
    "on_validation_end": "on_evaluation",
    "on_validation_epoch_end": "on_evaluation",
}
_OF_EPOCHS = ("on_epoch_end", "on_train_epoch_end")
# Minimum similarity, which "on_evaluation" and "on_evaluate" reach, but "log_error" and "on_error" don't.
_ALIKE = 0.83


def check_keywords(kind: type, given: Iterable[str]) -> None:
    """Rejects a misspelled keyword argument of a constructor, with the nearest name, as Python 3.13 does.

    Python itself refuses a name without a similar one.

    Args:
      kind: the class.
      given: names of the keyword arguments in the call.

    Raises:
      TypeError: If the constructor doesn't have an argument, but has one with a similar name.
    """
    taken = _keywords_of(kind)
    for name in given:
        if taken is None or name in taken:
            continue
        hint = did_you_mean(name, taken)
        if hint:
            raise TypeError(f"{kind.__qualname__}.__init__() got an unexpected keyword argument {name!r}.{hint}")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Returns the hint for a misspelled name.

    Args:
      name: the name.
      names: the existing names.

    Returns:
      Text to append to an error: " Did you mean 'fuse'?", or "" if no name is similar.
    """
    spelled = {each.lower(): each for each in names}
    near = get_close_matches(name.lower(), spelled, 1)
    return f" Did you mean {spelled[near[0]]!r}?" if near else ""


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def suggest_keywords(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Adds the nearest name to Python's error about a misspelled keyword argument, as Python 3.13 does.

    A decorator for Python functions, and for the constructors of classes that aren't loop hooks.

    Args:
      function: the function.
    """
    if sys.version_info >= (3, 13):
        return function

    @functools.wraps(function)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if is_from_call(error):
                names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
                hint = next((did_you_mean(name, names) for name in kwargs if name not in names), "")
                error.args = (f"{error}.{hint}" if hint else str(error),)
            raise

    return call


def _keywords_of(kind: type) -> list[str] | None:
    """Returns the keyword arguments of a constructor, or None if it may accept any."""
    if isinstance(kind.__new__, types.FunctionType):
        return None  # A `__new__` in Python may change the constructor's arguments.
    init: Any = kind.__init__  # type: ignore[misc]
    if not isinstance(init, types.FunctionType):
        # For a compiled constructor, the class has the signature if its author provided one.
        init = getattr(init, "__objclass__", None)
        if getattr(init, "__text_signature__", None) is None:
            return None
    parameters = list(inspect.signature(init).parameters.values())
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY]


def misspelt_callbacks(hook: Any, base: type) -> list[str]:
    """Returns warnings about methods of a hook that no loop calls and whose names resemble a callback.

    Args:
      hook: a loop hook.
      base: the class of all loop hooks.
    """
    # The hook's classes that aren't fastsup's.
    mine = [kind for kind in type(hook).__mro__ if issubclass(kind, base) and not _is_ours(kind)]
    others = [kind for kind in type(hook).__mro__ if kind not in mine]
    defined: dict[str, Any] = {}
    for kind in reversed(mine):
        defined.update(vars(kind))
    warnings = []
    for name, value in defined.items():
        if name.startswith("_") or not isinstance(value, types.FunctionType):
            continue
        # A method that another base class also has belongs to that class.
        is_anothers = any(name in vars(kind) for kind in others)
        if name in _OF_EPOCHS and not is_anothers:
            warnings.append(
                f"No loop calls {type(hook).__name__}.{name} of the hook {safe_repr(hook)}. For the end of an epoch, "
                "use a PeriodicHook with every_epochs, or fastsup.loop.every(epochs=1)."
            )
            continue
        callback = None if is_anothers else _callback_like(name, type(hook))
        # If the hook has the callback, the method with the similar name has another purpose.
        if callback in _OPTIONAL and hasattr(hook, callback):
            continue
        if callback is not None and callback not in defined and not _has_own(hook, callback):
            warnings.append(
                f"No loop calls {type(hook).__name__}.{name} of the hook {safe_repr(hook)}. Rename it to {callback} "
                "if that is what you mean."
            )
    return warnings


def _has_own(hook: Any, name: str) -> bool:
    """Returns True if an instance attribute replaces a method of the object's class.

    Python is slower with an object whose `__dict__` was accessed.
    """
    method = getattr(hook, name, None)
    return getattr(method, "__func__", method) is not getattr(type(hook), name, None)


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "fastsup"


def _callback_like(name: str, kind: type) -> str | None:
    callbacks = [*(callback for callback in _CALLBACKS if hasattr(kind, callback)), *_OPTIONAL]
    plain = name.replace("_", "").lower()
    for callback in callbacks:
        if plain == callback.replace("_", ""):
            return callback
    # Short names are similar to many others.
    near = [(SequenceMatcher(None, name, callback).ratio(), callback) for callback in callbacks if len(callback) > 4]
    ratio, callback = max(near)
    return callback if ratio >= _ALIKE else _ELSEWHERE.get(name)
