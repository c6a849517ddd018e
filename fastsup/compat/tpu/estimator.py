"""TPUEstimator, on CPU and GPU."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.util import function_utils

from fastsup import estimator
from fastsup.compat.tpu.arguments import parse_iterations_per_loop
from fastsup.compat.tpu.config import InputPipelineConfig, RunConfig
from fastsup.compat.tpu.examples_per_second import ExamplesPerSecondHook
from fastsup.estimator.model.estimator import EstimatorV1
from fastsup.estimator.model.model_fn import verify_model_fn_args
from fastsup.estimator.model.tpu_spec import TPUEstimatorSpec

__all__ = ["TPUEstimator"]

_BATCH_SIZE = "batch_size"
_RESERVED = [_BATCH_SIZE, "context"]
_NO_TPU = (
    "TPUs aren't supported: what ran an Estimator on them ended with TensorFlow 2.15. With use_tpu=False the same "
    "program trains on CPU and GPU; on TPUs use tf.distribute.TPUStrategy with Keras or a training loop of your own. "
    "See `python -m fastsup docs migrating`."
)
_NO_PARAMS = "{} ({}) does not include params argument, required by TPUEstimator to pass batch size as params[{!r}]"


def _set_parameter(params: Any, name: str, value: Any) -> None:
    """Sets a hyperparameter, in a dictionary or in an HParams object."""
    if not hasattr(params, "set_hparam"):
        params[name] = value
    elif name in params:
        params.set_hparam(name, value)
    else:
        params.add_hparam(name, value)


class TPUEstimator(EstimatorV1):
    """An Estimator whose model_fn is written for TPUs. Here it trains on CPU and GPU, with `use_tpu=False`.

    The model_fn and the input functions take `params`, where `params["batch_size"]` is the size of the batch that is
    trained, evaluated or predicted, and for the model_fn `params["use_tpu"]` is False.

    Args:
      model_fn: function that builds the model and returns a `TPUEstimatorSpec` or a `tf.estimator.EstimatorSpec`.
      model_dir: as for `tf.estimator.Estimator`.
      config: `tf.estimator.tpu.RunConfig`.
      params: dictionary of hyperparameters, without "batch_size" and "context".
      use_tpu: must be False.
      train_batch_size: size of a batch in training.
      eval_batch_size: size of a batch in evaluation.
      predict_batch_size: size of a batch in prediction.
      batch_axis: for TPUs alone.
      eval_on_tpu: for TPUs alone.
      export_to_tpu: whether a graph for TPUs is exported too. It is left out, with a warning.
      export_to_cpu: whether a graph for CPU and GPU is exported. Must be True where something is exported.
      warm_start_from: as for `tf.estimator.Estimator`.
      embedding_config_spec: must be None.
      export_saved_model_api_version: 1 or 2; for TPUs alone.

    Raises:
      NotImplementedError: `use_tpu` is true, or there is an `embedding_config_spec`.
      ValueError: as for `tf.estimator.Estimator`; or `config` is of another class, or `params` has a reserved name.
    """

    def __init__(
        self,
        model_fn: Any = None,
        model_dir: Any = None,
        config: Any = None,
        params: Any = None,
        use_tpu: bool = True,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
        batch_axis: Any = None,
        eval_on_tpu: bool = True,
        export_to_tpu: bool = True,
        export_to_cpu: bool = True,
        warm_start_from: Any = None,
        embedding_config_spec: Any = None,
        export_saved_model_api_version: Any = 1,
    ) -> None:
        del batch_axis
        if config is None or not isinstance(config, RunConfig):
            raise ValueError("`config` must be provided with type `tpu_config.RunConfig`")
        if params is not None and any(name in params for name in _RESERVED):
            raise ValueError(f"{_RESERVED} are reserved keys but existed in params {params}.")
        if use_tpu:
            raise NotImplementedError(f"use_tpu={use_tpu!r}: {_NO_TPU}")
        if embedding_config_spec is not None:
            raise NotImplementedError(f"embedding_config_spec={embedding_config_spec!r}: {_NO_TPU}")
        if getattr(export_saved_model_api_version, "value", export_saved_model_api_version) not in (1, 2):
            raise ValueError(f"export_saved_model_api_version should be 1 or 2; got {export_saved_model_api_version}.")
        logging.info("_TPUContext: eval_on_tpu %s", eval_on_tpu)
        if eval_on_tpu:
            logging.warning("eval_on_tpu ignored because use_tpu is False.")
        verify_model_fn_args(model_fn, params)
        self._batch_sizes = {
            estimator.ModeKeys.TRAIN: train_batch_size,
            estimator.ModeKeys.EVAL: eval_batch_size,
            estimator.ModeKeys.PREDICT: predict_batch_size,
        }
        self._export_to_cpu, self._export_to_tpu = export_to_cpu, export_to_tpu
        # An input function is called before the model_fn, but for an export.
        self._input_fn_was_called = False
        self._logs_every = self._intervals_of(config)
        super().__init__(
            model_fn=self._on_cpu(model_fn),
            model_dir=model_dir,
            # The rate is logged by a hook of this class.
            config=config.replace(log_step_count_steps=None),
            params=params or {},
            warm_start_from=warm_start_from,
        )

    def _assert_members_are_not_overridden(self) -> None:
        if type(self) is not TPUEstimator:
            super()._assert_members_are_not_overridden()

    @staticmethod
    def _intervals_of(config: RunConfig) -> dict[str, Any] | None:
        """The interval of the log lines, as an argument of the hook. None: there are none."""
        loop = parse_iterations_per_loop(config.tpu_config.iterations_per_loop)
        if loop.unit == "seconds":
            return {"every_n_steps": None, "every_n_secs": loop.value}
        if config.log_step_count_steps is None:
            return None
        return {"every_n_steps": math.ceil(config.log_step_count_steps / loop.value)}

    def _call_input_fn(self, input_fn: Callable[..., Any], mode: str, input_context: Any = None) -> Any:
        if "params" not in function_utils.fn_args(input_fn):
            raise ValueError(_NO_PARAMS.format("input_fn", input_fn, _BATCH_SIZE))
        sliced = InputPipelineConfig.SLICED
        if self._config.tpu_config.eval_training_input_configuration == sliced and mode != estimator.ModeKeys.TRAIN:
            raise ValueError(
                "Invalid TPUConfig `eval_training_input_configuration` value. SLICED mode only works on use_tpu = True."
            )
        self._input_fn_was_called = True
        params = self.params
        if self._batch_sizes[mode] is not None:
            _set_parameter(params, _BATCH_SIZE, self._batch_sizes[mode])
        return super()._call_input_fn(functools.partial(input_fn, params=params), mode, input_context)

    def _validate_features_in_predict_input(self, result: Any) -> None:
        """Any input is taken."""

    def _on_cpu(self, model_fn: Callable[..., Any]) -> Callable[..., Any]:
        """The model_fn of an Estimator that calls one that was written for TPUs."""
        taken = function_utils.fn_args(model_fn)

        def model_fn_on_cpu(features: Any, labels: Any, mode: str, config: Any, params: Any) -> Any:
            exports = not self._input_fn_was_called
            self._input_fn_was_called = False
            if labels is not None and "labels" not in taken:
                raise ValueError("model_fn does not take labels, but input_fn returns labels.")
            if "params" not in taken:
                raise ValueError(_NO_PARAMS.format("model_fn", model_fn, _BATCH_SIZE))
            _set_parameter(params, "use_tpu", False)
            batch_size = self._batch_sizes[mode]
            if batch_size is not None and not exports:
                _set_parameter(params, _BATCH_SIZE, batch_size)
            logging.info("Running %s on CPU/GPU", mode)
            arguments = {"labels": labels, "mode": mode, "config": config, "params": params}
            spec = model_fn(features=features, **{name: arguments[name] for name in arguments if name in taken})
            if isinstance(spec, TPUEstimatorSpec):
                spec = spec.as_estimator_spec()
            if self._logs_every is None or not isinstance(spec, estimator.EstimatorSpec):
                return spec
            output_dir = self.model_dir if config is None or config.save_summary_steps else None
            hook = ExamplesPerSecondHook(batch_size, output_dir=output_dir, **self._logs_every)
            return spec._replace(training_hooks=(*spec.training_hooks, hook))

        return model_fn_on_cpu

    def _add_meta_graph_for_mode(self, *args: Any, **kwargs: Any) -> None:
        if not self._export_to_cpu and not self._export_to_tpu:
            raise ValueError("One of export_to_cpu and export_to_tpu must be true.")
        if not self._export_to_cpu:
            raise NotImplementedError(f"export_to_cpu=False would leave nothing to export. {_NO_TPU}")
        if self._export_to_tpu:
            logging.warning(
                "export_to_tpu=True: the SavedModel has the graph for CPU and GPU alone. A graph for TPUs isn't "
                "supported "
                "(`python -m fastsup docs migrating`); pass export_to_tpu=False for an export without this line."
            )
        super()._add_meta_graph_for_mode(*args, **kwargs)
