"""`train`: a loop with the hooks that training usually needs; and batches with epochs."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastsup.core.checks import check_flag, check_interval, check_step_function, check_takes, suggest_keywords
from fastsup.loop.checkpoints import Checkpoints
from fastsup.loop.evaluation import EarlyStoppingHook, EvaluateHook
from fastsup.loop.metrics import SummaryHook, numbers_in
from fastsup.loop.nan_guard import NanGuardHook
from fastsup.loop.progress import ProgressHook
from fastsup.loop.step_loop import StepLoop
from fastsup.loop.writers import JsonLinesWriter, TensorBoardWriter

__all__ = ["Epochs", "train"]

_logger = logging.getLogger("fastsup")

# Of the summaries, and of the search for NaN.
_REPORT_STEPS = 100
_EVALUATE_STEPS = 1000
_DATA_REMEDY = (
    "Pass the batches as data, the second argument of train. Or pass fastsup.bind(step, ...) with the arguments of all "
    "steps."
)


class Epochs:
    """Batches from data that is iterated repeatedly, such as a PyTorch `DataLoader` or a list of batches.

        def shuffled(epoch):
            order = np.random.default_rng(epoch).permutation(len(x))
            return [(x[rows], y[rows]) for rows in np.array_split(order, 50)]

        batches = Epochs(shuffled, 20)

    It is an iterator, and its position can be saved, by a `Checkpoints`. To resume from one, it reads the batches of
    the epoch under way up to there. They are the same if the data gives them in the same order, as the function above
    does.

    Args:
      data: an iterable that can be iterated several times; or a function of the epoch's number, from 0 on, that returns
        an iterable of its batches.
      epochs: number of times, or None for no limit.

    Attributes:
      batches_per_epoch: the length of `data`, or of the function's result for epoch 0; None if it has no length.
      position: number of batches that were taken.

    Raises:
      TypeError: `data` isn't one of the two, or is an iterator, or `epochs` isn't an integer.
      ValueError: `epochs` isn't positive.
    """

    @suggest_keywords
    def __init__(self, data: Iterable[Any] | Callable[[int], Iterable[Any]], epochs: int | None = None) -> None:
        is_function = callable(data) and not isinstance(data, Iterable)
        if is_function:
            check_takes("data", data, "the number of the epoch")
        elif not isinstance(data, Iterable) or isinstance(data, Iterator):
            raise TypeError(
                f"data must be an iterable that can be iterated several times, got {data!r:.200}. Pass a list or a "
                "DataLoader, not an iterator."
            )
        if epochs is not None:
            if isinstance(epochs, bool) or not hasattr(epochs, "__index__"):
                raise TypeError(f"epochs must be an integer or None, got {epochs!r}.")
            if epochs < 1:
                raise ValueError(f"epochs must be positive, got {epochs!r}.")
        source: Any = data
        self._batches_of: Callable[[int], Any] = source if is_function else lambda epoch: source
        self._name = getattr(data, "__name__", type(data).__name__)
        self._epochs = epochs
        self._iterator: Iterator[Any] | None = None
        self._epoch, self._batch = 0, 0
        self.position = 0
        try:
            self.batches_per_epoch: int | None = len(self._batches_of(0))
        except TypeError:
            self.batches_per_epoch = None

    def __repr__(self) -> str:
        return f"<fastsup.loop.Epochs of {self._name}, at batch {self._batch} of epoch {self._epoch}>"

    @property
    def epoch(self) -> int:
        """Number of completed epochs."""
        return self._epoch

    def __iter__(self) -> Epochs:
        return self

    def __next__(self) -> Any:
        """The next batch.

        Raises:
          StopIteration: all epochs are complete, or the data has no batch.
        """
        if self._epoch == self._epochs:
            raise StopIteration
        if self._iterator is None:
            self._iterator = iter(self._batches_of(self._epoch))
            for _ in range(self._batch):
                next(self._iterator, None)
        try:
            batch = next(self._iterator)
        except StopIteration:
            if not self._batch:
                raise
            self._end_epoch()
            return next(self)
        self._batch += 1
        self.position += 1
        if self._batch == self.batches_per_epoch:
            self._end_epoch()
        return batch

    def _end_epoch(self) -> None:
        self._epoch += 1
        self._batch = 0
        self._iterator = None

    def state_dict(self) -> dict[str, int]:
        """The position, for a checkpoint."""
        return {"epoch": self._epoch, "batch": self._batch, "position": self.position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Resumes from a saved position.

        Args:
          state: the result of `state_dict`.
        """
        self._epoch, self._batch, self.position = state["epoch"], state["batch"], state["position"]
        self._iterator = None


