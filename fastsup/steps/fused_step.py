"""A step of a loop that makes several steps in one compiled call, where that is faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from types import MappingProxyType
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import errors_impl
from tensorflow.python.platform import tf_logging as logging

from fastsup.core.loop import SECONDS_AT_ONCE
from fastsup.eager.devices.placement import is_compiled_by_xla
from fastsup.eager.function import Function
from fastsup.eager.lifted_calls import scope_of_devices
from fastsup.steps.array_batches import ArrayBatches
from fastsup.steps.bind import without_instance
from fastsup.steps.blocks import ArrayBlocks, IteratorBlocks
from fastsup.steps.fused_function import MOST_RESULTS, FusedFunction, NotFusable, reason_of
from fastsup.steps.fusion import Fusion, fusion_of
from fastsup.steps.fusion_trial import FUSED, SINGLE, FusionTrial

__all__ = ["MOST_STEPS", "FusedStep", "fused_step"]

# While steps are made one after the other, a call makes as many as take about this long.
_SINGLE_SECS = 1e-3
# How many times as many steps as in the call before a call may make, while the time of a step isn't well known.
_GROWTH = 4
MOST_STEPS = 1 << 30
# Compiling takes about as long as this at the least, in seconds: steps that take less in all aren't worth it.
_FEWEST_SECS = 1.0


class FusedStep:
    """A step that a loop calls for one step, or asks for several by `run_steps`.

    Steps are made one after the other until they have taken as long as the first one, which XLA has compiled, and a
    second at least. Only then the loop of steps is compiled, and both ways are tried.

    Args:
      single: makes one step.
      make: makes the `FusedFunction`.
      fusion: what is known of the function.
      blocks: where batches come from, an `ArrayBlocks` or an `IteratorBlocks`; None for a step that takes no batch.
      args, kwargs: the arguments that come before a batch, and the keyword arguments.
      is_forced: whether steps are made at once wherever they can be, without a trial.

    Attributes:
      blocks: the argument.
      fusion: the argument.
    """

    def __init__(
        self,
        single: Callable[[], Any],
        make: Callable[[], FusedFunction],
        fusion: Fusion,
        blocks: Any,
        is_forced: bool,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._single = single
        self._make = make
        self.fusion: Fusion = fusion
        self.blocks: Any = blocks
        self._is_forced = is_forced
        self._args, self._kwargs = args, dict(kwargs)
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<fused {self._single!r}>"

    def __call__(self) -> Any:
        """Makes one step."""
        self._raise_kept()
        return self._single()

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

    def run_steps(self, limit: int, seconds: float, with_results: bool) -> tuple[int, Any, Any]:
        """Makes at least one step.

        Args:
          limit: the most steps to make.
          seconds: how long they may take; one step is made in any case.
          with_results: whether something takes the results of all steps.

        Returns:
          The number of steps, the result of the last one, and the results of all as arrays of shape [steps, ...] in the
          result's structure: None for one step, or without `with_results`.

        Raises:
          StopIteration: all batches were taken, or the step function has raised it.
          Exception: the error of the first of the steps.
        """
        self._raise_kept()
        if self._is_to_fuse(limit):
            made = self._run_fused(limit, seconds, with_results)
            if made is not None:
                return made
        return self._run_singly(1 if with_results else limit, seconds)

    def begin_input(self, blocks: Any) -> None:
        """Takes batches from another source from now on, whose batches have the same structure.

        Args:
          blocks: the source. The end of the one before is forgotten.
        """
        self.blocks = blocks
        self._error = None

    def _raise_kept(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _is_to_fuse(self, limit: int) -> bool:
        if limit < 2 or self.why_not_fused:
            return False
        if self._is_forced:
            return True
        fusion = self.fusion
        if fusion.function is None:
            return fusion.first_secs is not None and fusion.spent >= max(fusion.first_secs, _FEWEST_SECS)
        return fusion.trial.way == FUSED

    def _run_singly(self, limit: int, seconds: float) -> tuple[int, Any, None]:
        fusion = self.fusion
        secs = fusion.seconds[SINGLE]
        limit = 1 if not secs else max(1, min(limit, int(min(seconds, _SINGLE_SECS) / secs)))
        made, result, single = 0, None, self._single
        started = perf_counter()
        try:
            for _ in range(limit):
                result = single()
                made += 1
        except BaseException as error:
            if not made:
                raise
            self._error = error  # The loop counts the steps before it, and then asks for the next one.
        taken = perf_counter() - started
        if fusion.first_secs is None:
            fusion.first_secs = taken
        else:
            fusion.spent += taken
            fusion.seconds[SINGLE] = taken / made
            if fusion.function is not None:
                fusion.trial.record(SINGLE, made, taken)
        return made, result, None

    def _run_fused(self, limit: int, seconds: float, with_results: bool) -> tuple[int, Any, Any] | None:
        """Makes several steps in one call. None if the next one has to be made alone."""
        try:
            if self.fusion.function is None:
                self.fusion.function = self._make()
            return self._try_fused(self.fusion.function, limit, seconds, with_results)
        except (NotFusable, TypeError, ValueError, NotImplementedError, errors_impl.OpError) as error:
            # No step was made. If it is the step that fails, it fails alone too, where it is known which one it was.
            self.fusion.why_not = reason_of(error)
            text = f"{self._single!r} can't make several steps in one call: {self.why_not_fused}"
            if self._is_forced:
                raise RuntimeError(f'{text}. fuse="auto" makes one step after the other.') from error
            logging.info("%s. One step is made after the other.", text)
            return None

    def _try_fused(
        self, fused: FusedFunction, limit: int, seconds: float, with_results: bool
    ) -> tuple[int, Any, Any] | None:
        fusion = self.fusion
        secs = fusion.seconds[FUSED]
        by_time = int(seconds / secs) if secs else _GROWTH
        if by_time < 2:
            if seconds < SECONDS_AT_ONCE:
                return None  # Something is due by time before a second step would end. Else two may take longer.
            by_time = 2
        limit = min(limit, by_time, max(fusion.most, _GROWTH), MOST_RESULTS if with_results else MOST_STEPS)
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


def fused_step(step: Any, batches: Any, fuse: str) -> Any:
    """Makes a step that can make several steps at once, if XLA compiles the step function.

    Args:
      step: a `BoundStep` or a `BatchStep`.
      batches: the iterator of batches of a `BatchStep`; None for a `BoundStep`.
      fuse: "auto" or "always".

    Returns:
      A `FusedStep`; or the step itself, if it can't make several steps at once.

    Raises:
      RuntimeError: with "always", it can't.
    """
    function, args = without_instance(step.step)
    function = function.original if isinstance(function, Function) else function
    reason = _why_not(function, (args, step.args, step.kwargs), batches)
    if reason:
        if fuse == "always":
            raise RuntimeError(
                f'{step!r} can\'t make several steps in one call: {reason}. fuse="auto" makes one after the other.'
            )
        step.why_not_fused = reason
        return step
    blocks: Any = None
    single = step
    if isinstance(batches, ArrayBatches):
        blocks = ArrayBlocks(batches)
    elif batches is not None:
        blocks = IteratorBlocks(batches)
        single = type(step)(step.step, blocks, step.args, step.kwargs)
    name = f"{getattr(step.step, '__name__', 'step')}_fused"

    arguments = (*args, *step.args)
    spec = None if blocks is None else getattr(batches, "full_batch_spec", None) or batches.element_spec
    fusion = fusion_of(function, arguments, step.kwargs, spec)

    def make() -> FusedFunction:
        return FusedFunction(function, arguments, step.kwargs, None if blocks is None else blocks.spec, name)

    return FusedStep(single, make, fusion, blocks, fuse == "always", arguments, step.kwargs)


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
