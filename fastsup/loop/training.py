"""`train`: a loop with the hooks that training usually needs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastsup.common.files import make_checkpoint_directory
from fastsup.core.checks import check_flag, check_interval, check_step_function, suggest_keywords
from fastsup.loop.batches import Epochs, bind_batches, has_batches
from fastsup.loop.checkpoints import Checkpoints
from fastsup.loop.evaluation import EarlyStoppingHook, EvaluateHook, function_of_loop
from fastsup.loop.metrics import SummaryHook, numbers_in
from fastsup.loop.nan_guard import NanGuardHook
from fastsup.loop.progress import ProgressHook
from fastsup.loop.session_hooks import checked_hooks
from fastsup.loop.step_loop import StepLoop
from fastsup.loop.writers import JsonLinesWriter, TensorBoardWriter

__all__ = ["train"]

_logger = logging.getLogger("fastsup")

# Interval of the summaries and of the NaN check.
_REPORT_STEPS = 100
_EVALUATE_STEPS = 1000
_DATA_REMEDY = (
    "Pass the batches as data, the second argument of train. Or pass fastsup.bind(step, ...) with the arguments of all "
    "steps."
)


@suggest_keywords
def train(
    step: Callable[..., Any],
    data: Iterable[Any] | Callable[[int], Iterable[Any]] | None = None,
    *,
    max_steps: int | None = None,
    epochs: int | None = None,
    states: Mapping[str, Any] | None = None,
    directory: str | os.PathLike[str] | None = None,
    save_secs: float = 60.0,
    evaluate: Callable[..., Any] | None = None,
    evaluate_steps: int | None = None,
    metric: str | None = None,
    mode: str | None = None,
    keep_best: int = 1,
    patience: int | None = None,
    hooks: Iterable[Any] = (),
    progress: bool = True,
) -> StepLoop:
    """Trains with the hooks that training usually needs.

        loop = train(step, batches, max_steps=10_000, states={"model": model, "optimizer": optimizer},
                     directory="model", evaluate=evaluate, metric="accuracy", mode="max", patience=5)

    - It resumes from the newest intact checkpoint in `directory`, and saves one every minute, at the end, and when
      SIGTERM or SIGINT ends the program. With a `metric`, the best one is also kept.
    - With `patience`, it ends when the evaluations no longer improve. At the end, it restores the best checkpoint in
      `directory`.
    - It writes the step's numbers every 100 steps, and the evaluations' numbers, to `directory/metrics.jsonl`, and for
      TensorBoard if that is installed. A bar or lines show the progress.
    - NaN in a number that the step returns is an error. The check runs every 100 steps and before each checkpoint.

    For other hooks or another order, create a `StepLoop`.

    Args:
      step: the step function, which takes the next batch of `data`, or no argument without `data`. A tuple or list
        batch is passed as several arguments.
      data: the batches: a `fastsup.ArrayBatches`, a `tf.data.Dataset`, an iterable, or a function that takes the
        epoch's number and returns an iterable. An iterable that can be iterated several times, such as a list or a
        PyTorch DataLoader, is repeated for all `epochs`, or until `max_steps`. The position of data with `state_dict`
        and `load_state_dict`, or of data that `Epochs` accepts, is saved with the states.
      max_steps: the global step at which the loop ends; None for the end of the data.
      epochs: number of passes through the data. None means one pass, or no limit with `max_steps`.
      states: dictionary from names to the states that `Checkpoints` saves and restores.
      directory: folder for checkpoints and metrics; None to save nothing.
      save_secs: seconds between checkpoints. If the process is killed, it loses the steps since the last one.
      evaluate: function without arguments, or with the loop as its argument, that returns a number or a mapping from
        names to numbers.
      evaluate_steps: number of steps between evaluations; None for one per epoch if the data has a length, and
        otherwise one per 1,000 steps.
      metric: name of the evaluation's number that selects the best checkpoints.
      mode: "max" if a larger number is better, "min" if a smaller one is.
      keep_best: number of the best checkpoints to keep.
      patience: number of consecutive evaluations without an improvement after which the loop ends; None for no limit.
      hooks: more hooks. They are called after the evaluation, and before a checkpoint is saved. To write the numbers
        elsewhere or more often, pass a hook that does so: `hooks=[SummaryHook(CsvWriter("metrics.csv"), 10)]`.
      progress: whether to show the progress.

    Returns:
      The finished `StepLoop`, with `result`, `global_step`, `restored_step` and `evaluation`. With `patience`, the
      states come from the best checkpoint, but these attributes from the last step.

    Raises:
      TypeError: If an argument is of the wrong type.
      ValueError: If an argument has an invalid value, or requires another argument that is missing.
      Exception: An error of the step function, of a hook, or of a restore.
    """
    check_flag(progress=progress)
    for name, value, kind, what in (
        ("states", states, Mapping, 'a dictionary of states by name. Pass {"state": ...}'),
        ("hooks", hooks, Iterable, "a list of hooks. Pass [hook] for one"),
    ):
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} must be {what}; got {value!r:.200}.")
    hooks = checked_hooks(hooks or ())
    _check_needs(states=(states, directory, "directory"), directory=(directory, states, "states"))
    _check_needs(evaluate_steps=(evaluate_steps, evaluate, "evaluate"), metric=(metric, evaluate, "evaluate"))
    _check_needs(metric=(metric, mode, "mode"), mode=(mode, metric, "metric"), patience=(patience, metric, "metric"))
    if metric is not None and directory is None and patience is None:
        raise ValueError(
            f"metric={metric!r} needs directory, to keep the best checkpoint, or patience. Pass one of them."
        )
    check_interval("save_secs", save_secs, optional=False)
    if evaluate_steps is not None:
        check_interval("evaluate_steps", evaluate_steps)
    if evaluate is not None:
        function_of_loop("evaluate", evaluate)
    bound, states = _with_data(step, data, max_steps, epochs, dict(states or {}))
    values = _NumbersOfSteps()
    guard = NanGuardHook(every_steps=_REPORT_STEPS, values=values)
    ready: list[Any] = [guard]
    saver = None
    writers: list[Any] = []
    if directory is not None:
        saver = _GuardedCheckpoints(
            guard, directory, states, every_secs=save_secs, metric=metric, mode=mode, keep_best=keep_best
        )
        folder = Path(make_checkpoint_directory(saver.directory))
        writers.append(JsonLinesWriter(folder / "metrics.jsonl"))
        if find_spec("tensorboard") is not None:
            writers.append(TensorBoardWriter(folder))
        ready.append(SummaryHook(writers, _REPORT_STEPS, values=values))
    if evaluate is not None:
        length = getattr(getattr(bound, "batches", None), "batches_per_epoch", None)
        if evaluate_steps is None and length is not None:
            ready.append(EvaluateHook(evaluate, every_epochs=1))
        else:
            ready.append(EvaluateHook(evaluate, _EVALUATE_STEPS if evaluate_steps is None else evaluate_steps))
    # A step's checkpoint includes the changes of the program's hooks, for example to the learning rate.
    ready += hooks
    ready += [] if saver is None else [saver]
    ready += [ProgressHook(values=values)] if progress else []
    early_stopping = None
    if patience is not None and metric is not None and mode is not None:
        early_stopping = EarlyStoppingHook(metric, mode, patience, restore_best=saver)
        ready.append(early_stopping)
    try:
        loop = StepLoop(bound, ready, max_steps, resume_from=saver)
        loop.run()
    finally:
        for writer in writers:
            writer.close()
    _warn_about_end(loop, max_steps, epochs, early_stopping)
    return loop


def _warn_about_end(loop: StepLoop, max_steps: int | None, epochs: int | None, early_stopping: Any) -> None:
    """Warns if training ended before `max_steps`, or had already finished in an earlier run."""
    if loop.restored_step is not None and not loop.steps:
        end, remedy = "at the end of the data", "pass more epochs"
        if early_stopping is not None and early_stopping.stopped:
            end, remedy = "where early stopping ended training", "pass a larger patience"
        elif max_steps is not None and loop.restored_step >= max_steps:
            end, remedy = f"not before max_steps={max_steps}", "pass a larger max_steps"
        _logger.warning(
            "No step was run: the checkpoint of global step %d is %s. To continue training, %s.",
            loop.restored_step,
            end,
            remedy,
        )
    elif max_steps is not None and not loop.should_stop():
        remedy = "pass a list or a function of the epoch's number as data" if epochs is None else "pass more epochs"
        _logger.warning(
            "The data ended at global step %d, before max_steps=%d. To repeat it, %s.",
            loop.global_step,
            max_steps,
            remedy,
        )


class _NumbersOfSteps:
    """The numbers in the steps' results. Warns once about a result without numbers."""

    def __init__(self) -> None:
        self._warned = False

    def __call__(self, result: Any) -> dict[str, float]:
        found = numbers_in(result)
        if not found and not self._warned:
            self._warned = True
            _logger.warning(
                "The step returned %.200r, which contains no number, so there is nothing to show, write or check for "
                "NaN. Return a loss, or a mapping of names to numbers.",
                result,
            )
        return found


