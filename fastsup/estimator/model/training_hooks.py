"""The hooks and the saver that a training has in addition to those of the caller and of the model_fn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.framework import ops

from fastsup import train
from fastsup.cluster.tf_config import TaskType
from fastsup.estimator.config.tensorflow_names import our_options, v1
from fastsup.train.hooks.checkpoint_saver import TFCheckpointSaverHook

__all__ = ["add_default_saver", "add_listeners", "checkpoint_hooks", "loss_hooks", "master_job_hooks", "progress_hooks"]


def add_default_saver(scaffold: Any, config: Any) -> None:
    """Adds a saver to the default graph, unless the model has one.

    Args:
      scaffold: scaffold of the model.
      config: the `RunConfig`, which says how many checkpoints are kept.
    """
    if scaffold.saver or ops.get_collection(ops.GraphKeys.SAVERS):
        return
    kept = {
        "max_to_keep": config.keep_checkpoint_max,
        "keep_checkpoint_every_n_hours": config.keep_checkpoint_every_n_hours,
    }
    # Built with the scaffold, once all variables are there.
    default = v1.train.Saver(defer_build=True, sharded=True, save_relative_paths=True, **kept)
    ops.add_to_collection(ops.GraphKeys.SAVERS, default)


def loss_hooks(loss: Any, global_step: Any, config: Any) -> list[Any]:
    """The hooks that check and log the loss."""
    hooks: list[Any] = [v1.train.NanTensorHook(loss)]
    if config.log_step_count_steps is not None:
        values = {"loss": loss, "step": global_step}
        hooks.append(v1.train.LoggingTensorHook(values, every_n_iter=config.log_step_count_steps))
    return hooks


def progress_hooks(loss: Any, hooks: list[Any], config: Any) -> list[Any]:
    """The hook that shows the progress, if the `RunConfig` asks for one and there is none among the hooks."""
    if not config.progress or any(isinstance(hook, train.ProgressHook) for hook in hooks):
        return []
    return [train.ProgressHook({"loss": loss})]


def checkpoint_hooks(
    hooks: list[Any], scaffold: Any, config: Any, model_dir: Any, new_hook: Callable[..., Any]
) -> tuple[list[Any], list[Any]]:
    """The hooks that save checkpoints.

    Args:
      hooks: hooks of the caller and of the model_fn.
      scaffold: scaffold of the model.
      config: the `RunConfig`.
      model_dir: directory of the checkpoints.
      new_hook: what makes a hook: `CheckpointSaverHook`, or a function with its arguments.

    Returns:
      All hooks that save checkpoints, and those of them that are new. There is a new one if `hooks` has none and the
      `RunConfig` has an interval.
    """
    given = [hook for hook in hooks if isinstance(hook, TFCheckpointSaverHook)]
    if given or not (config.save_checkpoints_secs or config.save_checkpoints_steps):
        return given, []
    default = new_hook(
        checkpoint_dir=model_dir,
        save_secs=config.save_checkpoints_secs,
        save_steps=config.save_checkpoints_steps,
        scaffold=scaffold,
        save_graph_def=config.checkpoint_save_graph_def,
        **our_options(new_hook, train.CheckpointSaverHook, async_save=config.async_save),
    )
    return [default], [default]


def add_listeners(saver_hooks: list[Any], listeners: list[Any]) -> None:
    """Adds listeners to the first hook that saves checkpoints, each only once.

    Args:
      saver_hooks: the hooks that save checkpoints.
      listeners: `CheckpointSaverListener` objects.

    Raises:
      ValueError: there are listeners and no such hook.
    """
    if not listeners:
        return
    if not saver_hooks:
        raise ValueError(
            "There should be a CheckpointSaverHook to use saving_listeners. Please set one of the "
            "RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs."
        )
    known = saver_hooks[0]._listeners
    known += [listener for listener in listeners if listener not in known]


def master_job_hooks(scaffold: Any, config: Any) -> list[Any] | None:
    """The summary hooks of a job with a master and workers, in which worker 0 has them, because the master evaluates.

    Args:
      scaffold: scaffold of the model.
      config: the `RunConfig`.

    Returns:
      The hooks of this task, none unless it is worker 0; None for a job of another kind.
    """
    jobs = config.cluster_spec.jobs if config.cluster_spec else []
    if not {TaskType.WORKER, TaskType.MASTER}.issubset(jobs):
        return None
    if (config.task_type, config.task_id) != (TaskType.WORKER, 0):
        return []
    hooks: list[Any] = []
    summary_steps, count_steps = config.save_summary_steps or 0, config.log_step_count_steps or 0
    if summary_steps > 0:
        hooks.append(
            v1.train.SummarySaverHook(save_steps=summary_steps, output_dir=config.model_dir, scaffold=scaffold)
        )
    if count_steps > 0:
        hooks.append(v1.train.StepCounterHook(every_n_steps=count_steps, output_dir=config.model_dir))
    return hooks
