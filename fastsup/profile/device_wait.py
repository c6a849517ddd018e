"""The devices whose work a step function starts, and doesn't wait for."""

from __future__ import annotations

import sys
from collections.abc import Callable

__all__ = ["wait_for_devices"]


def wait_for_devices() -> Callable[[], object] | None:
    """Returns a function that waits until TensorFlow's accelerators have done their work; None if it uses none.

    TensorFlow isn't imported, nor are its devices opened, for this.
    """
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    if context is None or context._context_handle is None:
        return None
    if all(device.device_type == "CPU" for device in context.list_logical_devices()):
        return None
    import tensorflow as tf

    def wait() -> None:
        if tf.executing_eagerly():  # In graphs, sessions wait themselves.
            tf.test.experimental.sync_devices()

    return wait
