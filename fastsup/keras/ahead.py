"""A model's function that makes steps ahead of Keras's loop, in one compiled call, where nothing looks between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from fastsup.common.results import each_result
from fastsup.core.loop import SECONDS_AT_ONCE
from fastsup.keras.epoch import Epoch, NextBatch
from fastsup.steps.blocks import ArrayBlocks, IteratorBlocks
from fastsup.steps.fused_calls import MOST_STEPS, FusedCalls
from fastsup.steps.fused_function import FusedFunction
from fastsup.steps.fused_step import FusedStep
from fastsup.steps.fusion import Fusion, fusion_of

__all__ = ["Pass", "StepsAhead"]


@dataclass
class Pass:
    """What is known of a call of `fit`, `evaluate` or `predict`.

    Args:
      why_not: why no step may be made ahead; an empty string if it may.
      reads_logs: whether the logs of each step are read.
      steps: steps of an epoch, or None for as many as there are batches.
      until_look: function that tells how many batches there are until a callback looks at the model, or None, by the
        number of the coming batch in its epoch.
    """

    why_not: str = "it isn't called by fit, evaluate or predict"
    reads_logs: bool = True
    steps: int | None = None
    until_look: Callable[[int], int | None] = lambda batch: None


class StepsAhead:
    """Stands in the place of a model's train, test or predict function.

    Keras's loop calls it for each step. A call may make several steps: those that follow return what was made before.

    Args:
      lifted: the `LiftedStepFunction`.
      passes: the `Pass` under way, by kind of function.
      kind: "train", "test" or "predict".
      fuse: "auto" or "always".
      why_not: why steps can't be made ahead in any pass; an empty string if they can.
      name: what messages call it.

    Attributes:
      lifted: the argument.
    """

    def __init__(self, lifted: Any, passes: dict[str, Pass], kind: str, fuse: str, why_not: str, name: str) -> None:
        self.lifted = lifted
        self._passes, self._kind = passes, kind
        self._pass = passes[kind]
        self._fuse = fuse
        self._why_not = why_not
        self._name = name
        self._why_not_last = ""
        self._iterator: Any = None
        self._step: FusedStep | None = None
        self._begun = 0
        # Logs of steps made ahead; where none are read, those of the last one, and how many calls return them.
        self._logs: deque[Any] = deque()
        self._last: Any = None
        self._repeats = 0

    @property
    def fused(self) -> bool:
        """True if steps are made in one compiled call now, where nothing looks between them."""
        return self._step is not None and self._step.fused and not self._why_not and not self._why_not_last

    @property
    def why_not_fused(self) -> str:
        """Why steps aren't made in one compiled call now; an empty string if they are, or before the first call."""
        return self._why_not or self._why_not_last or ("" if self._step is None else self._step.fallback_reason)

    def release(self) -> None:
        """Releases the batches of a pass that has ended."""
        self._iterator = None
        self._forget()
        if self._step is not None:
            self._step.begin_input(None)

    def _forget(self) -> None:
        self._logs.clear()
        self._last, self._repeats, self._begun = None, 0, 0

    def __call__(self, iterator: Any) -> Any:
        """Makes a step, and perhaps more. As Keras's function."""
        if self._passes[self._kind] is not self._pass:
            # What was made ahead in a pass that has failed isn't for this one.
            self._pass, self._iterator = self._passes[self._kind], None
            self._forget()
        if self._repeats:
            self._repeats -= 1
            return self._last
        if self._logs:
            return self._logs.popleft()
        if self._kind == "predict":
            given, iterator = iterator, _epoch_of(iterator)
            if iterator is None:
                return self.lifted(given)
        if not isinstance(iterator, tf.data.Iterator | Epoch):
            return self.lifted(iterator)
        if iterator is not self._iterator:
            self._open(iterator)
        if self._step is None:
            return self.lifted(iterator)
        limit = 1 if self._pass.why_not or self._why_not else MOST_STEPS
        batch = self._begun if self._pass.steps is None else self._begun % self._pass.steps
        if self._pass.steps is not None:
            limit = min(limit, self._pass.steps - batch)
        until_look = self._pass.until_look(batch) if limit > 1 else None
        if until_look is not None:
            limit = min(limit, until_look)
        made, last, results = self._step.run_steps(limit, SECONDS_AT_ONCE, self._pass.reads_logs)
        self._begun += made
        if results is not None:
            self._logs.extend(each_result(results))
            return self._logs.popleft()
        self._last, self._repeats = last, made - 1
        return last

    def _open(self, iterator: Any) -> None:
        """Begins to take batches from an iterator."""
        self._forget()
        self._iterator = iterator
        self._why_not_last = self._pass.why_not
        arrays = iterator.begin() if isinstance(iterator, Epoch) else None
        if arrays is not None:
            spec: Any = arrays.element_spec
        elif not self._why_not and not self._pass.why_not:
            spec = iterator.element_spec
        else:
            self._step = None
            return
        # The compiled loop and its trial stay from epoch to epoch, and from one call of `fit` to the next one.
        fusion = fusion_of(self.lifted.on_data.original, (), {}, spec)
        if self._step is None or self._step.calls.fusion is not fusion:
            self._step = self._new_step(spec, fusion)
        blocks = self._step.calls.blocks
        if arrays is None:
            blocks = IteratorBlocks(iterator)
        elif not isinstance(blocks, ArrayBlocks) or blocks.batches is not arrays:
            blocks = ArrayBlocks(arrays)
        self._step.begin_input(blocks)

    def _new_step(self, spec: Any, fusion: Fusion) -> FusedStep:
        """Makes the step for batches of one structure.

        Args:
          spec: what Keras traces its function with, up to 3.15. Its numbers depend on that: where the size of a batch
            isn't known, it gives batches of all sizes the same weight in the means of some losses. Since 3.16 it
            traces its function with the batches.
          fusion: what is known of the function with such batches.
        """
        on_data = self.lifted.on_data
        takes_batch: bool = getattr(self.lifted, "takes_batch", False)
        is_traced = takes_batch

        def make() -> FusedFunction:
            # The outputs of a prediction have as many rows as the batch.
            traced_as = calls.blocks.spec if takes_batch or self._kind == "predict" else spec
            return FusedFunction(on_data.original, (), {}, (calls.blocks.spec,), self._name, (traced_as,))

        def single() -> Any:
            nonlocal is_traced
            batch = next(calls.blocks)
            if not is_traced:
                on_data.original.get_concrete_function(spec)
                is_traced = True
            return on_data(batch)

        calls = FusedCalls(self._name, make, fusion, self._fuse == "always")
        return FusedStep(single, calls)


def _epoch_of(data: Any) -> Epoch | None:
    """The epoch of what `predict` gives its function: a list of batches, or of what stands for one."""
    is_one = isinstance(data, list) and len(data) == 1 and isinstance(data[0], NextBatch)
    return data[0].epoch if is_one else None
