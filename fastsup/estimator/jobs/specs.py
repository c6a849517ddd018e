"""TrainSpec and EvalSpec: what `train_and_evaluate` trains with and evaluates with, checked when it is written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tensorflow.python.training import basic_session_run_hooks, session_run_hook

from fastsup.core.hook_kinds import why_no_session_hook
from fastsup.estimator.export.exporters import Exporter
from fastsup.estimator.model.base import check_steps

__all__ = ["EvalSpec", "TrainSpec", "assert_eval_spec", "validate_exporters", "validate_hooks"]


def _validate_input_fn(input_fn: Any) -> None:
    if not callable(input_fn):
        raise TypeError(f"`input_fn` must be callable, given: {input_fn}")


def _validate_number(name: str, value: Any, accepts: Callable[[Any], bool], rule: str) -> None:
    try:
        accepted = accepts(value)
    except TypeError:
        raise TypeError(f"`{name}` must be a number, given: {value!r}. Must specify {name} {rule}.") from None
    if not accepted:
        raise ValueError(f"Must specify {name} {rule}, given: {value}")


def _validate_members(name: str, kind: Any, members: Any) -> tuple[Any, ...]:
    try:
        found = tuple(members or [])
    except TypeError:
        raise TypeError(f"`{name}` must be an iterable of `{kind.__name__}` instances, given: {members}") from None
    for member in found:
        if not isinstance(member, kind):
            why = why_no_session_hook(member) if name == "hooks" else ""
            raise TypeError(f"All {name} must be `{kind.__name__}` instances, given: {member}{why}")
    return found


def validate_hooks(hooks: Any) -> tuple[Any, ...]:
    """Hooks as a tuple.

    Args:
      hooks: iterable of `tf.compat.v1.train.SessionRunHook`, or None.

    Raises:
      TypeError: one of them is something else.
    """
    return _validate_members("hooks", session_run_hook.SessionRunHook, hooks)


def validate_exporters(exporters: Any) -> tuple[Any, ...]:
    """Exporters as a tuple.

    Args:
      exporters: one `Exporter`, an iterable of them, or None.

    Raises:
      TypeError: it is something else.
      ValueError: a name is missing, is no string, or occurs twice.
    """
    if not exporters:
        return ()
    try:
        found = (exporters,) if isinstance(exporters, Exporter) else tuple(exporters)
    except TypeError:
        found = (None,)
    if not all(isinstance(exporter, Exporter) for exporter in found):
        raise TypeError(
            f"`exporters` must be an Exporter, an iterable of Exporter, or `None`, found {exporters}."
        ) from None
    names = [exporter.name for exporter in found]
    for position, name in enumerate(names):
        if not name:
            raise ValueError(f"An Exporter cannot have a name that is `None` or empty. All exporter names: {names}")
        if not isinstance(name, str):
            raise ValueError(f"An Exporter must have a string name. Given: {type(name)}")
        if name in names[:position]:
            raise ValueError(
                f"`exporters` must have unique names. Such a name cannot be `None`. All exporter names: {names}"
            )
    return found


class _TrainSpec(NamedTuple):
    input_fn: Any
    max_steps: Any
    hooks: Any
    saving_listeners: Any


class TrainSpec(_TrainSpec):
    """How to train.

    Args:
      input_fn: function that returns the training data: a `tf.data.Dataset`, or a tuple (features, labels).
      max_steps: global step to train up to, counted from the model's first step. None: for ever, unless the data ends.
      hooks: iterable of `tf.compat.v1.train.SessionRunHook`, run on the chief and on every worker.
      saving_listeners: iterable of `tf.compat.v1.train.CheckpointSaverListener`, run where checkpoints are saved.

    Raises:
      ValueError: max_steps isn't positive.
      TypeError: an argument is of the wrong type.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        max_steps: int | None = None,
        hooks: Iterable[Any] | None = None,
        saving_listeners: Iterable[Any] | None = None,
    ) -> TrainSpec:
        _validate_input_fn(input_fn)
        check_steps("max_steps", max_steps)
        return super().__new__(
            cls,
            input_fn,
            max_steps,
            validate_hooks(hooks),
            _validate_members("saving_listeners", basic_session_run_hooks.CheckpointSaverListener, saving_listeners),
        )


class _EvalSpec(NamedTuple):
    input_fn: Any
    steps: Any
    name: Any
    hooks: Any
    exporters: Any
    start_delay_secs: Any
    throttle_secs: Any
    throttle_steps: Any
    idle_timeout_secs: Any


class EvalSpec(_EvalSpec):
    """How to evaluate and export.

    Args:
      input_fn: function that returns the evaluation data: a `tf.data.Dataset`, or a tuple (features, labels).
      steps: batches to evaluate. None: until the data ends.
      name: name of the evaluation, where there are several. Its events go to `eval_NAME`.
      hooks: iterable of `tf.compat.v1.train.SessionRunHook`, run during the evaluation.
      exporters: an `Exporter`, an iterable of them, or None. Called after each evaluation.
      start_delay_secs: seconds that an evaluator waits before its first evaluation.
      throttle_secs: seconds at least from the start of one evaluation to the start of the next.
      throttle_steps: global steps at least from one evaluated checkpoint to the next. None: any number. The final
        checkpoint is evaluated in any case, whatever the throttles say.
      idle_timeout_secs: seconds without a new checkpoint after which an evaluator ends. None: it waits for one until
        it hears that training has ended.

    Raises:
      ValueError: a number is out of its range.
      TypeError: an argument is of the wrong type.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        steps: int | None = 100,
        name: str | None = None,
        hooks: Iterable[Any] | None = None,
        exporters: Any = None,
        start_delay_secs: float = 120,
        throttle_secs: float = 600,
        throttle_steps: int | None = None,
        idle_timeout_secs: float | None = None,
    ) -> EvalSpec:
        _validate_input_fn(input_fn)
        check_steps("steps", steps, endless=False)
        if name is not None and not isinstance(name, str):
            raise TypeError(f"`name` must be string, given: {name}")
        hooks = validate_hooks(hooks)
        exporters = validate_exporters(exporters)
        # NaN is taken: a local training evaluates the first checkpoint and the last one then.
        _validate_number("start_delay_secs", start_delay_secs, lambda value: not value < 0, ">= 0")
        _validate_number("throttle_secs", throttle_secs, lambda value: not value < 0, ">= 0")
        check_steps("throttle_steps", throttle_steps)
        if idle_timeout_secs is not None:
            _validate_number("idle_timeout_secs", idle_timeout_secs, lambda value: value > 0, "> 0, or None")
        return super().__new__(
            cls,
            input_fn,
            steps,
            name,
            hooks,
            exporters,
            start_delay_secs,
            throttle_secs,
            throttle_steps,
            idle_timeout_secs,
        )


def assert_eval_spec(eval_spec: Any) -> None:
    """Refuses what is no `EvalSpec`."""
    if not isinstance(eval_spec, EvalSpec):
        raise TypeError(f"`eval_spec` must have type `tf.estimator.EvalSpec`. Got: {type(eval_spec)}")
