"""A loop hook that saves checkpoints of any state without TensorFlow, and keeps the newest and the best."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from fastsup.common import stop_signals
from fastsup.common.errors import NoIntactCheckpointError
from fastsup.core.checks import check_choice, check_flag, check_no_pattern, check_number, did_you_mean, path_argument
from fastsup.loop.checkpoint_folder import CheckpointFolder, DamagedError, SavedCheckpoint, described
from fastsup.loop.periodic import PeriodicHook
from fastsup.loop.saved_state import SavedState, misfits_of, state_of

__all__ = ["Checkpoints", "MetricRule", "evaluating_hooks"]

_logger = logging.getLogger("fastsup")

# Names of the hooks' states in a checkpoint.
_HOOK = "hook."


class MetricRule:
    """Whether larger or smaller numbers of an evaluation are better.

    Args:
      metric: name of the number.
      mode: "min" or "max".
      min_delta: minimum improvement.

    Raises:
      TypeError: If `metric` isn't a string, or `min_delta` isn't a number.
      ValueError: If `mode` is neither "min" nor "max", or `min_delta` is negative.
    """

    def __init__(self, metric: str, mode: str | None, min_delta: float) -> None:
        if not isinstance(metric, str):
            raise TypeError(f"metric must be the name of one of the evaluation's numbers, got {metric!r}.")
        check_choice("mode", mode, ("min", "max"))
        check_number("min_delta", min_delta)
        if not min_delta >= 0:
            raise ValueError(
                f"min_delta must not be negative, got {min_delta!r}. mode determines which numbers are better."
            )
        self.metric = metric
        self._sign = 1.0 if mode == "max" else -1.0
        self._min_delta = min_delta
        self._is_found = False
        self._is_alone = True

    def begin(self, loop: Any, owner: str) -> None:
        """Raises ValueError if a loop has no evaluation hook."""
        self._is_found = False
        evaluating = evaluating_hooks(loop)
        if not evaluating:
            raise ValueError(
                f"{owner} has metric={self.metric!r}, but the loop has no EvaluateHook. Add one to its hooks."
            )
        self._is_alone = len(evaluating) == 1

    def value_in(self, metrics: Mapping[str, float]) -> float | None:
        """Returns the number in an evaluation's results; None if the number belongs to another hook.

        Raises:
          ValueError: If no evaluation returns the number.
        """
        if self.metric in metrics:
            self._is_found = True
            return metrics[self.metric]
        if self._is_alone and not self._is_found:
            raise ValueError(f"metric must be one of {sorted(metrics)}, the evaluation's numbers, got {self.metric!r}.")
        return None

    def is_better(self, value: float, than: float | None) -> bool:
        """Returns True if one number is better than another. NaN never is; any other number is better than None."""
        if math.isnan(value):
            return False
        return than is None or self._sign * (value - than) > self._min_delta

    def ranked(self, saved: list[SavedCheckpoint]) -> list[SavedCheckpoint]:
        """Returns the checkpoints with the number, best first. Of equal checkpoints, the older comes first."""
        found = [checkpoint for checkpoint in saved if not math.isnan(checkpoint.metrics.get(self.metric, math.nan))]
        return sorted(found, key=lambda checkpoint: (-self._sign * checkpoint.metrics[self.metric], checkpoint.number))


def evaluating_hooks(loop: Any) -> list[Any]:
    """Returns the loop's hooks that evaluate and pass their results to other hooks."""
    return [hook for hook in loop.hooks if getattr(hook, "evaluates", False)]


