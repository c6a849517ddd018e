"""The devices that TensorFlow has in a test run: FASTSUP_TEST_DEVICES names them.

(nothing)            those of the machine
two_cpus             two CPU devices
beside_accelerator   the fake accelerator, whose library ACCELERATOR_LIBRARY is the path of, and each test is placed
                     on the CPU
accelerator          the same, and each test is placed as TensorFlow does: on the accelerator
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

DEVICES = os.environ.get("FASTSUP_TEST_DEVICES", "")


def pytest_configure(config: pytest.Config) -> None:
    if not DEVICES:
        return
    if DEVICES in ("accelerator", "beside_accelerator"):
        from tensorflow.python.framework import load_library

        load_library.load_pluggable_device_library(os.environ["ACCELERATOR_LIBRARY"])
    elif DEVICES != "two_cpus":
        raise pytest.UsageError(f"FASTSUP_TEST_DEVICES must be as tests/support/devices.py says; got {DEVICES!r}.")
    import tensorflow as tf

    if DEVICES == "two_cpus":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


# What the fake accelerator lacks, and what can't be on several devices.
_LACKS = ("Could not satisfy explicit device specification", "No JIT device registered for ACCELERATOR",
          "The single-threaded executor can't run a step on several devices")  # fmt: skip


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skips what the fake accelerator can't run."""
    try:
        return (yield)
    except Exception as error:
        if "accelerator" in DEVICES and any(text in str(error) for text in _LACKS):
            pytest.skip(f"the fake accelerator can't: {str(error)[:200]}")
        raise


def pytest_report_header() -> list[str]:
    return [f"devices: {DEVICES or 'those of the machine'}"]


@pytest.fixture(autouse=DEVICES == "beside_accelerator")
def on_the_cpu() -> Iterator[None]:
    import tensorflow as tf

    with tf.device("/cpu:0"):
        yield
