"""Waits for the devices' work that a step function has started."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter

__all__ = ["DeviceWait", "wait_for_devices"]

# A wait that takes longer than this many waits for idle devices has found work.
_FOUND_WORK = 1.5
# Maximum number of steps between two waits as long as no work is found.
_MOST_STEPS = 64


class DeviceWait:
    """Waits after each step until devices have finished. If there never is any work, waits only after several steps.

    A wait takes tens of microseconds even without work, which is longer than a small step on the CPU.

    Args:
      wait: function that waits until the devices are idle.
      clock: function that returns seconds.
    """

    def __init__(self, wait: Callable[[], object], clock: Callable[[], float] = perf_counter) -> None:
        self._wait, self._clock = wait, clock
        self._interval, self._steps_left = 1, 0
        wait()
        self._idle_secs = min(self._seconds() for _ in range(10))

    def _seconds(self) -> float:
        started = self._clock()
        self._wait()
        return self._clock() - started

    def __call__(self) -> None:
        """Waits if a wait is due."""
        if self._steps_left > 0:
            self._steps_left -= 1
            return
        has_work = self._seconds() > _FOUND_WORK * self._idle_secs
        self._interval = 1 if has_work else min(2 * self._interval, _MOST_STEPS)
        self._steps_left = self._interval - 1


def wait_for_devices() -> DeviceWait | None:
    """Returns a function that waits for TensorFlow's accelerators to finish a step, or None without accelerators.

    This neither imports TensorFlow nor opens its devices.
    """
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    if context is None or context._context_handle is None:
        return None
    names = [device.name for device in context.list_logical_devices() if device.device_type != "CPU"]
    if not names:
        return None
    import tensorflow as tf

    def wait() -> None:
        if tf.executing_eagerly():  # In graphs, sessions wait for the devices.
            for name in names:
                with tf.device(name):
                    tf.raw_ops.SyncDevice()

    return DeviceWait(wait)
