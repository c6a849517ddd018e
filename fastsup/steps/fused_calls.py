"""Calls that make several steps of a function at once, where that is faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import errors_impl
from tensorflow.python.platform import tf_logging as logging

from fastsup.core.loop import SECONDS_AT_ONCE
from fastsup.eager.calls import scope_of_devices
from fastsup.eager.devices import is_compiled_by_xla
from fastsup.eager.function import Function
from fastsup.steps.array_batches import ArrayBatches
from fastsup.steps.bind import BatchStep, as_arguments, without_instance
from fastsup.steps.blocks import ArrayBlocks, IteratorBlocks, why_not_stacked
from fastsup.steps.fused_function import FusedFunction
from fastsup.steps.fused_loop import NotFusable, leaves_of, reason_of
from fastsup.steps.fusion import Fusion, MakesSteps, fusion_of
from fastsup.steps.fusion_trial import FUSED, SINGLE, FusionTrial

__all__ = ["MOST_STEPS", "FusedCalls", "fused_calls"]

# While steps are made one after the other, as many as take about this long are made before the way is chosen again.
_SINGLE_SECS = 1e-3
# How many times as many steps as in the call before a call may make, while the time of a step isn't well known.
_GROWTH = 4
MOST_STEPS = 1 << 30
# Compiling takes about as long as this at the least, in seconds: steps that take less in all aren't worth it.
_FEWEST_SECS = 1.0
# Shapes of batches for which the loop of one function is compiled. Steps of any other are made alone.
_MOST_SHAPES = 8
# After as many steps in a row that had to be made alone for the shapes of their batches, it is said.
_MOST_ODD = 8
# What XLA raises where it can't compile a loop, and TensorFlow where it can't trace one.
_FAILURES = (NotFusable, TypeError, ValueError, NotImplementedError, errors_impl.OpError)

# Number of steps, result of the last one, results of all or None.
_Steps = tuple[int, Any, Any]


class FusedCalls:
    """Makes several steps of a function in one call, where it is known to be faster or has to be tried.

    Steps are made one after the other until they have taken as long as the first one, which XLA has compiled, and a
    second at least. Only then the loop of steps is compiled, and both ways are tried.

    Args:
      name: what messages call the step.
      make: makes the function that makes several steps, of batches of the shape that `blocks` has now.
      fusion: what is known of the function.
      is_forced: whether steps are made at once wherever they can be, without a trial.
      args, kwargs: the arguments that come before a batch, and the keyword arguments.
      blocks: where batches come from, an `ArrayBlocks` or an `IteratorBlocks`; None for a step that takes no batch.

    Attributes:
      fusion: the argument.
      blocks: the argument. A program may set another source, whose batches have the same structure.
      single: makes one step, with the next batch of `blocks`; needed if these are an `IteratorBlocks`.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], MakesSteps],
        fusion: Fusion,
        is_forced: bool,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] = MappingProxyType({}),
        blocks: Any = None,
    ) -> None:
        self._name = name
        self._make = make
        self.fusion: Fusion = fusion
        self._is_forced = is_forced
        self._args, self._kwargs = args, dict(kwargs)
        self.blocks: Any = blocks
        self.single: Callable[[], Any] | None = None
        self._spec: Any = None
        self._shapes: Any = None
        # Steps that are made and not returned yet: their results have other shapes than those of the steps before.
        self._kept: list[_Steps] = []
        # Steps that had to be made alone for the shape of their batches, since the last call that made several.
        self._odd = 0

    @property
    def trial(self) -> FusionTrial:
        """The trial of the two ways."""
        return self.fusion.trial

    @property
    def why_not_fused(self) -> str:
        """Why several steps can't be made at once; an empty string if they can."""
        if not self.fusion.why_not and self._odd >= _MOST_ODD:
            return "batches have other shapes from one step to the next"
        return self.fusion.why_not

    @property
    def fused(self) -> bool:
        """True if steps are made at once now, where no hook is due between them."""
        return not self.why_not_fused and (self._is_forced or (self.trial.choice == FUSED and self._is_made))

    @property
    def fallback_reason(self) -> str:
        """Why steps aren't made at once now: they can't be, or the trial has to come, or has chosen single steps.

        An empty string if they are.
        """
        fusion = self.fusion
        if self.fused or self.why_not_fused:
            return self.why_not_fused
        if fusion.function is None or (fusion.trial.choice == FUSED and not self._is_made):
            return (
                f"not tried yet: single steps come first, until they have taken {self._secs_before:.1f} s (now "
                f'{fusion.spent:.1f} s); fuse="always" leaves that out'
            )
        if fusion.trial.choice is None:
            return "the trial isn't over"
        single, fused = (1e6 * fusion.trial.seconds[way] for way in (SINGLE, FUSED))
        return f"single steps are faster: {single:,.1f} µs a step in place of {fused:,.1f}, by a trial"

    @property
    def has_more(self) -> bool:
        """True if the next call returns steps that are made already, or raises an error that has happened."""
        return bool(self._kept) or (self.blocks is not None and self.blocks.raises_next)

    def begin_input(self, blocks: Any) -> None:
        """Takes batches from another source from now on. As of `FusedStep`."""
        self.blocks = blocks
        self._kept = []

    def is_next(self) -> bool:
        """Whether the next steps should be made at once."""
        fusion = self.fusion
        if self._is_forced or self._kept:
            return True
        if fusion.why_not or (fusion.function is not None and fusion.trial.way != FUSED):
            return False
        return self._is_made or (fusion.first_secs is not None and fusion.spent >= self._secs_before)

    def make_steps(self, limit: int, seconds: float, with_results: bool) -> tuple[int, Any, Any] | None:
        """Makes several steps in one call.

        What it takes from an iterator, steps have used when it returns: those of a batch of another shape are made
        alone, after the others.

        Args:
          limit: the most steps to make.
          seconds: how long they may take.
          with_results: whether something takes the results of all steps.

        Returns:
          The number of steps, the result of the last one, and the results of all as arrays of shape [steps, ...] in the
          result's structure: None for one step, or without `with_results`. None in place of all if no step was made:
          the next one has to be made alone.

        Raises:
          RuntimeError: it has to be done, and can't be.
          Exception: the error of the first step, which was made alone.
        """
        if self._kept:
            return self._kept.pop(0)
        if limit < 2:
            return None
        if context.executing_eagerly():
            return self._make_steps(limit, seconds, with_results)
        with context.eager_mode():  # A loop of a session may have a graph as the default one.
            return self._make_steps(limit, seconds, with_results)

    def most_alone(self, limit: int, seconds: float) -> int:
        """How many steps to make one after the other before the way is chosen again.

        Args:
          limit, seconds: as for `make_steps`.
        """
        secs = self.fusion.seconds[SINGLE]
        return 1 if not secs else max(1, min(limit, int(min(seconds, _SINGLE_SECS) / secs)))

    def record_alone(self, steps: int, seconds: float) -> None:
        """Takes the duration of steps that were made one after the other.

        Args:
          steps: their number, 1 at least.
          seconds: how long they took.
        """
        fusion = self.fusion
        if fusion.first_secs is None:
            fusion.first_secs = seconds
            return
        fusion.spent += seconds
        fusion.seconds[SINGLE] = seconds / steps
        if fusion.function is not None:
            fusion.trial.record(SINGLE, steps, seconds)

    @property
    def _secs_before(self) -> float:
        """How many seconds single steps have to take before the loop of steps is compiled."""
        return max(self.fusion.first_secs or 0.0, _FEWEST_SECS)

    @property
    def _key(self) -> Any:
        """The shapes of a batch, or of the last one if there is no input now; None for a step that takes no batch."""
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

    def _make_steps(self, limit: int, seconds: float, with_results: bool) -> tuple[int, Any, Any] | None:
        fusion, blocks = self.fusion, self.blocks
        if fusion.why_not:
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
            # No step was made. If it is the step that fails, it fails alone too, where it is known which one it was.
            fusion.why_not = reason_of(error)
            if not self._is_forced:
                logging.info("%s. One step is made after the other.", self._refusal())
            elif not (blocks and blocks.owed):
                raise self._refusal() from error
        if blocks is not None and blocks.owed:
            self._odd = 0 if parts else self._odd + 1
            self._make_owed(parts)
        elif parts:
            self._odd = 0
        return self._joined(parts, with_results)

    def _refusal(self) -> RuntimeError:
        advice = ' fuse="auto" makes one step after the other.' if self._is_forced else ""
        dot = "." if self._is_forced else ""
        return RuntimeError(f"{self._name} can't make several steps in one call: {self.why_not_fused}{dot}{advice}")

    def _compiled(self, with_results: bool) -> MakesSteps | None:
        """The function for batches of the shapes that come now, compiled; None if steps have to be made alone."""
        fusion, blocks = self.fusion, self.blocks
        if blocks is not None and blocks.why_not:
            raise NotFusable(blocks.why_not)
        key = self._key
        if blocks is not None and blocks.spec is None:
            if not blocks.learn_spec():
                return None  # There is no batch, and `next` says why.
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
            # A call of no steps compiles it, before any batch is taken for it.
            function(0, 0, [] if blocks is None else blocks.tensors(), self._args, self._kwargs, with_results)
            fusion.compiled.add((key, with_results))
        return function

    def _most_at_once(self, function: MakesSteps, limit: int, seconds: float, with_results: bool) -> int:
        """The most steps of the next call; fewer than 2 if the next one has to be made alone."""
        fusion = self.fusion
        secs = fusion.seconds[FUSED]
        by_time = int(seconds / secs) if secs else _GROWTH
        if by_time < 2:
            if seconds < SECONDS_AT_ONCE:
                return 0  # Something is due by time before a second step would end. Else two may take longer.
            by_time = 2
        return min(limit, by_time, max(fusion.most, _GROWTH), function.most_results if with_results else MOST_STEPS)

    def _call(
        self, function: MakesSteps, started: float, place: int, steps: int, tensors: list[Any], with_results: bool
    ) -> _Steps:
        fusion, blocks = self.fusion, self.blocks
        secs = fusion.seconds[FUSED]
        if blocks is not None:
            blocks.taken(steps)  # Before the call: after it, Ctrl-C may come first.
        try:
            result, results = function(place, steps, tensors, self._args, self._kwargs, with_results)
        except _FAILURES:
            if blocks is not None:
                blocks.taken(-steps)
            raise
        taken = perf_counter() - started
        # One call that the machine has held up must not make the next ones short.
        fusion.seconds[FUSED] = min(taken / steps, 2 * secs) if secs else taken / steps
        fusion.most = min(max(fusion.most, _GROWTH * steps), MOST_STEPS)
        fusion.trial.record(FUSED, steps, taken)
        return steps, result, results

    def _make_owed(self, parts: list[_Steps]) -> None:
        """Makes the steps of what was taken from an iterator, one after the other."""
        assert self.single is not None
        try:
            while self.blocks.owed:
                parts.append((1, self.single(), None))
        except BaseException as error:
            if not parts:
                raise
            self.blocks.keep_failure(error)  # The steps before it are counted first.

    def _joined(self, parts: list[_Steps], with_results: bool) -> _Steps | None:
        """Several calls as one. Those whose results have other shapes are returned by the next calls."""
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
    """The results of all steps of two calls; None if they have different shapes."""
    first, second = ([] if part[2] is None else leaves_of(part[2]) for part in (before, after))
    first = first or [np.asarray(leaf)[np.newaxis] for leaf in leaves_of(before[1])]
    second = second or [np.asarray(leaf)[np.newaxis] for leaf in leaves_of(after[1])]
    if any(one.shape[1:] != other.shape[1:] for one, other in zip(first, second, strict=True)):
        return None
    leaves = iter([np.concatenate(pair) for pair in zip(first, second, strict=True)])
    structure = after[1]
    flat = [None if leaf is None else next(leaves) for leaf in tf.nest.flatten(structure, expand_composites=True)]
    return tf.nest.pack_sequence_as(structure, flat, expand_composites=True)


