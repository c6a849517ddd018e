"""Hooks of an Experiment: evaluation during training, and the delayed start of a worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks, session_run_hook, training_util

from fastsup.cluster.job_completion import JobCompletionWatcher
from fastsup.core.clock import now, steady
from fastsup.train import GlobalStepWaiterHook
from fastsup.train.schedule import ScheduledHook

__all__ = ["EvalAndExportListener", "EvaluateNewCheckpointHook", "WaitForStepHook"]


class EvaluateNewCheckpointHook(ScheduledHook, session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Evaluates a new checkpoint, once enough steps have passed since the last evaluation.

    Args:
      evaluate: function without arguments that evaluates the newest checkpoint and returns its metrics.
      model_dir: directory of the checkpoints.
      every_n_steps: minimum global steps from one evaluation, or from the start of training, to the next.
      check_interval_secs: minimum seconds between two checks for a new checkpoint.
    """

    def __init__(
        self, evaluate: Callable[[], Any], model_dir: Any, every_n_steps: int, check_interval_secs: float | None
    ) -> None:
        self._evaluate = evaluate
        self._model_dir = model_dir
        self._every_n_steps = every_n_steps
        self._check_interval_secs = check_interval_secs or 0
        self._global_step_tensor: Any = None
        self._last_step: Any = None
        self._last_path: Any = None
        self._next_check: float | None = None

    def begin(self) -> None:
        """Finds the global step.

        Raises:
          RuntimeError: the graph has none.
        """
        self._global_step_tensor = training_util.get_global_step()
        if self._global_step_tensor is None:
            raise RuntimeError("Global step should be created to evaluate while training.")

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Reads the global step at which training starts."""
        self._last_step = session.run(self._global_step_tensor)

    def _schedule(self, run: int, step_read: Any) -> bool:
        if self._next_check is None:
            self.due_every_run()
        else:
            self.due_at_time(now() + self._next_check - steady())
        return True

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Evaluates if the check interval has passed, there is a new checkpoint, and enough steps have passed."""
        time = steady()
        if self._next_check is not None and time < self._next_check:
            return
        self._next_check = time + self._check_interval_secs
        self._reschedule()
        path = checkpoint_management.latest_checkpoint(self._model_dir)
        if not path or path == self._last_path:
            return
        step = run_context.session.run(self._global_step_tensor)
        if step - self._last_step < self._every_n_steps:
            logging.debug(
                "Skipping the evaluation of %s: fewer than min_eval_frequency=%s steps have passed since the last one.",
                path,
                self._every_n_steps,
            )
            return
        self._last_path, self._last_step = path, step
        metrics = self._evaluate()
        logging.info("Validation (step %d): %s", step, ", ".join(f"{name} = {metrics[name]}" for name in metrics))


class EvalAndExportListener(basic_session_run_hooks.CheckpointSaverListener):  # type: ignore[misc]
    """Evaluates and exports each checkpoint that is saved.

    Args:
      eval_fn: function of `name` and `checkpoint_path` that evaluates a checkpoint and returns its metrics.
      export_fn: function of these metrics and `checkpoint_path` that exports it.
      model_dir: directory of the checkpoints.
    """

    def __init__(self, eval_fn: Callable[..., Any], export_fn: Callable[..., Any], model_dir: Any) -> None:
        self._eval_fn = eval_fn
        self._export_fn = export_fn
        self._model_dir = model_dir
        self._latest_path: Any = None
        self.eval_result: Any = None
        self.export_results: Any = None

    def after_save(self, session: Any, global_step_value: Any) -> None:
        """Evaluates and exports the checkpoint that was saved, unless it is the last one that was evaluated."""
        logging.info("Checking for checkpoint in %s", self._model_dir)
        path = checkpoint_management.latest_checkpoint(self._model_dir)
        if not path:
            logging.warning("Skipping evaluation and export since model has not been saved yet.")
        elif path == self._latest_path:
            logging.warning("Skipping evaluation due to same latest checkpoint %s.", path)
        else:
            self._latest_path = path
            self.eval_result = self._eval_fn(name="intermediate_export", checkpoint_path=path)
            self.export_results = self._export_fn(self.eval_result, checkpoint_path=path)


class WaitForStepHook(GlobalStepWaiterHook):
    """Delays a worker until the others have reached a global step, or until training has ended.

    Args:
      wait_until_step: the global step.
      watcher: watcher of the job.
      timeout_secs: maximum seconds to wait while the global step doesn't change. After that a run raises a
        tf.errors.DeadlineExceededError.
    """

    def __init__(self, wait_until_step: int, watcher: JobCompletionWatcher, timeout_secs: float) -> None:
        super().__init__(wait_until_step)
        self._watcher = watcher
        self._timeout_secs = timeout_secs
        # The last global step read, and the time, by time.monotonic, since which it hasn't changed.
        self._unchanged: tuple[int, float] | None = None

    def _keeps_waiting(self, run_context: Any, step: Any) -> bool:
        if self._watcher.chief_has_ended():
            logging.info("Training has ended at step %d: this worker ends too.", step)
            run_context.request_stop()
            return False
        now = time.monotonic()
        if self._unchanged is None or step != self._unchanged[0]:
            self._unchanged = step, now
        elif (unchanged_secs := now - self._unchanged[1]) >= self._timeout_secs:
            raise errors.DeadlineExceededError(
                None,
                None,
                f"The global step has stayed at {step} for {unchanged_secs:.0f} s, while this worker waited for "
                f"step {self._wait_until_step}. RunConfig.session_creation_timeout_secs={self._timeout_secs} says "
                "for how long to wait; delay_workers_by_global_step=False doesn't wait for a step.",
            )
        return True
