"""The names of `tf.contrib.lookup`."""

from fastsup.compat.contrib.lookup import *  # noqa: F403
from fastsup.compat.contrib.lookup import __all__ as __all__