def fused_calls(step: Any, fuse: str, counter: Any = None) -> FusedCalls | str:
    """Makes the calls that make several steps of a function at once.

    Args:
      step: a `BoundStep`, a `BatchStep` or a function without arguments.
      fuse: "auto", "always" or "never".
      counter: an integer variable that the steps count up, or None.

    Returns:
      The `FusedCalls`; or why several steps can't be made at once, as far as that is known before the first call.

    Raises:
      RuntimeError: with "always", they can't.
    """
    batches: Any = step.batches if isinstance(step, BatchStep) else None
    args, kwargs = getattr(step, "args", ()), getattr(step, "kwargs", {})
    function, instance = without_instance(getattr(step, "step", step))
    function = function.original if isinstance(function, Function) else function
    reason = 'fuse="never"' if fuse == "never" else _why_not(function, (instance, args, kwargs), batches)
    if reason and fuse == "always":
        raise RuntimeError(
            f'{step!r} can\'t make several steps in one call: {reason}. fuse="auto" makes one after the other.'
        )
    if reason:
        return reason
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
        return FusedFunction(function, arguments, kwargs, batch, name, counter=counter)

    def single() -> Any:
        result = step.step(*args, *as_arguments(next(blocks)), **kwargs)
        if counter is not None:
            counter.assign_add(1)
        return result

    fusion = fusion_of(function, arguments, kwargs, spec, counter)
    calls = FusedCalls(repr(step), make, fusion, fuse == "always", arguments, kwargs, blocks)
    calls.single = single
    return calls


def _why_not(function: Any, arguments: Any, batches: Any) -> str:
    """Why several steps of a function can't be made in one call, as far as that is known before it is called."""
    if isinstance(function, concrete_function.ConcreteFunction):
        is_compiled = is_compiled_by_xla(function.function_def)
    else:
        is_compiled = getattr(function, "_jit_compile", None) is True
    if not is_compiled:
        return "XLA doesn't compile the step function: jit_compile isn't True"
    if scope_of_devices() is not None:
        return "TensorFlow has several devices"
    if any(isinstance(value, tf.data.Iterator) for value in tf.nest.flatten(arguments)):
        return "the step function takes an iterator of tf.data: fastsup.bind_batches gives it batches"
    if batches is None or isinstance(batches, ArrayBatches):
        return ""
    if not isinstance(batches, tf.data.Iterator):
        return "batches come from Python code, and not from a fastsup.ArrayBatches or a tf.data.Dataset"
    return why_not_stacked(batches.element_spec)
