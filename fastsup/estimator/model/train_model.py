"""Training: `Estimator.train`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.framework import ops, random_seed
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary import summary
from tensorflow.python.training import saver, training_util

from fastsup import train as session_layer
from fastsup.cluster.tf_config import TaskType
from fastsup.estimator.model import trained_model, warm_start
from fastsup.estimator.model.base import EstimatorBase, check_hooks, check_listeners, check_steps
from fastsup.estimator.model.model_fn import ModeKeys
from fastsup.train.hooks.checkpoint_saver import TFCheckpointSaverHook

__all__ = ["Training"]


def _add_listeners(saver_hooks: list[Any], listeners: list[Any]) -> None:
    """Gives the saver, the first if there are several, the listeners that it hasn't got."""
    if not listeners:
        return
    if not saver_hooks:
        raise ValueError(
            "There should be a CheckpointSaverHook to use saving_listeners. Please set one of the "
            "RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs."
        )
    known = saver_hooks[0]._listeners
    known += [listener for listener in listeners if listener not in known]


class Training(EstimatorBase):
    """The part of an Estimator that trains."""

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Any = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Any = None,
    ) -> Any:
        """Trains the model, from its newest checkpoint on.

        Args:
          input_fn: function that makes the input: a `tf.data.Dataset` of (features, labels), or such a pair. It may
            take `mode`, `params` and `config`.
          hooks: `SessionRunHook` objects.
          steps: steps to train; a second call trains as many more. Or
          max_steps: global step to train to; a second call then trains no step. With neither, training ends with the
            input, or when a hook says so.
          saving_listeners: `CheckpointSaverListener` objects, called around each save.

        Returns:
          This Estimator.

        Raises:
          ValueError: both steps and max_steps, one that isn't positive, or a task that doesn't train.
          TypeError: a hook, a listener or a number of steps that is none.
        """
        if self.config.task_type in (TaskType.EVALUATOR, TaskType.PS):
            raise ValueError(
                "Train has been called wrong configuration. Please use tf.estimator.train_and_evaluate which calls "
                f"proper API according to given configuration. Current configuration: {self.config}."
            )
        with context.graph_mode():
            if steps is not None and max_steps is not None:
                raise ValueError("Can not provide both steps and max_steps.")
            check_steps("steps", steps)
            check_steps("max_steps", max_steps)
            if max_steps is not None and max_steps <= trained_model.global_step_of(self._model_dir):
                logging.info("Skipping training since max_steps has already saved.")
                return self
            hooks = check_hooks(hooks)
            hooks.extend(self._convert_train_steps_to_hooks(steps, max_steps))
            loss = self._train_model(input_fn, hooks, check_listeners(saving_listeners))
            logging.info("Loss for final step: %s.", loss)
        return self

    def _convert_train_steps_to_hooks(self, steps: Any, max_steps: Any) -> list[Any]:
        """The hook that ends the training, if it has an end."""
        if steps is None and max_steps is None:
            return []
        return [session_layer.StopAtStepHook(steps, max_steps)]

    def _train_model(self, input_fn: Callable[..., Any], hooks: list[Any], saving_listeners: list[Any]) -> Any:
        """Trains, and returns the loss of the last step."""
        if self._train_distribution:
            return self._train_model_distributed(input_fn, hooks, saving_listeners)
        return self._train_model_default(input_fn, hooks, saving_listeners)

    def _train_model_distributed(self, input_fn: Any, hooks: list[Any], saving_listeners: list[Any]) -> Any:
        """Trains with a strategy."""
        raise NotImplementedError

    def _train_model_default(self, input_fn: Callable[..., Any], hooks: list[Any], saving_listeners: list[Any]) -> Any:
        """Trains without a strategy."""
        with ops.Graph().as_default() as graph, graph.device(self._device_fn):
            random_seed.set_random_seed(self._config.tf_random_seed)
            # A subclass may leave the global step to the model_fn.
            if self._create_and_assert_global_step(graph) is not None:
                training_util._get_or_create_global_step_read(graph)
            features, labels, input_hooks = self._get_features_and_labels_from_input_fn(input_fn, ModeKeys.TRAIN)
            spec = self._call_model_fn(features, labels, ModeKeys.TRAIN, self.config)
            global_step = training_util.get_global_step(graph)
            return self._train_with_estimator_spec(spec, list(input_hooks), hooks, global_step, saving_listeners)

    def _prepare_graph(self, spec: Any) -> None:
        """Adds to the graph what every training has: a start from another model, a summary of the loss, a saver."""
        if self._warm_start_settings and not trained_model.newest_checkpoint(self._model_dir):
            warm_start.warm_start(self._warm_start_settings)
        if not any(tensor.op.name == "loss" for tensor in ops.get_collection(ops.GraphKeys.SUMMARIES)):
            summary.scalar("loss", spec.loss)
        ops.add_to_collection(ops.GraphKeys.LOSSES, spec.loss)
        if not (spec.scaffold.saver or ops.get_collection(ops.GraphKeys.SAVERS)):
            ops.add_to_collection(
                ops.GraphKeys.SAVERS,
                saver.Saver(
                    sharded=True,
                    max_to_keep=self._config.keep_checkpoint_max,
                    keep_checkpoint_every_n_hours=self._config.keep_checkpoint_every_n_hours,
                    defer_build=True,
                    save_relative_paths=True,
                ),
            )

    def _hooks_of_a_master_job(self, scaffold: Any) -> list[Any] | None:
        """The summary hooks where a master evaluates: worker 0 has them then. None where there is no such master."""
        config = self._config
        jobs = config.cluster_spec.jobs if config.cluster_spec else []
        if TaskType.WORKER not in jobs or TaskType.MASTER not in jobs:
            return None
        hooks: list[Any] = []
        if config.task_type == TaskType.WORKER and config.task_id == 0:
            if config.save_summary_steps and config.save_summary_steps > 0:
                hooks.append(
                    session_layer.SummarySaverHook(
                        save_steps=config.save_summary_steps, output_dir=config.model_dir, scaffold=scaffold
                    )
                )
            if config.log_step_count_steps and config.log_step_count_steps > 0:
                hooks.append(
                    session_layer.StepCounterHook(
                        every_n_steps=config.log_step_count_steps, output_dir=config.model_dir
                    )
                )
        return hooks

    def _train_with_estimator_spec(
        self, estimator_spec: Any, worker_hooks: list[Any], hooks: list[Any], global_step_tensor: Any,
        saving_listeners: list[Any],
    ) -> Any:  # fmt: skip
        """Trains a model that was built in the default graph.

        Args:
          estimator_spec: the model.
          worker_hooks: the hooks of the input; those of the training are added to them.
          hooks: the caller's hooks.
          global_step_tensor: the global step.
          saving_listeners: the caller's listeners.

        Returns:
          The loss of the last step; None if there was no step.
        """
        spec, config = estimator_spec, self._config
        self._prepare_graph(spec)
        worker_hooks.extend(hooks)
        worker_hooks.append(session_layer.NanTensorHook(spec.loss))
        if config.log_step_count_steps is not None:
            worker_hooks.append(
                session_layer.LoggingTensorHook(
                    {"loss": spec.loss, "step": global_step_tensor}, every_n_iter=config.log_step_count_steps
                )
            )
        worker_hooks.extend(spec.training_hooks)
        if config.progress and not any(isinstance(hook, session_layer.ProgressHook) for hook in worker_hooks):
            worker_hooks.append(session_layer.ProgressHook({"loss": spec.loss}))

        chief_hooks: list[Any] = []
        given = [*worker_hooks, *spec.training_chief_hooks]
        saver_hooks = [hook for hook in given if isinstance(hook, TFCheckpointSaverHook)]
        if not saver_hooks and (config.save_checkpoints_secs or config.save_checkpoints_steps):
            chief_hooks.append(
                session_layer.CheckpointSaverHook(
                    self._model_dir,
                    save_secs=config.save_checkpoints_secs,
                    save_steps=config.save_checkpoints_steps,
                    scaffold=spec.scaffold,
                    save_graph_def=config.checkpoint_save_graph_def,
                    async_save=config.async_save,
                )
            )
            saver_hooks = chief_hooks[:1]
        _add_listeners(saver_hooks, saving_listeners)

        save_summary_steps, log_step_count_steps = config.save_summary_steps, config.log_step_count_steps
        of_master_job = self._hooks_of_a_master_job(spec.scaffold)
        if of_master_job is not None:
            save_summary_steps, log_step_count_steps = 0, None
            worker_hooks.extend(of_master_job)

        restored = functools.partial(trained_model.newest_checkpoint, self._model_dir)
        with (
            trained_model.explaining_what_is_missing(restored),
            session_layer.MonitoredTrainingSession(
                master=config.master,
                is_chief=config.is_chief,
                checkpoint_dir=self._model_dir,
                scaffold=spec.scaffold,
                hooks=worker_hooks,
                chief_only_hooks=(*chief_hooks, *spec.training_chief_hooks),
                save_checkpoint_secs=0,  # A hook does that.
                save_summaries_steps=save_summary_steps,
                config=self._session_config,
                max_wait_secs=config.session_creation_timeout_secs,
                log_step_count_steps=log_step_count_steps,
                save_graph_def=config.checkpoint_save_graph_def,
                executor=config.executor,
                recovery_wait_secs=config.recovery_wait_secs,
                profiler=config.profiler,
            ) as session,
        ):
            session.run_loop([spec.train_op, spec.loss])
        # Also where the input has ended the loop.
        loss = None if session.last_result is None else session.last_result[1]
        if loss is None:
            logging.warning("Training with estimator made no steps. Perhaps input is empty or misspecified.")
        return loss
