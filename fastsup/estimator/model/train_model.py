"""Training: `Estimator.train`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary import summary
from tensorflow.python.training import training_util

from fastsup import train as session_layer
from fastsup.cluster.task_settings import TaskType
from fastsup.estimator.model import trained_model, training_hooks, warm_start
from fastsup.estimator.model.arguments import check_hooks, check_listeners, check_steps
from fastsup.estimator.model.base import EstimatorBase
from fastsup.estimator.model.model_fn import ModeKeys

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Training"]


class Training(EstimatorBase):
    """The part of an Estimator that trains."""

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Any = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Any = None,
    ) -> Self:
        """Trains the model, starting from its newest checkpoint.

        Args:
          input_fn: function that makes the input: a `tf.data.Dataset` of (features, labels), or such a pair. It may
            take `mode`, `params` and `config`.
          hooks: `SessionRunHook` objects.
          steps: number of steps to train. A second call trains as many steps again. Or
          max_steps: global step at which training ends. A second call trains no step. Neither given: training ends with
            the input, or when a hook requests a stop.
          saving_listeners: `CheckpointSaverListener` objects, called around each save.

        Returns:
          This Estimator.

        Raises:
          ValueError: both steps and max_steps are given, or one isn't positive; or this task doesn't train.
          TypeError: a hook, a listener or a number of steps is of the wrong type.
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
        """The hook that ends the training after a number of steps or at a global step, if one is given."""
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
            # None in a subclass whose model_fn makes the global step.
            if self._seed_and_create_global_step(graph) is not None:
                training_util._get_or_create_global_step_read(graph)
            features, labels, input_hooks = self._get_features_and_labels_from_input_fn(input_fn, ModeKeys.TRAIN)
            spec = self._call_model_fn(features, labels, ModeKeys.TRAIN, self.config)
            global_step = training_util.get_global_step(graph)
            return self._train_with_estimator_spec(spec, list(input_hooks), hooks, global_step, saving_listeners)

    def _prepare_graph(self, spec: Any) -> None:
        """Adds the warm start, the summary of the loss and the saver to the graph."""
        if self._warm_start_settings and not trained_model.newest_checkpoint(self._model_dir):
            warm_start.warm_start(self._warm_start_settings)
        if not any(tensor.op.name == "loss" for tensor in ops.get_collection(ops.GraphKeys.SUMMARIES)):
            summary.scalar("loss", spec.loss)
        ops.add_to_collection(ops.GraphKeys.LOSSES, spec.loss)
        training_hooks.add_default_saver(spec.scaffold, self._config)

    def _train_with_estimator_spec(
        self, estimator_spec: Any, worker_hooks: list[Any], hooks: list[Any], global_step_tensor: Any,
        saving_listeners: list[Any],
    ) -> Any:  # fmt: skip
        """Trains a model that was built in the default graph.

        Args:
          estimator_spec: the model.
          worker_hooks: hooks of the input.
          hooks: hooks of the caller.
          global_step_tensor: the global step.
          saving_listeners: listeners of the caller.

        Returns:
          The loss of the last step; None if there was no step.
        """
        spec, config = estimator_spec, self._config
        self._prepare_graph(spec)
        task_hooks = [
            *worker_hooks,
            *hooks,
            *training_hooks.loss_hooks(spec.loss, global_step_tensor, config),
            *spec.training_hooks,
        ]
        task_hooks += training_hooks.progress_hooks(spec.loss, task_hooks, config)
        saver_hooks, new_saver_hooks = training_hooks.checkpoint_hooks(
            [*task_hooks, *spec.training_chief_hooks], spec.scaffold, config, self._model_dir, self._new_saver_hook
        )
        training_hooks.add_listeners(saver_hooks, saving_listeners)
        summary_steps, count_steps = config.save_summary_steps, config.log_step_count_steps
        master_job_hooks = training_hooks.master_job_hooks(spec.scaffold, config)
        if master_job_hooks is not None:
            task_hooks += master_job_hooks
            summary_steps, count_steps = 0, None

        find_checkpoint = functools.partial(trained_model.newest_checkpoint, self._model_dir)
        chief_hooks = [*new_saver_hooks, *spec.training_chief_hooks]
        with (
            trained_model.explaining_missing_variables(find_checkpoint),
            self._open_training_session(spec.scaffold, task_hooks, chief_hooks, summary_steps, count_steps) as session,
        ):
            session.run_loop([spec.train_op, spec.loss])
        # The session keeps the last result, also if the end of the input has ended the loop.
        if session.last_result is None:
            logging.warning("Training with estimator made no steps. Perhaps input is empty or misspecified.")
            return None
        return session.last_result[1]

    def _new_saver_hook(self, **options: Any) -> Any:
        """Makes the hook that saves the checkpoints, with the arguments of `CheckpointSaverHook`."""
        return session_layer.CheckpointSaverHook(**options)

    def _open_training_session(
        self, scaffold: Any, hooks: list[Any], chief_hooks: list[Any], summary_steps: Any, count_steps: Any
    ) -> Any:
        """Opens the session of a training, with the hooks of every task and those of the chief."""
        config = self._config
        return session_layer.MonitoredTrainingSession(
            master=config.master,
            is_chief=config.is_chief,
            checkpoint_dir=self._model_dir,
            scaffold=scaffold,
            hooks=hooks,
            chief_only_hooks=chief_hooks,
            save_checkpoint_secs=0,  # A hook saves.
            save_summaries_steps=summary_steps,
            config=self._session_config,
            max_wait_secs=config.session_creation_timeout_secs,
            log_step_count_steps=count_steps,
            save_graph_def=config.checkpoint_save_graph_def,
            executor=config.executor,
            recovery_wait_secs=config.recovery_wait_secs,
            profiler=config.profiler,
        )
