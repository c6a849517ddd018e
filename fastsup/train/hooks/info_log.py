"""A test for a reader of INFO lines: formatting a line costs more than a short step."""

from __future__ import annotations

from tensorflow.python.platform import tf_logging as logging

__all__ = ["info_is_read"]

# TensorFlow's own function, which a program or a test may replace later.
_info = logging.info


def info_is_read() -> bool:
    """Returns True if the logger keeps lines at INFO, or if a program has replaced `tf.compat.v1.logging.info`."""
    return logging.info is not _info or logging.get_logger().isEnabledFor(logging.INFO)
