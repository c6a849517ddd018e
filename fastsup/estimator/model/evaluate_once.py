"""Runs one evaluation: updates the metrics over the input, then reads their values."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

from tensorflow.python.ops import state_ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import evaluation

from fastsup import train
from fastsup.core.clock import steady
from fastsup.core.session_origin import session_role
from fastsup.estimator.config.tensorflow_names import (
    basic_session_run_hooks,
    monitored_session,
    our_options,
    run_steps,
    substitute,
)
from fastsup.train.hooks.progress import hooks_with_progress
from fastsup.train.schedule import ScheduledHook

__all__ = ["StopAfterNEvalsHook", "evaluate_once", "run_evaluation", "with_eval_step"]

# The attribute of a graph that has, by operations of a step, these with the counter of steps.
_COUNTED = "_fastsup_counted_evaluations"


# TensorFlow's class, which a program may replace under its name later.
_TFStopAfterNEvalsHook: Any = evaluation._StopAfterNEvalsHook


class StopAfterNEvalsHook(ScheduledHook, _TFStopAfterNEvalsHook):  # type: ignore[misc]
    """Ends an evaluation after a number of batches, and logs its progress.

    Args:
      num_evals: number of batches to evaluate.
      log_progress: True to log the progress.
    """

    _schedule_reads = frozenset({"_num_evals", "_log_frequency"})
    _num_evals: float
    _log_frequency: float

    def _schedule(self, run: int, step_read: Any) -> bool:
        # One run evaluates one batch, and the count of batches starts with the session.
        every = int(self._log_frequency)
        # A fraction of a batch counts as a whole one.
        batches = math.ceil(min(self._num_evals, (run // every + 1) * every))
        self.due_at_run(max(run, batches - 1))
        return True

    def after_run(self, run_context: Any, run_values: Any) -> None:
        super().after_run(run_context, run_values)
        self._reschedule()


def with_eval_step(eval_ops: Any, hooks: list[Any]) -> Any:
    """Adds the counter of evaluated batches to the operations of a step, and passes it to the hooks that read it.

    Args:
      eval_ops: operations of a step, or None for no steps.
      hooks: the hooks.

    Returns:
      The operations with the counter; None for None.
    """
    eval_step = evaluation._get_or_create_eval_step()
    if eval_ops is None:
        return None
    # A graph that evaluates again and again has one counter, and doesn't grow.
    known: dict[int, Any] = getattr(eval_step.graph, _COUNTED, {})
    setattr(eval_step.graph, _COUNTED, known)
    if id(eval_ops) not in known:
        known[id(eval_ops)] = eval_ops, *_counted(eval_ops, eval_step)
    _, eval_ops, completed = known[id(eval_ops)]
    for hook in hooks:
        if isinstance(hook, _TFStopAfterNEvalsHook):
            hook._set_evals_completed_tensor(completed)
    return eval_ops


def _counted(eval_ops: Any, eval_step: Any) -> tuple[Any, Any]:
    """The operations of a step with the counter, and the counter's value after them."""
    update_eval_step = state_ops.assign_add(eval_step, 1, use_locking=True)
    if isinstance(eval_ops, dict):
        eval_ops = {**eval_ops, "update_eval_step": update_eval_step}
    elif isinstance(eval_ops, tuple | list):
        eval_ops = [*eval_ops, update_eval_step]
    else:
        eval_ops = [eval_ops, update_eval_step]
    return eval_ops, evaluation._get_latest_eval_step_value(eval_ops)


def evaluate_once(
    checkpoint_path: Any, master: str, scaffold: Any, eval_ops: Any, final_ops: Any, hooks: list[Any], config: Any,
    executor: str = "auto", progress: bool = False,
) -> Any:  # fmt: skip
    """Evaluates the model in the default graph once. The arguments are those of `run_evaluation`.

    Args:
      eval_ops: operations of a step, or None for no steps. The counter of evaluated batches is added.
    """
    steps = with_eval_step(eval_ops, hooks)
    return run_evaluation(
        checkpoint_path, master, scaffold, steps, final_ops=final_ops, hooks=hooks, config=config,
        executor=executor, progress=progress,
    )  # fmt: skip


def run_evaluation(
    checkpoint_path: Any,
    master: str,
    scaffold: Any,
    eval_ops: Any,
    feed_dict: Any = None,
    final_ops: Any = None,
    final_ops_feed_dict: Any = None,
    hooks: Iterable[Any] = (),
    config: Any = None,
    executor: str = "auto",
    progress: bool = False,
) -> Any:
    """Runs an evaluation whose graph is complete.

    Args:
      checkpoint_path: path of the checkpoint to restore, or None to initialise the model.
      master: execution engine.
      scaffold: `Scaffold` with the operations that initialise the model.
      eval_ops: what `with_eval_step` has returned.
      feed_dict: dictionary to feed in each step.
      final_ops: tensors to read at the end.
      final_ops_feed_dict: dictionary to feed when `final_ops` are read.
      hooks: `SessionRunHook` objects.
      config: ConfigProto of the session.
      executor: executor mode, as for `fastsup.Session`.
      progress: True to show the number of evaluated batches.

    Returns:
      The values of `final_ops`.
    """
    logging.info("Starting evaluation at %s", time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime()))
    started = steady()
    new_creator = monitored_session.ChiefSessionCreator
    creator = new_creator(
        scaffold=scaffold,
        checkpoint_filename_with_path=checkpoint_path,
        master=master,
        config=config,
        **our_options(new_creator, train.ChiefSessionCreator, executor=executor),
    )
    final_ops_hook = basic_session_run_hooks.FinalOpsHook(final_ops, final_ops_feed_dict)
    with session_role("evaluate"):
        session = monitored_session.MonitoredSession(creator, hooks_with_progress(progress, [*hooks, final_ops_hook]))
    results: list[Any] = []
    with session:
        if eval_ops is not None:
            run_steps(session, eval_ops, results, feed_dict)
    if eval_ops is not None and not results:
        logging.warning(
            "Evaluation made no steps. Perhaps input is empty or misspecified: the metrics are what they start with. "
            "See `python -m fastsup docs dropin#estimator`."
        )
    logging.info("Inference Time : %0.5fs", steady() - started)
    logging.info("Finished evaluation at %s", time.strftime("%Y-%m-%d-%H:%M:%S", time.localtime()))
    return final_ops_hook.final_ops_values


substitute(_TFStopAfterNEvalsHook, StopAfterNEvalsHook)
substitute(evaluation._evaluate_once, evaluate_once)
