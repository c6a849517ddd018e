"""Experiment: an Estimator, its data, and the ways to train and evaluate it."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterable
from typing import Any

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import server_lib

from fastsup.cluster.job_completion import JobWatch, note_end, note_start
from fastsup.cluster.peer_liveness import limit_secs_of
from fastsup.cluster.server import saying_where, serve_until_job_ends, start_std_server
from fastsup.cluster.tf_config import read_tf_config
from fastsup.experiment.arguments import (
    as_hooks,
    as_listeners,
    as_predicate,
    check_functions,
    check_seconds,
    check_steps,
    is_core_estimator,
)
from fastsup.experiment.continuous_eval import has_reached, wait
from fastsup.experiment.evaluating import Evaluating
from fastsup.experiment.export_strategy import as_export_strategies
from fastsup.experiment.hooks import EvalAndExportListener, EvaluateNewCheckpointHook, WaitForStepHook
from fastsup.train import CheckpointSaverHook

__all__ = ["Experiment"]

_MAX_DELAY_SECS = 60
_DELAY_SECS_PER_WORKER = 5
_DEFAULT_STEPS_PER_ITERATION = 1000
_SERVERLESS_ENVIRONMENTS = ("local", "google")


class Experiment(Evaluating):
    """An Estimator, its data, and the ways to train and evaluate it. Nothing passed is called before it is needed.

    Args:
      estimator: `Estimator`, or an object of the older kind, with `fit` and `evaluate`.
      train_input_fn: function that returns the training data. None for a task that doesn't train.
      eval_input_fn: function that returns the evaluation data, which with eval_steps=None should come to an end. None
        for a task that doesn't evaluate.
      eval_metrics: dictionary from names to metric functions, for an estimator of the older kind. None for an
        `Estimator`, whose model_fn has the metrics.
      train_steps: global step to train up to. None: for ever, unless the data ends.
      eval_steps: batches to evaluate. None: until the data ends.
      train_monitors: iterable of hooks for training.
      eval_hooks: iterable of hooks for evaluation.
      local_eval_frequency: as min_eval_frequency, for `local_run`. None: evaluated only after training.
      eval_delay_secs: seconds to wait before evaluation starts. None: 0.
      continuous_eval_throttle_secs: seconds at least from the start of one evaluation to the start of the next, for
        `continuous_eval`.
      min_eval_frequency: global steps at least between two evaluations, for `train_and_evaluate`. 0: evaluated only
        after training. None: 1, or 1000 for a model_dir on GCS.
      delay_workers_by_global_step: whether workers wait for a global step before they start, and not for a time.
      export_strategies: an `ExportStrategy`, an iterable of them, or None.
      train_steps_per_iteration: steps to train between two evaluations, for `continuous_train_and_eval`. None: a tenth
        of train_steps, or 1000.
      checkpoint_and_export: whether `train_and_evaluate` evaluates and exports each checkpoint as it is saved.
        min_eval_frequency then has no effect.
      saving_listeners: iterable of `CheckpointSaverListener`s, for an `Estimator`.
      check_interval_secs: seconds at least between two looks for a new checkpoint in `train_and_evaluate`.

    Raises:
      ValueError: an argument is of the wrong type, or doesn't go with another.
    """

    def __init__(
        self,
        estimator: Any,
        train_input_fn: Any,
        eval_input_fn: Any,
        eval_metrics: Any = None,
        train_steps: int | None = None,
        eval_steps: int | None = 100,
        train_monitors: Iterable[Any] | None = None,
        eval_hooks: Iterable[Any] | None = None,
        local_eval_frequency: int | None = None,
        eval_delay_secs: float | None = 120,
        continuous_eval_throttle_secs: float | None = 60,
        min_eval_frequency: int | None = None,
        delay_workers_by_global_step: bool = False,
        export_strategies: Any = None,
        train_steps_per_iteration: int | None = None,
        checkpoint_and_export: bool = False,
        saving_listeners: Iterable[Any] | None = None,
        check_interval_secs: float | None = 5,
    ) -> None:
        is_core = is_core_estimator(estimator, eval_metrics)
        check_functions(train_input_fn=train_input_fn, eval_input_fn=eval_input_fn)
        check_steps(True, train_steps=train_steps, eval_steps=eval_steps)
        check_steps(False, local_eval_frequency=local_eval_frequency, min_eval_frequency=min_eval_frequency)
        if train_steps_per_iteration is not None and not isinstance(train_steps_per_iteration, int):
            raise ValueError(f"`train_steps_per_iteration` must be an integer. Got {train_steps_per_iteration!r}.")
        check_steps(True, train_steps_per_iteration=train_steps_per_iteration)
        check_seconds(
            eval_delay_secs=eval_delay_secs,
            continuous_eval_throttle_secs=continuous_eval_throttle_secs,
            check_interval_secs=check_interval_secs,
        )
        self._is_core_estimator = is_core
        self._estimator = estimator
        self._train_input_fn = train_input_fn
        self._eval_input_fn = eval_input_fn
        self._eval_metrics = eval_metrics
        self._train_steps = train_steps
        self._eval_steps = eval_steps
        self._train_monitors = as_hooks("train_monitors", train_monitors, is_core)
        self._eval_hooks = as_hooks("eval_hooks", eval_hooks, is_core)
        self._local_eval_frequency = local_eval_frequency
        self._eval_delay_secs = eval_delay_secs or 0
        self._continuous_eval_throttle_secs = continuous_eval_throttle_secs or 0
        if min_eval_frequency is None:
            min_eval_frequency = 1000 if str(estimator.model_dir).startswith("gs://") else 1
        self._min_eval_frequency: int | None = min_eval_frequency
        self._delay_workers_by_global_step = delay_workers_by_global_step
        self._export_strategies = as_export_strategies(export_strategies)
        self._train_steps_per_iteration = train_steps_per_iteration
        self._checkpoint_and_export = checkpoint_and_export
        self._saving_listeners = as_listeners(saving_listeners, is_core)
        self._check_interval_secs = check_interval_secs

    @property
    def estimator(self) -> Any:
        """The Estimator."""
        return self._estimator

    @property
    def eval_metrics(self) -> Any:
        """The metrics for an estimator of the older kind, or None."""
        return self._eval_metrics

    @property
    def train_steps(self) -> int | None:
        """The global step to train up to, or None."""
        return self._train_steps

    @property
    def eval_steps(self) -> int | None:
        """How many batches are evaluated, or None."""
        return self._eval_steps

    def extend_train_hooks(self, additional_hooks: Iterable[Any]) -> None:
        """Adds hooks for training.

        Raises:
          ValueError: one of them is no hook.
        """
        self._train_monitors.extend(as_hooks("additional_hooks", additional_hooks, self._is_core_estimator))

    def reset_export_strategies(self, new_export_strategies: Any = None) -> Any:
        """Replaces the export strategies.

        Args:
          new_export_strategies: an `ExportStrategy`, an iterable of them, or None.

        Returns:
          The old ones, a tuple.
        """
        old, self._export_strategies = self._export_strategies, as_export_strategies(new_export_strategies)
        return old

    def train(self, delay_secs: float | None = None) -> Any:
        """Trains up to train_steps. In a cluster it starts this task's server first.

        Args:
          delay_secs: seconds to wait before. None: 5 for each worker before this one, 60 at most; or, with
            delay_workers_by_global_step, until the workers before it have made some steps. A worker for which they
            won't, because training has ended, ends too.

        Returns:
          What the Estimator's `train` returns: itself.

        Raises:
          ValueError: delay_secs is no number of seconds, or the config lacks what the server needs.
          tf.errors.DeadlineExceededError: with delay_workers_by_global_step, the step stays what it is, below that of
            this worker, for the config's `session_creation_timeout_secs`.
        """
        check_seconds(delay_secs=delay_secs)
        start = time.time()
        config = self._estimator.config
        in_cluster = bool(config.cluster_spec)
        if in_cluster:
            note_start(self._estimator.model_dir, config.task_type, config.task_id)
        # Before the delay: the other tasks' servers wait for this one.
        if in_cluster and config.master:
            is_older = hasattr(config, "environment")
            environment = config.environment if is_older else read_tf_config().get("environment")
            if environment == "local":
                logging.warning(
                    "ClusterSpec and master are provided, but environment is set to 'local'. Set environment to "
                    "'cloud' if you intend to use the distributed runtime."
                )
            if environment not in _SERVERLESS_ENVIRONMENTS:
                self._start_server()
        extra_hooks = []
        if delay_secs is None:
            task_id = config.task_id or 0
            if self._delay_workers_by_global_step:
                step = int(8000.0 * math.log(task_id + 1))
                extra_hooks.append(WaitForStepHook(step, JobWatch(self._estimator.model_dir), limit_secs_of(config)))
                delay_secs = 0
            else:
                delay_secs = min(_MAX_DELAY_SECS, task_id * _DELAY_SECS_PER_WORKER)
        if delay_secs > 0:
            wait("Waiting %d secs before starting training.", delay_secs - (time.time() - start))
        trained = self._call_train(max_steps=self._train_steps, hooks=self._train_monitors + extra_hooks)
        if in_cluster:
            note_end(self._estimator.model_dir, config.task_type, config.task_id)
        return trained

    def train_and_evaluate(self) -> tuple[Any, Any]:
        """Trains, and evaluates during training and after it.

        During training it evaluates a new checkpoint when min_eval_frequency steps have passed; or, with
        checkpoint_and_export and a config that saves checkpoints, evaluates and exports each one as it is saved.

        Returns:
          The metrics of the last evaluation, and what the export strategies then returned.

        Raises:
          ValueError: there is no eval_input_fn.
        """
        self._check_evaluates()
        monitors = self._train_monitors
        listener = self._intermediate_export()
        extra: list[Any] = []
        if listener is not None:
            config = self._estimator.config
            extra = [
                CheckpointSaverHook(
                    self._estimator.model_dir,
                    save_secs=config.save_checkpoints_secs,
                    save_steps=config.save_checkpoints_steps,
                    listeners=[listener],
                )
            ]
        elif self._min_eval_frequency:
            # Named None, the evaluation's events go to `eval`.
            extra = [
                EvaluateNewCheckpointHook(
                    functools.partial(self._call_evaluate, name=None),
                    self._estimator.model_dir,
                    self._min_eval_frequency,
                    self._check_interval_secs,
                )
            ]
        self._train_monitors = monitors + extra
        try:
            self.train(delay_secs=0)
        finally:
            self._train_monitors = monitors
        if listener is not None and listener.eval_result is not None:
            return listener.eval_result, listener.export_results
        eval_result = self._call_evaluate(name=None)
        return eval_result, self._export(eval_result)

    def _intermediate_export(self) -> EvalAndExportListener | None:
        config = self._estimator.config
        if not self._checkpoint_and_export or not (config.save_checkpoints_secs or config.save_checkpoints_steps):
            return None
        return EvalAndExportListener(self._call_evaluate, self._export, self._estimator.model_dir)

    def local_run(self) -> tuple[Any, Any]:
        """As `train_and_evaluate`, with local_eval_frequency in place of min_eval_frequency."""
        frequency, self._min_eval_frequency = self._min_eval_frequency, self._local_eval_frequency
        try:
            return self.train_and_evaluate()
        finally:
            self._min_eval_frequency = frequency

    def continuous_train_and_eval(self, continuous_eval_predicate_fn: Any = None) -> tuple[Any, Any]:
        """Trains train_steps_per_iteration, evaluates and exports, in turns, until train_steps is reached.

        Args:
          continuous_eval_predicate_fn: function of `eval_results`, or of that and `checkpoint_path`, that says whether
            to go on. It is asked before each turn: first with None.

        Returns:
          The metrics of the last evaluation, and what the export strategies then returned.

        Raises:
          ValueError: the predicate isn't callable, or there is no eval_input_fn.
        """
        self._check_evaluates()
        predicate = as_predicate(continuous_eval_predicate_fn)
        steps = self._train_steps_per_iteration
        if steps is None and self._train_steps is not None:
            steps = max(1, int(self._train_steps / 10))
        elif steps is None:
            steps = _DEFAULT_STEPS_PER_ITERATION
        eval_result = export_results = path = None
        while predicate(eval_result, path):
            if has_reached(self._train_steps, eval_result):
                logging.info("Stop training model as max steps reached")
                break
            logging.info("Training model for %s steps", steps)
            self._call_train(steps=steps, hooks=self._train_monitors)
            logging.info("Evaluating model now.")
            path = checkpoint_management.latest_checkpoint(self._estimator.model_dir)
            eval_result = self._call_evaluate(name="one_pass", checkpoint_path=path)
            export_results = self._export(eval_result)
        return eval_result, export_results

    def test(self) -> Any:
        """Trains one step, evaluates one batch without eval_hooks, and exports. Returns the metrics."""
        self._check_evaluates()
        self._call_train(steps=1, hooks=self._train_monitors)
        eval_result = self._call_evaluate(steps=1, name="one_pass", hooks=None)
        self._export(eval_result)
        return eval_result

    def run_std_server(self) -> None:
        """Starts this task's server, and serves until the job has ended."""
        watch = JobWatch(self._estimator.model_dir)
        serve_until_job_ends(self._start_server(), self._estimator.config, watch)

    def _start_server(self) -> Any:
        config = self._estimator.config
        if not config.cluster_spec or not config.task_type or not config.master or config.task_id is None:
            raise ValueError(
                "Could not start server; be sure to specify cluster_spec, task_type, master, and task in RunConfig or "
                "set the TF_CONFIG environment variable."
            )
        if not hasattr(config, "tf_config"):
            return start_std_server(config)
        with saying_where(config):
            server = server_lib.Server(
                config.cluster_spec,
                job_name=config.task_type,
                task_index=config.task_id,
                config=config.tf_config,
                start=False,
            )
            server.start()
        return server

    def _call_train(self, **arguments: Any) -> Any:
        # Every argument by name, also those that are None: an estimator that only looks like one may have no defaults.
        arguments = {"input_fn": self._train_input_fn, "steps": None, "max_steps": None, **arguments}
        if self._is_core_estimator:
            return self._estimator.train(**arguments, saving_listeners=self._saving_listeners)
        arguments["monitors"] = arguments.pop("hooks")
        return self._estimator.fit(**arguments)
