"""The training loop of `tf.contrib.training`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastsup.train import MonitoredTrainingSession

__all__ = ["train"]


def train(
    train_op: Any,
    logdir: Any,
    master: str = "",
    is_chief: bool = True,
    scaffold: Any = None,
    hooks: Iterable[Any] | None = None,
    chief_only_hooks: Iterable[Any] | None = None,
    save_checkpoint_secs: float | None = 600,
    save_summaries_steps: int | None = 100,
    config: Any = None,
    max_wait_secs: float = 7200,
    run_metadata: Any = None,
) -> Any:
    """Trains until a hook stops training or the input ends.

    Args:
      train_op: tensor whose run is one step and whose value is the loss, as `create_train_op` makes it.
      logdir: directory of checkpoints and events. May be None without both.
      master: the execution engine to connect to.
      is_chief: True if this process initialises and saves the model.
      scaffold: `Scaffold`, or None for the default one.
      hooks: more hooks.
      chief_only_hooks: more hooks of the chief.
      save_checkpoint_secs: seconds between two checkpoints. None: no checkpoints.
      save_summaries_steps: global steps between two summaries. None: no summaries.
      config: ConfigProto of the session, or None.
      max_wait_secs: maximum seconds that a task of a cluster waits for others.
      run_metadata: `RunMetadata` that each step writes to, or None.

    Returns:
      The loss of the last step; None without a step.

    Raises:
      ValueError: the chief has no `logdir`, and checkpoints or summaries to write.
    """
    if logdir is None and is_chief:
        if save_summaries_steps:
            raise ValueError("logdir cannot be None when save_summaries_steps is not None")
        if save_checkpoint_secs:
            raise ValueError("logdir cannot be None when save_checkpoint_secs is not None")
    loss = None
    with MonitoredTrainingSession(
        master=master,
        is_chief=is_chief,
        checkpoint_dir=logdir,
        scaffold=scaffold,
        hooks=hooks,
        chief_only_hooks=chief_only_hooks,
        save_checkpoint_secs=save_checkpoint_secs,
        save_summaries_steps=save_summaries_steps,
        config=config,
        max_wait_secs=max_wait_secs,
    ) as session:
        if run_metadata is None:
            session.run_loop(train_op)
        else:
            while not session.should_stop():
                loss = session.run(train_op, run_metadata=run_metadata)
    return session.last_result if run_metadata is None else loss