class _BatchStep:
    """A step that takes the next batch, as `fastsup.bind_batches` makes one with TensorFlow."""

    def __init__(self, step: Callable[..., Any], batches: Iterator[Any]) -> None:
        self.step = step
        self.batches = batches

    def __call__(self) -> Any:
        batch = next(self.batches)
        return self.step(*batch) if isinstance(batch, tuple | list) else self.step(batch)

    def __repr__(self) -> str:
        return f"<{self.step!r} with batches of {self.batches!r}>"


@suggest_keywords
def train(
    step: Callable[..., Any],
    data: Iterable[Any] | Callable[[int], Iterable[Any]] | None = None,
    *,
    max_steps: int | None = None,
    states: Mapping[str, Any] | None = None,
    directory: str | os.PathLike[str] | None = None,
    evaluate: Callable[..., Any] | None = None,
    evaluate_steps: int | None = None,
    metric: str | None = None,
    mode: str | None = None,
    patience: int | None = None,
    hooks: Iterable[Any] = (),
    progress: bool = True,
) -> StepLoop:
    """Trains, with the hooks that training usually needs.

        loop = train(step, batches, max_steps=10_000, states={"model": model, "optimizer": optimizer},
                     directory="model", evaluate=evaluate, metric="accuracy", mode="max", patience=5)

    - It resumes from the newest intact checkpoint in `directory`, and saves one every 10 minutes, at the end, and when
      SIGTERM or SIGINT ends the program. With a `metric`, the best one is also kept.
    - With `patience`, it ends when the evaluations get no better, and restores the best checkpoint.
    - The step's numbers, every 100 steps, and the evaluations' numbers are written to `directory/metrics.jsonl`, and
      for TensorBoard if that is installed. A bar or lines show the progress.
    - NaN in a number that the step returns is an error. It is checked every 100 steps, and before a checkpoint.

    For anything else, make a `StepLoop` with the hooks that you want.

    Args:
      step: the step function: of the next batch of `data`, or without arguments. A batch that is a tuple or a list
        gives several arguments.
      data: the batches: a `fastsup.ArrayBatches`, a `tf.data.Dataset`, an iterable, or a function of the number of the
        epoch that returns one. An iterable that can be iterated several times, such as a list or a PyTorch DataLoader,
        is repeated until `max_steps`. The position of data with `state_dict` and `load_state_dict`, or of data that
        `Epochs` accepts, is saved with the states.
      max_steps: the global step at which the loop ends; None for the end of the data.
      states: what `Checkpoints` saves and restores, by name.
      directory: where checkpoints and metrics go; None to save nothing.
      evaluate: function without arguments, or of the loop, that returns a number or a mapping of names to numbers.
      evaluate_steps: number of steps between two evaluations; None for each epoch, if the data has a length, or else
        1,000 steps.
      metric: name of the number of the evaluation by which checkpoints are the best.
      mode: "max" if a larger number is better, "min" if a smaller one is.
      patience: number of evaluations in a row without a better result after which the loop ends; None for no such end.
      hooks: more hooks.
      progress: whether the progress is shown.

    Returns:
      The finished `StepLoop`, with `result`, `global_step`, `restored_step` and `evaluation`.

    Raises:
      TypeError: an argument is of the wrong type.
      ValueError: an argument that another one requires is missing, or has an invalid value.
      Exception: an error of the step function, of a hook, or of a restore.
    """
    check_flag(progress=progress)
    _check_needs(states=(states, directory, "directory"), directory=(directory, states, "states"))
    _check_needs(evaluate_steps=(evaluate_steps, evaluate, "evaluate"), metric=(metric, evaluate, "evaluate"))
    _check_needs(metric=(metric, mode, "mode"), patience=(patience, metric, "metric"))
    if evaluate_steps is not None:
        check_interval("evaluate_steps", evaluate_steps)
    bound, states = _with_data(step, data, max_steps, dict(states or {}))
    if not isinstance(hooks, Iterable):
        raise TypeError(f"hooks must be a list of hooks, got {hooks!r}. Pass [{hooks!r}] for one.")
    values = _NumbersOfSteps()
    guard = NanGuardHook(every_steps=_REPORT_STEPS, values=values)
    ready: list[Any] = [guard]
    saver = None
    writers: list[Any] = []
    if directory is not None:
        saver = _GuardedCheckpoints(guard, directory, states, metric=metric, mode=mode)
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        writers.append(JsonLinesWriter(folder / "metrics.jsonl"))
        if find_spec("tensorboard") is not None:
            writers.append(TensorBoardWriter(folder))
        ready += [SummaryHook(writer, _REPORT_STEPS, values=values) for writer in writers]
    if evaluate is not None:
        length = getattr(getattr(bound, "batches", None), "batches_per_epoch", None)
        if evaluate_steps is None and length is not None:
            ready.append(EvaluateHook(evaluate, every_epochs=1))
        else:
            ready.append(EvaluateHook(evaluate, _EVALUATE_STEPS if evaluate_steps is None else evaluate_steps))
    ready += [] if saver is None else [saver]
    ready += [ProgressHook(values=values)] if progress else []
    ready += hooks
    if patience is not None and metric is not None and mode is not None:
        ready.append(EarlyStoppingHook(metric, mode, patience, restore_best=saver))
    try:
        loop = StepLoop(bound, ready, max_steps, resume_from=saver)
        loop.run()
    finally:
        for writer in writers:
            writer.close()
    return loop