class _GuardedCheckpoints(Checkpoints):
    """Checkpoints that save no state after a step whose result contains NaN.

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
    """Rejects an argument that was passed without the argument that it requires."""
    for name, (value, other, other_name) in arguments.items():
        if value is not None and other is None:
            raise ValueError(f"{name}={value!r:.200} needs {other_name}. Pass both, or neither.")


def _with_data(
    step: Any, data: Any, max_steps: int | None, epochs: int | None, states: dict[str, Any]
) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Returns the step with its batches, and the states with the position in the data if it can be saved."""
    if data is None:
        if callable(step):
            check_step_function(step, _DATA_REMEDY)
        if epochs is not None:
            raise ValueError(f"epochs={epochs!r} needs data. Pass the batches as data, or max_steps.")
        return step, states
    if not has_batches(data) and (isinstance(data, Iterable) or not callable(data)):
        raise TypeError(f"data must be an iterable of batches, or a function of the epoch's number, got {data!r:.200}.")
    rows = [tuple(getattr(part, "shape", ()))[:1] for part in data] if type(data) is tuple else []
    if (rows and all(rows) and len(set(rows)) == 1) or hasattr(data, "shape"):
        kind, part = (f"a tuple of {len(rows)} arrays", "array") if rows else ("an array", "row")
        _logger.warning(
            "data is %s, and each %s is treated as a batch. For batches of rows pass fastsup.ArrayBatches(data, 32).",
            kind,
            part,
        )
    if not (isinstance(data, Iterator) or hasattr(data, "element_spec")):
        data = Epochs(data, 1 if max_steps is None and epochs is None else epochs)
    elif epochs is not None:
        raise ValueError(
            f"epochs={epochs!r} is for data that can be iterated several times, got {data!r:.200}. Pass epochs to "
            "Epochs or ArrayBatches, or repeat a dataset."
        )
    bound: Any = bind_batches(step, data)
    batches = bound.batches
    if hasattr(batches, "state_dict") and not any(state is batches for state in states.values()):
        if "data" in states:
            raise ValueError(
                "states must not have the name 'data': the position in the data is saved under that name. Rename it."
            )
        states["data"] = batches
    return bound, states
