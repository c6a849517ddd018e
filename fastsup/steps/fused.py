"""Runs many steps of a loop in one compiled call, if a trial shows that this is faster."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from statistics import median
from time import perf_counter
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import errors_impl
from tensorflow.python.platform import tf_logging as logging

from fastsup.core.stepper import SECONDS_AT_ONCE
from fastsup.eager import tf_abi
from fastsup.eager.calls import scope_of_devices
from fastsup.eager.devices import is_compiled_by_xla
from fastsup.eager.function import Function
from fastsup.steps.array_batches import ArrayBatches
from fastsup.steps.batch_call import BatchCall
from fastsup.steps.batches import ArrayBlocks, IteratorBlocks, why_not_stacked
from fastsup.steps.fused_function import FusedFunction, NotFusable, leaves_of, reason_of

__all__ = ["MOST_STEPS", "FusedStep", "fused_step", "fusion_state_of", "without_instance"]

# A trial alternates the two ways in blocks of this many seconds, with at least one call per block.
_BLOCK_SECS = 0.01
# Number of pairs of blocks (one of each way) that a trial measures.
_PAIRS = 5
# If both are equally fast, single steps remain, because signals and hooks are handled after each step.
_FASTER = 0.95
# A repeated trial takes at most this fraction of the time before it. The time between trials doubles.
_LOOK_SHARE = 0.02
_MOST_SECS_UNTIL_LOOK = 600.0

SINGLE, FUSED = "single", "fused"


class FusionTrial:
    """Chooses between single and fused steps by their measured time.

    Attributes:
      choice: the chosen way, `SINGLE` or `FUSED`, or None before the end of the first trial.
      seconds: median seconds per step in the last trial, by way.
    """

    def __init__(self) -> None:
        self.choice: str | None = None
        self.seconds: dict[str, float] = {}
        self._pairs: dict[str, list[float]] = {SINGLE: [], FUSED: []}
        self._block_steps, self._block_secs = 0, 0.0
        self._secs_of_trial = 0.0
        self._secs_until_look: float | None = None
        self._looks = 0

    @property
    def way(self) -> str:
        """The way to run the next steps."""
        if self._secs_until_look is not None and self.choice is not None:
            return self.choice
        return SINGLE if len(self._pairs[SINGLE]) == len(self._pairs[FUSED]) else FUSED

    def record(self, way: str, steps: int, seconds: float) -> None:
        """Records the duration of steps.

        Args:
          way: how they ran. Steps of a way that isn't on trial don't count.
          steps: number of steps.
          seconds: their duration.
        """
        if self._secs_until_look is not None:
            self._secs_until_look -= seconds
            if self._secs_until_look <= 0:
                self._secs_until_look = None
                self._secs_of_trial = 0.0
            return
        self._secs_of_trial += seconds
        if way != self.way:
            return
        self._block_steps += steps
        self._block_secs += seconds
        if self._block_secs >= _BLOCK_SECS:
            self._pairs[way].append(self._block_secs / self._block_steps)
            self._block_steps, self._block_secs = 0, 0.0
            if len(self._pairs[FUSED]) == _PAIRS:
                self._decide()

    def _decide(self) -> None:
        self.seconds = {way: median(secs) for way, secs in self._pairs.items()}
        self._pairs = {SINGLE: [], FUSED: []}
        self.choice = FUSED if self.seconds[FUSED] < _FASTER * self.seconds[SINGLE] else SINGLE
        pause = self._secs_of_trial / _LOOK_SHARE * 2**self._looks
        self._looks += 1
        self._secs_until_look = min(pause, max(_MOST_SECS_UNTIL_LOOK, self._secs_of_trial / _LOOK_SHARE))


_ATTRIBUTE = "_fastsup_fusions"
# Maximum number of kinds of arguments and batches for which a function's compiled loops are kept.
_MOST_KINDS = 8


class FusionState:
    """The state of a function's steps, for one kind of arguments and batches.

    Attributes:
      function: the last compiled function for the steps, or None before the first call with several steps.
      functions: functions that create compiled functions, by the shapes of a batch.
      compiled: the batch shapes for which a call is compiled, each with whether it returns the results of all steps.
      spec: the structure of specs of the last batches that ran in one call, or None before that.
      trial: the `FusionTrial`.
      why_never: reason why several steps can't run in one call, or "" if they can.
      first_secs: seconds of the first step, or None before it.
      spent: seconds of single steps since a loop of steps was compiled, without the first step.
      seconds: recent seconds per step, by way.
      most: current maximum number of steps per call.
    """

    def __init__(self) -> None:
        self.function: FusedFunction | None = None
        self.functions: dict[Any, FusedFunction] = {}
        self.compiled: set[tuple[Any, bool]] = set()
        self.spec: Any = None
        self.trial: FusionTrial = FusionTrial()
        self.why_never: str = ""
        self.first_secs: float | None = None
        self.spent: float = 0.0
        self.seconds: dict[str, float] = {SINGLE: 0.0, FUSED: 0.0}
        self.most: int = 0


def fusion_state_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], batch: Any) -> FusionState:
    """Returns the state of a function's steps. Creates it for the first loop over the function.

    Args:
      function: TensorFlow's function, which stores the state.
      args, kwargs: its arguments, without the batch's.
      batch: the structure of specs of a batch, or None for a step without batches.
    """
    fusions: dict[Any, FusionState] = vars(function).setdefault(_ATTRIBUTE, {})
    leaves = tf.nest.flatten((args, kwargs))
    key = (str(batch), str(tf.nest.map_structure(lambda leaf: 0, (args, kwargs))), *map(_kind_of, leaves))
    fusion = fusions.pop(key, None) or FusionState()
    fusions[key] = fusion
    while len(fusions) > _MOST_KINDS:
        del fusions[next(iter(fusions))]
    return fusion


def _kind_of(leaf: Any) -> Any:
    """Returns the part of an argument that selects the compiled loop."""
    if hasattr(leaf, "dtype") and hasattr(leaf, "shape") and not isinstance(leaf, tf.Variable):
        return str(leaf.dtype), str(leaf.shape)
    # The key keeps the object alive, so that no other object gets its address.
    return (type(leaf), leaf) if isinstance(leaf, bool | int | float | str | bytes | None) else _Same(leaf)


class _Same:
    """An object that is equal only to itself."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)