class _NumbersOfSteps:
    """The numbers in the results of steps. Warns once of a result without any."""

    def __init__(self) -> None:
        self._warned = False

    def __call__(self, result: Any) -> dict[str, float]:
        found = numbers_in(result)
        if not found and not self._warned:
            self._warned = True
            _logger.warning(
                "The step returned %.200r, which contains no number, so there is nothing to show, write or check "
                "for NaN. "
                "Return a loss, or a mapping of names to numbers.",
                result,
            )
        return found


class _GuardedCheckpoints(Checkpoints):
    """Saves no state after a step whose result has NaN.

    Args:
      guard: the hook that raises the error.
    """

    def __init__(self, guard: NanGuardHook, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._guard = guard

    def _save(self, loop: Any, metrics: dict[str, float]) -> None:
        if loop.steps and not self._guard.has_found:
            self._guard.act(loop)
        if not self._guard.has_found:
            super()._save(loop, metrics)


def _check_needs(**arguments: tuple[Any, Any, str]) -> None:
    """Refuses an argument that was passed without another one."""
    for name, (value, other, other_name) in arguments.items():
        if value is not None and other is None:
            raise ValueError(f"{name}={value!r:.200} needs {other_name}. Pass both, or neither.")


def _with_data(
    step: Any, data: Any, max_steps: int | None, states: dict[str, Any]
) -> tuple[Callable[[], Any], dict[str, Any]]:
    """The step with its batches, and the states with the position in the data, if that can be saved."""
    if data is None:
        if callable(step):
            check_step_function(step, _DATA_REMEDY)
        return step, states
    if not callable(step):
        raise TypeError(f"step must be callable, got {step!r}.")
    if not isinstance(data, Iterable) and not callable(data):
        raise TypeError(f"data must be an iterable of batches, or a function of the epoch's number, got {data!r:.200}.")
    if hasattr(data, "element_spec") and "tensorflow" in sys.modules:
        from fastsup.steps.bind import bind_batches

        bound: Any = bind_batches(step, data)
    elif isinstance(data, Iterator):
        bound = _BatchStep(step, data)
    else:
        bound = _BatchStep(step, Epochs(data, 1 if max_steps is None else None))
    batches = bound.batches
    if hasattr(batches, "state_dict") and not any(state is batches for state in states.values()):
        if "data" in states:
            raise ValueError(
                "states must not have the name 'data': the position in the data is saved under that name. Rename it."
            )
        states["data"] = batches
    return bound, states
