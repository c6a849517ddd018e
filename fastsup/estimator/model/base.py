"""The base of an Estimator: its settings, its model directory, and the calls of the user's functions."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.framework import errors, ops, random_seed
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import checkpoint_utils, device_setter, training_util
from tensorflow.python.util import function_utils

from fastsup.core.checks import check_no_pattern
from fastsup.estimator.config import distribution
from fastsup.estimator.config.run_config import resolve_config
from fastsup.estimator.inputs.input_fn import parse_input_fn_result
from fastsup.estimator.model import trained_model, warm_start
from fastsup.estimator.model.keras_names import graph_keras_names
from fastsup.estimator.model.model_fn import EstimatorSpec, check_mode, verify_model_fn_args

__all__ = ["EstimatorBase"]


def _replica_device_setter(config: Any) -> Any:
    """Device function that places variables on the parameter servers; None for a job without parameter servers."""
    if config.num_ps_replicas <= 0:
        return None
    return device_setter.replica_device_setter(
        ps_tasks=config.num_ps_replicas,
        worker_device=f"/job:{config.task_type}/task:{config.task_id}" if config.task_type else "/job:worker",
        merge_devices=True,
        ps_ops=list(device_setter.STANDARD_PS_OPS),
        cluster=config.cluster_spec,
    )


class EstimatorBase:
    """The settings of an Estimator, and the calls of the user's functions. The arguments are those of `Estimator`."""

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: Any = None,
        config: Any = None,
        params: Any = None,
        warm_start_from: Any = None,
    ) -> None:
        # Through the class, so that a subclass that overrides other members can replace this check.
        self.__class__._assert_members_are_not_overridden(self)
        self._has_temporary_dir = not model_dir and getattr(config, "model_dir", None) is None
        self._config: Any = resolve_config(config, model_dir)
        self._train_distribution = self._config.train_distribute
        self._eval_distribution = distribution.evaluates_with(self._config.eval_distribute)
        self._model_dir = self._config.model_dir
        check_no_pattern("model_dir", self._model_dir)
        self._session_config = distribution.session_config_for(
            self._config.session_config, self._train_distribution, self._eval_distribution
        )
        logging.info("Using config: %s", str(vars(self._config)))
        self._device_fn = self._config.device_fn or _replica_device_setter(self._config)
        if model_fn is None:
            raise ValueError("model_fn must be provided to Estimator.")
        if not callable(model_fn):
            raise TypeError(f"model_fn must be callable, given: {model_fn!r}")
        verify_model_fn_args(model_fn, params)
        self._model_fn = model_fn
        self._params = copy.deepcopy(params or {})
        self._warm_start_settings = warm_start.parse_warm_start_from(warm_start_from)

    def _assert_members_are_not_overridden(self) -> None:
        """Refuses a subclass that overrides other members than it may."""

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
        """The model_fn with the hyperparameters bound: a function of `features`, `labels`, `mode` and `config`."""

        def public_model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
            return self._call_model_fn(features, labels, mode, config)

        return public_model_fn

    def get_variable_value(self, name: str) -> Any:
        """The value of a variable in the newest checkpoint.

        Args:
          name: the variable's name.

        Returns:
          NumPy array of the variable's shape.

        Raises:
          ValueError: there is no checkpoint. The message lists the files of the model directory.
          tf.errors.NotFoundError: there is no such variable. The message lists the variables of the checkpoint.
          TypeError: `name` is no string.
        """
        with context.graph_mode():
            path = trained_model.require_checkpoint(self.model_dir)
            if not isinstance(name, str):
                raise TypeError(
                    f"name must be the name of a variable, a string; got {name!r}. "
                    f"{trained_model.describe_variables(path)}"
                )
            try:
                return checkpoint_utils.load_variable(path, name)
            except errors.NotFoundError as error:
                message = (
                    f"{error.message}: there is no variable of name={name!r}. {trained_model.describe_variables(path)}"
                )
                raise errors.NotFoundError(error.node_def, error.op, message) from error

    def get_variable_names(self) -> list[str]:
        """The names of all variables in the newest checkpoint.

        Raises:
          ValueError: there is no checkpoint. The message lists the files of the model directory.
        """
        with context.graph_mode():
            path = trained_model.require_checkpoint(self.model_dir)
            return [name for name, _ in checkpoint_utils.list_variables(path)]

    def latest_checkpoint(self) -> str | None:
        """The path of the newest checkpoint in the model directory; None if there is none."""
        with context.graph_mode():
            return trained_model.newest_checkpoint(self.model_dir)

    def eval_dir(self, name: str | None = None) -> str:
        """The directory with the event files of an evaluation.

        Args:
          name: name of the evaluation, or None for the evaluation without a name.

        Raises:
          TypeError: `name` is no string.
        """
        if name and not isinstance(name, str):
            raise TypeError(f"name must be a string or None, given: {name!r}")
        return os.path.join(self._model_dir, f"eval_{name}" if name else "eval")

    def _checkpoint_or_initialize(self, checkpoint_path: Any, purpose: str) -> Any:
        """The given checkpoint, or the newest one. If there is none, logs the files of the model directory."""
        path = trained_model.parse_checkpoint_path(checkpoint_path) or trained_model.newest_checkpoint(self._model_dir)
        if not path:
            logging.info(
                "Could not find trained model in model_dir: %s, running initialization to %s. %s",
                self._model_dir,
                purpose,
                trained_model.describe_directory(self._model_dir),
            )
        return path or None

    def _create_global_step(self, graph: Any) -> Any:
        """Makes the global step of a graph. A subclass may make another one."""
        return training_util.create_global_step(graph)

    def _create_and_assert_global_step(self, graph: Any) -> Any:
        """Makes the global step of a graph, and asserts that the graph has it as its global step."""
        step = self._create_global_step(graph)
        assert step is training_util.get_global_step()
        assert step.dtype.is_integer
        return step

    def _seed_and_create_global_step(self, graph: Any) -> Any:
        """Sets the seed of the default graph, and makes its global step. Returns the step."""
        random_seed.set_random_seed(self._config.tf_random_seed)
        return self._create_and_assert_global_step(graph)

    def _accepted_arguments(self, function: Callable[..., Any], **candidates: Any) -> dict[str, Any]:
        """The arguments to call a user's function with: those of the candidates and of `params`, `config` it takes."""
        accepted = function_utils.fn_args(function)
        return {
            name: candidates[name] if name in candidates else getattr(self, name)
            for name in (*candidates, "params", "config")
            if name in accepted
        }

    def _call_input_fn(self, input_fn: Callable[..., Any], mode: str, input_context: Any = None) -> Any:
        """Calls an input_fn, on the CPU, with those of `mode`, `params`, `config`, `input_context` that it takes."""
        if not callable(input_fn):
            raise TypeError(f"`input_fn` must be callable, given: {input_fn}")
        candidates = {"mode": mode}
        if input_context:
            candidates["input_context"] = input_context
        arguments = self._accepted_arguments(input_fn, **candidates)
        if "input_context" in arguments:
            logging.info("The `input_fn` accepts an `input_context` which will be given by DistributionStrategy")
        with ops.device("/cpu:0"), graph_keras_names(ops.get_default_graph()):
            return input_fn(**arguments)

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        """Calls the model_fn with those of the arguments that it takes.

        Raises:
          ValueError: there are labels and the model_fn doesn't take any; it returns no EstimatorSpec; or the spec is of
            another mode and lacks a field that this mode needs.
        """
        arguments = self._accepted_arguments(self._model_fn, labels=labels, mode=mode, config=config)
        if labels is not None and "labels" not in arguments:
            raise ValueError("model_fn does not take labels, but input_fn returns labels.")
        logging.info("Calling model_fn.")
        with graph_keras_names(ops.get_default_graph()):
            spec = self._model_fn(features=features, **arguments)
        logging.info("Done calling model_fn.")
        if not isinstance(spec, EstimatorSpec):
            raise ValueError(
                f"model_fn should return an EstimatorSpec. It returned {spec!r} of type {type(spec).__name__}."
            )
        check_mode(spec, mode)
        return spec

    def _get_features_and_labels_from_input_fn(self, input_fn: Callable[..., Any], mode: str) -> Any:
        """Calls an input_fn. Returns features, labels (or None), and the hooks that initialise the input."""
        return parse_input_fn_result(self._call_input_fn(input_fn, mode))

    def _maybe_warm_start(self, checkpoint_path: Any) -> None:
        """Initialises the variables with those of another model, if there is no checkpoint to restore."""
        if not checkpoint_path and self._warm_start_settings:
            warm_start.warm_start(self._warm_start_settings)
