"""The model of an Estimator: its settings, and the calls of the user's functions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import device_setter
from tensorflow.python.util import function_utils

from fastsup.core.checks import check_no_pattern
from fastsup.estimator.config import distribution
from fastsup.estimator.config.run_config import resolve_config
from fastsup.estimator.config.tensorflow_names import v1
from fastsup.estimator.inputs.input_fn import parse_input_fn_result
from fastsup.estimator.model import trained_model, warm_start
from fastsup.estimator.model.keras_names import graph_keras_names
from fastsup.estimator.model.model_fn import EstimatorSpec, check_mode, verify_model_fn_args

__all__ = ["UserModel"]


def _replica_device_setter(config: Any) -> Any:
    """Device function that places variables on the parameter servers; None for a job without parameter servers."""
    if config.num_ps_replicas <= 0:
        return None
    return v1.train.replica_device_setter(
        ps_tasks=config.num_ps_replicas,
        worker_device=f"/job:{config.task_type}/task:{config.task_id}" if config.task_type else "/job:worker",
        merge_devices=True,
        ps_ops=list(device_setter.STANDARD_PS_OPS),
        cluster=config.cluster_spec,
    )


class UserModel:
    """What an Estimator's trainer, evaluator, predictor and exporter are given.

    Args:
      methods: the Estimator, whose methods a subclass may override.
      model_fn: as for `Estimator`; so are the other arguments.
    """

    def __init__(
        self, methods: Any, model_fn: Callable[..., Any], model_dir: Any, config: Any, params: Any, warm_start_from: Any
    ) -> None:
        self.methods = methods
        self.has_temporary_dir: bool = not model_dir and getattr(config, "model_dir", None) is None
        self.config: Any = resolve_config(config, model_dir)
        self.train_distribution: Any = self.config.train_distribute
        self.eval_distribution: Any = distribution.evaluates_with(self.config.eval_distribute)
        self.model_dir: Any = self.config.model_dir
        check_no_pattern("model_dir", self.model_dir)
        self.session_config: Any = distribution.session_config_for(
            self.config.session_config, self.train_distribution, self.eval_distribution
        )
        logging.info("Using config: %s", str(vars(self.config)))
        self.device_fn: Any = self.config.device_fn or _replica_device_setter(self.config)
        if model_fn is None:
            raise ValueError("model_fn must be provided to Estimator.")
        if not callable(model_fn):
            raise TypeError(f"model_fn must be callable, given: {model_fn!r}")
        verify_model_fn_args(model_fn, params)
        self.model_fn = model_fn
        self.params: Any = copy.deepcopy(params or {})
        self.warm_start_settings: Any = warm_start.parse_warm_start_from(warm_start_from)

    def checkpoint_or_initialize(self, checkpoint_path: Any, purpose: str) -> Any:
        """The given checkpoint, or the newest one. If there is none, logs the files of the model directory."""
        path = trained_model.parse_checkpoint_path(checkpoint_path)
        if not path:
            path = trained_model.newest_checkpoint(self.model_dir)
            trained_model.warn_of_state_file(self.model_dir, path)
        if not path:
            logging.info(
                "Could not find trained model in model_dir: %s, running initialization to %s. %s",
                self.model_dir,
                purpose,
                trained_model.describe_directory(self.model_dir),
            )
        return path or None

    def warn_if_untrained(self, checkpoint_path: Any, results: str) -> None:
        """Warns of results of a model as it is initialised, if the caller has named a model directory.

        Args:
          checkpoint_path: path of the checkpoint that is used, or None.
          results: the results, in plural.
        """
        if checkpoint_path or self.has_temporary_dir or self.warm_start_settings:
            return
        # A caller that names a directory expects a trained model there.
        logging.warning(
            "These are %s of an untrained model, as it is initialised: there is no checkpoint in model_dir=%s. Train "
            "the model first, or name the directory of a trained one. See `python -m fastsup docs dropin#estimator`.",
            results,
            self.model_dir,
        )

    def maybe_warm_start(self, checkpoint_path: Any) -> None:
        """Initialises the variables with those of another model, if there is no checkpoint to restore."""
        if not checkpoint_path and self.warm_start_settings:
            warm_start.warm_start(self.warm_start_settings)

    def create_global_step(self, graph: Any) -> Any:
        """Makes the global step of a graph."""
        return v1.train.create_global_step(graph)

    def create_and_assert_global_step(self, graph: Any) -> Any:
        """Makes the global step of a graph, and asserts that the graph has it as its global step."""
        step = self.methods._create_global_step(graph)
        assert step is v1.train.get_global_step()
        assert step.dtype.is_integer
        return step

    def seed_and_create_global_step(self, graph: Any) -> Any:
        """Sets the seed of the default graph, and makes its global step. Returns the step."""
        v1.random.set_random_seed(self.config.tf_random_seed)
        return self.methods._create_and_assert_global_step(graph)

    def _accepted_arguments(self, function: Callable[..., Any], **candidates: Any) -> dict[str, Any]:
        """The arguments to call a user's function with: those of the candidates and of `params`, `config` it takes."""
        accepted = function_utils.fn_args(function)
        return {
            name: candidates[name] if name in candidates else getattr(self.methods, name)
            for name in (*candidates, "params", "config")
            if name in accepted
        }

    def call_input_fn(self, input_fn: Callable[..., Any], mode: str, input_context: Any = None) -> Any:
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

    def features_and_labels(self, input_fn: Callable[..., Any], mode: str) -> Any:
        """Calls an input_fn. Returns features, labels (or None), and the hooks that initialise the input."""
        return parse_input_fn_result(self.methods._call_input_fn(input_fn, mode))

    def call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        """Calls the model_fn with those of the arguments that it takes.

        Raises:
          ValueError: there are labels and the model_fn doesn't take any; it returns no EstimatorSpec; or the spec is of
            another mode and lacks a field that this mode needs.
        """
        arguments = self._accepted_arguments(self.model_fn, labels=labels, mode=mode, config=config)
        if labels is not None and "labels" not in arguments:
            raise ValueError("model_fn does not take labels, but input_fn returns labels.")
        logging.info("Calling model_fn.")
        with graph_keras_names(ops.get_default_graph()):
            spec = self.model_fn(features=features, **arguments)
        logging.info("Done calling model_fn.")
        if not isinstance(spec, EstimatorSpec):
            raise ValueError(
                f"model_fn should return an EstimatorSpec. It returned {spec!r} of type {type(spec).__name__}."
            )
        check_mode(spec, mode)
        return spec