# Seconds of single steps after which the choice between single and fused steps is made again.
_SINGLE_SECS = 1e-3
# Maximum growth of the number of steps from call to call, while the time of a step is uncertain.
_GROWTH = 4
MOST_STEPS = 1 << 30
# Minimum seconds to assume for compiling. Compiling isn't worthwhile for steps that take less in total.
_FEWEST_SECS = 1.0
# Maximum number of batch shapes for which a function's loop is compiled. Steps with other shapes run on their own.
_MOST_SHAPES = 8
# Number of consecutive steps that had to run on their own because of their batches' shapes, after which it is reported.
_MOST_ODD = 8
# Errors if XLA can't compile a loop, or TensorFlow can't trace it.
_FAILURES = (NotFusable, TypeError, ValueError, NotImplementedError, errors_impl.OpError)

# The number of completed steps, their last result, and all their results or None.
_Steps = tuple[int, Any, Any]


class FusedStep:
    """A step that a loop calls for one step, or through `run_steps` for several.

    Several steps of a function run in one call if that is faster or a trial is due. Steps run one at a time until they
    have taken as long as the first one, which XLA compiled, and at least a second. Only then is the loop of steps
    compiled, and both ways are tried.

    Args:
      name: name in messages.
      single: function that runs one step, with the next batch of `blocks`.
      make: function that creates the function for several steps, for the current batch shape of `blocks`.
      fusion: the state of the function's steps.
      is_forced: Whether to fuse steps whenever possible, without a trial.
      args, kwargs: the arguments before a batch, and the keyword arguments.
      blocks: the source of batches, an `ArrayBlocks` or an `IteratorBlocks`, or None for a step without batches.

    Attributes:
      fusion: the argument.
      blocks: the argument. A program may set another source, with batches of the same structure.
    """

    def __init__(
        self,
        name: str,
        single: Callable[[], Any],
        make: Callable[[], FusedFunction],
        fusion: FusionState,
        is_forced: bool,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] = MappingProxyType({}),
        blocks: Any = None,
    ) -> None:
        self._name = name
        self._single = single
        self._make = make
        self.fusion: FusionState = fusion
        self._is_forced = is_forced
        self._args, self._kwargs = args, dict(kwargs)
        self.blocks: Any = blocks
        self._spec: Any = None
        self._shapes: Any = None
        # Completed steps that weren't returned yet, because their results differ in shape from earlier ones.
        self._kept: list[_Steps] = []
        # The error of a step. The loop first counts the steps before that step.
        self._error: BaseException | None = None
        # Number of steps since the last fused call that had to run on their own because of their batches' shapes.
        self._odd = 0

    def __repr__(self) -> str:
        return f"<fused {self._name}>"

    def __call__(self) -> Any:
        """Runs one step."""
        self._raise_kept()
        return self._single()

    @property
    def trial(self) -> FusionTrial:
        """The trial of the two ways."""
        return self.fusion.trial

    @property
    def why_never(self) -> str:
        """Reason why several steps can't run in one call, or "" if they can."""
        if not self.fusion.why_never and self._odd >= _MOST_ODD:
            return "the shapes of batches change from one step to the next"
        return self.fusion.why_never

    @property
    def fused(self) -> bool:
        """True if several steps currently run in one call when no hook is due between them."""
        is_chosen = self._is_forced or (self.trial.choice == FUSED and self._is_made)
        return is_chosen and not self.why_never and not tf_abi.is_testing()

    @property
    def why_not_fused(self) -> str:
        """Reason why several steps don't currently run in one call, or "" if they do.

        Possible reasons: it isn't possible, the trial is pending, or single steps were faster.
        """
        fusion = self.fusion
        if self.fused or self.why_never:
            return self.why_never
        if tf_abi.is_testing():
            return "the self-test of this installation hasn't finished"
        if fusion.function is None or (fusion.trial.choice == FUSED and not self._is_made):
            return (
                f"not tried yet: single steps come first, until they have taken {self._secs_before:.1f} s (now "
                f'{fusion.spent:.1f} s); fuse="always" skips this phase'
            )
        if fusion.trial.choice is None:
            return "the trial hasn't finished"
        single, fused = (1e6 * fusion.trial.seconds[way] for way in (SINGLE, FUSED))
        return f"single steps are faster: {single:,.1f} µs a step in place of {fused:,.1f}, by a trial"

    @property
    def has_more(self) -> bool:
        """True if the next call returns completed steps, or raises an error that already happened."""
        is_error = self._error is not None and not isinstance(self._error, StopIteration)
        return is_error or bool(self._kept) or (self.blocks is not None and self.blocks.raises_next)

    def begin_input(self, blocks: Any) -> None:
        """Uses another source of batches from now on, and forgets the end of the previous one.

        Args:
          blocks: the source. Its batches have the same structure.
        """
        self.blocks = blocks
        self._kept = []
        self._error = None

    def is_next(self) -> bool:
        """Returns True if the next steps should run in one call."""
        fusion = self.fusion
        if tf_abi.is_testing() and not self._kept:
            return False  # TensorFlow's own call to the loop would make XLA compile it for each number of steps.
        if self._is_forced or self._kept:
            return True
        if fusion.why_never or (fusion.function is not None and fusion.trial.way != FUSED):
            return False
        return self._is_made or (fusion.first_secs is not None and fusion.spent >= self._secs_before)

    def run_steps(self, limit: int, seconds: float, with_results: bool) -> tuple[int, Any, Any]:
        """Runs at least one step.

        When it returns, all elements taken from the iterator are used. A batch with another shape runs on its own,
        after the others.

        Args:
          limit: maximum number of steps.
          seconds: maximum duration. One step always runs.
          with_results: Whether the caller needs the results of all steps.

        Returns:
          The number of steps, the last result, and all results as arrays of shape [steps, ...] in the result's
          structure. The latter is None for one step, or without `with_results`.

        Raises:
          StopIteration: If all batches were taken, or the step function raised it.
          RuntimeError: If steps must be fused but can't be.
          Exception: The error of the first step.
        """
        self._raise_kept()
        if self._kept:
            return self._kept.pop(0)
        if limit >= 2 and self.is_next():
            # The loop may run while a graph is the default graph.
            with nullcontext() if context.executing_eagerly() else context.eager_mode():
                made = self._run_fused(limit, seconds, with_results)
            if made is not None:
                return made
        return self._run_singly(limit, seconds, with_results)

    def _raise_kept(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _run_singly(self, limit: int, seconds: float, with_results: bool) -> _Steps:
        """Runs single steps for about a millisecond. The way is chosen again after that."""
        fusion, single = self.fusion, self._single
        made, result, secs = 0, None, fusion.seconds[SINGLE]
        most = max(1, min(limit, int(min(seconds, _SINGLE_SECS) / secs))) if secs and not with_results else 1
        started = perf_counter()
        try:
            for _ in range(most):
                result = single()
                made += 1
        except BaseException as error:
            if not made:
                raise
            self._error = error  # The loop counts the steps before the error, and then calls again.
        taken = perf_counter() - started
        if tf_abi.is_testing():
            return made, result, None  # TensorFlow ran these steps, and fastsup will run the later ones.
        if fusion.first_secs is None:
            fusion.first_secs = taken
            return made, result, None
        fusion.spent += taken
        fusion.seconds[SINGLE] = taken / made
        if fusion.function is not None:
            fusion.trial.record(SINGLE, made, taken)
        return made, result, None

    @property
    def _secs_before(self) -> float:
        """Returns the seconds that single steps must take before the loop of steps is compiled."""
        return max(self.fusion.first_secs or 0.0, _FEWEST_SECS)

    @property
    def _key(self) -> Any:
        """Returns the shapes of a batch, or of the last one without input, or None for a step without batches."""
        blocks, fusion = self.blocks, self.fusion
        if blocks is None:
            return self._shapes
        if blocks.spec is None and fusion.spec is not None:
            blocks.spec = fusion.spec
        if blocks.spec is not self._spec:
            self._spec = blocks.spec
            self._shapes = str([leaf.shape for leaf in tf.nest.flatten(self._spec)])
        return self._shapes

    @property
    def _is_made(self) -> bool:
        return self._key in self.fusion.functions

    def _run_fused(self, limit: int, seconds: float, with_results: bool) -> _Steps | None:
        """Runs several steps in one call. Returns None if no step ran, and the next one must run on its own."""
        fusion, blocks = self.fusion, self.blocks
        if fusion.why_never:
            raise self._refusal()
        steps, parts = 0, []
        try:
            function = self._compiled(with_results)
            limit = 0 if function is None else self._most_at_once(function, limit, seconds, with_results)
            if function is not None and limit >= 2:
                started = perf_counter()
                tensors, place, steps = ([], 0, limit) if blocks is None else blocks.take(limit, seconds)
                if steps >= 2:
                    parts = [self._call(function, started, place, steps, tensors, with_results)]
        except _FAILURES as error:
            # No step ran. If the step itself fails, it will also fail on its own, which identifies it.
            fusion.why_never = reason_of(error)
            if not self._is_forced:
                logging.info("%s. Steps run one at a time.", self._refusal())
            elif not (blocks and blocks.owed):
                raise self._refusal() from error
        if blocks is not None and blocks.owed:
            self._odd = 0 if parts else self._odd + 1
            self._run_owed(parts)
        elif parts:
            self._odd = 0
        return self._joined(parts, with_results)

    def _refusal(self) -> RuntimeError:
        advice = ' With fuse="auto", steps run one at a time.' if self._is_forced else ""
        dot = "." if self._is_forced else ""
        return RuntimeError(f"{self._name} can't run several steps in one call: {self.why_never}{dot}{advice}")

    def _compiled(self, with_results: bool) -> FusedFunction | None:
        """Returns the compiled function for the next batches' shapes, or None if steps must run on their own."""
        fusion, blocks = self.fusion, self.blocks
        if blocks is not None and blocks.why_never:
            raise NotFusable(blocks.why_never)
        key = self._key
        if blocks is not None and blocks.spec is None:
            if not blocks.learn_spec():
                return None  # There is no batch, and `next` raises the reason.
            key = self._key
        function = fusion.functions.get(key)
        if function is None:
            if len(fusion.functions) >= _MOST_SHAPES:
                return None
            function = fusion.functions[key] = fusion.function = self._make()
            fusion.spent = 0.0
        if blocks is not None:
            fusion.spec = blocks.spec
        if (key, with_results) not in fusion.compiled:
            # A call with no steps compiles the loop before it takes any batch.
            function(0, 0, [] if blocks is None else blocks.tensors(), self._args, self._kwargs, with_results)
            fusion.compiled.add((key, with_results))
        return function

    def _most_at_once(self, function: FusedFunction, limit: int, seconds: float, with_results: bool) -> int:
        """Returns the maximum number of steps in the next call, or less than 2 if the next one must run on its own."""
        fusion = self.fusion
        secs = fusion.seconds[FUSED]
        by_time = int(seconds / secs) if secs else _GROWTH
        if by_time < 2:
            if seconds < SECONDS_AT_ONCE:
                return 0  # A timed hook is due before a second step would finish. Otherwise two steps may take longer.
            by_time = 2
        return min(limit, by_time, max(fusion.most, _GROWTH), function.most_results if with_results else MOST_STEPS)

    def _call(
        self, function: FusedFunction, started: float, place: int, steps: int, tensors: list[Any], with_results: bool
    ) -> _Steps:
        fusion, blocks = self.fusion, self.blocks
        secs = fusion.seconds[FUSED]
        if blocks is not None:
            blocks.taken(steps)  # Count the batches before the call, because after it, a Ctrl-C could come first.
        try:
            result, results = function(place, steps, tensors, self._args, self._kwargs, with_results)
        except _FAILURES:
            if blocks is not None:
                blocks.taken(-steps)
            raise
        taken = perf_counter() - started
        # A single call that the machine delayed must not shorten the next ones.
        fusion.seconds[FUSED] = min(taken / steps, 2 * secs) if secs else taken / steps
        fusion.most = min(max(fusion.most, _GROWTH * steps), MOST_STEPS)
        fusion.trial.record(FUSED, steps, taken)
        return steps, result, results

    def _run_owed(self, parts: list[_Steps]) -> None:
        """Runs the steps of elements that were taken from an iterator, one at a time."""
        try:
            while self.blocks.owed:
                parts.append((1, self._single(), None))
        except BaseException as error:
            if not parts:
                raise
            self.blocks.keep_failure(error)  # The steps before the error are counted first.

    def _joined(self, parts: list[_Steps], with_results: bool) -> _Steps | None:
        """Combines the results of several calls. The next calls return results with other shapes."""
        if not parts:
            return None
        joined = parts[:1]
        for part in parts[1:]:
            before = joined[-1]
            steps = before[0] + part[0]
            results = _put_together(before, part) if with_results else None
            if with_results and results is None:
                joined.append(part)
            else:
                joined[-1] = steps, part[1], results
        self._kept = joined[1:]
        return joined[0]


def _put_together(before: _Steps, after: _Steps) -> Any:
    """Combines the results of two calls, or returns None if they have different shapes."""
    first, second = ([] if part[2] is None else leaves_of(part[2]) for part in (before, after))
    first = first or [np.asarray(leaf)[np.newaxis] for leaf in leaves_of(before[1])]
    second = second or [np.asarray(leaf)[np.newaxis] for leaf in leaves_of(after[1])]
    if any(one.shape[1:] != other.shape[1:] for one, other in zip(first, second, strict=True)):
        return None
    leaves = iter([np.concatenate(pair) for pair in zip(first, second, strict=True)])
    structure = after[1]
    flat = [None if leaf is None else next(leaves) for leaf in tf.nest.flatten(structure, expand_composites=True)]
    return tf.nest.pack_sequence_as(structure, flat, expand_composites=True)


def without_instance(step: Any) -> tuple[Any, tuple[Any, ...]]:
    """Splits a method of a `fastsup.function` into its function and a tuple with the object.

    Args:
      step: a step function. Other callables are returned unchanged, with an empty tuple.
    """
    if isinstance(step, types.MethodType) and isinstance(step.__func__, Function):
        return step.__func__, (step.__self__,)
    return step, ()


def _why_not(function: Any, arguments: Any, batches: Any) -> str:
    """Returns the reason why several steps can't run in one call, as far as it is known before the first call."""
    if isinstance(function, concrete_function.ConcreteFunction):
        is_compiled = is_compiled_by_xla(function.function_def)
    else:
        is_compiled = getattr(function, "_jit_compile", None) is True
    if not is_compiled:
        return "XLA doesn't compile the step function: jit_compile isn't True"
    if scope_of_devices() is not None:
        return "TensorFlow has several devices"
    if any(isinstance(value, tf.data.Iterator) for value in tf.nest.flatten(arguments)):
        return "the step function takes a tf.data iterator: use fastsup.bind_batches to pass batches"
    if batches is None or isinstance(batches, ArrayBatches):
        return ""
    if not isinstance(batches, tf.data.Iterator):
        return "batches come from Python code instead of a fastsup.ArrayBatches or a tf.data.Dataset"
    return why_not_stacked(batches.element_spec)


def fused_step(step: Any, fuse: str) -> Any:
    """Creates a step that can run several steps in one call, if XLA compiles the step function.

    Args:
      step: a `BoundStep` or a `BatchStep`.
      fuse: "auto" or "always".

    Returns:
      A `FusedStep`, or the step itself. Its `why_not_fused` then contains the reason, as far as it is known before the
      first call.

    Raises:
      RuntimeError: If `fuse` is "always" and the step can't be fused.
    """
    batches: Any = step.batches if isinstance(step, BatchCall) else None
    args, kwargs = step.args, step.kwargs
    function, instance = without_instance(step.step)
    function = function.original if isinstance(function, Function) else function
    reason = _why_not(function, (instance, args, kwargs), batches)
    if reason and fuse == "always":
        raise RuntimeError(
            f'{step!r} can\'t make several steps in one call: {reason}. With fuse="auto", they run one at a time.'
        )
    if reason:
        step.why_not_fused = reason
        return step
    blocks: Any = None
    spec: Any = None
    if isinstance(batches, ArrayBatches):
        blocks, spec = ArrayBlocks(batches), batches.full_batch_spec
    elif batches is not None:
        blocks, spec = IteratorBlocks(batches), batches.element_spec
    name = f"{getattr(function, '__name__', 'step')}_fused"
    arguments = (*instance, *args)

    def make() -> FusedFunction:
        batch = None if blocks is None else blocks.spec
        return FusedFunction(function, arguments, kwargs, batch, name)

    single = step if blocks is None else BatchCall(step.step, blocks, args, kwargs)
    fusion = fusion_state_of(function, arguments, kwargs, spec)
    return FusedStep(repr(step), single, make, fusion, fuse == "always", arguments, kwargs, blocks)
