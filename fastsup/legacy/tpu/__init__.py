"""`tf.estimator.tpu` on CPU and GPU: what the classes do where `use_tpu=False`."""

from fastsup.estimator.model.tpu_spec import TPUEstimatorSpec
from fastsup.legacy.tpu.config import InputPipelineConfig, RunConfig, TPUConfig
from fastsup.legacy.tpu.estimator import TPUEstimator
from fastsup.legacy.tpu.examples_per_second import ExamplesPerSecondHook

__all__ = ["ExamplesPerSecondHook", "InputPipelineConfig", "RunConfig", "TPUConfig", "TPUEstimator", "TPUEstimatorSpec"]


def __dir__() -> list[str]:
    return sorted(__all__)
