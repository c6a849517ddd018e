"""Training of a built model, with its hooks, session and loop; and the trainers that build and train models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary import summary
from tensorflow.python.training import training_util

from fastsup import train
from fastsup.cluster.tf_config import TaskType
from fastsup.estimator.collective.collective_training import CollectiveTraining, collective_training
from fastsup.estimator.config import distribution
from fastsup.estimator.config.tensorflow_names import our_options, run_steps, training, v1
from fastsup.estimator.model import model_checkpoints
from fastsup.estimator.model.model_fn import ModeKeys
from fastsup.estimator.model.user_model import UserModel
from fastsup.train.hooks.checkpoint_saver import TFCheckpointSaverHook

__all__ = [
    "CollectiveTrainer",
    "LocalTrainer",
    "StrategyTrainer",
    "TrainingRun",
    "add_default_saver",
    "add_listeners",
    "checkpoint_hooks",
    "choose_trainer",
    "loss_hooks",
    "master_job_hooks",
    "progress_hooks",
]


def add_default_saver(scaffold: Any, config: Any) -> None:
    """Adds a saver to the default graph unless the model has one."""
    if scaffold.saver or ops.get_collection(ops.GraphKeys.SAVERS):
        return
    kept = {
        "max_to_keep": config.keep_checkpoint_max,
        "keep_checkpoint_every_n_hours": config.keep_checkpoint_every_n_hours,
    }
    # The default Saver is built with the scaffold, once all variables exist.
    default = v1.train.Saver(defer_build=True, sharded=True, save_relative_paths=True, **kept)
    ops.add_to_collection(ops.GraphKeys.SAVERS, default)


def loss_hooks(loss: Any, global_step: Any, config: Any) -> list[Any]:
    """Returns the hooks that check and log the loss."""
    hooks: list[Any] = [v1.train.NanTensorHook(loss)]
    if config.log_step_count_steps is not None:
        values = {"loss": loss, "step": global_step}
        hooks.append(v1.train.LoggingTensorHook(values, every_n_iter=config.log_step_count_steps))
    return hooks


def progress_hooks(loss: Any, hooks: list[Any], config: Any) -> list[Any]:
    """Returns the hook that shows progress, if the `RunConfig` requests one and the given hooks don't include one."""
    if not config.progress or any(isinstance(hook, train.ProgressHook) for hook in hooks):
        return []
    return [train.ProgressHook({"loss": loss})]


def checkpoint_hooks(
    hooks: list[Any], scaffold: Any, config: Any, model_dir: Any, new_hook: Callable[..., Any]
) -> tuple[list[Any], list[Any]]:
    """Returns all hooks that save checkpoints, and those that are new.

    A hook is created if `hooks` has none and the `RunConfig` has an interval.
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
    """Adds each listener, once, to the first hook that saves checkpoints."""
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
    """Returns the summary hooks of a job with a master. Worker 0 has them, because the master evaluates."""
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


class TrainingRun:
    """Trains a model in the default graph. `part` is this task's part of a collective job, or None."""

    def __init__(self, model: UserModel, spec: Any, part: CollectiveTraining | None) -> None:
        self._model = model
        self._spec = spec
        self._part = part

    def train(self, worker_hooks: list[Any], hooks: list[Any], global_step: Any, saving_listeners: list[Any]) -> Any:
        """Trains until a hook or the end of the input stops it. Returns the last loss, or None if no step ran."""
        spec, config, model_dir = self._spec, self._model.config, self._model.model_dir
        self._prepare_graph()
        task_hooks = [
            *worker_hooks,
            *hooks,
            *loss_hooks(spec.loss, global_step, config),
            *spec.training_hooks,
        ]
        task_hooks += progress_hooks(spec.loss, task_hooks, config)
        new_saver_hook = self._part.new_saver_hook if self._part else v1.train.CheckpointSaverHook
        saver_hooks, new_saver_hooks = checkpoint_hooks(
            [*task_hooks, *spec.training_chief_hooks], spec.scaffold, config, model_dir, new_saver_hook
        )
        add_listeners(saver_hooks, saving_listeners)
        summary_steps, count_steps = config.save_summary_steps, config.log_step_count_steps
        master_hooks = master_job_hooks(spec.scaffold, config)
        if master_hooks is not None:
            task_hooks += master_hooks
            summary_steps, count_steps = 0, None

        chief_hooks = [*new_saver_hooks, *spec.training_chief_hooks]
        open_session = self._part.open_session if self._part else self._open_session
        results: list[Any] = []
        with open_session(spec, task_hooks, chief_hooks, summary_steps, count_steps) as session:
            run_steps(session, [spec.train_op, spec.loss], results)
        if not results:
            logging.warning("Training with estimator made no steps. Perhaps input is empty or misspecified.")
            return None
        return results[0][1]

    def _prepare_graph(self) -> None:
        """Adds the warm start, the loss summary and the saver to the graph."""
        model, spec = self._model, self._spec
        if model.warm_start_settings:
            model.maybe_warm_start(model_checkpoints.newest_checkpoint(model.model_dir))
        if not any(tensor.op.name == "loss" for tensor in ops.get_collection(ops.GraphKeys.SUMMARIES)):
            summary.scalar("loss", spec.loss)
        ops.add_to_collection(ops.GraphKeys.LOSSES, spec.loss)
        add_default_saver(spec.scaffold, model.config)

    def _open_session(
        self, spec: Any, hooks: list[Any], chief_hooks: list[Any], summary_steps: Any, count_steps: Any
    ) -> Any:
        """Opens the training session, with the hooks of every task and of the chief."""
        config = self._model.config
        open_session = training.MonitoredTrainingSession
        return open_session(
            master=config.master,
            is_chief=config.is_chief,
            checkpoint_dir=self._model.model_dir,
            scaffold=spec.scaffold,
            hooks=hooks,
            chief_only_hooks=chief_hooks,
            save_checkpoint_secs=0,  # A hook saves the checkpoints.
            save_summaries_steps=summary_steps,
            config=self._model.session_config,
            max_wait_secs=config.session_creation_timeout_secs,
            log_step_count_steps=count_steps,
            save_graph_def=config.checkpoint_save_graph_def,
            **our_options(
                open_session,
                train.MonitoredTrainingSession,
                executor=config.executor,
                recovery_wait_secs=config.recovery_wait_secs,
                profiler=config.profiler,
            ),
        )


