"""Model functions that run several steps ahead of Keras's loop in one compiled call, if nothing inspects the model.

The state of a `fit`, `evaluate` or `predict` call is in its `Call` and its `Epoch`s, never in the model, because calls
may be nested or run in several threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from fastsup.common.results import each_result
from fastsup.core.stepper import SECONDS_AT_ONCE
from fastsup.eager.function import tf_function
from fastsup.keras.callbacks import batches_until_look, looks_between_batches, reads_logs
from fastsup.steps.batches import ArrayBlocks, IteratorBlocks
from fastsup.steps.fused import MOST_STEPS, FusedStep, FusionState, fusion_state_of
from fastsup.steps.fused_function import FusedFunction

__all__ = ["Call", "Epoch", "ModelFunction", "NextBatch"]


# The model attributes that end Keras's loop after a step, by the kind of the step.
_STOPS = {"train": "stop_training", "test": "stop_evaluating", "predict": "stop_predicting"}


class Call:
    """A `fit`, `evaluate` or `predict` call, for its steps of one kind.

    Args:
      model: the model.
      kind: "train", "test" or "predict".
      callbacks: function that returns the call's callbacks, without those that Keras adds.
      shows_logs: Whether a progress bar shows the logs of each step.
      steps: steps per epoch, or None for as many as there are batches.

    Raises:
      ValueError: If a callback has a wrong `batch_freq`.
    """

    def __init__(
        self, model: Any, kind: str, callbacks: Callable[[], list[Any]], shows_logs: bool, steps: int | None
    ) -> None:
        self._model = model
        self.kind = kind
        self.steps = steps
        self._callbacks = callbacks
        # `predict` returns the outputs of each batch.
        self._shows_logs = shows_logs or kind == "predict"
        #: The step of the epoch that was opened last.
        self.step: FusedStep | None = None
        self.why_not_fused()

    def close(self) -> None:
        """Releases the batches, because the model's function keeps the step for a report."""
        if self.step is not None:
            self.step.begin_input(None)

    # A callback may get its methods in `set_model` or `on_train_begin`, so check callbacks when steps are due.

    def why_not_fused(self) -> str:
        """Reason why no step may run ahead, or "" if one may."""
        looks = looks_between_batches(self._callbacks(), self.kind)
        return f"the callback {looks} inspects each batch" if looks else ""

    def reads_logs(self) -> bool:
        """Returns True if the logs of each step are read."""
        return self._shows_logs or reads_logs(self._callbacks(), self.kind)

    def hands_out_tensors(self) -> bool:
        """Returns True if a callback may get a step's unchanged result, as in `predict`. Others get floats."""
        return self.kind == "predict" and reads_logs(self._callbacks(), self.kind)

    def most_steps(self, begun: int) -> int:
        """Returns the number of steps until a callback may inspect the model, the epoch ends, or Keras's loop stops.

        Args:
          started: the number of steps that ran before.
        """
        batch = begun if self.steps is None else begun % self.steps
        left = MOST_STEPS if self.steps is None else self.steps - batch
        callbacks = self._callbacks()
        if getattr(self._model, _STOPS[self.kind], False) or looks_between_batches(callbacks, self.kind):
            return 1
        until_look = batches_until_look(callbacks, self.kind, batch)
        return left if until_look is None else min(left, until_look)


class ModelFunction:
    """Replaces a model's train, test or predict function.

    Keras's loop calls it for each step. One call may run several steps. The next calls then return the stored results.

    Args:
      lifted: the `LiftedStepFunction` or `LiftedPredictFunction`.
      kind: "train", "test" or "predict".
      fuse: "auto" or "always".
      why_never: reason why steps can't run ahead in any call, or "" if they can.
      name: the name in messages.

    Attributes:
      lifted, kind, why_never: the arguments.
    """

    def __init__(self, lifted: Any, kind: str, fuse: str, why_never: str, name: str) -> None:
        self.lifted = lifted
        self.kind = kind
        self.why_never = why_never
        self._fuse = fuse
        self._name = name
        # The step of the epoch that was opened last, for a report.
        self._newest_step: FusedStep | None = None
        self._newest_why_not_fused = ""

    @property
    def fused(self) -> bool:
        """True if steps currently run in one compiled call when nothing inspects the model in between."""
        step = self._newest_step
        return step is not None and step.fused and not self.why_never and not self._newest_why_not_fused

    @property
    def why_not_fused(self) -> str:
        """Reason why steps don't currently run in one compiled call. "" if they do, or before the first call."""
        step = self._newest_step
        return self.why_never or self._newest_why_not_fused or ("" if step is None else step.why_not_fused)

    def __call__(self, iterator: Any) -> Any:
        """Runs a step, and perhaps more steps. Has the signature of Keras's function."""
        epoch = iterator
        if self.kind == "predict":
            # For predict, the argument is a list of one batch, or of the batch's placeholder.
            epoch = iterator[0] if isinstance(iterator, list) and len(iterator) == 1 else None
            epoch = epoch.epoch if isinstance(epoch, NextBatch) else None
        if isinstance(epoch, Epoch):
            return epoch.run(self)
        if isinstance(iterator, tf.data.Iterator) and not self._newest_why_not_fused:
            self._newest_why_not_fused = "it isn't called by fit, evaluate or predict"
        return self.lifted(iterator)

    def open(self, blocks: Any, spec: Any, why_not_fused: str) -> FusedStep:
        """Creates the step of an epoch.

        Args:
          blocks: the source of its batches.
          spec: the spec with which Keras traces its function, up to 3.15. Since 3.16, Keras traces it with the batches.
          why_not_fused: reason why no step of the epoch may run ahead, or "" if one may.
        """
        on_data = self.lifted.on_data
        takes_batch: bool = getattr(self.lifted, "takes_batch", False)
        trace: Any = None

        def make() -> FusedFunction:
            function, traced_as = on_data.original, step.blocks.spec if takes_batch else spec
            if self.kind == "predict":
                # The outputs have as many rows as the batch. After batches of other sizes, Keras's function would lose
                # this fact.
                function = tf_function(function.python_function, jit_compile=True)
                traced_as = step.blocks.spec
            return FusedFunction(function, (), {}, (step.blocks.spec,), self._name, (traced_as,))

        def single() -> Any:
            nonlocal trace
            batch = next(step.blocks)
            if trace is None:
                trace = self.lifted.trace_of(spec)
            return trace(batch)

        if self.why_never:
            fusion = FusionState()
        else:
            # The compiled loop and its trial remain for later epochs and later calls of `fit`.
            fusion = fusion_state_of(on_data.original, (), {}, blocks.spec if self.kind == "predict" else spec)
        step = FusedStep(self._name, single, make, fusion, self._fuse == "always", blocks=blocks)
        self._newest_step, self._newest_why_not_fused = step, why_not_fused
        return step

    def note_why_not_fused(self, why_not_fused: str) -> None:
        """Records the reason why the epoch runs no step ahead, for a report."""
        self._newest_why_not_fused = why_not_fused


