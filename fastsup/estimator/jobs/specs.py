"""TrainSpec and EvalSpec, the arguments of `train_and_evaluate`. Their values are checked on creation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from fastsup.core.checks import check_flag, check_members, check_range, suggest_keywords
from fastsup.estimator.export.exporters import Exporter
from fastsup.estimator.model.argument_checks import check_input_fn, check_steps, check_type, is_hook, is_listener

__all__ = ["EvalSpec", "TrainSpec", "assert_eval_spec", "validate_exporters", "validate_hooks"]


def _validate_number(name: str, value: Any, is_in_range: Callable[[Any], bool], rule: str) -> None:
    check_range(
        value,
        is_in_range,
        f"`{name}` must be a number, given: {value!r}. Must specify {name} {rule}.",
        f"Must specify {name} {rule}, given: {value}",
    )


def _validate_members(name: str, members: Any, accepts: Callable[[Any], bool], kind: str) -> tuple[Any, ...]:
    no_iterable = f"`{{name}}` must be an iterable of `{kind}` instances, given: {{value}}"
    no_member = f"All {{name}} must be `{kind}` instances, given: {{value}}{{hint}}"
    return tuple(check_members(name, members, accepts, no_iterable, no_member))


def validate_hooks(hooks: Any) -> tuple[Any, ...]:
    """Checks the hooks of a spec. Returns them as a tuple."""
    return _validate_members("hooks", hooks, is_hook, "SessionRunHook")


def validate_exporters(exporters: Any) -> tuple[Any, ...]:
    """Checks the exporters of a spec. Returns them as a tuple."""
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
    input_fn: Callable[..., Any]
    max_steps: int | None
    hooks: tuple[Any, ...]
    saving_listeners: tuple[Any, ...]


class TrainSpec(_TrainSpec):
    """The training part of `train_and_evaluate`: input, end, hooks and listeners.

    Args:
      input_fn: function that returns the training data: a `tf.data.Dataset`, or a tuple (features, labels).
      max_steps: global step at which training ends, counted from the model's first step. If None, training ends with
        the data.
      hooks: iterable of `tf.compat.v1.train.SessionRunHook`, called on the chief and on every worker.
      saving_listeners: iterable of `tf.compat.v1.train.CheckpointSaverListener`, called in the task that saves
        checkpoints.

    Raises:
      ValueError: If max_steps isn't positive.
      TypeError: If an argument has the wrong type.
    """

    __slots__ = ()

    @suggest_keywords
    def __new__(
        cls,
        input_fn: Callable[..., Any],
        max_steps: int | None = None,
        hooks: Iterable[Any] | None = None,
        saving_listeners: Iterable[Any] | None = None,
    ) -> TrainSpec:
        check_input_fn(input_fn)
        check_steps("max_steps", max_steps)
        return super().__new__(
            cls,
            input_fn,
            max_steps,
            validate_hooks(hooks),
            _validate_members("saving_listeners", saving_listeners, is_listener, "CheckpointSaverListener"),
        )


class _EvalSpec(NamedTuple):
    input_fn: Callable[..., Any]
    steps: int | None
    name: str | None
    hooks: tuple[Any, ...]
    exporters: tuple[Any, ...]
    start_delay_secs: float
    throttle_secs: float
    throttle_steps: int | None
    idle_timeout_secs: float | None
    keep_graph: bool


class EvalSpec(_EvalSpec):
    """The evaluation part of `train_and_evaluate`: input, hooks, exporters and throttles.

    Args:
      input_fn: function that returns the evaluation data: a `tf.data.Dataset`, or a tuple (features, labels).
      steps: number of batches to evaluate. If None, evaluates all.
      name: name of the evaluation if there are several. Its events are written to `eval_NAME`.
      hooks: iterable of `tf.compat.v1.train.SessionRunHook`, called during the evaluation.
      exporters: an `Exporter`, an iterable of them, or None. Called after each evaluation.
      start_delay_secs: seconds that an evaluator waits before its first evaluation.
      throttle_secs: minimum seconds from the start of one evaluation to the start of the next.
      throttle_steps: minimum global steps from one evaluated checkpoint to the next. If None, there is no minimum. The
        throttles don't apply to the final checkpoint, which is always evaluated.
      idle_timeout_secs: seconds without a new checkpoint after which an evaluator ends. If None, an evaluator waits
        until training has ended.
      keep_graph: Whether to build the evaluation graph once for all checkpoints. input_fn and model_fn are then called
        only for the first evaluation, so later evaluations use the Python values that they read there, such as a list
        of files. Each evaluation still has its own session and calls the hooks.

    Raises:
      ValueError: If a number is out of its range.
      TypeError: If an argument has the wrong type.
    """

    __slots__ = ()

    @suggest_keywords
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
        keep_graph: bool = False,
    ) -> EvalSpec:
        check_input_fn(input_fn)
        check_steps("steps", steps, endless=False)
        if name is not None and not isinstance(name, str):
            raise TypeError(f"`name` must be string, given: {name}")
        hooks = validate_hooks(hooks)
        exporters = validate_exporters(exporters)
        # NaN is accepted, as in TensorFlow. Training in one process then evaluates the first and the last checkpoint.
        _validate_number("start_delay_secs", start_delay_secs, lambda value: not value < 0, ">= 0")
        _validate_number("throttle_secs", throttle_secs, lambda value: not value < 0, ">= 0")
        check_steps("throttle_steps", throttle_steps)
        if idle_timeout_secs is not None:
            _validate_number("idle_timeout_secs", idle_timeout_secs, lambda value: value > 0, "> 0, or None")
        check_flag(keep_graph=keep_graph)
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
            keep_graph,
        )


def assert_eval_spec(eval_spec: Any) -> None:
    """Raises TypeError unless a value is an `EvalSpec`."""
    check_type("eval_spec", eval_spec, EvalSpec)
