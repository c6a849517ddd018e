"""The part of an Experiment that trains, and that serves variables."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tensorflow.python.platform import tf_logging as logging

from fastsup.cluster.job_completion import JobCompletionWatcher, mark_task_ended, mark_task_started
from fastsup.cluster.peer_liveness import peer_timeout_secs
from fastsup.cluster.server import serve_until_job_ends, start_server, start_std_server
from fastsup.cluster.tf_config import read_tf_config
from fastsup.core.clock import steady
from fastsup.estimator.config import distribution
from fastsup.estimator.model.arguments import is_hook
from fastsup.experiment.arguments import check_hooks, check_seconds
from fastsup.experiment.continuous_eval import log_and_sleep
from fastsup.experiment.hooks import WaitForStepHook
from fastsup.experiment.monitor_hooks import is_monitor, replace_monitors_with_hooks

__all__ = ["Training"]

_MAX_DELAY_SECS = 60
_DELAY_SECS_PER_WORKER = 5
_SERVERLESS_ENVIRONMENTS = ("local", "google")


class Training:
    """The part of an `Experiment` that trains, and that serves variables."""

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
          ValueError: the value isn't iterable, or a member isn't a hook.
        """
        self._train_monitors.extend(check_hooks("additional_hooks", additional_hooks, self._is_core_estimator, True))

    def train(self, delay_secs: float | None = None) -> Any:
        """Trains up to train_steps. In a cluster, starts the server of this task first, and workers wait a little.

        Args:
          delay_secs: seconds to wait first. None: 5 for each worker with a lower index, 60 at most; or, with
            delay_workers_by_global_step, until the global step of this worker's start. If training ends before that
            step, this worker ends too.

        Returns:
          The result of the Estimator's `train`: the Estimator.

        Raises:
          ValueError: delay_secs isn't a number of seconds, or the configuration lacks a setting of the server.
          tf.errors.DeadlineExceededError: with delay_workers_by_global_step, the global step hasn't changed for the
            configuration's `session_creation_timeout_secs`.
        """
        check_seconds(delay_secs=delay_secs)
        start = steady()
        config = self._estimator.config
        task = (self._estimator.model_dir, config.task_type, config.task_id)
        in_cluster = bool(config.cluster_spec)
        if in_cluster:
            mark_task_started(*task)
        # Before the delay: the other tasks' servers wait for this one.
        collective = distribution.trains_collectively(config)
        if in_cluster and config.master and not collective and self._starts_own_server(config):
            self._start_server()
        hooks = list(self._train_monitors)
        if collective:
            delay_secs = 0  # All tasks begin together.
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
        """True unless the environment, of the configuration or of TF_CONFIG, says that there is no server to start."""
        is_older_kind = hasattr(config, "environment")
        environment = config.environment if is_older_kind else read_tf_config().get("environment")
        if environment == "local":
            logging.warning(
                "ClusterSpec and master are provided, but environment is set to 'local'. Set environment to 'cloud' if "
                "you intend to use the distributed runtime."
            )
        return environment not in _SERVERLESS_ENVIRONMENTS

    def run_std_server(self) -> None:
        """Starts the server of this task, and serves until the job has ended.

        Raises:
          ValueError: the configuration lacks a setting of the server.
          tf.errors.DeadlineExceededError: no task that trains is alive.
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
        if hasattr(config, "tf_config"):  # A configuration of the older kind.
            return start_server(config, config.tf_config)
        return start_std_server(config)

    def _call_train(self, **arguments: Any) -> Any:
        # All arguments, also those that are None, because a lookalike of an estimator may have no defaults.
        arguments = {"input_fn": self._train_input_fn, "steps": None, "max_steps": None, **arguments}
        if any(is_monitor(hook) and not is_hook(hook) for hook in arguments["hooks"]):
            arguments["hooks"] = replace_monitors_with_hooks(arguments["hooks"], self._estimator)
        if self._is_core_estimator:
            return self._estimator.train(**arguments, saving_listeners=self._saving_listeners)
        arguments["monitors"] = arguments.pop("hooks")
        return self._estimator.fit(**arguments)
