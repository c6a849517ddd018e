"""Input functions for in-memory data: the names of `tf.estimator.inputs`."""

from fastsup.estimator.inputs.in_memory import numpy_input_fn, pandas_input_fn

__all__ = ["numpy_input_fn", "pandas_input_fn"]


def __dir__() -> list[str]:
    return sorted(__all__)
