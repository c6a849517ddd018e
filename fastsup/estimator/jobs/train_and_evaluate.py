"""train_and_evaluate, and its TrainingExecutor, which runs a single process or one task of a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging

from fastsup.cluster import server as task_server
from fastsup.cluster.job_completion import JobCompletionWatcher, mark_task_ended, mark_task_started
from fastsup.cluster.peer_liveness import peer_liveness_of
from fastsup.cluster.tf_config import TaskType, check_job_layout, summarize_tf_config
from fastsup.core.clock import steady
from fastsup.estimator.config import distribution
from fastsup.estimator.jobs.eval_listener import (
    ContinuousEvalListener,
    EvalResult,
    EvalStatus,
    NewCheckpointListenerForEvaluate,
)
from fastsup.estimator.jobs.evaluator import Evaluator, EvaluatorPacing, step_in_name
from fastsup.estimator.jobs.specs import EvalSpec, TrainSpec, assert_eval_spec, validate_hooks
from fastsup.estimator.model import estimator as estimator_lib
from fastsup.estimator.model.argument_checks import check_type

__all__ = [
    "TrainingExecutor",
    "train_and_evaluate",
]

_MAX_DELAY_SECS = 60
_DELAY_SECS_PER_WORKER = 5


class TrainingExecutor:
    """Trains and evaluates an Estimator, in a single process or as a task of a cluster.

    Args:
      estimator: the `Estimator`.
      train_spec: `TrainSpec`.
      eval_spec: `EvalSpec`, or None if this task doesn't evaluate.
      train_hooks: iterable of `tf.compat.v1.train.SessionRunHook`, in addition to those of train_spec.
      continuous_eval_listener: `ContinuousEvalListener` that decides whether evaluation continues. It is called in a
        single process and in an evaluator.

    Raises:
      TypeError: If an argument has the wrong type.
    """

    _Evaluator = Evaluator

    def __init__(
        self,
        estimator: Any,
        train_spec: Any,
        eval_spec: Any,
        train_hooks: Any = None,
        continuous_eval_listener: Any = None,
    ) -> None:
        estimator_lib.check_estimator(estimator)
        check_type("train_spec", train_spec, TrainSpec)
        if eval_spec:
            check_type("eval_spec", eval_spec, EvalSpec, optional=True)
        hooks = validate_hooks(train_hooks)
        listener = continuous_eval_listener or ContinuousEvalListener()
        if not isinstance(listener, ContinuousEvalListener):
            raise TypeError("`continuous_eval_listener` must have type `_ContinuousEvalListener`.")
        self._estimator = estimator
        self._train_spec = train_spec
        self._eval_spec = eval_spec
        self._train_hooks = hooks
        self._continuous_eval_listener = listener
        self._pacing = EvaluatorPacing(eval_spec)

    @property
    def estimator(self) -> Any:
        """The Estimator."""
        return self._estimator

    def run(self) -> Any:
        """Runs `run_local` in a single process, and `run_ROLE` for a task with a role.

        Returns:
          In a single process, the metrics of the last evaluation and the list of the exporters' results. In a cluster,
          None.

        Raises:
          ValueError: If the task's role is missing, is `local`, or has no method.
        """
        config = self._estimator.config
        if config.cluster_spec or config.task_type == TaskType.EVALUATOR:
            self._method_of(config.task_type)()
            return None
        logging.info("Running training and evaluation locally (non-distributed).")
        return self.run_local()

    def _method_of(self, role: Any) -> Callable[[], Any]:
        """Returns the method `run_ROLE`."""
        if not role:
            problem = (
                "`estimator.config` must have task_type set. This usually means TF_CONFIG environment is not set "
                "correctly."
            )
        elif role == "local":
            problem = (
                "`task.type` in TF_CONFIG cannot be `local`. Leaving `cluster` and `task` properties in TF_CONFIG "
                "absent triggers train and evaluate `Estimator` locally (non-distributed)."
            )
        else:
            names = [name for name in dir(self) if name.startswith("run_") and name != "run_local"]
            methods = {name.removeprefix("run_"): getattr(self, name) for name in names}
            roles = [name for name, method in methods.items() if callable(method)]
            if role in roles:
                return methods[role]  # type: ignore[no-any-return]
            problem = f"Task type {role} is not supported. Supported task types are {roles}."
        raise ValueError(f"{problem} {summarize_tf_config()}")

    def run_chief(self) -> None:
        """Trains, and saves the checkpoints."""
        self._start_distributed_training(saving_listeners=self._train_spec.saving_listeners)

    def run_worker(self) -> None:
        """Trains. A worker that is the chief of collective training also saves the checkpoints."""
        is_chief = self._estimator.config.is_chief
        self._start_distributed_training(saving_listeners=self._train_spec.saving_listeners if is_chief else None)

    def run_master(self) -> None:
        """Trains, saves the checkpoints, and evaluates them."""
        assert_eval_spec(self._eval_spec)
        # An evaluation at max_steps or later makes the final export. A second one can follow: if a checkpoint was saved
        # at a later step than training has read, training continues and ends with another checkpoint.
        listener = self._new_listener(ContinuousEvalListener())
        self._start_distributed_training(saving_listeners=(*self._train_spec.saving_listeners, listener))
        self._evaluate_if_trained_before(listener)

    def run_evaluator(self) -> None:
        """Evaluates the checkpoints that other tasks save, until training has ended."""
        self._start_continuous_evaluation()

    def run_ps(self) -> None:
        """Serves variables until the job has ended."""
        config = self._estimator.config
        watcher = JobCompletionWatcher(self._estimator.model_dir)
        task_server.serve_until_job_ends(self._start_std_server(config), config, watcher)

    def run_local(self) -> tuple[Any, Any]:
        """Trains, and evaluates after each checkpoint.

        Returns:
          The metrics of the last evaluation, and the list of the exporters' results.
        """
        assert_eval_spec(self._eval_spec)
        config = self._estimator.config
        logging.info(
            "Start train and evaluate loop. The evaluate will happen after every checkpoint. Checkpoint frequency is "
            f"determined based on RunConfig arguments: save_checkpoints_steps {config.save_checkpoints_steps} or "
            f"save_checkpoints_secs {config.save_checkpoints_secs}."
        )
        listener = self._new_listener(self._continuous_eval_listener)
        self._train((*self._train_spec.saving_listeners, listener))
        self._evaluate_if_trained_before(listener)
        result = listener.eval_result or EvalResult(status=EvalStatus.MISSING_CHECKPOINT)
        return result.metrics, listener.export_results

    def _new_evaluator(self) -> Any:
        return self._Evaluator(self._estimator, self._eval_spec, self._train_spec.max_steps)

    def _new_listener(self, continuous_eval_listener: Any) -> NewCheckpointListenerForEvaluate:
        return NewCheckpointListenerForEvaluate(
            self._new_evaluator(),
            self._eval_spec.throttle_secs,
            continuous_eval_listener,
            self._eval_spec.throttle_steps,
        )

    def _evaluate_if_trained_before(self, listener: NewCheckpointListenerForEvaluate) -> None:
        """Evaluates the last checkpoint if nothing was trained because the model had already reached `max_steps`."""
        if listener.has_begun or not self._train_spec.max_steps:
            return
        step = step_in_name(self._estimator.latest_checkpoint())
        if step is not None and step >= self._train_spec.max_steps:
            logging.info(
                "Evaluating the checkpoint of step %s: training had already reached max_steps. See "
                "`python -m fastsup docs dropin#estimator`.",
                step,
            )
            listener.evaluate_last(step)

    def _train(self, saving_listeners: Any) -> None:
        self._estimator.train(
            input_fn=self._train_spec.input_fn,
            max_steps=self._train_spec.max_steps,
            hooks=list(self._train_spec.hooks) + list(self._train_hooks),
            saving_listeners=saving_listeners,
        )

    def _start_std_server(self, config: Any) -> Any:
        return task_server.start_std_server(config)

    def _start_distributed_training(self, saving_listeners: Any = None) -> None:
        """Starts the server of this task, and trains."""
        config = self._estimator.config
        mark_task_started(self._estimator.model_dir, config.task_type, config.task_id)
        delay_secs = 0
        # In collective training, the Estimator starts the server, and all tasks start together.
        if not distribution.trains_collectively(config):
            # Start it before the delay, because the other tasks' servers wait for this one.
            if not task_server.is_google_environment():
                self._start_std_server(config)
            delay_secs = self._start_delay_secs(config)
        if delay_secs > 0:
            logging.info("Waiting %d secs before starting training.", delay_secs)
            time.sleep(delay_secs)
        self._train(saving_listeners)
        mark_task_ended(self._estimator.model_dir, config.task_type, config.task_id)

    @staticmethod
    def _start_delay_secs(config: Any) -> int:
        """Returns the seconds before this task trains. Staggered starts help asynchronous training to converge."""
        if config.task_type != TaskType.WORKER:
            return 0
        max_delay_secs = config.experimental_max_worker_delay_secs
        delay_secs: int = (config.task_id + 1) * _DELAY_SECS_PER_WORKER
        return min(_MAX_DELAY_SECS if max_delay_secs is None else int(max_delay_secs), delay_secs)

    def _start_continuous_evaluation(self) -> None:
        """Evaluates and exports until training has ended. Fails if no training task is alive."""
        assert_eval_spec(self._eval_spec)
        watcher = JobCompletionWatcher(self._estimator.model_dir)
        start_delay_secs = self._eval_spec.start_delay_secs
        if start_delay_secs:
            logging.info("Waiting %f secs before starting eval.", start_delay_secs)
            time.sleep(start_delay_secs)
        evaluator = self._new_evaluator()
        liveness = peer_liveness_of(self._estimator.config)
        max_steps = self._train_spec.max_steps
        self._pacing = EvaluatorPacing(self._eval_spec)
        while True:
            # Read this first, so that the following evaluation finds everything that was saved before training ended.
            is_last = watcher.chief_has_ended()
            result, should_stop = self._execute_evaluator_once(
                evaluator, self._continuous_eval_listener, self._eval_spec.throttle_secs, is_last, watcher.sleep
            )
            if should_stop:
                return
            if result is not None and result.status == EvalStatus.EVALUATED:
                global_step = result.metrics.get(ops.GraphKeys.GLOBAL_STEP)
                if global_step and max_steps and global_step >= max_steps:
                    logging.info("Exiting evaluation, global_step=%s >= train max_steps=%s", global_step, max_steps)
                    return
                liveness.record_alive()
            if is_last:
                logging.info(
                    "Exiting evaluation, training has ended before max_steps=%s. "
                    "See `python -m fastsup docs dropin#clusters`.",
                    max_steps,
                )
                return
            liveness.check()

    def _execute_evaluator_once(
        self,
        evaluator: Any,
        continuous_eval_listener: Any,
        throttle_secs: float,
        is_last: bool = False,
        sleep: Callable[[float], None] | None = None,
    ) -> tuple[Any, bool]:
        """Evaluates the newest checkpoint if it is new, then calls `sleep` until the next attempt is due.

        Returns:
          The `EvalResult` (None if the listener refused the evaluation), and True to stop.
        """
        assert_eval_spec(self._eval_spec)
        start = steady()
        result = None
        refused_by = "before_eval"
        if continuous_eval_listener.before_eval():
            throttle_steps = None if is_last else self._eval_spec.throttle_steps
            result, _ = evaluator.evaluate_and_export(*((throttle_steps,) if throttle_steps else ()))
            refused_by = "" if continuous_eval_listener.after_eval(result) else "after_eval"
        if result is None or refused_by:
            logging.info(f"Exiting evaluation, as requested by _ContinuousEvalListener.{refused_by}.")
            return result, True
        now = steady()
        if self._pacing.is_idle_too_long(result, start, now):
            return result, True
        wait_secs = self._pacing.secs_to_next_attempt(result, start, now, throttle_secs)
        if wait_secs > 0 and not is_last:
            logging.info("Waiting %f secs before starting next eval run.", wait_secs)
            (sleep or time.sleep)(wait_secs)
        return result, False


def train_and_evaluate(estimator: Any, train_spec: Any, eval_spec: Any) -> Any:
    """Trains, evaluates and exports an Estimator.

    A single process evaluates after each checkpoint. In a cluster (see `RunConfig` and TF_CONFIG), each task calls this
    function with the same arguments and the same model directory, and runs its own part. A cluster trains with
    between-graph replication, or synchronously with `MultiWorkerMirroredStrategy`.

    `TrainSpec.max_steps` ends training in both cases. The end of the data also ends training, but each worker of a
    cluster reads the data independently.

    Args:
      estimator: the `Estimator`.
      train_spec: `TrainSpec`.
      eval_spec: `EvalSpec`.

    Returns:
      In a single process, the metrics of the last evaluation and the list of the exporters' results. In a cluster,
      None.

    Raises:
      ValueError: If TF_CONFIG is invalid: for example, it has a second evaluator, or workers but no parameter server.
      TypeError: If an argument has the wrong type.
    """
    assert_eval_spec(eval_spec)  # TensorFlow also checks the spec first.
    executor = TrainingExecutor(estimator=estimator, train_spec=train_spec, eval_spec=eval_spec)
    check_job_layout(estimator.config, distribution.trains_collectively(estimator.config))
    return executor.run()