class LocalTrainer:
    """Trains a `UserModel` without a strategy."""

    part = None

    def __init__(self, model: UserModel) -> None:
        self._model = model

    def train(self, input_fn: Callable[..., Any], hooks: list[Any], saving_listeners: list[Any]) -> Any:
        """Builds the model and trains it. Returns the loss of the last step, or None if no step ran."""
        model, methods = self._model, self._model.methods
        with ops.Graph().as_default() as graph, graph.device(model.device_fn):
            # None in a subclass whose model_fn creates the global step.
            if model.seed_and_create_global_step(graph) is not None:
                training_util._get_or_create_global_step_read(graph)
            features, labels, input_hooks = methods._get_features_and_labels_from_input_fn(input_fn, ModeKeys.TRAIN)
            spec = methods._call_model_fn(features, labels, ModeKeys.TRAIN, methods.config)
            global_step = v1.train.get_global_step(graph)
            return methods._train_with_estimator_spec(spec, list(input_hooks), hooks, global_step, saving_listeners)


class StrategyTrainer:
    """Trains a `UserModel` with a strategy, on the devices of this process."""

    part = None

    def __init__(self, model: UserModel) -> None:
        self._model = model

    def train(self, input_fn: Callable[..., Any], hooks: list[Any], saving_listeners: list[Any]) -> Any:
        """Builds the model and trains it. See `LocalTrainer.train`."""
        model, strategy = self._model, self._model.train_distribution
        distribution.check_devices("train_distribute", strategy, model.session_config)
        strategy.configure(model.session_config)
        return model.methods._actual_train_model_distributed(strategy, input_fn, hooks, saving_listeners)


class CollectiveTrainer:
    """Trains a `UserModel` in a task of a collective job.

    Attributes:
      part: this task's part in the job during training. Other trainers have none.
    """

    def __init__(self, model: UserModel) -> None:
        self._model = model
        self.part: CollectiveTraining | None = None

    def train(self, input_fn: Callable[..., Any], hooks: list[Any], saving_listeners: list[Any]) -> Any:
        """Builds the model and trains it. See `LocalTrainer.train`."""
        model, strategy = self._model, self._model.train_distribution
        distribution.check_devices("train_distribute", strategy, model.session_config)
        checkpoint = model_checkpoints.newest_checkpoint(model.model_dir)
        with collective_training(model.config, strategy, model.session_config, checkpoint) as self.part:
            try:
                return model.methods._actual_train_model_distributed(strategy, input_fn, hooks, saving_listeners)
            finally:
                self.part = None


def choose_trainer(model: UserModel) -> LocalTrainer | StrategyTrainer | CollectiveTrainer:
    """Returns the trainer for a model's strategy and task."""
    if not model.train_distribution:
        return LocalTrainer(model)
    return CollectiveTrainer(model) if distribution.trains_collectively(model.config) else StrategyTrainer(model)
