"""The part of an Experiment that trains and serves variables, and its hooks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks, session_run_hook, training_util

from fastsup.cluster.job_completion import JobCompletionWatcher, mark_task_ended, mark_task_started
from fastsup.cluster.peer_liveness import peer_timeout_secs
from fastsup.cluster.server import serve_until_job_ends, start_server, start_std_server
from fastsup.cluster.tf_config import read_tf_config
from fastsup.core.clock import now, steady
from fastsup.estimator.config import distribution
from fastsup.estimator.model.argument_checks import is_hook
from fastsup.experiment.arguments import check_hooks, check_seconds
from fastsup.experiment.evaluation import log_and_sleep
from fastsup.experiment.monitor_hooks import is_monitor, replace_monitors_with_hooks
from fastsup.train import GlobalStepWaiterHook
from fastsup.train.schedule import ScheduledHook

__all__ = [
    "EvalAndExportListener",
    "EvaluateNewCheckpointHook",
    "Training",
    "WaitForStepHook",
]


class EvaluateNewCheckpointHook(ScheduledHook, session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Evaluates a new checkpoint once enough steps have passed since the last evaluation."""

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
        """Finds the global step, or refuses a graph without one."""
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
    """Evaluates and exports each saved checkpoint."""

    def __init__(self, eval_fn: Callable[..., Any], export_fn: Callable[..., Any], model_dir: Any) -> None:
        self._eval_fn = eval_fn
        self._export_fn = export_fn
        self._model_dir = model_dir
        self._latest_path: Any = None
        self.eval_result: Any = None
        self.export_results: Any = None

    def after_save(self, session: Any, global_step_value: Any) -> None:
        """Evaluates and exports the saved checkpoint, unless it was already evaluated."""
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
    """Delays a worker until the others reach a global step, or until training ends."""

    def __init__(self, wait_until_step: int, watcher: JobCompletionWatcher, timeout_secs: float) -> None:
        super().__init__(wait_until_step)
        self._watcher = watcher
        self._timeout_secs = timeout_secs
        # The last global step read, and the time (of time.monotonic) since when it hasn't changed.
        self._unchanged: tuple[int, float] | None = None

    def _keeps_waiting(self, run_context: Any, step: Any) -> bool:
        if self._watcher.chief_has_ended():
            logging.info("Training ended at step %d: this worker also ends.", step)
            run_context.request_stop()
            return False
        now = time.monotonic()
        if self._unchanged is None or step != self._unchanged[0]:
            self._unchanged = step, now
        elif (unchanged_secs := now - self._unchanged[1]) >= self._timeout_secs:
            raise errors.DeadlineExceededError(
                None,
                None,
                f"The global step was {step} for {unchanged_secs:.0f} s, while this worker waited for "
                f"step {self._wait_until_step}. RunConfig.session_creation_timeout_secs={self._timeout_secs} is "
                "the time limit; delay_workers_by_global_step=False doesn't wait for a step.",
            )
        return True


_MAX_DELAY_SECS = 60
_DELAY_SECS_PER_WORKER = 5
_SERVERLESS_ENVIRONMENTS = ("local", "google")


