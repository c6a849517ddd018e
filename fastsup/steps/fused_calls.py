"""Calls that make several steps of a function at once, where that is faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from types import MappingProxyType
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import errors_impl
from tensorflow.python.platform import tf_logging as logging

from fastsup.core.loop import SECONDS_AT_ONCE
from fastsup.eager.devices.placement import is_compiled_by_xla
from fastsup.eager.function import Function
from fastsup.eager.lifted_calls import scope_of_devices
from fastsup.steps.array_batches import ArrayBatches
from fastsup.steps.bind import BatchStep, without_instance
from fastsup.steps.blocks import ArrayBlocks, IteratorBlocks
from fastsup.steps.fused_function import FusedFunction
from fastsup.steps.fused_loop import NotFusable, reason_of
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


class FusedCalls:
    """Makes several steps of a function in one call, where it is known to be faster or has to be tried.

    Steps are made one after the other until they have taken as long as the first one, which XLA has compiled, and a
    second at least. Only then the loop of steps is compiled, and both ways are tried.

    Args:
      name: what messages call the step.
      make: makes the function that makes several steps.
      fusion: what is known of the function.
      is_forced: whether steps are made at once wherever they can be, without a trial.
      args, kwargs: the arguments that come before a batch, and the keyword arguments.
      blocks: where batches come from, an `ArrayBlocks` or an `IteratorBlocks`; None for a step that takes no batch.

    Attributes:
      fusion: the argument.
      blocks: the argument. A program may set another source, whose batches have the same structure.
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

    @property
    def trial(self) -> FusionTrial:
        """The trial of the two ways."""
        return self.fusion.trial

    @property
    def why_not_fused(self) -> str:
        """Why several steps can't be made at once; an empty string if they can."""
        return self.fusion.why_not

    @property
    def fused(self) -> bool:
        """True if steps are made at once now, where no hook is due between them."""
        return not self.why_not_fused and (self._is_forced or self.trial.choice == FUSED)

    @property
    def fallback_reason(self) -> str:
        """Why steps aren't made at once now: they can't be, or the trial has to come, or has chosen single steps.

        An empty string if they are.
        """
        fusion = self.fusion
        if self.fused or fusion.why_not:
            return fusion.why_not
        if fusion.function is None:
            secs = max(fusion.first_secs or 0.0, _FEWEST_SECS)
            return (
                f"not tried yet: single steps come first, until they have taken {secs:.1f} s (now {fusion.spent:.1f} s)"
                '; fuse="always" leaves that out'
            )
        if fusion.trial.choice is None:
            return "the trial isn't over"
        single, fused = (1e6 * fusion.trial.seconds[way] for way in (SINGLE, FUSED))
        return f"single steps are faster: {single:,.1f} µs a step in place of {fused:,.1f}, by a trial"

    def is_next(self) -> bool:
        """Whether the next steps should be made at once."""
        fusion = self.fusion
        if fusion.why_not:
            return False
        if self._is_forced:
            return True
        if fusion.function is None:
            return fusion.first_secs is not None and fusion.spent >= max(fusion.first_secs, _FEWEST_SECS)
        return fusion.trial.way == FUSED

    def make_steps(self, limit: int, seconds: float, with_results: bool) -> tuple[int, Any, Any] | None:
        """Makes several steps in one call.

        Args:
          limit: the most steps to make.
          seconds: how long they may take.
          with_results: whether something takes the results of all steps.

        Returns:
          The number of steps, the result of the last one, and the results of all as arrays of shape [steps, ...] in the
          result's structure, or None without `with_results`. None in place of all if no step was made: the next one has
          to be made alone.

        Raises:
          RuntimeError: it has to be done, and can't be.
        """
        if limit < 2:
            return None
        try:
            if not context.executing_eagerly():
                with context.eager_mode():  # A loop of a session may have a graph as the default one.
                    return self._try(limit, seconds, with_results)
            return self._try(limit, seconds, with_results)
        except (NotFusable, TypeError, ValueError, NotImplementedError, errors_impl.OpError) as error:
            # No step was made. If it is the step that fails, it fails alone too, where it is known which one it was.
            self.fusion.why_not = reason_of(error)
            text = f"{self._name} can't make several steps in one call: {self.why_not_fused}"
            if self._is_forced:
                raise RuntimeError(f'{text}. fuse="auto" makes one step after the other.') from error
            logging.info("%s. One step is made after the other.", text)
            return None

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

    def _try(self, limit: int, seconds: float, with_results: bool) -> tuple[int, Any, Any] | None:
        fusion = self.fusion
        fused = fusion.function
        if fused is None:
            fused = fusion.function = self._make()
        secs = fusion.seconds[FUSED]
        by_time = int(seconds / secs) if secs else _GROWTH
        if by_time < 2:
            if seconds < SECONDS_AT_ONCE:
                return None  # Something is due by time before a second step would end. Else two may take longer.
            by_time = 2
        limit = min(limit, by_time, max(fusion.most, _GROWTH), fused.most_results if with_results else MOST_STEPS)
        if limit < 2:
            return None
        tensors, place, steps = ([], 0, limit) if self.blocks is None else self.blocks.take(limit)
        if steps < 2:
            return None
        started = perf_counter()
        result, results = fused(place, steps, tensors, self._args, self._kwargs, with_results)
        taken = perf_counter() - started
        if self.blocks is not None:
            self.blocks.taken(steps)
        if fusion.is_compiled[with_results]:
            # One call that the machine has held up must not make the next ones short.
            fusion.seconds[FUSED] = min(taken / steps, 2 * secs) if secs else taken / steps
            fusion.most = min(max(fusion.most, _GROWTH * steps), MOST_STEPS)
            fusion.trial.record(FUSED, steps, taken)
        fusion.is_compiled[with_results] = True
        return steps, result, results


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

    fusion = fusion_of(function, arguments, kwargs, spec, counter)
    return FusedCalls(repr(step), make, fusion, fuse == "always", arguments, kwargs, blocks)


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
    for spec in tf.nest.flatten(batches.element_spec):
        if not (isinstance(spec, tf.TensorSpec) and spec.dtype.is_numpy_compatible and spec.dtype != tf.string):
            return f"batches have an element that isn't a tensor of numbers: {spec}"
    return ""
