"""The step loop of a training program, with resuming, recovery from preemptions, and signal handling."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import fastsup.core
from fastsup.common.errors import FailureRow, is_preemption
from fastsup.core.checks import check_flag, check_fuse, runs_several
from fastsup.loop.checkpoint import CheckpointHook, restore_newest
from fastsup.loop.checkpoints import Checkpoints
from fastsup.loop.session_hooks import with_session_hooks

__all__ = ["StepLoop"]

_logger = logging.getLogger("fastsup")


class StepLoop(fastsup.core.StepLoop):
    """Calls a step function repeatedly, and calls hooks after the steps on which they are due.

    Extends `fastsup.core.StepLoop` with signals, recovery and compiled calls.

    Args:
      step: a callable without arguments, or a capsule with a C function. See `fastsup.core.StepLoop`.
      hooks: iterable of `Hook`s, capsules with C functions, or session hooks (`SessionRunHook`), which are called in
        each step. If the step is `fastsup.bind` or `fastsup.bind_batches` of a `tf.function` or a `fastsup.function`
        that returns a dict, session hooks find a result by its key, such as "loss:0".
      max_steps: the global step at which the loop ends, even after it resumed or recovered; or None for no limit. If
        the global step is already there before the first step, no step is run.
      initial_step: value of the global step before the first step, unless the loop resumes.
      profiler: `fastsup.HookProfiler` that records the cost of hooks and steps.
      handle_signals: whether SIGTERM and SIGINT end the loop between steps. The hooks' `end` is then called, so
        that a `CheckpointHook` saves, and `run` raises SystemExit(143) or KeyboardInterrupt. None means True if one of
        the hooks is a `CheckpointHook` or a `Checkpoints`.
      resume_from: a `Checkpoints`, a `tf.train.CheckpointManager`, or a `CheckpointHook` with a manager. When `run`
        starts, the newest intact checkpoint is restored, and the number at the end of its name becomes the global step.
      steps: number of steps by which the global step grows in this loop, instead of `max_steps`; None for no limit.
        Steps that are lost in a recovery run again.
      fuse: "auto" lets a step that XLA compiles (`fastsup.bind` or `fastsup.bind_batches` of a function with
        `jit_compile=True`) run all steps up to the next due hook in one compiled call, if a timing trial shows that
        this is faster. "always" skips the trial; if compiled calls aren't possible, a RuntimeError contains the
        reason. "never" runs one step per call.
      max_recoveries: number of consecutive failures after which the loop gives up; None for no limit. A failure is a
        `tf.errors.UnavailableError` or `tf.errors.AbortedError` of the step, or an error in `recover_from`. The loop
        calls the step again: immediately, then after 0.1 seconds, 0.2 and so on up to 30. With `resume_from`, it first
        restores the newest checkpoint.
      recover_from: a class of step errors, or a tuple of classes, that also count as failures, for steps without
        TensorFlow: `ConnectionError`, `jax.errors.JaxRuntimeError`.

    Raises:
      TypeError: If an argument is of the wrong type.
      ValueError: If `max_steps`, `steps` or `max_recoveries` is negative, `max_steps` and `steps` are both given,
        `fuse` is invalid, `recover_from` is given without `max_recoveries`, or `initial_step` doesn't lie
        between 0 and 2**62.
    """

    def __init__(
        self,
        step: Callable[[], Any] | Any,
        hooks: Iterable[Any] = (),
        max_steps: int | None = None,
        initial_step: int = 0,
        profiler: Any = None,
        *,
        steps: int | None = None,
        handle_signals: bool | None = None,
        resume_from: Any = None,
        max_recoveries: int | None = 0,
        fuse: str = "auto",
        recover_from: type[Exception] | tuple[type[Exception], ...] = (),
    ) -> None:
        check_fuse(fuse)
        hooks = with_session_hooks(hooks, step)
        #: The iterator of batches of a step made by `fastsup.bind_batches`; None for any other step.
        self.batches: Any = getattr(step, "batches", None)
        self._why_single = "the step runs one step per call"
        # The steps of `fastsup.steps` have this method, so that this module imports neither them nor TensorFlow.
        if hasattr(type(step), "fuse_steps"):
            fusable: Any = step
            if fuse == "never":
                self._why_single = 'fuse="never"'
            else:
                step = fusable.fuse_steps(fuse)
        elif fuse == "always" and not runs_several(step):
            raise RuntimeError(
                f"{step!r} can't run several steps in one call: it isn't fastsup.bind or fastsup.bind_batches of a "
                'function with jit_compile=True, and its class has no method run_steps. With fuse="auto", steps '
                "run one at a time."
            )
        super().__init__(step, hooks, max_steps, initial_step, profiler, steps=steps)
        self._failure_row = FailureRow(max_recoveries, "failures of the step", _logger)
        self._signals_requested = handle_signals is True
        if handle_signals is None:
            handle_signals = any(isinstance(hook, CheckpointHook | Checkpoints) for hook in self.hooks)
        check_flag(handle_signals=handle_signals)
        self._manager = _manager_of(resume_from)
        if isinstance(resume_from, CheckpointHook | Checkpoints) and resume_from not in self.hooks:
            _logger.warning(
                "resume_from, %r, isn't among the hooks: the loop restores its checkpoints but saves none. Add it to "
                "hooks. If you don't want to save, pass the manager of a CheckpointHook.",
                resume_from,
            )
        self._handle_signals = handle_signals
        self._max_recoveries = max_recoveries
        self._recover_from = _error_classes(recover_from)
        if self._recover_from and max_recoveries == 0:
            raise ValueError(f"recover_from={recover_from!r} needs max_recoveries. Pass None for no limit.")
        self._step = step
        self._steps_at_failure = -1
        #: Global step of the checkpoint that this loop has restored last, or None.
        self.restored_step: int | None = None
        #: The newest numbers of the `EvaluateHook`s, by name.
        self.evaluation: dict[str, float] = {}

    @property
    def fused(self) -> bool:
        """True if the loop currently runs many steps in one call when no hook is due between them."""
        return getattr(self._step, "fused", runs_several(self._step)) is True

    @property
    def why_not_fused(self) -> str:
        """The reason why steps don't currently run in one call; an empty string if they do."""
        return str(getattr(self._step, "why_not_fused", "" if self.fused else self._why_single))

    def run(self) -> Any:
        """Runs the loop until its end.

        Returns:
          `result`: the value that the last step returned, or None if no step ran.

        Raises:
          KeyboardInterrupt, SystemExit: If SIGINT or SIGTERM ended the loop, after the hooks' `end`.
          RuntimeError: If a C function failed, the loop is already running, or no checkpoint can be read.
          AssertionError: If the newest checkpoint has no value for any object of `resume_from`.
          Exception: An error of the step function or of a hook. StopIteration from the step function ends the loop
            instead.
        """
        if not self._handle_signals:
            return self._run()
        from fastsup.common import stop_signals

        watches = stop_signals.install()
        if self._signals_requested and not watches and signal.getsignal(signal.SIGTERM) is not stop_signals.on_signal:
            _logger.warning(
                "handle_signals=True has no effect in %s: Python handles signals only in the main thread. Call "
                "request_stop() from a handler there.",
                threading.current_thread().name,
            )
        held = stop_signals.holds_signals()
        stop_signals.add_stop_request(self.request_stop)
        try:
            try:
                result = self._run()
            finally:
                stop_signals.remove_stop_request(self.request_stop)
                stop_signals.release(held)
            if watches:
                stop_signals.raise_pending()
            return result
        finally:
            if watches:
                stop_signals.uninstall()

    def _run(self) -> Any:
        if self._manager is not None and self.steps == 0:
            self._restore()
        return super().run()

    def _end_hooks(self, probe: Any) -> None:
        try:
            super()._end_hooks(probe)
        except BaseException as error:
            from fastsup.common import stop_signals

            if not (self._handle_signals and stop_signals.received()):
                raise
            # The program exits with the signal's exit code.
            _logger.error("The loop ended with an error after the signal: %s", error, exc_info=error)

    def _restore(self) -> None:
        """Restores the newest checkpoint that can be read, if there is any."""
        if isinstance(self._manager, Checkpoints):
            global_step = self._manager.restore_for(self)
            if global_step is None:
                return
        else:
            global_step = restore_newest(self._manager)
        if global_step is None:
            self._manager.restore_or_initialize()
        else:
            self._set_global_step(global_step)
            self.restored_step = global_step

    def _recover(self, error: Exception) -> None:
        """Waits and restores the newest checkpoint. Raises the error if it isn't a preemption, or at the limit."""
        while True:
            self._wait_for_next_try(error)
            if self._manager is None or self.should_stop():
                return
            try:
                self._restore()
                return
            except Exception as failure:
                error = failure

    def _wait_for_next_try(self, error: Exception) -> None:
        if self._max_recoveries == 0 or not (is_preemption(error) or isinstance(error, self._recover_from)):
            raise error
        if self.steps != self._steps_at_failure:
            self._failure_row.end()
            self._steps_at_failure = self.steps
        delay = self._failure_row.add(error, "The step after global step %d failed: %s", self.global_step, error)
        until = time.monotonic() + delay
        while (left := until - time.monotonic()) > 0 and not self.should_stop():
            time.sleep(min(left, 0.05))


def _error_classes(recover_from: Any) -> tuple[type[Exception], ...]:
    classes: tuple[Any, ...] = recover_from if isinstance(recover_from, tuple) else (recover_from,)
    for kind in classes:
        if not (isinstance(kind, type) and issubclass(kind, Exception)) or issubclass(kind, StopIteration):
            raise TypeError(
                f"recover_from must be a class of errors, or a tuple of such classes, got {recover_from!r}."
            )
    return classes


def _manager_of(resume_from: Any) -> Any:
    manager = resume_from.manager if isinstance(resume_from, CheckpointHook) else resume_from
    if resume_from is None or isinstance(resume_from, Checkpoints):
        return resume_from
    needed = ("latest_checkpoint", "checkpoints", "checkpoint", "restore_or_initialize")
    if all(hasattr(manager, name) for name in needed):
        return manager
    raise TypeError(
        "resume_from must be a Checkpoints, a tf.train.CheckpointManager, or a CheckpointHook with a manager, got "
        f"{resume_from!r}. To resume from your own save function, restore its state and pass initial_step."
    )