class Training:
    """The part of an `Experiment` that trains and serves variables."""

    _estimator: Any
    _is_core_estimator: bool
    _train_input_fn: Any
    _train_monitors: list[Any]
    _train_steps: int | None
    _delay_workers_by_global_step: bool
    _saving_listeners: Any

    def extend_train_hooks(self, additional_hooks: Iterable[Any]) -> None:
        """Adds hooks for training.

        Args:
          additional_hooks: iterable of hooks and monitors.

        Raises:
          ValueError: If the value isn't iterable, or a member isn't a hook.
        """
        self._train_monitors.extend(check_hooks("additional_hooks", additional_hooks, self._is_core_estimator, True))

    def train(self, delay_secs: float | None = None) -> Any:
        """Trains up to train_steps. In a cluster, first starts this task's server, and workers wait for a while.

        Args:
          delay_secs: seconds to wait first. If None, waits 5 seconds for each worker with a lower index, up to 60. With
            delay_workers_by_global_step, waits for this worker's start step instead. If training ends before that step,
            this worker also ends.

        Returns:
          The result of the Estimator's `train`, which is the Estimator.

        Raises:
          ValueError: If delay_secs isn't a number of seconds, or the configuration lacks a setting of the server.
          tf.errors.DeadlineExceededError: With delay_workers_by_global_step, if the global step hasn't changed for the
            configuration's `session_creation_timeout_secs`.
        """
        check_seconds(delay_secs=delay_secs)
        start = steady()
        config = self._estimator.config
        task = (self._estimator.model_dir, config.task_type, config.task_id)
        in_cluster = bool(config.cluster_spec)
        if in_cluster:
            mark_task_started(*task)
        # Start it before the delay, because the other tasks' servers wait for this one.
        collective = distribution.trains_collectively(config)
        if in_cluster and config.master and not collective and self._starts_own_server(config):
            self._start_server()
        hooks = list(self._train_monitors)
        if collective:
            delay_secs = 0  # All tasks start together.
        if delay_secs is None:
            delay_secs = 0
            index = config.task_id or 0
            if self._delay_workers_by_global_step:
                hooks.append(self._wait_for_step_hook(int(8000.0 * math.log(index + 1)), config))
            else:
                delay_secs = min(_MAX_DELAY_SECS, index * _DELAY_SECS_PER_WORKER)
        if delay_secs > 0:
            log_and_sleep("Waiting %d secs before starting training.", delay_secs - (steady() - start))
        trained = self._call_train(max_steps=self._train_steps, hooks=hooks)
        if in_cluster:
            mark_task_ended(*task)
        return trained

    def _wait_for_step_hook(self, step: int, config: Any) -> WaitForStepHook:
        watcher = JobCompletionWatcher(self._estimator.model_dir)
        return WaitForStepHook(step, watcher, peer_timeout_secs(config))

    @staticmethod
    def _starts_own_server(config: Any) -> bool:
        """Returns False if the environment (in the configuration or TF_CONFIG) needs no server."""
        is_older_kind = hasattr(config, "environment")
        environment = config.environment if is_older_kind else read_tf_config().get("environment")
        if environment == "local":
            logging.warning(
                "ClusterSpec and master are provided, but environment is set to 'local'. Set environment to 'cloud' if "
                "you intend to use the distributed runtime."
            )
        return environment not in _SERVERLESS_ENVIRONMENTS

    def run_std_server(self) -> None:
        """Starts this task's server, and serves until the job has ended.

        Raises:
          ValueError: If the configuration lacks a setting of the server.
          tf.errors.DeadlineExceededError: If no training task is alive.
        """
        watcher = JobCompletionWatcher(self._estimator.model_dir)
        serve_until_job_ends(self._start_server(), self._estimator.config, watcher)

    def _start_server(self) -> Any:
        config = self._estimator.config
        if not config.cluster_spec or not config.task_type or not config.master or config.task_id is None:
            raise ValueError(
                "Could not start server; be sure to specify cluster_spec, task_type, master, and task in RunConfig or "
                "set the TF_CONFIG environment variable."
            )
        if hasattr(config, "tf_config"):  # This is an older configuration.
            return start_server(config, config.tf_config)
        return start_std_server(config)

    def _call_train(self, **arguments: Any) -> Any:
        # Pass all arguments, even None, because a lookalike of an estimator may have no defaults.
        arguments = {"input_fn": self._train_input_fn, "steps": None, "max_steps": None, **arguments}
        if any(is_monitor(hook) and not is_hook(hook) for hook in arguments["hooks"]):
            arguments["hooks"] = replace_monitors_with_hooks(arguments["hooks"], self._estimator)
        if self._is_core_estimator:
            return self._estimator.train(**arguments, saving_listeners=self._saving_listeners)
        arguments["monitors"] = arguments.pop("hooks")
        return self._estimator.fit(**arguments)
