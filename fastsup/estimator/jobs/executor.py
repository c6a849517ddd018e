"""TrainingExecutor: what each task of a job does, from its role in the RunConfig."""

from __future__ import annotations

import time
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging

from fastsup.cluster import server as server_of_task
from fastsup.cluster.job_completion import JobWatch, note_end, note_start
from fastsup.cluster.peer_liveness import trainers_of
from fastsup.cluster.tf_config import described, read_tf_config
from fastsup.estimator.config.run_config import TaskType
from fastsup.estimator.jobs.deleted_checkpoint import step_in_name
from fastsup.estimator.jobs.eval_listener import ContinuousEvalListener, NewCheckpointListenerForEvaluate
from fastsup.estimator.jobs.eval_result import EvalResult, EvalStatus
from fastsup.estimator.jobs.evaluator import Evaluator
from fastsup.estimator.jobs.specs import EvalSpec, TrainSpec, assert_eval_spec, validate_hooks
from fastsup.estimator.model import estimator as estimator_lib

__all__ = ["TrainingExecutor"]

_MAX_DELAY_SECS = 60
_DELAY_SECS_PER_WORKER = 5
# Seconds between two looks for a checkpoint of an evaluator that isn't to wait between two evaluations.
_LOOK_SECS = 0.2
_OVERLOADS = (
    "EvalSpec.throttle_secs is set as 0. This might overload the job before finding (next) new checkpoint. Please "
    "consider to increase it."
)