class NextBatch:
    """Placeholder for the next batch of an epoch, in a loop that passes each batch to the model's function.

    Args:
      epoch: the epoch, from which the function takes it.
    """

    def __init__(self, epoch: Epoch) -> None:
        self.epoch: Epoch = epoch


class Epoch:
    """The iterator over an epoch's batches for Keras's loop, with the state of the epoch's steps.

    Args:
      call: the call that it belongs to.
      spec: the structure of `tf.TensorSpec`s of its batches.
      open_blocks: function that returns the source of the batches, an `ArrayBlocks` or an `IteratorBlocks`.
      iterator: the tf.data iterator that the source uses, or None.
      placeholders: the number of `NextBatch` objects to return instead of batches, or None to return batches.
    """

    def __init__(
        self,
        call: Call,
        spec: Any,
        open_blocks: Callable[[], ArrayBlocks | IteratorBlocks],
        iterator: Any = None,
        placeholders: int | None = None,
    ) -> None:
        self._call, self._spec, self._open_blocks = call, spec, open_blocks
        self._iterator = iterator
        self._placeholders = placeholders
        self._blocks: Any = None
        self._function: ModelFunction | None = None
        # None while an iterator's function runs each step.
        self._step: FusedStep | None = None
        self._begun = 0
        # Results of steps that ran ahead. If nothing reads them, the last result and the number of calls that return
        # it.
        self._results: deque[Any] = deque()
        self._last: Any = None
        self._repeats = 0

    def __iter__(self) -> Epoch:
        return self

    def __next__(self) -> Any:
        """Returns the next batch, or its placeholder."""
        if self._placeholders is None:
            return next(self._opened_blocks())
        self._placeholders -= 1
        if self._placeholders < 0:
            raise StopIteration
        return NextBatch(self)

    def run(self, function: ModelFunction) -> Any:
        """Runs a step, and perhaps more steps.

        Args:
          function: the model's function.

        Returns:
          The result of the next step.

        Raises:
          StopIteration: If there are no more batches.
          Exception: The error of the step.
        """
        if self._repeats:
            self._repeats -= 1
            return self._last
        if self._results:
            return self._results.popleft()
        if self._function is not function:
            self._open(function)
        step = self._step
        if step is None:
            return function.lifted(self._iterator)
        if function.why_never:
            return step()
        with_results = self._call.reads_logs()
        # If results are read, steps run one by one, unless they run in one call.
        limit = 1 if with_results and not step.is_next() else self._call.most_steps(self._begun)
        made, last, results = step.run_steps(limit, SECONDS_AT_ONCE, with_results)
        self._begun += made
        if results is not None:
            each = each_result(results)
            if self._call.hands_out_tensors():
                each = tf.nest.map_structure(tf.convert_to_tensor, each)
            self._results.extend(each)
            return self._results.popleft()
        self._last, self._repeats = last, made - 1
        return last

    def _open(self, function: ModelFunction) -> None:
        why_not_fused = self._call.why_not_fused()
        self._function = function
        if self._blocks is None and self._iterator is not None and (why_not_fused or function.why_never):
            self._step = None
            function.note_why_not_fused(why_not_fused)
        else:
            self._step = self._call.step = function.open(self._opened_blocks(), self._spec, why_not_fused)

    def _opened_blocks(self) -> Any:
        if self._blocks is None:
            self._blocks = self._open_blocks()
        return self._blocks
