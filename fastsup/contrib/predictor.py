"""The names of `tf.contrib.predictor`."""

from fastsup.compat.contrib.predictor import *  # noqa: F403
from fastsup.compat.contrib.predictor import __all__ as __all__
