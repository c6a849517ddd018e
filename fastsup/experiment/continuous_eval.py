"""Evaluates one checkpoint after the other until training has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging

from fastsup.cluster.job_completion import JobCompletionWatcher
from fastsup.cluster.peer_liveness import PeerLiveness
from fastsup.core.clock import steady
from fastsup.estimator.jobs.deleted_checkpoint import evaluate_or_newer

__all__ = ["evaluate_continuously", "has_reached", "log_and_sleep"]

_WARNING_SECS = 600


def log_and_sleep(message: str, seconds: float) -> None:
    """Logs a message with the seconds, and sleeps. Does nothing for 0 seconds or less."""
    if seconds > 0:
        logging.info(message, seconds)
        time.sleep(seconds)


def has_reached(train_steps: int | None, eval_result: Any) -> bool:
    """True if the metrics are of the global step at which training ends, or of a later one."""
    global_step = eval_result.get(ops.GraphKeys.GLOBAL_STEP) if eval_result else None
    return bool(global_step and train_steps and global_step >= train_steps)


class _NothingToEvaluateLog:
    """Warns, every ten minutes at most, that there is no checkpoint to evaluate."""

    def __init__(self) -> None:
        self._last_warning_time: float = 0

    def warn(self, latest_path: Any) -> None:
        if steady() - self._last_warning_time <= _WARNING_SECS:
            return
        if latest_path:
            logging.warning("No new checkpoint ready for evaluation.")
        else:
            logging.warning("Estimator is not fitted yet. Will start an evaluation when a checkpoint is ready.")
        self._last_warning_time = steady()

    def reset(self) -> None:
        """Makes the next call of `warn` log."""
        self._last_warning_time = 0


def evaluate_continuously(
    evaluate: Callable[[Any], Any],
    model_dir: Any,
    train_steps: int | None,
    predicate: Callable[[Any, Any], Any],
    delay_secs: float,
    throttle_secs: float,
    only_once: bool,
    liveness: PeerLiveness,
) -> None:
    """Evaluates new checkpoints until training has ended, or until a predicate is False.

    Args:
      evaluate: function of a checkpoint's path that evaluates the checkpoint and returns its metrics.
      model_dir: directory of the checkpoints.
      train_steps: global step at which training ends, or None.
      predicate: function of metrics and path of the last checkpoint that returns False to stop. The metrics are None at
        first, and {} if there was nothing to evaluate.
      delay_secs: seconds to wait first.
      throttle_secs: minimum seconds from the start of one evaluation to the start of the next.
      only_once: True to evaluate a checkpoint only once.
      liveness: liveness check of the tasks that train.

    Raises:
      tf.errors.DeadlineExceededError: no task that trains is alive.
    """

    def latest() -> Any:
        return checkpoint_management.latest_checkpoint(model_dir)

    watcher = JobCompletionWatcher(model_dir)
    log_and_sleep("Waiting %f secs before starting eval.", delay_secs)
    evaluated_path: Any = None
    result: Any = None
    log = _NothingToEvaluateLog()
    is_last = False
    while predicate(result, evaluated_path):
        if has_reached(train_steps, result):
            logging.info(
                "Exiting continuous eval, global_step=%s >= train_step=%s",
                result[ops.GraphKeys.GLOBAL_STEP],
                train_steps,
            )
            return
        if is_last:
            logging.info(
                "Exiting continuous eval, training has ended before train_steps=%s. See "
                "`python -m fastsup docs dropin#experiment-and-tfcontrib`.",
                train_steps,
            )
            return
        start = steady()
        # Read before `latest`, which then returns the final checkpoint if training has ended.
        is_last = watcher.chief_has_ended()
        path = latest()
        if path and not (only_once and path == evaluated_path):
            evaluated_path, result = evaluate_or_newer(path, latest, evaluate)
            log.reset()
            liveness.record_alive()
        else:
            result = {}
            log.warn(path)
            if not is_last:
                liveness.check()
        if not is_last:
            log_and_sleep("Waiting %f secs before starting next eval run.", throttle_secs - (steady() - start))
