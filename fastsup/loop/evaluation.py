"""Hooks that evaluate in a loop, and that end the loop when the results no longer improve."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from fastsup.common import stop_signals
from fastsup.core import Hook
from fastsup.core.checks import check_flag, check_number
from fastsup.core.clock import steady
from fastsup.loop.checkpoints import Checkpoints, MetricRule, evaluating_hooks
from fastsup.loop.metrics import named_numbers
from fastsup.loop.periodic import PeriodicHook

__all__ = ["EarlyStoppingHook", "EvaluateHook", "function_of_loop"]

_logger = logging.getLogger("fastsup")


class EvaluateHook(PeriodicHook):
    """Calls a function that evaluates the model, at intervals and at the end of the loop.

    The results are in `loop.evaluation`. In a loop, but not in a session, other hooks receive the results in their
    `on_evaluation(loop, metrics)`: `SummaryHook`, `ProgressHook`, `Checkpoints`, `EarlyStoppingHook`, and your hooks.

    Args:
      function: function without arguments, or with the loop as its argument. Returns a number, which is named "loss",
        or a mapping from names to numbers.
      every_steps: it is called at the global steps that are multiples of this number, or None.
      every_secs: seconds between evaluations, or None. Of several intervals, the one that passes first counts.
      at_end: whether to also call it when the loop ends without an error, unless it was called after the last step. It
        isn't called if a signal ends the loop.
      max_share: the largest share of the loop's time that evaluations may take, such as 0.1. An evaluation that would
        exceed it is skipped, except the first and the last evaluation. If None, there is no limit.
      every_epochs: it is called at the end of each epoch whose number is a multiple of this number, or None.
        See `PeriodicHook` for the supported batches.
      name: prefix of the numbers' names, as in "test/accuracy"; or None. Required if several hooks of one loop return
        the same names.

    Attributes:
      metrics: the numbers of the last evaluation, by name; empty before the first one.
      secs: duration of this run's evaluations, in seconds.
      skipped: number of this run's evaluations that were skipped because of `max_share`.

    Raises:
      TypeError: If `function` can't be called with at most one argument, an interval or `max_share` isn't a number,
        `at_end` isn't a bool, or `name` isn't a string.
      ValueError: If an interval isn't positive, there is neither an interval nor `at_end`, or `max_share` doesn't lie
        between 0 and 1.
    """

    # True for a hook that calls the other hooks' `on_evaluation`.
    evaluates = True

    def __init__(
        self,
        function: Callable[..., Any],
        every_steps: int | None = None,
        every_secs: float | None = None,
        at_end: bool = True,
        max_share: float | None = None,
        *,
        every_epochs: int | None = None,
        name: str | None = None,
    ) -> None:
        check_flag(at_end=at_end)
        if name is not None and (not isinstance(name, str) or not name):
            raise TypeError(f"name must be a string such as 'test', or None; got {name!r}.")
        if every_steps is None and every_secs is None and every_epochs is None and not at_end:
            raise ValueError("at_end=False needs an interval: pass every_steps, every_secs or every_epochs.")
        if every_steps is None and every_secs is None and every_epochs is None and at_end:
            every_secs = math.inf
        super().__init__(every_steps, every_secs, every_epochs)
        if max_share is not None:
            check_number("max_share", max_share)
            if not 0 < max_share < 1:
                raise ValueError(f"max_share must be between 0 and 1, got {max_share!r}. Pass 0.1 for a tenth.")
        self._function = function_of_loop("function", function)
        self._given = function
        #: The name of the hook in a profile.
        self.profile_name: str = f"evaluate by {getattr(function, '__name__', type(function).__name__)}"
        self._at_end = at_end
        self._max_share = max_share
        self._prefix = "" if name is None else f"{name}/"
        self._listeners: list[Any] = []
        self.metrics: dict[str, float] = {}
        self.secs = 0.0
        self.skipped = 0

    def __repr__(self) -> str:
        return f"<fastsup.loop.EvaluateHook of {self._given!r}>"

    def begin(self, loop: Any) -> None:
        heard = [hook for hook in loop.hooks if callable(getattr(hook, "on_evaluation", None))]
        # Checkpoint hooks come last, because they save the changes that the evaluation makes in the other hooks.
        self._listeners = sorted(heard, key=lambda hook: isinstance(hook, Checkpoints))
        self.secs, self.skipped = 0.0, 0
        self._others = [hook for hook in evaluating_hooks(loop) if isinstance(hook, EvaluateHook) and hook is not self]
        self._has_warned = self._has_warned_of_names = False
        self._last_secs: float | None = None
        self._begun = steady()
        self._steps_at_evaluation = -1
        super().begin(loop)

    def act(self, loop: Any) -> None:
        if self._max_share is not None and self._last_secs is not None:
            allowed = self._max_share * (steady() - self._begun)
            if self.secs + self._last_secs > allowed:
                self.skipped += 1
                return
        self._evaluate(loop)

    def end(self, loop: Any) -> None:
        if self._at_end and self._steps_at_evaluation != loop.steps and not stop_signals.received():
            self._evaluate(loop)

    def _evaluate(self, loop: Any) -> None:
        begun = steady()
        result = self._function(loop)
        self._last_secs = steady() - begun
        self.secs += self._last_secs
        self._steps_at_evaluation = loop.steps
        try:
            self.metrics = {f"{self._prefix}{name}": number for name, number in named_numbers(result).items()}
        except TypeError as error:
            raise TypeError(
                f"function must return a number or a mapping of names to numbers, got {result!r:.200} from "
                f"{self._given!r}."
            ) from error
        bad = [name for name, number in self.metrics.items() if math.isnan(number)]
        if bad and not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "NaN in the evaluation at global step %d: %s. Such a result never counts as better.",
                loop.global_step,
                ", ".join(bad),
            )
        self._warn_of_shared_names()
        if hasattr(loop, "evaluation"):
            # The results of all evaluation hooks.
            loop.evaluation = {**loop.evaluation, **self.metrics}
        for hook in self._listeners:
            hook.on_evaluation(loop, self.metrics)

    def _warn_of_shared_names(self) -> None:
        for other in self._others:
            shared = sorted(self.metrics.keys() & other.metrics.keys())
            if shared and not self._has_warned_of_names and not other._has_warned_of_names:
                self._has_warned_of_names = True
                _logger.warning(
                    "%r and %r both evaluate %s, so other hooks can't tell these numbers apart. Pass "
                    "EvaluateHook(..., name=...) to one of them.",
                    other,
                    self,
                    ", ".join(shared),
                )


def function_of_loop(name: str, function: Any) -> Callable[[Any], Any]:
    """Wraps a function so that it takes the loop, even if the original takes no argument.

    Args:
      name: name of the argument, for the message.
      function: the value of the argument.

    Raises:
      TypeError: If the function can't be called without arguments or with one argument.
    """
    if not callable(function):
        raise TypeError(f"{name} must be an evaluation function, got {function!r}.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return lambda loop: function()
    try:
        signature.bind()
    except TypeError:
        try:
            signature.bind(None)
        except TypeError as error:
            raise TypeError(
                f"{name} must take no arguments, or the loop, got {function!r}: {error}. Pass functools.partial("
                "function, ...) with its arguments."
            ) from None
        return function  # type: ignore[no-any-return]
    return lambda loop: function()


class EarlyStoppingHook(Hook):
    """Stops the loop when the results of its evaluations no longer improve.

    The loop's `Checkpoints` hook also saves and restores the state of this hook.

    Args:
      metric: name of a number that the loop's `EvaluateHook` returns.
      mode: "max" if a larger number is better, "min" if a smaller one is.
      patience: number of consecutive evaluations without an improvement after which the loop ends.
      min_delta: minimum improvement over the best number.
      restore_best: a `Checkpoints` of the loop with the same `metric`. When the loop ends, even at its last step, the
        best checkpoint is restored. `loop.global_step`, `loop.result` and `loop.evaluation` keep the last step's
        values. The `Checkpoints` and the `EvaluateHook` must come before this hook in the list.

    Attributes:
      best: the best number; None before the first evaluation.
      best_step: the global step of the best number, or None.
      stopped: True if this hook stopped the loop.

    Raises:
      TypeError: If an argument is of the wrong type.
      ValueError: If `patience` isn't positive, `mode` is invalid, `min_delta` is negative, or `restore_best`
        has another metric.
    """

    def __init__(
        self,
        metric: str,
        mode: str,
        patience: int,
        *,
        min_delta: float = 0.0,
        restore_best: Checkpoints | None = None,
    ) -> None:
        self._rule = MetricRule(metric, mode, min_delta)
        if isinstance(patience, bool) or not hasattr(patience, "__index__"):
            raise TypeError(f"patience must be an integer, the number of evaluations, got {patience!r}.")
        if patience < 1:
            raise ValueError(f"patience must be positive, got {patience!r}.")
        if restore_best is not None:
            if not isinstance(restore_best, Checkpoints):
                raise TypeError(f"restore_best must be the Checkpoints of the loop, or None, got {restore_best!r}.")
            if (restore_best.metric, restore_best.mode) != (metric, mode):
                raise ValueError(
                    f"restore_best must have metric={metric!r} and mode={mode!r}, like this hook, got {restore_best!r} "
                    f"with metric={restore_best.metric!r} and mode={restore_best.mode!r}."
                )
        self._patience = patience
        self._restore_best = restore_best
        self.best: float | None = None
        self.best_step: int | None = None
        self.stopped = False
        self._without_progress = 0
        self._last_step: int | None = None

    def state_dict(self) -> dict[str, Any]:
        """Returns the state, to save in a checkpoint."""
        return {
            "best": self.best,
            "best_step": self.best_step,
            "without_progress": self._without_progress,
            "last_step": self._last_step,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resumes from a saved state.

        Args:
          state: the result of `state_dict`.
        """
        self.best, self.best_step = state["best"], state["best_step"]
        self._without_progress, self._last_step = state["without_progress"], state["last_step"]

    def begin(self, loop: Any) -> None:
        self.never_due()
        self.stopped = False
        self._rule.begin(loop, "EarlyStoppingHook")
        if self._restore_best is not None:
            hooks = list(loop.hooks)
            before = [*evaluating_hooks(loop), self._restore_best]
            late = [hook for hook in before if hook not in hooks[: hooks.index(self)]]
            if late:
                raise ValueError(
                    f"hooks must have {late[0]!r} before EarlyStoppingHook, which restores the best checkpoint at its "
                    "end."
                )
        if self._without_progress >= self._patience:
            _logger.info("Skipping training: EarlyStoppingHook already stopped it.")
            self._stop(loop)

    def on_evaluation(self, loop: Any, metrics: Mapping[str, float]) -> None:
        """Compares an evaluation's results with the best.

        Args:
          loop: the `StepLoop`.
          metrics: the numbers, by name.
        """
        value = self._rule.value_in(metrics)
        # A resumed loop may evaluate the same state again.
        if value is None or self._last_step == loop.global_step:
            return
        self._last_step = loop.global_step
        if self._rule.is_better(value, self.best):
            self.best, self.best_step, self._without_progress = value, loop.global_step, 0
            return
        self._without_progress += 1
        if self._without_progress == self._patience:
            metric = self._rule.metric
            cause = f"{metric} was best at global step {self.best_step}, with {self.best}"
            if self.best is None:
                cause = f"{metric} was NaN in each evaluation"
            _logger.info("Stopping at global step %d: %s.", loop.global_step, cause)
            self._stop(loop)

    def end(self, loop: Any) -> None:
        if self._restore_best is None or stop_signals.received():
            return
        saved = self._restore_best.restore("best")
        if saved is not None:
            metric = self._rule.metric
            _logger.info(
                "Restored the best checkpoint, %s: global step %d, %s %g. The loop's last step was %d.",
                saved.path,
                saved.global_step,
                metric,
                saved.metrics[metric],
                loop.global_step,
            )

    def _stop(self, loop: Any) -> None:
        self.stopped = True
        loop.request_stop()
