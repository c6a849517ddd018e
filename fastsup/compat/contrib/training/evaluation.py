"""Evaluates checkpoints: one, or each new one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tensorflow.python.training import checkpoint_utils, evaluation

from fastsup.estimator.model.arguments import check_hooks
from fastsup.estimator.model.evaluate_once import run_evaluation, with_eval_step

__all__ = ["evaluate_once", "evaluate_repeatedly", "get_or_create_eval_step"]


def get_or_create_eval_step() -> Any:
    """The counter of evaluated batches: a local variable of the default graph, which is created if there is none.

    Returns:
      The variable, a scalar int64.
    """
    return evaluation._get_or_create_eval_step()


def evaluate_once(
    checkpoint_path: Any,
    master: str = "",
    scaffold: Any = None,
    eval_ops: Any = None,
    feed_dict: Any = None,
    final_ops: Any = None,
    final_ops_feed_dict: Any = None,
    hooks: Iterable[Any] | None = None,
    config: Any = None,
) -> Any:
    """Evaluates the model of the default graph with a checkpoint.

    Args:
      checkpoint_path: path of the checkpoint to restore, or None to initialise the model.
      master: the execution engine to connect to.
      scaffold: `Scaffold`, or None for the default one.
      eval_ops: fetches to run until a hook such as `StopAfterNEvalsHook`, or the end of the input, ends the evaluation.
        None: none.
      feed_dict: dictionary to feed in each of these runs.
      final_ops: fetches to run once, at the end.
      final_ops_feed_dict: dictionary to feed in this run.
      hooks: `SessionRunHook` objects.
      config: ConfigProto of the session, or None.

    Returns:
      The values of `final_ops`; None for None.

    Raises:
      TypeError: a member of `hooks` isn't a hook.
    """
    hooks = check_hooks(hooks)
    steps = with_eval_step(eval_ops, hooks)
    return run_evaluation(
        checkpoint_path, master, scaffold, steps, feed_dict, final_ops, final_ops_feed_dict, hooks, config
    )


def evaluate_repeatedly(
    checkpoint_dir: Any,
    master: str = "",
    scaffold: Any = None,
    eval_ops: Any = None,
    feed_dict: Any = None,
    final_ops: Any = None,
    final_ops_feed_dict: Any = None,
    eval_interval_secs: float = 60,
    hooks: Iterable[Any] | None = None,
    config: Any = None,
    max_number_of_evaluations: int | None = None,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Any:
    """Evaluates each new checkpoint of a directory, with the model of the default graph.

    The other arguments are those of `evaluate_once`.

    Args:
      checkpoint_dir: the directory.
      eval_interval_secs: minimum seconds from the start of one evaluation to the start of the next.
      max_number_of_evaluations: number of evaluations after which to end. None: no limit.
      timeout: maximum seconds to wait for a new checkpoint. None: no limit.
      timeout_fn: function without arguments that is called when `timeout` is over and returns False to go on waiting.
        None: the evaluation ends.

    Returns:
      The values of `final_ops` in the last evaluation; None if there was none.

    Raises:
      TypeError: a member of `hooks` isn't a hook.
    """
    hooks = check_hooks(hooks)
    steps = with_eval_step(eval_ops, hooks)
    values = None
    paths = checkpoint_utils.checkpoints_iterator(
        checkpoint_dir, min_interval_secs=eval_interval_secs, timeout=timeout, timeout_fn=timeout_fn
    )
    for evaluated, path in enumerate(paths, 1):
        values = run_evaluation(path, master, scaffold, steps, feed_dict, final_ops, final_ops_feed_dict, hooks, config)
        if max_number_of_evaluations is not None and evaluated >= max_number_of_evaluations:
            break
    return values
