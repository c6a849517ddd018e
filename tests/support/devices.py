"""The devices that TensorFlow has in a test run: FASTSUP_TEST_DEVICES names them.

(nothing)            those of the machine
two_cpus             two CPU devices
beside_accelerator   the fake accelerator, and each test is placed on the CPU
accelerator          the same, and each test is placed as TensorFlow does: on the accelerator

The accelerator is that of tests/gpu/accelerator, with its own variables: ACCELERATOR_DELAY_US, ACCELERATOR_SEED.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from accelerator import SOURCES, built

DEVICES = os.environ.get("FASTSUP_TEST_DEVICES", "")


def pytest_configure(config: pytest.Config) -> None:
    if not DEVICES:
        return
    if DEVICES in ("accelerator", "beside_accelerator"):
        from tensorflow.python.framework import load_library

        load_library.load_pluggable_device_library(str(_library()))
    elif DEVICES != "two_cpus":
        raise pytest.UsageError(f"FASTSUP_TEST_DEVICES must be as tests/support/devices.py says; got {DEVICES!r}.")
    import tensorflow as tf

    if DEVICES == "two_cpus":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


def _library() -> Path:
    """The library of the fake accelerator. Its folder is kept, for the next run."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir())))
    name = f"fastsup-accelerator-{getpass.getuser()}-{digest.hexdigest()[:12]}"
    folder = Path(tempfile.gettempdir()) / name
    folder.mkdir(exist_ok=True)
    return built(folder, _run)


def _run(*command: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


# What the fake accelerator lacks, and what can't be on several devices: docs/gpu.md has it.
_LACKS = (
    "Could not satisfy explicit device specification", "No JIT device registered for ACCELERATOR",
    "The single-threaded executor can't run a step on several devices", "XLA compiles it or a part of it",
    "one of its arguments is a variant on", "one of its arguments is a tensor of int32 in the memory of",
)  # fmt: skip


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skips what the fake accelerator can't run."""
    try:
        return (yield)
    except Exception as error:
        if "accelerator" in DEVICES and any(text in str(error) for text in _LACKS):
            pytest.skip(f"the fake accelerator can't: {str(error)[:200]}")
        raise


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    names = ["only_device"] if DEVICES else []
    names += ["one_device"] if DEVICES == "accelerator" else []
    for item in items:
        for marker in filter(None, map(item.get_closest_marker, names)):
            item.add_marker(pytest.mark.skip(reason=marker.args[0]))


def pytest_report_header() -> list[str]:
    return [f"devices: {DEVICES or 'those of the machine'}"]


@pytest.fixture(autouse=DEVICES == "beside_accelerator")
def on_the_cpu() -> Iterator[None]:
    import tensorflow as tf

    with tf.device("/cpu:0"):
        yield