class Checkpoints(PeriodicHook):
    """Saves any state at intervals and at the end of the loop, and restores it. Needs no TensorFlow.

        state = {"weights": weights, "step_size": 0.1}
        saver = Checkpoints("model", {"state": state, "random": generator}, every_secs=60)
        StepLoop(step, [saver], max_steps=1000, resume_from=saver).run()

    List hooks that change a state, such as a learning-rate schedule, before this hook.

    A state is one of these:

    - a dict, list, `types.SimpleNamespace` or dataclass of NumPy, JAX or PyTorch arrays, numbers, strings and more such
      containers; or a NumPy array or a PyTorch tensor. A restore sets their parts in place.
    - an object with `state_dict` and `load_state_dict`: a PyTorch module, optimizer or scheduler, a data loader, a
      `fastsup.ArrayBatches`.
    - a random generator: `numpy.random.Generator`, `random.Random`, or the module `random`.
    - a pair of functions: the first returns the state, the second sets it.
    - a `tf.train.Checkpoint`.

    Each checkpoint is a folder with a file of checksums. The folder gets its name when it is completely on disk. Older
    checkpoints are deleted after that. Nothing is pickled, so a checkpoint from an untrusted source can't run code.

    The state of other hooks that have `state_dict` and `load_state_dict`, such as `EarlyStoppingHook`, is also saved
    and restored.

    Args:
      directory: a local directory for the checkpoints. It is created if it doesn't exist.
      states: dictionary from names to states. A name consists of letters, digits, "_", "-" and ".".
      every_steps: a checkpoint is saved at the global steps that are multiples of this number, or None.
      every_secs: seconds between checkpoints, or None. Of several intervals, the one that passes first counts.
        Without an interval, a checkpoint is saved every 600 seconds.
      every_epochs: a checkpoint is saved at the end of each epoch whose number is a multiple of this number, or None.
        See `PeriodicHook` for the supported batches.
      keep: number of the newest checkpoints to keep. If None, keeps all.
      metric: name of the evaluation's number (`EvaluateHook`) that selects the best checkpoints, which are also kept;
        or None. Whenever an evaluation is among the best, a checkpoint is saved immediately, with the numbers.
      mode: "max" if a larger number is better, "min" if a smaller one is.
      min_delta: minimum improvement over the worst of the best checkpoints.
      keep_best: number of the best checkpoints to keep, with a `metric`.
      save_at_end: whether to save after the last step, if no checkpoint of that step exists.

    Attributes:
      last_saved_step: global step of the last checkpoint of this run, or None.
      metric, mode: the arguments.

    Raises:
      TypeError: If an argument is of the wrong type, or a state is one that can't be saved.
      ValueError: If a number or an interval isn't positive, `states` is empty, a name has another character, or
        `directory` isn't local.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        states: Mapping[str, Any],
        every_steps: int | None = None,
        every_secs: float | None = None,
        *,
        every_epochs: int | None = None,
        keep: int | None = 5,
        metric: str | None = None,
        mode: str | None = None,
        min_delta: float = 0.0,
        keep_best: int = 1,
        save_at_end: bool = True,
    ) -> None:
        if every_steps is None and every_secs is None and every_epochs is None:
            every_secs = 600.0
        super().__init__(every_steps, every_secs, every_epochs)
        check_flag(save_at_end=save_at_end)
        self.directory: str = _directory(directory)
        self._states = _states(states)
        self._given = list(states.values())
        if any(state.is_tensorflows for state in self._states):
            check_no_pattern("directory", self.directory)
        self._keep = math.inf if keep is None else _count("keep", keep)
        self._keep_best = _count("keep_best", keep_best)
        for name, value, default in (("mode", mode, None), ("keep_best", keep_best, 1), ("min_delta", min_delta, 0)):
            if metric is None and value != default:
                raise ValueError(
                    f"{name}={value!r} requires a metric. Pass metric=..., the name of one of the evaluation's numbers."
                )
        self.metric, self.mode = metric, mode
        self._rule = None if metric is None else MetricRule(metric, mode, min_delta)
        self._save_at_end = save_at_end
        self._folder = CheckpointFolder(self.directory)
        # The checkpoints that this process wrote or resumed from, oldest first. The process may delete only these.
        self._own: list[SavedCheckpoint] = []
        self._hook_states: list[SavedState] = []
        # The global step of the last evaluation, its numbers, and whether to save them because they are among the best.
        # The save waits for this hook's turn, because earlier hooks may change the saved state.
        self._evaluation: tuple[int, dict[str, float]] = -1, {}
        self._is_among_best = False
        self._comes_after_evaluations = False
        self._has_begun = False
        self.last_saved_step: int | None = None

    def __repr__(self) -> str:
        names = ", ".join(state.name for state in self._states)
        return f"<fastsup.loop.Checkpoints of {names} in {self.directory}>"

    def saved(self) -> list[SavedCheckpoint]:
        """Returns the readable checkpoints in the directory, newest first."""
        found = [self._folder.describe(path) for _, path in self._folder.paths()]
        return [saved for saved in found if saved is not None]

    def restore(self, which: str | os.PathLike[str] = "newest") -> SavedCheckpoint | None:
        """Restores the states from an intact checkpoint.

        Args:
          which: "newest", "best" (by `metric`), or the path of a checkpoint.

        Returns:
          The checkpoint; None if the directory has none, or none with the metric.

        Raises:
          NoIntactCheckpointError: If there are checkpoints, but none is intact.
          ValueError: If the checkpoint doesn't fit the states, `which` is "best" without a `metric`, or the path
            doesn't exist.
          TypeError: If `which` isn't a path.
          OSError: If a checkpoint can't currently be read, or not by this user. An older checkpoint isn't tried.
        """
        if which == "best":
            if self._rule is None:
                raise ValueError('which="best" requires Checkpoints with a metric. Pass metric=... and mode=... to it.')
            rule = self._rule
            return self._restore_first(lambda: [saved.path for saved in rule.ranked(self.saved()[::-1])], [])
        if which == "newest":
            return self._restore_first(self._paths, [])
        if not isinstance(which, str | os.PathLike):
            raise TypeError(f'which must be "newest", "best" or the path of a checkpoint, got {which!r}.')
        path = os.path.normpath(os.fspath(which))
        if not os.path.lexists(path):
            hint = " Did you mean 'newest'?" if which == "latest" else did_you_mean(str(which), ("newest", "best"))
            raise ValueError(
                f'which must be "newest", "best" or the path of a checkpoint that exists, got {which!r}.'
                f"{hint or ' saved() lists the checkpoints.'}"
            )
        return self._restore_first(lambda: [path], [])

    def restore_for(self, loop: Any) -> int | None:
        """Restores the newest intact checkpoint, with the state of the loop's hooks.

        Args:
          loop: the `StepLoop`.

        Returns:
          The global step; None without a checkpoint.

        Raises:
          Exception: As for `restore`.
        """
        self._hook_states = self._states_of_hooks(loop)
        saved = self._restore_first(self._paths, self._hook_states)
        if saved is None:
            return None
        _logger.info("Restored %s: resuming after global step %d.", saved.path, saved.global_step)
        return saved.global_step

    def begin(self, loop: Any) -> None:
        for hook in loop.hooks:
            if hook is not self and isinstance(hook, Checkpoints) and _is_same(hook.directory, self.directory):
                raise ValueError(
                    f"directory must be different for each Checkpoints of a loop, got {self.directory!r} for "
                    f"{self!r} and {hook!r}. Or pass all states to one Checkpoints."
                )
        self._folder.open()
        if self._rule is not None:
            self._rule.begin(loop, "Checkpoints")
        before = list(loop.hooks)[: list(loop.hooks).index(self)]
        self._comes_after_evaluations = all(hook in before for hook in evaluating_hooks(loop))
        self._is_among_best = False
        self._hook_states = self._states_of_hooks(loop)
        for state in (*self._states, *self._hook_states):
            state.check_savable()
        others = self._folder.paths()
        if others and not self._own and not self._has_begun:
            _logger.warning(
                "%s has checkpoints, the newest of which is %s, but none was restored, and this run deletes none of "
                "them. To resume from it, pass this hook as resume_from; to train from the beginning, use another "
                "directory.",
                self.directory,
                others[0][1],
            )
        if not others and os.path.exists(os.path.join(self.directory, "checkpoint")):
            _logger.warning(
                "%s has a state file of TensorFlow's checkpoints, which Checkpoints doesn't restore. To resume from "
                "them, use fastsup.loop.CheckpointHook; to train from the beginning, use another directory.",
                self.directory,
            )
        if not self._has_begun:
            self._warn_of_unsaved_batches(loop)
        self._has_begun = True
        self._evaluation = -1, {}
        self.last_saved_step = getattr(loop, "restored_step", None)
        super().begin(loop)

    def _warn_of_unsaved_batches(self, loop: Any) -> None:
        """Warns about batches whose position no state contains. A TensorFlow object may contain the position."""
        batches = getattr(loop, "batches", None)
        is_saved = any(state is batches for state in self._given) or any(state.is_tensorflows for state in self._states)
        if hasattr(batches, "state_dict") and hasattr(batches, "load_state_dict") and not is_saved:
            _logger.warning(
                "The position in %r isn't saved: a resumed loop starts with its first batch. Add the batches to the "
                "states of %r.",
                batches,
                self,
            )

    def after_step(self, loop: Any, value: Any) -> None:
        self.never_due()  # An evaluation may have made this hook due.
        super().after_step(loop, value)

    def act(self, loop: Any) -> None:
        if self._is_among_best or loop.global_step != self.last_saved_step:
            step, metrics = self._evaluation
            self._is_among_best = False
            self._save(loop, metrics if step == loop.global_step else {})

    def on_evaluation(self, loop: Any, metrics: Mapping[str, float]) -> None:
        """Makes a checkpoint due if an evaluation's results are among the best.

        Args:
          loop: the `StepLoop`.
          metrics: the numbers, by name.
        """
        self._evaluation = loop.global_step, dict(metrics)
        value = None if self._rule is None else self._rule.value_in(metrics)
        if self._rule is None or value is None:
            return
        best = self._rule.ranked(self._own)[: self._keep_best]
        if any(saved.global_step == loop.global_step == self.last_saved_step for saved in best):
            return  # The loop resumed from this checkpoint, and evaluates the same state again.
        if self._rule.is_better(value, best[-1].metrics[self._rule.metric] if len(best) == self._keep_best else None):
            self._is_among_best = True
            if self._comes_after_evaluations:
                self.due_at_step(loop.global_step)
            else:
                self.act(loop)

    def end(self, loop: Any) -> None:
        self.save_last(loop)
        if self._own:
            stop_signals.log_last_save(self._own[-1].path)

    def save_last(self, loop: Any) -> None:
        """Saves the state at the end of a loop, unless it is already saved.

        Args:
          loop: the `StepLoop`.
        """
        if self._save_at_end or self._is_among_best:
            self.act(loop)

    def _paths(self) -> list[str]:
        """Returns the folders of the checkpoints, newest first."""
        return [path for _, path in self._folder.paths()]

    def _states_of_hooks(self, loop: Any) -> list[SavedState]:
        """Returns the states of the other hooks of a loop, by the names of their classes."""
        found: dict[str, SavedState] = {}
        for hook in loop.hooks:
            if hook is self or not (hasattr(hook, "state_dict") and hasattr(hook, "load_state_dict")):
                continue
            kind = f"{_HOOK}{type(hook).__name__}"
            number = sum(name.partition("-")[0] == kind for name in found)
            name = f"{kind}-{number + 1}" if number else kind
            found[name] = state_of(name, hook)
        return [*found.values()]

    def _save(self, loop: Any, metrics: dict[str, float]) -> None:
        step = loop.global_step
        with self._folder.writing() as new:
            saved_states = {state.name: state.save(new) for state in (*self._states, *self._hook_states)}
            new.content.update(global_step=step, metrics=metrics, states=saved_states)
        self.last_saved_step = step
        saved = described(new.path, new.content)
        # An earlier checkpoint of this step has the same state, or the state after a failed restore.
        old = [other for other in self._own if other.global_step == step]
        self._own = [*(other for other in self._own if other.global_step != step), saved]
        kept = self._own[-min(int(self._keep), len(self._own)) :] if self._keep < math.inf else self._own
        if self._rule is not None:
            kept = [*kept, *self._rule.ranked(self._own)[: self._keep_best]]
        old += [other for other in self._own if other not in kept]
        self._own = [other for other in self._own if other in kept]
        for other in old:
            self._folder.delete(other.path)

    def _restore_first(self, list_paths: Callable[[], list[str]], hooks: list[SavedState]) -> SavedCheckpoint | None:
        """Restores the first intact checkpoint of a list. Damaged checkpoints are left unchanged."""
        failures: dict[str, str] = {}
        paths = list_paths()
        while paths:
            path = paths[0]
            try:
                content = self._folder.read(path)
                values = self._read_states(path, content["states"], hooks)
            except DamagedError as error:
                failures[path] = str(error)
                if os.path.lexists(path):
                    _logger.warning("The checkpoint %s can't be restored and is left unchanged: %s.", path, error)
                # A program that is still training may have deleted the checkpoint after saving a newer one.
                paths = [other for other in list_paths() if other not in failures]
                continue
            self._set(path, values)
            saved = described(path, content)
            self.last_saved_step = saved.global_step
            self._own = [other for other in self.saved()[::-1] if other.path not in failures]
            return saved
        if not failures:
            return None
        lines = "".join(f"\n  {path}: {cause}" for path, cause in failures.items())
        none_intact = NoIntactCheckpointError(
            f"No checkpoint of {self.directory} can be restored; each was tried:{lines}\nThey are unchanged. "
            "Copy an intact checkpoint there, or start training in an empty directory."
        )
        none_intact.failures = list(failures.items())
        raise none_intact

    def _read_states(self, path: str, there: dict[str, Any], hooks: list[SavedState]) -> list[tuple[SavedState, Any]]:
        """Returns the values of the states in a checkpoint. Sets nothing."""
        missing = [state.name for state in self._states if state.name not in there]
        if missing:
            names = sorted(name for name in there if not name.startswith(_HOOK))
            raise ValueError(
                f"{path} has no state {', '.join(missing)}: it has {', '.join(names)}. Give the states the names that "
                "they were saved with, or use another directory."
            )
        known = {state.name for state in self._states}
        left = sorted(name for name in there if name not in known and not name.startswith(_HOOK))
        if left:
            _logger.warning(
                "%s also has the state %s, which the program doesn't save: later checkpoints lack it. Add it to the "
                "states to keep it.",
                path,
                ", ".join(left),
            )
        present = [*self._states, *(state for state in hooks if state.name in there)]
        try:
            return [(state, state.read(path, there[state.name])) for state in present]
        except FileNotFoundError as error:
            raise DamagedError(f"{os.path.basename(str(error.filename or ''))}: {error.strerror}") from error

    def _set(self, path: str, values: list[tuple[SavedState, Any]]) -> None:
        """Sets the states to values that were read, if all of them fit."""
        misfits = misfits_of(values, strict=not self._own)
        if misfits:
            raise ValueError(
                f"{path} doesn't match the program: {'; '.join(misfits)}. Does it belong to another program? Use "
                "another directory, or pass a pair of functions that convert the saved state."
            )
        # Set first the states that may still refuse their value.
        for state, value in sorted(values, key=lambda pair: pair[0].is_checked):
            state.set(value)


def _directory(directory: Any) -> str:
    path = path_argument("directory", directory, "directory")
    if not isinstance(path, str):
        raise TypeError(f"directory must be a string or a pathlib.Path, got {directory!r}.")
    if not path or "://" in path:
        raise ValueError(
            f"directory must be a local directory, got {path!r}. For other directories, pass a tf.train.Checkpoint "
            "and the directory to CheckpointHook."
        )
    return path


def _is_same(directory: str, other: str) -> bool:
    return os.path.realpath(directory) == os.path.realpath(other)


def _states(states: Any) -> list[SavedState]:
    if not isinstance(states, Mapping):
        raise TypeError(f'states must be a dictionary of states by name, got {states!r:.200}. Pass {{"state": ...}}.')
    if not states:
        raise ValueError("states must have at least one state: a checkpoint without states restores nothing.")
    for name in states:
        if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*", name) or name.startswith(_HOOK):
            raise ValueError(
                f"states must have names of letters, digits, '_', '-' and '.', which don't begin with {_HOOK!r}; got "
                f"{name!r}."
            )
    return [state_of(name, state) for name, state in states.items()]


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if value < 1:
        raise ValueError(f"{name} must be positive, got {value!r}.")
    return int(value)
