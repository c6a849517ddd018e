"""`tf.estimator.tpu` on CPU and GPU: what the classes do where `use_tpu=False`."""

from fastsup.compat.tpu.config import InputPipelineConfig, RunConfig, TPUConfig
from fastsup.compat.tpu.estimator import TPUEstimator
from fastsup.compat.tpu.examples_per_second import ExamplesPerSecondHook
from fastsup.estimator.model.tpu_spec import TPUEstimatorSpec

__all__ = ["ExamplesPerSecondHook", "InputPipelineConfig", "RunConfig", "TPUConfig", "TPUEstimator", "TPUEstimatorSpec"]
