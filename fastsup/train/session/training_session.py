"""MonitoredTrainingSession: a MonitoredSession with the standard hooks of training."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensorflow.python.distribute import distribute_coordinator_context
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import monitored_session as tf_monitored_session

from fastsup.core.checks import check_flag, doubt_about_text, suggest_keywords
from fastsup.core.sessions import session_role
from fastsup.train.hooks.checkpoint_saver import CheckpointSaverHook
from fastsup.train.hooks.event_files import StepCounterHook, SummarySaverHook
from fastsup.train.hooks.progress import hooks_with_progress
from fastsup.train.session.monitored_session import MonitoredSession, hooks_argument
from fastsup.train.session.session_creators import ChiefSessionCreator, Scaffold, WorkerSessionCreator

__all__ = ["USE_DEFAULT", "MonitoredTrainingSession", "interval_of", "is_on"]

USE_DEFAULT: object = tf_monitored_session.USE_DEFAULT


def interval_of(steps: Any, secs: Any, default_steps: Any, default_secs: Any) -> tuple[Any, Any]:
    """Returns an interval as (steps, seconds): the defaults if neither is given, otherwise only the given ones.

    Args:
      steps: the given steps, or USE_DEFAULT.
      secs: the given seconds, or USE_DEFAULT.
      default_steps: the steps if neither is given.
      default_secs: the seconds if neither is given.
    """
    if steps is USE_DEFAULT and secs is USE_DEFAULT:
        return default_steps, default_secs
    return None if steps is USE_DEFAULT else steps, None if secs is USE_DEFAULT else secs


def is_on(**intervals: Any) -> bool:
    """Returns True if one of the intervals is above 0.

    Args:
      **intervals: numbers or None, by argument name.

    Raises:
      TypeError: If one is neither a number nor None.
    """
    try:
        return any(interval and interval > 0 for interval in intervals.values())
    except TypeError as error:
        raise TypeError(f"{error}: {intervals} must be numbers; pass 0 or None to disable them.") from None


def _warn_of_nothing_written(summary_dir: Any, **intervals: Any) -> None:
    """Warns of intervals that were given without a directory to write to."""
    for name, value in intervals.items():
        of_checkpoints = name.startswith("save_checkpoint")
        if value is not USE_DEFAULT and is_on(**{name: value}) and (of_checkpoints or not summary_dir):
            kind, directory = ("checkpoint", "") if of_checkpoints else ("summary", " or summary_dir")
            logging.warning(
                "%s=%r has no effect without a directory: no %s is written. Pass checkpoint_dir%s.",
                name,
                value,
                kind,
                directory,
            )


@suggest_keywords
def MonitoredTrainingSession(
    master: str = "",
    is_chief: bool = True,
    checkpoint_dir: Any = None,
    scaffold: Any = None,
    hooks: Iterable[Any] | None = None,
    chief_only_hooks: Iterable[Any] | None = None,
    save_checkpoint_secs: Any = USE_DEFAULT,
    save_summaries_steps: Any = USE_DEFAULT,
    save_summaries_secs: Any = USE_DEFAULT,
    config: Any = None,
    stop_grace_period_secs: float = 120,
    log_step_count_steps: int | None = 100,
    max_wait_secs: float = 7200,
    save_checkpoint_steps: Any = USE_DEFAULT,
    summary_dir: Any = None,
    save_graph_def: bool = True,
    executor: str = "auto",
    async_save: bool = False,
    recovery_wait_secs: float = 30,
    restore: str = "strict",
    max_recoveries: int | None = 10,
    handle_signals: bool | None = None,
    profiler: Any = None,
    progress: bool = False,
) -> MonitoredSession:
    """Creates a `MonitoredSession` with the standard hooks of training: checkpoints, summaries, and the step rate.

        with MonitoredTrainingSession(checkpoint_dir=logdir, hooks=[StopAtStepHook(last_step=10_000)]) as session:
            while not session.should_stop():
                session.run(train_op)

    Args:
      master: the execution engine to connect to.
      is_chief: Whether this process initializes, restores and saves the model. If False, waits for the chief.
      checkpoint_dir: directory to restore checkpoints from and save them to. If None, does neither.
      scaffold: `Scaffold` with the operations that prepare the model. Defaults to one with the graph's operations.
      hooks: additional hooks.
      chief_only_hooks: additional hooks of the chief.
      save_checkpoint_secs: seconds between checkpoints. Defaults to 600 unless `save_checkpoint_steps` is given. If
        None or 0, doesn't save by time.
      save_summaries_steps: global steps between summaries. Defaults to 100 unless `save_summaries_secs` is given.
        If None or 0, doesn't write summaries by steps.
      save_summaries_secs: seconds between summaries. By default, doesn't write summaries by time.
      config: ConfigProto of the session, or None.
      stop_grace_period_secs: seconds that threads get to end in `close`.
      log_step_count_steps: global steps between measurements of `global_step/sec`. If None or 0, doesn't measure
        it.
      max_wait_secs: maximum seconds to wait in a cluster: a worker waits for the chief to prepare the model, and the
        chief waits for the servers that it needs.
      save_checkpoint_steps: global steps between checkpoints. By default, doesn't save by steps.
      summary_dir: directory of the summaries. Defaults to `checkpoint_dir`.
      save_graph_def: Whether to write the graph with the checkpoints.
      executor: executor mode, as for `fastsup.Session`.
      async_save: Whether training continues while a checkpoint is written, as for `CheckpointSaverHook`.
      recovery_wait_secs: maximum seconds between checks of the model by a worker. The first checks are more
        frequent.
      restore: "strict" or "partial", as for `SessionManager`.
      max_recoveries: number of consecutive preemptions to recover from, as for `MonitoredSession`. If None, no limit.
      handle_signals: Whether SIGTERM and SIGINT end the session between steps, with a checkpoint, as for
        `MonitoredSession`. If None, True with a `checkpoint_dir` (also in a worker), and if a hook saves checkpoints.
      profiler: `fastsup.HookProfiler`, as for `MonitoredSession`.
      progress: Whether to show the step, the rate and the remaining time on stderr, by adding a `ProgressHook` unless
        `hooks` has one.

    Returns:
      A `MonitoredSession`, ready to run.

    Raises:
      TypeError: If an element of `hooks` or `chief_only_hooks` isn't a hook, an interval isn't a number, or
        `async_save` or `handle_signals` isn't a bool.
      ValueError: If `restore` is unknown, or an argument has an invalid value.
      RuntimeError: If a hook needs a global step that the graph lacks, or the model isn't ready after it is
        initialized.
      NoIntactCheckpointError: If `checkpoint_dir` has checkpoints, and each is damaged.
      tf.errors.DeadlineExceededError: If the chief or a server wasn't ready after `max_wait_secs`.
    """
    hooks = hooks_with_progress(progress, hooks_argument("hooks", hooks))
    check_flag(async_save=async_save)
    if doubt := doubt_about_text("is_chief", is_chief):
        logging.warning("%s", doubt)
    if is_chief and not checkpoint_dir:
        _warn_of_nothing_written(
            summary_dir,
            save_checkpoint_secs=save_checkpoint_secs,
            save_checkpoint_steps=save_checkpoint_steps,
            save_summaries_steps=save_summaries_steps,
            save_summaries_secs=save_summaries_secs,
        )
    if handle_signals is None and checkpoint_dir:
        handle_signals = True
    save_summaries_steps, save_summaries_secs = interval_of(save_summaries_steps, save_summaries_secs, 100, None)
    save_checkpoint_steps, save_checkpoint_secs = interval_of(save_checkpoint_steps, save_checkpoint_secs, None, 600)
    scaffold = scaffold or Scaffold()
    worker_context = distribute_coordinator_context.get_current_worker_context()
    if worker_context:
        # TensorFlow's distribute coordinator has its own session creator, so TensorFlow's session is returned.
        return tf_monitored_session._create_monitored_session_with_worker_context(  # type: ignore[no-any-return]
            worker_context,
            scaffold,
            checkpoint_dir=checkpoint_dir,
            hooks=hooks,
            chief_only_hooks=chief_only_hooks,
            save_checkpoint_secs=save_checkpoint_secs,
            save_summaries_steps=save_summaries_steps,
            save_summaries_secs=save_summaries_secs,
            config=config,
            stop_grace_period_secs=stop_grace_period_secs,
            log_step_count_steps=log_step_count_steps,
            max_wait_secs=max_wait_secs,
            save_checkpoint_steps=save_checkpoint_steps,
            summary_dir=summary_dir,
            save_graph_def=save_graph_def,
        )
    session_options = (stop_grace_period_secs, max_recoveries, handle_signals, profiler)
    if not is_chief:
        worker = WorkerSessionCreator(scaffold, master, config, max_wait_secs, executor, recovery_wait_secs)
        with session_role("train"):
            return MonitoredSession(worker, hooks, *session_options)

    chief_hooks = list(hooks_argument("chief_only_hooks", chief_only_hooks))
    chief = ChiefSessionCreator(
        scaffold,
        master,
        config,
        checkpoint_dir,
        executor=executor,
        recovery_wait_secs=recovery_wait_secs,
        restore=restore,
        max_wait_secs=max_wait_secs,
    )
    events_dir = summary_dir or checkpoint_dir
    if events_dir and is_on(log_step_count_steps=log_step_count_steps):
        chief_hooks.append(StepCounterHook(log_step_count_steps, output_dir=events_dir))
    if events_dir and is_on(save_summaries_steps=save_summaries_steps, save_summaries_secs=save_summaries_secs):
        chief_hooks.append(SummarySaverHook(save_summaries_steps, save_summaries_secs, events_dir, scaffold=scaffold))
    if checkpoint_dir and is_on(save_checkpoint_secs=save_checkpoint_secs, save_checkpoint_steps=save_checkpoint_steps):
        saver_hook = CheckpointSaverHook(
            checkpoint_dir,
            save_checkpoint_secs,
            save_checkpoint_steps,
            scaffold=scaffold,
            save_graph_def=save_graph_def,
            async_save=async_save,
            _ends_last=True,
        )
        chief_hooks.append(saver_hook)
    with session_role("train"):
        return MonitoredSession(chief, [*chief_hooks, *hooks], *session_options)
