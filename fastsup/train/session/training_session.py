"""MonitoredTrainingSession: a MonitoredSession with the hooks that training wants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensorflow.python.distribute import distribute_coordinator_context
from tensorflow.python.training import monitored_session as tf_monitored_session

from fastsup.core.session_origin import session_role
from fastsup.train.hooks.checkpoint_saver import CheckpointSaverHook
from fastsup.train.hooks.progress import hooks_with_progress
from fastsup.train.hooks.step_counter import StepCounterHook
from fastsup.train.hooks.summary_saver import SummarySaverHook
from fastsup.train.session.monitored_session import MonitoredSession, given_hooks
from fastsup.train.session.session_creators import ChiefSessionCreator, Scaffold, WorkerSessionCreator

__all__ = ["MonitoredTrainingSession"]

USE_DEFAULT = tf_monitored_session.USE_DEFAULT


def _one_of(steps: Any, secs: Any, default_steps: Any, default_secs: Any) -> tuple[Any, Any]:
    """An interval in steps and in seconds, where leaving both out means the defaults and giving one drops the other."""
    if steps is USE_DEFAULT and secs is USE_DEFAULT:
        return default_steps, default_secs
    return None if steps is USE_DEFAULT else steps, None if secs is USE_DEFAULT else secs


def _is_on(**intervals: Any) -> bool:
    try:
        return any(interval and interval > 0 for interval in intervals.values())
    except TypeError as error:
        raise TypeError(f"{error}: {intervals} must be numbers, or 0 or None for none.") from None


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
    handle_signals: bool = True,
    profiler: Any = None,
    progress: bool = False,
) -> MonitoredSession:
    """A `MonitoredSession` with the hooks that training wants: checkpoints, summaries, and the rate of steps.

    Args:
      master: the execution engine to connect to.
      is_chief: whether this process initialises, restores and saves the model; else it waits for the one that does.
      checkpoint_dir: directory for checkpoints, to restore from and to save to.
      scaffold: `Scaffold` with the operations that get the model ready. Defaults to one from the graph.
      hooks: more hooks.
      chief_only_hooks: more hooks, for the chief alone.
      save_checkpoint_secs: seconds between two checkpoints. Defaults to 600. None or 0: none by time.
      save_summaries_steps: global steps between two summaries. Defaults to 100. None or 0: none by steps.
      save_summaries_secs: seconds between two summaries. Defaults to none by time.
      config: ConfigProto of the session, or None.
      stop_grace_period_secs: seconds that threads get to end in `close`.
      log_step_count_steps: global steps between two measurements of `global_step/sec`. None or 0: none.
      max_wait_secs: seconds to wait at most, in a cluster: for a worker until the chief has got the model ready, for
        the chief until every server that it needs answers.
      save_checkpoint_steps: global steps between two checkpoints. Defaults to none by steps.
      summary_dir: directory for summaries. Defaults to `checkpoint_dir`.
      save_graph_def: whether to write the graph too.
      executor: executor mode, as for `fastsup.Session`.
      async_save: whether training goes on while a checkpoint is written. See `CheckpointSaverHook`.
      recovery_wait_secs: seconds between two looks at the chief's model, for a worker.
      restore: "strict" or "partial", as for `SessionManager`: whether the checkpoint must hold the whole model.
      max_recoveries: preemptions in a row that are recovered from, as for `MonitoredSession`.
      handle_signals: whether SIGTERM and SIGINT end the session between two steps, with a checkpoint, as for
        `MonitoredSession`. Only with a `checkpoint_dir`.
      profiler: `fastsup.HookProfiler`, as for `MonitoredSession`.
      progress: whether to show step, rate and time left on stderr: a `ProgressHook` more, if `hooks` has none.
    """
    hooks = hooks_with_progress(progress, given_hooks("hooks", hooks))
    handle_signals = handle_signals and bool(checkpoint_dir)
    save_summaries_steps, save_summaries_secs = _one_of(save_summaries_steps, save_summaries_secs, 100, None)
    save_checkpoint_steps, save_checkpoint_secs = _one_of(save_checkpoint_steps, save_checkpoint_secs, None, 600)
    scaffold = scaffold or Scaffold()
    worker_context = distribute_coordinator_context.get_current_worker_context()
    if worker_context:
        # TensorFlow's distribute coordinator brings its own session creator: the session stays TensorFlow's too.
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
    if not is_chief:
        worker = WorkerSessionCreator(scaffold, master, config, max_wait_secs, executor, recovery_wait_secs)
        with session_role("train"):
            return MonitoredSession(worker, hooks, stop_grace_period_secs, max_recoveries, handle_signals, profiler)

    all_hooks: list[Any] = list(given_hooks("chief_only_hooks", chief_only_hooks))
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
    summary_dir = summary_dir or checkpoint_dir
    if summary_dir and _is_on(log_step_count_steps=log_step_count_steps):
        all_hooks.append(StepCounterHook(output_dir=summary_dir, every_n_steps=log_step_count_steps))
    if summary_dir and _is_on(save_summaries_steps=save_summaries_steps, save_summaries_secs=save_summaries_secs):
        all_hooks.append(
            SummarySaverHook(
                scaffold=scaffold,
                save_steps=save_summaries_steps,
                save_secs=save_summaries_secs,
                output_dir=summary_dir,
            )
        )
    if checkpoint_dir and _is_on(
        save_checkpoint_secs=save_checkpoint_secs, save_checkpoint_steps=save_checkpoint_steps
    ):
        saver = CheckpointSaverHook(
            checkpoint_dir,
            save_steps=save_checkpoint_steps,
            save_secs=save_checkpoint_secs,
            scaffold=scaffold,
            save_graph_def=save_graph_def,
            async_save=async_save,
        )
        saver._ends_last = True
        all_hooks.append(saver)
    all_hooks.extend(hooks)
    with session_role("train"):
        return MonitoredSession(chief, all_hooks, stop_grace_period_secs, max_recoveries, handle_signals, profiler)
