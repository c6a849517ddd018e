"""A model's function that makes steps ahead of Keras's loop, in one compiled call, where nothing looks between them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from fastsup.common.results import each_result
from fastsup.keras.epoch import Epoch
from fastsup.steps.blocks import ArrayBlocks, IteratorBlocks
from fastsup.steps.fused_function import FusedFunction
from fastsup.steps.fused_step import FusedStep
from fastsup.steps.fusion import Fusion

__all__ = ["Pass", "StepsAhead"]

# Longest time, in seconds, that steps in one call are to take: Ctrl-C is served after it.
_SECONDS = 0.05
_MOST_STEPS = 1 << 30
# Kinds of batches whose compiled loops are kept.
_MOST_SPECS = 8


@dataclass
class Pass:
    """What is known of a call of `fit` or `evaluate`.

    Args:
      why_not: why no step may be made ahead; an empty string if it may.
      reads_logs: whether the logs of each step are read.
      steps: steps of an epoch, or None for as many as there are batches.
    """

    why_not: str = "it isn't called by fit or evaluate"
    reads_logs: bool = True
    steps: int | None = None


class StepsAhead:
    """Stands in the place of a model's train or test function.

    Keras's loop calls it for each step. A call may make several steps: those that follow return what was made before.

    Args:
      lifted: the `LiftedStepFunction`.
      passes: the `Pass` under way, by kind of function.
      kind: "train" or "test".
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
        # By what the batches are.
        self._steps: dict[str, FusedStep] = {}
        self._begun = 0
        # Logs of steps that were made ahead; and of the last one, for so many more calls, where no logs are read.
        self._logs: deque[Any] = deque()
        self._last: Any = None
        self._repeats = 0

    @property
    def fused(self) -> bool:
        """True if steps are made in one compiled call now, where nothing looks between them."""
        return any(step.fused for step in self._steps.values())

    @property
    def why_not_fused(self) -> str:
        """Why steps aren't made in one compiled call; an empty string if they can be, or before the first call."""
        reasons = [step.why_not_fused for step in self._steps.values() if step.why_not_fused]
        return self._why_not or self._why_not_last or (reasons[-1] if reasons else "")

    def release(self) -> None:
        """Releases the batches of a pass that has ended."""
        self._iterator = self._step = None
        self._forget()
        for step in self._steps.values():
            step.begin_input(None)

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
        if not isinstance(iterator, tf.data.Iterator | Epoch):
            return self.lifted(iterator)
        if iterator is not self._iterator:
            self._open(iterator)
        if self._step is None:
            return self.lifted(iterator)
        limit = 1 if self._pass.why_not or self._why_not else _MOST_STEPS
        if self._pass.steps is not None:
            limit = min(limit, self._pass.steps - self._begun % self._pass.steps)
        made, last, results = self._step.run_steps(limit, _SECONDS, self._pass.reads_logs)
        self._begun += made
        if results is not None:
            self._logs.extend(each_result(results))
            return self._logs.popleft()
        self._last, self._repeats = last, made - 1
        return last

    def _open(self, iterator: Any) -> None:
        """Begins to take batches from an iterator."""
        self._forget()
        self._iterator, self._step = iterator, None
        self._why_not_last = self._pass.why_not
        arrays = iterator.begin() if isinstance(iterator, Epoch) else None
        if arrays is not None:
            spec: Any = arrays.element_spec
        elif not self._why_not and not self._pass.why_not:
            spec = iterator.element_spec
        else:
            return
        # The compiled loop and its trial stay from epoch to epoch, and from one call of `fit` to the next one.
        key = f"{arrays is not None} {spec}"
        step = self._steps.pop(key, None)
        if step is None:
            step = self._new_step(spec)
        blocks = step.blocks
        if arrays is None:
            blocks = IteratorBlocks(iterator)
        elif blocks is None or blocks.batches is not arrays:
            blocks = ArrayBlocks(arrays)
        step.begin_input(blocks)
        self._steps[key] = self._step = step
        while len(self._steps) > _MOST_SPECS:
            del self._steps[next(iter(self._steps))]

    def _new_step(self, spec: Any) -> FusedStep:
        """Makes the step for batches of one structure.

        Args:
          spec: what Keras traces its function with. Its numbers depend on that: where the size of a batch isn't known,
            it gives batches of all sizes the same weight in the means of some losses.
        """
        on_data = self.lifted.on_data

        def make() -> FusedFunction:
            return FusedFunction(on_data.original, (), {}, (step.blocks.spec,), self._name, (spec,))

        def single() -> Any:
            batch = next(step.blocks)
            if not is_traced:
                is_traced.append(on_data.original.get_concrete_function(spec))
            return on_data(batch)

        is_traced: list[Any] = []
        step = FusedStep(single, make, Fusion(), None, self._fuse == "always")
        return step