class TrainingExecutor:
    """Trains and evaluates an Estimator, in one process or as a task of a cluster.

    Args:
      estimator: the `Estimator`.
      train_spec: `TrainSpec`: how to train.
      eval_spec: `EvalSpec`: how to evaluate; None if nothing is to be evaluated.
      train_hooks: iterable of `tf.compat.v1.train.SessionRunHook`, run beside those of train_spec.
      continuous_eval_listener: `ContinuousEvalListener` to ask around each evaluation whether to go on.

    Raises:
      TypeError: an argument is of the wrong type.
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
        if not isinstance(train_spec, TrainSpec):
            raise TypeError(f"`train_spec` must have type `tf.estimator.TrainSpec`. Got: {type(train_spec)}")
        if eval_spec and not isinstance(eval_spec, EvalSpec):
            raise TypeError(
                f"`eval_spec` must be either `None` or have type `tf.estimator.EvalSpec`. Got: {type(eval_spec)}"
            )
        self._estimator = estimator
        self._train_spec = train_spec
        self._eval_spec = eval_spec
        self._train_hooks = validate_hooks(train_hooks)
        if continuous_eval_listener and not isinstance(continuous_eval_listener, ContinuousEvalListener):
            raise TypeError("`continuous_eval_listener` must have type `_ContinuousEvalListener`.")
        self._continuous_eval_listener = continuous_eval_listener or ContinuousEvalListener()
        # When an evaluator has last found a new checkpoint, or began to look for one, in seconds of time.time.
        self._idle_since: float | None = None

    @property
    def estimator(self) -> Any:
        """The Estimator."""
        return self._estimator

    def run(self) -> Any:
        """Does what the task has to do: `run_local` without a cluster, else `run_ROLE`.

        Returns:
          Without a cluster the metrics of the last evaluation, and what the exporters then returned. In a cluster None.

        Raises:
          ValueError: the task's role is missing, is `local`, or isn't one that can be run.
        """
        config = self._estimator.config
        if not config.cluster_spec and config.task_type != TaskType.EVALUATOR:
            logging.info("Running training and evaluation locally (non-distributed).")
            return self.run_local()
        if not config.task_type:
            raise ValueError(
                "`estimator.config` must have task_type set. This usually means TF_CONFIG environment is not set "
                f"correctly. {described(read_tf_config())}"
            )
        if config.task_type == "local":
            raise ValueError(
                "`task.type` in TF_CONFIG cannot be `local`. Leaving `cluster` and `task` properties in TF_CONFIG "
                "absent triggers train and evaluate `Estimator` locally (non-distributed). "
                f"{described(read_tf_config())}"
            )
        names = [name for name in dir(self) if name.startswith("run_") and name != "run_local"]
        roles = [name.removeprefix("run_") for name in names if callable(getattr(self, name))]
        if config.task_type not in roles:
            raise ValueError(
                f"Task type {config.task_type} is not supported. Supported task types are {roles}. "
                f"{described(read_tf_config())}"
            )
        getattr(self, f"run_{config.task_type}")()
        return None

    def run_chief(self) -> None:
        """Trains, and saves the checkpoints."""
        self._start_distributed_training(saving_listeners=self._train_spec.saving_listeners)

    def run_worker(self) -> None:
        """Trains."""
        self._start_distributed_training()

    def run_master(self) -> None:
        """Trains, saves the checkpoints, and evaluates them."""
        assert_eval_spec(self._eval_spec)
        # An evaluation at max_steps or beyond makes the final export. It can be made twice: if the step that training
        # stops by isn't yet the one that a checkpoint has just been saved with.
        listener = self._new_listener(ContinuousEvalListener())
        self._start_distributed_training(saving_listeners=(*self._train_spec.saving_listeners, listener))
        self._evaluate_if_trained_before(listener)

    def run_evaluator(self) -> None:
        """Evaluates the checkpoints that other tasks save, until training has ended."""
        self._start_continuous_evaluation()

    def run_ps(self) -> None:
        """Serves variables until the job has ended."""
        config = self._estimator.config
        watch = JobWatch(self._estimator.model_dir)
        server_of_task.serve_until_job_ends(self._start_std_server(config), config, watch)

    def run_local(self) -> tuple[Any, Any]:
        """Trains, and evaluates after each checkpoint.

        Returns:
          The metrics of the last evaluation, and what the exporters then returned.
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
        """Evaluates the checkpoint of a model that had reached max_steps, for which there was no training."""
        if listener.has_begun or not self._train_spec.max_steps:
            return
        step = step_in_name(self._estimator.latest_checkpoint())
        if step is not None and step >= self._train_spec.max_steps:
            logging.info("Evaluating the checkpoint of step %s: training had reached max_steps before.", step)
            listener.evaluate_last(step)

    def _train(self, saving_listeners: Any) -> None:
        self._estimator.train(
            input_fn=self._train_spec.input_fn,
            max_steps=self._train_spec.max_steps,
            hooks=list(self._train_spec.hooks) + list(self._train_hooks),
            saving_listeners=saving_listeners,
        )

    def _start_std_server(self, config: Any) -> Any:
        return server_of_task.start_std_server(config)

    def _start_distributed_training(self, saving_listeners: Any = None) -> None:
        config = self._estimator.config
        note_start(self._estimator.model_dir, config.task_type, config.task_id)
        # Before the delay: the other tasks' servers wait for this one.
        if not server_of_task.is_google_environment():
            self._start_std_server(config)
        # Workers that start one after the other help an asynchronous training to converge. The chief starts at once.
        if config.task_type == TaskType.WORKER:
            max_delay_secs = config.experimental_max_worker_delay_secs
            max_delay_secs = _MAX_DELAY_SECS if max_delay_secs is None else int(max_delay_secs)
            delay_secs = min(max_delay_secs, (config.task_id + 1) * _DELAY_SECS_PER_WORKER)
            if delay_secs > 0:
                logging.info("Waiting %d secs before starting training.", delay_secs)
                time.sleep(delay_secs)
        self._train(saving_listeners)
        note_end(self._estimator.model_dir, config.task_type, config.task_id)

    def _start_continuous_evaluation(self) -> None:
        """Evaluates and exports until training has ended, or fails when nobody is left who trains."""
        assert_eval_spec(self._eval_spec)
        watch = JobWatch(self._estimator.model_dir)
        start_delay_secs = self._eval_spec.start_delay_secs
        if start_delay_secs:
            logging.info("Waiting %f secs before starting eval.", start_delay_secs)
            time.sleep(start_delay_secs)
        evaluator = self._new_evaluator()
        trainers = trainers_of(self._estimator.config)
        max_steps = self._train_spec.max_steps
        self._idle_since = None
        should_stop = False
        while not should_stop:
            # What was saved before this look is found by the evaluation after it.
            is_last = watch.chief_has_ended()
            result, should_stop = self._execute_evaluator_once(
                evaluator, self._continuous_eval_listener, self._eval_spec.throttle_secs, is_last
            )
            if should_stop:
                return
            if result is not None and result.status == EvalStatus.EVALUATED:
                global_step = result.metrics.get(ops.GraphKeys.GLOBAL_STEP)
                if global_step and max_steps and global_step >= max_steps:
                    logging.info("Exiting evaluation, global_step=%s >= train max_steps=%s", global_step, max_steps)
                    return
                trainers.are_there()
            if is_last:
                logging.info("Exiting evaluation, training has ended before max_steps=%s.", max_steps)
                return
            trainers.check()

    def _execute_evaluator_once(
        self, evaluator: Any, continuous_eval_listener: Any, throttle_secs: float, is_last: bool = False
    ) -> tuple[Any, bool]:
        """Makes one evaluation, or finds that there is none to make, and waits for the next.

        Returns:
          The `EvalResult`, or None, and whether to stop.
        """
        assert_eval_spec(self._eval_spec)
        start = time.time()
        if not continuous_eval_listener.before_eval():
            logging.info("Exiting evaluation, as requested by _ContinuousEvalListener.before_eval.")
            return None, True
        throttle_steps = None if is_last else self._eval_spec.throttle_steps
        result, _ = evaluator.evaluate_and_export(*((throttle_steps,) if throttle_steps else ()))
        if not continuous_eval_listener.after_eval(result):
            logging.info("Exiting evaluation, as requested by _ContinuousEvalListener.after_eval.")
            return result, True
        now = time.time()
        if result.status not in (EvalStatus.MISSING_CHECKPOINT, EvalStatus.NO_NEW_CHECKPOINT):
            self._idle_since = now
        elif self._is_idle_too_long(start, now):
            return result, True
        wait_secs = throttle_secs - (now - start)
        if wait_secs <= 0 and result.status != EvalStatus.EVALUATED:
            if throttle_secs == 0:
                logging.warning(_OVERLOADS)
            wait_secs = _LOOK_SECS
        if self._idle_since is not None and self._eval_spec.idle_timeout_secs is not None:
            wait_secs = min(wait_secs, self._idle_since + self._eval_spec.idle_timeout_secs - now)
        if wait_secs > 0 and not is_last:
            logging.info("Waiting %f secs before starting next eval run.", wait_secs)
            time.sleep(wait_secs)
        return result, False

    def _is_idle_too_long(self, start: float, now: float) -> bool:
        if self._idle_since is None:
            self._idle_since = start
        limit = self._eval_spec.idle_timeout_secs
        if limit is None or now - self._idle_since < limit:
            return False
        logging.warning(
            "Exiting evaluation, there has been no new checkpoint for %f secs (EvalSpec.idle_timeout_secs=%s).",
            now - self._idle_since,
            limit,
        )
        return True
