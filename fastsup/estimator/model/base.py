"""What training, evaluation, prediction and export of an Estimator share: its settings, and the calls of the user's
functions."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.framework import errors, ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import (
    basic_session_run_hooks,
    checkpoint_utils,
    device_setter,
    session_run_hook,
    training_util,
)
from tensorflow.python.util import function_utils

from fastsup.core.checks import check_number
from fastsup.core.hook_kinds import why_no_session_hook
from fastsup.estimator.config import distribution
from fastsup.estimator.config.run_config import settled_config
from fastsup.estimator.inputs.input_fn import parse_input_fn_result
from fastsup.estimator.model import trained_model, warm_start
from fastsup.estimator.model.keras_names import keras_names_of
from fastsup.estimator.model.model_fn import EstimatorSpec, check_mode, listed, verify_model_fn_args

__all__ = ["EstimatorBase", "check_hooks", "check_listeners", "check_steps", "is_whole_number"]


def check_hooks(hooks: Any) -> list[Any]:
    """The hooks as a list.

    Raises:
      TypeError: one of them isn't a `SessionRunHook`.
    """
    checked = listed("hooks", "SessionRunHook", hooks)
    for hook in checked:
        if not isinstance(hook, session_run_hook.SessionRunHook):
            raise TypeError(f"Hooks must be a SessionRunHook, given: {hook}{why_no_session_hook(hook)}")
    return checked


def check_listeners(saving_listeners: Any) -> list[Any]:
    """The listeners as a list.

    Raises:
      TypeError: one of them isn't a `CheckpointSaverListener`.
    """
    listeners = listed("saving_listeners", "CheckpointSaverListener", saving_listeners)
    for listener in listeners:
        if not isinstance(listener, basic_session_run_hooks.CheckpointSaverListener):
            raise TypeError(f"saving_listeners must be a list of CheckpointSaverListener, given: {listener}")
    return listeners


def is_whole_number(value: Any) -> bool:
    """Whether it is an integer, or a number such as 1e5 that is one."""
    return hasattr(value, "__index__") or (hasattr(value, "is_integer") and value.is_integer())


def check_steps(name: str, steps: Any, endless: bool = True) -> None:
    """Refuses a number of steps that isn't positive. None is no limit. A fraction of a step is a whole one.

    Args:
      name: name of the argument.
      steps: what was given for it.
      endless: whether an infinite number of steps, or NaN, is no limit too.

    Raises:
      TypeError: it is no number, or one without end where there must be one.
      ValueError: it isn't positive.
    """
    if steps is None:
        return
    try:
        check_number(name, steps)
    except TypeError:
        raise TypeError(f"{name} must be an integer or None, given: {steps!r}") from None
    if steps <= 0:
        raise ValueError(f"Must specify {name} > 0, given: {steps}")
    if is_whole_number(steps):
        return
    if float(steps) < math.inf:
        logging.warning("%s=%r is no integer: the last step is the first at which that number is reached.", name, steps)
    elif not endless:
        raise TypeError(f"{name} must be an integer or None, given: {steps!r}")


def _replica_device_setter(config: Any) -> Any:
    """Function that puts variables on the parameter servers and the rest here; None without parameter servers."""
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
    """The settings of an Estimator, and the calls of the user's functions. See `Estimator` for the arguments."""

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: Any = None,
        config: Any = None,
        params: Any = None,
        warm_start_from: Any = None,
    ) -> None:
        # By way of the class: a subclass that knows what it overrides replaces this check.
        self.__class__._assert_members_are_not_overridden(self)
        self._has_temporary_dir = not model_dir and getattr(config, "model_dir", None) is None
        self._config: Any = settled_config(config, model_dir)
        self._train_distribution = self._config.train_distribute
        self._eval_distribution = self._config.eval_distribute
        self._model_dir = self._config.model_dir
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
        self._warm_start_settings = warm_start.settings_from(warm_start_from)

    def _assert_members_are_not_overridden(self) -> None:
        """Refuses a subclass that overrides what an Estimator relies on."""

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
        """The value of a variable in the newest checkpoint, as a NumPy array.

        Args:
          name: the variable's name.

        Raises:
          ValueError: there is no checkpoint. The message says what is in the model directory.
          tf.errors.NotFoundError: there is no such variable. The message lists those that there are.
          TypeError: `name` is no string.
        """
        with context.graph_mode():
            path = trained_model.require_checkpoint(self.model_dir)
            if not isinstance(name, str):
                raise TypeError(
                    f"name must be the name of a variable, a string; got {name!r}. {trained_model.variables_of(path)}"
                )
            try:
                return checkpoint_utils.load_variable(path, name)
            except errors.NotFoundError as error:
                message = f"{error.message}: there is no variable of name={name!r}. {trained_model.variables_of(path)}"
                raise errors.NotFoundError(error.node_def, error.op, message) from error

    def get_variable_names(self) -> list[str]:
        """The names of all variables in the newest checkpoint.

        Raises:
          ValueError: there is no checkpoint. The message says what is in the model directory.
        """
        with context.graph_mode():
            path = trained_model.require_checkpoint(self.model_dir)
            return [name for name, _ in checkpoint_utils.list_variables(path)]

    def latest_checkpoint(self) -> str | None:
        """The path of the newest checkpoint in the model directory; None if there is none."""
        with context.graph_mode():
            return trained_model.newest_checkpoint(self.model_dir)

    def eval_dir(self, name: str | None = None) -> str:
        """The directory that the metrics of an evaluation are written to.

        Args:
          name: name of the evaluation, where there are several.

        Raises:
          TypeError: `name` is no string.
        """
        if name and not isinstance(name, str):
            raise TypeError(f"name must be a string or None, given: {name!r}")
        return os.path.join(self._model_dir, f"eval_{name}" if name else "eval")

    def _checkpoint_or_initialize(self, checkpoint_path: Any, purpose: str) -> Any:
        """The checkpoint to use, the newest by default. Where there is none, that is logged, with what there is."""
        path = trained_model.given_checkpoint(checkpoint_path) or trained_model.newest_checkpoint(self._model_dir)
        if not path:
            logging.info(
                "Could not find trained model in model_dir: %s, running initialization to %s. %s",
                self._model_dir,
                purpose,
                trained_model.contents_of(self._model_dir),
            )
        return path or None

    def _create_global_step(self, graph: Any) -> Any:
        """Makes the global step of a graph. A subclass may make another one."""
        return training_util.create_global_step(graph)

    def _create_and_assert_global_step(self, graph: Any) -> Any:
        """Makes the global step of a graph, and checks that it is one."""
        step = self._create_global_step(graph)
        assert step is training_util.get_global_step()
        assert step.dtype.is_integer
        return step

    def _call_input_fn(self, input_fn: Callable[..., Any], mode: str, input_context: Any = None) -> Any:
        """Calls an input_fn, on the CPU, with those of `mode`, `params`, `config`, `input_context` that it takes."""
        if not callable(input_fn):
            raise TypeError(f"`input_fn` must be callable, given: {input_fn}")
        taken = function_utils.fn_args(input_fn)
        arguments: dict[str, Any] = {}
        if "mode" in taken:
            arguments["mode"] = mode
        if "params" in taken:
            arguments["params"] = self.params
        if "config" in taken:
            arguments["config"] = self.config
        if input_context and "input_context" in taken:
            logging.info("The `input_fn` accepts an `input_context` which will be given by DistributionStrategy")
            arguments["input_context"] = input_context
        with ops.device("/cpu:0"), keras_names_of(ops.get_default_graph()):
            return input_fn(**arguments)

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        """Calls the model_fn with those of the arguments that it takes.

        Raises:
          ValueError: there are labels that it doesn't take, or it returns no EstimatorSpec, or one of another mode
            that lacks what this one needs.
        """
        taken = function_utils.fn_args(self._model_fn)
        arguments: dict[str, Any] = {}
        if "labels" in taken:
            arguments["labels"] = labels
        elif labels is not None:
            raise ValueError("model_fn does not take labels, but input_fn returns labels.")
        if "mode" in taken:
            arguments["mode"] = mode
        if "params" in taken:
            arguments["params"] = self.params
        if "config" in taken:
            arguments["config"] = config
        logging.info("Calling model_fn.")
        with keras_names_of(ops.get_default_graph()):
            spec = self._model_fn(features=features, **arguments)
        logging.info("Done calling model_fn.")
        if not isinstance(spec, EstimatorSpec):
            raise ValueError(
                f"model_fn should return an EstimatorSpec. It returned {spec!r} of type {type(spec).__name__}."
            )
        check_mode(spec, mode)
        return spec

    def _get_features_and_labels_from_input_fn(self, input_fn: Callable[..., Any], mode: str) -> Any:
        """Features, labels (or None) and hooks of an input_fn."""
        return parse_input_fn_result(self._call_input_fn(input_fn, mode))

    def _maybe_warm_start(self, checkpoint_path: Any) -> None:
        """Has the variables start with another model's values, where there is no checkpoint."""
        if not checkpoint_path and self._warm_start_settings:
            warm_start.warm_start(self._warm_start_settings)
