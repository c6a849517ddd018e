"""Estimator, which trains, evaluates, exports and predicts with a model that a function builds."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tensorflow.python.eager import context
from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.util import deprecation, function_utils

from fastsup.checkpoint.restore import describe_variables
from fastsup.cluster.tf_config import TaskType
from fastsup.common.parts import Delegated, delegate
from fastsup.core import timeline
from fastsup.core.checks import suggest_keywords
from fastsup.estimator.config.tensorflow_names import tf, v1
from fastsup.estimator.model import model_checkpoints
from fastsup.estimator.model.argument_checks import check_hooks, check_listeners, check_steps, check_type
from fastsup.estimator.model.evaluate_once import Evaluator
from fastsup.estimator.model.model_fn import ModeKeys
from fastsup.estimator.model.prediction import PredictionRun
from fastsup.estimator.model.saved_models import Exporter
from fastsup.estimator.model.training_run import TrainingRun, choose_trainer
from fastsup.estimator.model.user_model import ReplicatedModel, UserModel

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Estimator",
    "EstimatorForwards",
    "EstimatorV1",
    "add_metrics",
    "check_estimator",
]


class EstimatorForwards:
    """Members other than the public interface that programs read, assign and override in an Estimator."""

    _user_model: UserModel
    _model_trainer: Any

    _config = Delegated("_user_model", "config")
    _device_fn = Delegated("_user_model", "device_fn")
    _eval_distribution = Delegated("_user_model", "eval_distribution")
    _model_dir = Delegated("_user_model", "model_dir")
    _model_fn = Delegated("_user_model", "model_fn")
    _params = Delegated("_user_model", "params")
    _session_config = Delegated("_user_model", "session_config")
    _train_distribution = Delegated("_user_model", "train_distribution")
    _warm_start_settings = Delegated("_user_model", "warm_start_settings")

    _create_global_step = delegate("_user_model", "create_global_step")
    _create_and_assert_global_step = delegate("_user_model", "create_and_assert_global_step")
    _call_input_fn = delegate("_user_model", "call_input_fn")
    _call_model_fn = delegate("_user_model", "call_model_fn")
    _get_features_and_labels_from_input_fn = delegate("_user_model", "features_and_labels")
    _checkpoint_or_initialize = delegate("_user_model", "checkpoint_or_initialize")
    _maybe_warm_start = delegate("_user_model", "maybe_warm_start")

    _train_model_default = delegate("_model_trainer", "train")
    _train_model_distributed = delegate("_model_trainer", "train")

    _actual_eval = delegate("_model_evaluator", "evaluate")
    _convert_eval_steps_to_hooks = delegate("_model_evaluator", "steps_hooks")
    _evaluate_build_graph = delegate("_model_evaluator", "build_graph")
    _call_model_fn_eval = delegate("_model_evaluator", "call_model_fn")
    _call_model_fn_eval_distributed = delegate("_model_evaluator", "call_model_fn_in_replicas")
    _evaluate_run = delegate("_model_evaluator", "run")

    _get_features_from_input_fn = delegate("_prediction_run", "features")
    _validate_features_in_predict_input = delegate("_prediction_run", "warn_if_endless")
    _extract_batch_length = delegate("_prediction_run", "batch_length")
    _extract_keys = delegate("_prediction_run", "select_keys")

    _export_all_saved_models = delegate("_model_exporter", "export")
    _add_meta_graph_for_mode = delegate("_model_exporter", "add_meta_graph")

    def _convert_train_steps_to_hooks(self, steps: Any, max_steps: Any) -> list[Any]:
        return [] if steps is None and max_steps is None else [v1.train.StopAtStepHook(steps, max_steps)]

    def _train_model(self, input_fn: Callable[..., Any], hooks: list[Any], saving_listeners: list[Any]) -> Any:
        # Check again, because a program may have assigned another strategy.
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


# The members that a subclass may override. Settings are instance attributes, which a class may also define.
_OVERRIDABLE = {"model_fn", "_create_and_assert_global_step", "_export_all_saved_models", "latest_checkpoint"}
_OVERRIDABLE |= {name for name, value in vars(EstimatorForwards).items() if isinstance(value, Delegated)}

_renamed: Callable[[Callable[..., Any]], Callable[..., Any]] = deprecation.deprecated(
    None, "This function has been renamed, use `export_saved_model` instead."
)


class EstimatorV1(EstimatorForwards):
    """Trains, evaluates, exports and predicts with a model that a function builds.

    The model directory contains the checkpoints, events and exports. Training starts from the newest checkpoint in this
    directory. Each method builds the model in its own graph.

    A subclass may override only `_create_and_assert_global_step`, `_export_all_saved_models`, `latest_checkpoint` and
    `model_fn`. To override other members at your own risk, also override `_assert_members_are_not_overridden`.

    Args:
      model_fn: function that builds the model and returns an `EstimatorSpec`. Its arguments are `features` and any of
        `labels`, `mode`, `params` and `config`.
      model_dir: path of the model directory. Defaults to the directory of `config`, or else to a temporary one.
      config: `RunConfig`. Defaults to `RunConfig()`.
      params: dictionary of hyperparameters for `model_fn` and the input functions.
      warm_start_from: source of the initial values of a new model: `WarmStartSettings`, or the path of a checkpoint, of
        a directory with checkpoints or of a SavedModel.

    Raises:
      ValueError: If `model_fn` has the wrong arguments, `config` isn't a RunConfig, the directories of `model_dir` and
        `config` differ, or a subclass overrides another member.
      TypeError: If `model_fn` can't be called.
    """

    @suggest_keywords
    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: Any = None,
        config: Any = None,
        params: Any = None,
        warm_start_from: Any = None,
    ) -> None:
        # Call the check through the class, so that a subclass that overrides other members can replace it.
        self.__class__._assert_members_are_not_overridden(self)
        model = UserModel(self, model_fn, model_dir, config, params, warm_start_from)
        self._user_model = model
        self._model_trainer = choose_trainer(model)
        self._model_evaluator = Evaluator(model)
        self._prediction_run = PredictionRun(model)
        self._model_exporter = Exporter(model)

    def _assert_members_are_not_overridden(self) -> None:
        """Rejects a subclass that overrides members that it may not override."""
        base = Estimator if isinstance(self, Estimator) else EstimatorV1
        members = {name for name in dir(base) if not name.startswith("__")}
        own = set(self.__class__.__dict__) & members - _OVERRIDABLE
        overridden = [name for name in own if getattr(base, name, None) != getattr(self.__class__, name, None)]
        if overridden:
            raise ValueError(
                "Subclasses of Estimator cannot override members of Estimator. "
                f"{self.__class__} does override {overridden}"
            )

    @property
    def model_dir(self) -> Any:
        """Directory of checkpoints, events and exports."""
        return self._model_dir

    @property
    def config(self) -> Any:
        """A copy of the `RunConfig`."""
        return copy.deepcopy(self._config)

    @property
    def params(self) -> Any:
        """A copy of the hyperparameters."""
        return copy.deepcopy(self._params)

    @property
    def model_fn(self) -> Callable[..., Any]:
        """The model_fn with bound hyperparameters: a function of `features`, `labels`, `mode` and `config`."""

        def public_model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
            return self._call_model_fn(features, labels, mode, config)

        return public_model_fn

    def get_variable_value(self, name: str) -> Any:
        """Returns the value of a variable in the newest checkpoint.

        Args:
          name: the variable's name.

        Returns:
          NumPy array of the variable's shape.

        Raises:
          ValueError: If the model directory has no checkpoint. The message lists its files.
          tf.errors.NotFoundError: If there is no such variable. The message lists the variables in the checkpoint.
          TypeError: If `name` isn't a string.
        """
        with context.graph_mode():
            path = model_checkpoints.require_checkpoint(self.model_dir)
            if not isinstance(name, str):
                raise TypeError(
                    f"name must be the name of a variable, a string; got {name!r}. {describe_variables(path)}"
                )
            try:
                return tf.train.load_variable(path, name)
            except errors.NotFoundError as error:
                message = f"{error.message}: there is no variable of name={name!r}. {describe_variables(path)}"
                raise errors.NotFoundError(error.node_def, error.op, message) from error

    def get_variable_names(self) -> list[str]:
        """Returns the names of all variables in the newest checkpoint.

        Raises:
          ValueError: If the model directory has no checkpoint. The message lists its files.
        """
        with context.graph_mode():
            path = model_checkpoints.require_checkpoint(self.model_dir)
            return [name for name, _ in tf.train.list_variables(path)]

    def latest_checkpoint(self) -> str | None:
        """Returns the path of the newest checkpoint in the model directory, or None if there is none."""
        with context.graph_mode():
            return model_checkpoints.newest_checkpoint(self.model_dir)

    def eval_dir(self, name: str | None = None) -> str:
        """Returns the directory for the event files of an evaluation.

        Args:
          name: name of the evaluation, or None for the evaluation without a name.

        Raises:
          TypeError: If `name` isn't a string.
        """
        if name and not isinstance(name, str):
            raise TypeError(f"name must be a string or None, given: {name!r}")
        return os.path.join(self._model_dir, f"eval_{name}" if name else "eval")

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
          input_fn: function that creates the input: a `tf.data.Dataset` of (features, labels), or such a pair. It may
            have arguments `mode`, `params` and `config`.
          hooks: `SessionRunHook` objects.
          steps: number of steps to train. A second call trains as many steps again. Exclusive with `max_steps`.
          max_steps: global step at which training ends. A second call runs no steps. If neither is given, training ends
            with the input, or when a hook requests a stop.
          saving_listeners: `CheckpointSaverListener` objects, called around each save.

        Returns:
          This Estimator.

        Raises:
          ValueError: If both steps and max_steps are given, one isn't positive, or this task doesn't train.
          TypeError: If a hook, a listener or a number of steps has the wrong type.
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
            if max_steps is not None and max_steps <= model_checkpoints.global_step_of(self._model_dir):
                logging.info("Skipping training since max_steps has already saved.")
                return self
            hooks = check_hooks(hooks)
            hooks.extend(self._convert_train_steps_to_hooks(steps, max_steps))
            loss = self._train_model(input_fn, hooks, check_listeners(saving_listeners))
            logging.info("Loss for final step: %s.", loss)
        return self

    @timeline.phase("evaluate")
    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Any = None,
        checkpoint_path: Any = None,
        name: str | None = None,
    ) -> Any:
        """Evaluates the model over the input.

        Args:
          input_fn: function that creates the input, as for `train`.
          steps: number of batches to evaluate. Defaults to all batches of the input.
          hooks: `SessionRunHook` objects.
          checkpoint_path: path of the checkpoint to evaluate. Defaults to the newest one. If there is none, evaluates
            the initial model.
          name: name of the evaluation if there are several. Its metrics are written to `eval_dir(name)`.

        Returns:
          Dictionary from names of metrics to values. It includes the mean `loss` and the `global_step`.

        Raises:
          ValueError: If `steps` isn't positive, or a metric is named `loss` or `global_step`.
          TypeError: If a hook or the number of steps has the wrong type.
        """
        return self._actual_eval(
            input_fn,
            strategy=self._eval_distribution,
            steps=steps,
            hooks=hooks,
            checkpoint_path=checkpoint_path,
            name=name,
        )

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Any = None,
        hooks: Any = None,
        checkpoint_path: Any = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Yields predictions for the input, until the input ends.

        The model is built when the first prediction is requested. You can alternate between several predictors.

        Args:
          input_fn: function that creates the features: a `tf.data.Dataset`, or tensors. If it returns a pair, the first
            element is used.
          predict_keys: names of the predictions to yield, if the predictions are a dictionary. Defaults to all.
          hooks: `SessionRunHook` objects.
          checkpoint_path: path of the checkpoint to predict with. Defaults to the newest one. If there is none, the
            model predicts with its initial values, with a warning if a model directory was given.
          yield_single_examples: Whether to yield the examples of a batch one by one. If False, yields batches.

        Yields:
          The values of the predictions: an array, or a dictionary of arrays.

        Raises:
          ValueError: If the batch sizes of the predictions differ, or `predict_keys` doesn't name any prediction.
          TypeError: If a hook has the wrong type, or a prediction has no batch dimension.
          IndexError: If a prediction in a dictionary has no batch dimension.
        """
        yield from self._prediction_run.predict(input_fn, predict_keys, hooks, checkpoint_path, yield_single_examples)

    def export_saved_model(
        self,
        export_dir_base: Any,
        serving_input_receiver_fn: Any,
        assets_extra: Any = None,
        as_text: bool = False,
        checkpoint_path: Any = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> Any:
        """Writes the model as a SavedModel to a new directory.

        Args:
          export_dir_base: parent of the new directory. The directory's name is the time in seconds.
          serving_input_receiver_fn: function without arguments that returns an `export.ServingInputReceiver` or an
            `export.TensorServingInputReceiver`.
          assets_extra: dictionary from paths under `assets.extra` to the source files, or None.
          as_text: Whether to write the graph as text.
          checkpoint_path: path of the checkpoint to export. Defaults to the newest one.
          experimental_mode: mode to build the model in, one of `ModeKeys`.

        Returns:
          The path of the new directory, as bytes.

        Raises:
          ValueError: If the function or the checkpoint is missing, or the checkpoint lacks a variable.
          TypeError: If `serving_input_receiver_fn` can't be called.
          AttributeError: If `serving_input_receiver_fn` doesn't return a receiver.
          NoIntactCheckpointError: If the checkpoint is damaged. This is also a ValueError.
        """
        if not serving_input_receiver_fn:
            raise ValueError("An input_receiver_fn must be defined.")
        return self._export_all_saved_models(
            export_dir_base,
            {experimental_mode: serving_input_receiver_fn},
            assets_extra=assets_extra,
            as_text=as_text,
            checkpoint_path=checkpoint_path,
            strip_default_attrs=True,
        )

    @_renamed
    def export_savedmodel(
        self,
        export_dir_base: Any,
        serving_input_receiver_fn: Any,
        assets_extra: Any = None,
        as_text: bool = False,
        checkpoint_path: Any = None,
        strip_default_attrs: bool = False,
    ) -> Any:
        """Exports for prediction, as `export_saved_model` does. The name in TensorFlow 1.

        Args:
          strip_default_attrs: Whether to leave attributes with default values out of the graph.
        """
        if not serving_input_receiver_fn:
            raise ValueError("An input_receiver_fn must be defined.")
        return self._export_all_saved_models(
            export_dir_base,
            {ModeKeys.PREDICT: serving_input_receiver_fn},
            assets_extra=assets_extra,
            as_text=as_text,
            checkpoint_path=checkpoint_path,
            strip_default_attrs=strip_default_attrs,
        )

    def experimental_export_all_saved_models(
        self,
        export_dir_base: Any,
        input_receiver_fn_map: dict[str, Callable[[], Any]],
        assets_extra: Any = None,
        as_text: bool = False,
        checkpoint_path: Any = None,
    ) -> Any:
        """Writes the model in several modes as one SavedModel, with a graph per mode and one set of variables.

        Args:
          input_receiver_fn_map: dictionary from `ModeKeys` to functions that return an input receiver. The other
            arguments, and the result, are those of `export_saved_model`.

        Raises:
          ValueError: If no mode has a function, the checkpoint is missing, or the checkpoint lacks a variable.
        """
        return self._export_all_saved_models(
            export_dir_base,
            input_receiver_fn_map,
            assets_extra=assets_extra,
            as_text=as_text,
            checkpoint_path=checkpoint_path,
            strip_default_attrs=True,
        )


class _OnlyInVersion1:
    """The attribute `export_savedmodel`, which version 2 of the interface lacks."""

    def __get__(self, instance: Any, owner: type) -> Any:
        raise AttributeError(
            f"{owner.__name__!r} object has no attribute 'export_savedmodel': use export_saved_model(), which takes "
            "the same arguments, or tf.compat.v1.estimator.Estimator, which still has export_savedmodel()."
        )


class Estimator(EstimatorV1):
    __doc__ = EstimatorV1.__doc__

    export_savedmodel: _OnlyInVersion1 = _OnlyInVersion1()


def check_estimator(estimator: Any) -> None:
    """Raises TypeError unless a value is an `Estimator`."""
    if not isinstance(estimator, EstimatorV1):
        check_type("estimator", estimator, Estimator)


_METRIC_FN_ARGS = {"features", "labels", "predictions", "config"}


def add_metrics(estimator: Any, metric_fn: Callable[..., dict[str, Any]]) -> Estimator:
    """Creates a copy of an Estimator with additional metrics.

    Args:
      estimator: the `Estimator` to copy.
      metric_fn: function of any of `features`, `labels`, `predictions` and `config` that returns a dictionary from
        names to metric objects or (value, update) pairs. A metric with the name of an existing one replaces it.

    Returns:
      The new `Estimator`.

    Raises:
      TypeError: If `estimator` isn't an Estimator, or `metric_fn` can't be called. In an evaluation, if `metric_fn`
        returns something other than a dictionary.
      ValueError: If `metric_fn` has other arguments.
    """
    check_estimator(estimator)
    if not callable(metric_fn):
        raise TypeError(f"metric_fn must be callable, given: {metric_fn!r}")
    taken = function_utils.fn_args(metric_fn)
    others = list(set(taken) - _METRIC_FN_ARGS)
    if others:
        raise ValueError(f"metric_fn ({metric_fn}) has following not expected args: {others}")

    def new_model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        spec = estimator.model_fn(features, labels, mode, config)
        if mode != ModeKeys.EVAL:
            return spec
        known = {"features": features, "labels": labels, "predictions": spec.predictions, "config": config}
        metrics = metric_fn(**{name: value for name, value in known.items() if name in taken})
        if not isinstance(metrics, Mapping):
            raise TypeError(f"metric_fn ({metric_fn}) must return a dictionary of metrics, and returned {metrics!r}.")
        return spec._replace(eval_metric_ops={**(spec.eval_metric_ops or {}), **metrics})

    return Estimator(
        model_fn=new_model_fn,
        model_dir=estimator.model_dir,
        config=estimator.config,
        warm_start_from=estimator._warm_start_settings,
    )
