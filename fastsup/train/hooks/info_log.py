"""Whether a line logged at INFO reaches a reader: formatting a line costs more than the step that it is about."""

from __future__ import annotations

from tensorflow.python.platform import tf_logging as logging

__all__ = ["info_is_read"]

# TensorFlow's own functions, as long as no program or test has put others in their places.
_info = logging.info


def info_is_read() -> bool:
    """True if the logger keeps lines at INFO, or if a program has replaced `tf.compat.v1.logging.info`."""
    return logging.info is not _info or logging.get_logger().isEnabledFor(logging.INFO)
