"""Evaluating one checkpoint after the other, until training has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging

from fastsup.cluster.job_completion import JobWatch
from fastsup.cluster.peer_liveness import Trainers
from fastsup.estimator.jobs.deleted_checkpoint import with_newer_if_deleted

__all__ = ["evaluate_continuously", "has_reached", "wait"]

_WARNING_SECS = 600


def wait(message: str, seconds: float) -> None:
    """Says so and sleeps, if there is anything to wait for."""
    if seconds > 0:
        logging.info(message, seconds)
        time.sleep(seconds)


def has_reached(train_steps: int | None, eval_result: Any) -> bool:
    """Whether the metrics are of the step that training ends at, or of a later one."""
    global_step = eval_result.get(ops.GraphKeys.GLOBAL_STEP) if eval_result else None
    return bool(global_step and train_steps and global_step >= train_steps)


def evaluate_continuously(
    evaluate: Callable[[Any], Any],
    model_dir: Any,
    train_steps: int | None,
    predicate: Callable[[Any, Any], Any],
    delay_secs: float,
    throttle_secs: float,
    only_once: bool,
    trainers: Trainers,
) -> None:
    """Evaluates new checkpoints until training has ended, or a predicate says so.

    Args:
      evaluate: function of a checkpoint's path that evaluates it and returns its metrics.
      model_dir: directory of the checkpoints.
      train_steps: global step that training ends at, or None.
      predicate: function of metrics and path of the last checkpoint that says whether to go on. First it gets None, and
        {} for the metrics where there was nothing to evaluate.
      delay_secs: seconds to wait before.
      throttle_secs: seconds at least from the start of one evaluation to the start of the next.
      only_once: whether a checkpoint is evaluated only once.
      trainers: the tasks that train.

    Raises:
      tf.errors.DeadlineExceededError: there is nobody left who trains.
    """

    def latest() -> Any:
        return checkpoint_management.latest_checkpoint(model_dir)

    watch = JobWatch(model_dir)
    wait("Waiting %f secs before starting eval.", delay_secs)
    previous: Any = None
    result: Any = None
    last_warning_time: float = 0
    is_last = False
    while predicate(result, previous):
        if has_reached(train_steps, result):
            logging.info(
                "Exiting continuous eval, global_step=%s >= train_step=%s",
                result[ops.GraphKeys.GLOBAL_STEP],
                train_steps,
            )
            return
        if is_last:
            logging.info("Exiting continuous eval, training has ended before train_steps=%s.", train_steps)
            return
        start = time.time()
        # What was saved before this look is found by the next one.
        is_last = watch.chief_has_ended()
        path = latest()
        if path and not (only_once and path == previous):
            previous, result = with_newer_if_deleted(path, latest, evaluate)
            last_warning_time = 0
            trainers.are_there()
        else:
            result = {}
            if time.time() - last_warning_time > _WARNING_SECS:
                if path:
                    logging.warning("No new checkpoint ready for evaluation.")
                else:
                    logging.warning("Estimator is not fitted yet. Will start an evaluation when a checkpoint is ready.")
                last_warning_time = time.time()
            if not is_last:
                trainers.check()
        if not is_last:
            wait("Waiting %f secs before starting next eval run.", throttle_secs - (time.time() - start))
