"""One training of a model that was built: its hooks, its session and its loop."""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary import summary

from fastsup import train
from fastsup.estimator.collective.collective_training import CollectiveTraining
from fastsup.estimator.config.tensorflow_names import our_options, run_steps, training, v1
from fastsup.estimator.model import trained_model, training_hooks
from fastsup.estimator.model.user_model import UserModel

__all__ = ["TrainingRun"]


class TrainingRun:
    """Trains a model that was built in the default graph.

    Args:
      model: the model.
      spec: its `EstimatorSpec`.
      part: this task's part in a job of collectives, which opens the session in that case; or None.
    """

    def __init__(self, model: UserModel, spec: Any, part: CollectiveTraining | None) -> None:
        self._model = model
        self._spec = spec
        self._part = part

    def train(self, worker_hooks: list[Any], hooks: list[Any], global_step: Any, saving_listeners: list[Any]) -> Any:
        """Trains until a hook or the end of the input stops the training.

        Args:
          worker_hooks: hooks of the input.
          hooks: hooks of the caller.
          global_step: the global step.
          saving_listeners: listeners of the caller.

        Returns:
          The loss of the last step; None without a step.
        """
        spec, config, model_dir = self._spec, self._model.config, self._model.model_dir
        self._prepare_graph()
        task_hooks = [
            *worker_hooks,
            *hooks,
            *training_hooks.loss_hooks(spec.loss, global_step, config),
            *spec.training_hooks,
        ]
        task_hooks += training_hooks.progress_hooks(spec.loss, task_hooks, config)
        new_saver_hook = self._part.new_saver_hook if self._part else v1.train.CheckpointSaverHook
        saver_hooks, new_saver_hooks = training_hooks.checkpoint_hooks(
            [*task_hooks, *spec.training_chief_hooks], spec.scaffold, config, model_dir, new_saver_hook
        )
        training_hooks.add_listeners(saver_hooks, saving_listeners)
        summary_steps, count_steps = config.save_summary_steps, config.log_step_count_steps
        master_job_hooks = training_hooks.master_job_hooks(spec.scaffold, config)
        if master_job_hooks is not None:
            task_hooks += master_job_hooks
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
        """Adds the warm start, the summary of the loss and the saver to the graph."""
        model, spec = self._model, self._spec
        if model.warm_start_settings:
            model.maybe_warm_start(trained_model.newest_checkpoint(model.model_dir))
        if not any(tensor.op.name == "loss" for tensor in ops.get_collection(ops.GraphKeys.SUMMARIES)):
            summary.scalar("loss", spec.loss)
        ops.add_to_collection(ops.GraphKeys.LOSSES, spec.loss)
        training_hooks.add_default_saver(spec.scaffold, model.config)

    def _open_session(
        self, spec: Any, hooks: list[Any], chief_hooks: list[Any], summary_steps: Any, count_steps: Any
    ) -> Any:
        """Opens the session of a training, with the hooks of every task and those of the chief."""
        config = self._model.config
        open_session = training.MonitoredTrainingSession
        return open_session(
            master=config.master,
            is_chief=config.is_chief,
            checkpoint_dir=self._model.model_dir,
            scaffold=spec.scaffold,
            hooks=hooks,
            chief_only_hooks=chief_hooks,
            save_checkpoint_secs=0,  # A hook saves.
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
