"""TensorFlow's private attributes and methods of an Estimator. Each leads to the part that has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastsup.common.parts import PartAttribute, part_method
from fastsup.estimator.config.tensorflow_names import v1
from fastsup.estimator.model.replicated_model import ReplicatedModel
from fastsup.estimator.model.trainers import choose_trainer
from fastsup.estimator.model.training_run import TrainingRun
from fastsup.estimator.model.user_model import UserModel

__all__ = ["EstimatorForwards"]


class EstimatorForwards:
    """What programs read, assign and override in an Estimator besides its public interface."""

    _user_model: UserModel
    _model_trainer: Any

    _config = PartAttribute("_user_model", "config")
    _device_fn = PartAttribute("_user_model", "device_fn")
    _eval_distribution = PartAttribute("_user_model", "eval_distribution")
    _model_dir = PartAttribute("_user_model", "model_dir")
    _model_fn = PartAttribute("_user_model", "model_fn")
    _params = PartAttribute("_user_model", "params")
    _session_config = PartAttribute("_user_model", "session_config")
    _train_distribution = PartAttribute("_user_model", "train_distribution")
    _warm_start_settings = PartAttribute("_user_model", "warm_start_settings")

    _create_global_step = part_method("_user_model", "create_global_step")
    _create_and_assert_global_step = part_method("_user_model", "create_and_assert_global_step")
    _call_input_fn = part_method("_user_model", "call_input_fn")
    _call_model_fn = part_method("_user_model", "call_model_fn")
    _get_features_and_labels_from_input_fn = part_method("_user_model", "features_and_labels")
    _checkpoint_or_initialize = part_method("_user_model", "checkpoint_or_initialize")
    _maybe_warm_start = part_method("_user_model", "maybe_warm_start")

    _train_model_default = part_method("_model_trainer", "train")
    _train_model_distributed = part_method("_model_trainer", "train")

    _actual_eval = part_method("_model_evaluator", "evaluate")
    _convert_eval_steps_to_hooks = part_method("_model_evaluator", "steps_hooks")
    _evaluate_build_graph = part_method("_model_evaluator", "build_graph")
    _call_model_fn_eval = part_method("_model_evaluator", "call_model_fn")
    _call_model_fn_eval_distributed = part_method("_model_evaluator", "call_model_fn_in_replicas")
    _evaluate_run = part_method("_model_evaluator", "run")

    _get_features_from_input_fn = part_method("_model_predictor", "features")
    _validate_features_in_predict_input = part_method("_model_predictor", "warn_if_endless")
    _extract_batch_length = part_method("_model_predictor", "batch_length")
    _extract_keys = part_method("_model_predictor", "select_keys")

    _export_all_saved_models = part_method("_model_exporter", "export")
    _add_meta_graph_for_mode = part_method("_model_exporter", "add_meta_graph")

    def _convert_train_steps_to_hooks(self, steps: Any, max_steps: Any) -> list[Any]:
        return [] if steps is None and max_steps is None else [v1.train.StopAtStepHook(steps, max_steps)]

    def _train_model(self, input_fn: Callable[..., Any], hooks: list[Any], saving_listeners: list[Any]) -> Any:
        # Again, because a program may have assigned another strategy.
        self._model_trainer = choose_trainer(self._user_model)
        method = self._train_model_distributed if self._train_distribution else self._train_model_default
        return method(input_fn, hooks, saving_listeners)

    def _actual_train_model_distributed(
        self, strategy: Any, input_fn: Any, hooks: list[Any], saving_listeners: list[Any]
    ) -> Any:
        return ReplicatedModel(self._user_model, strategy).train(input_fn, hooks, saving_listeners)

    def _train_with_estimator_spec(
        self, estimator_spec: Any, worker_hooks: list[Any], hooks: list[Any], global_step_tensor: Any,
        saving_listeners: list[Any],
    ) -> Any:  # fmt: skip
        run = TrainingRun(self._user_model, estimator_spec, self._model_trainer.part)
        return run.train(worker_hooks, hooks, global_step_tensor, saving_listeners)
