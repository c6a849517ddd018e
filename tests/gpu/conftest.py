"""Tests that need a GPU. FASTSUP_TEST_DEVICE=/cpu:1 tries them on a second CPU device where there is none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import Processes

DEVICE = os.environ.get("FASTSUP_TEST_DEVICE", "/gpu:0")


@pytest.fixture(scope="session")
def number_of_gpus(processes: Processes) -> int:
    """How many GPUs TensorFlow finds, asked in a process of its own: this one may have to train on the CPU."""
    program = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
    done = processes.python("-c", program)
    return int(done.stdout.split()[-1]) if done.returncode == 0 else 0


@pytest.fixture
def run_program(tmp_path: Path, processes: Processes, number_of_gpus: int) -> Callable[..., Any]:
    """Runs a program in a process of its own, which has the device as `DEVICE` and its ConfigProto as `config`."""
    if DEVICE.startswith("/gpu") and number_of_gpus == 0:
        pytest.skip("TensorFlow finds no GPU here; FASTSUP_TEST_DEVICE=/cpu:1 takes a second CPU device instead")
    head = f"import os, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom device import *\n"

    def run(program: str, *arguments: Any, code: int = 0) -> Any:
        environment = {**os.environ, "FASTSUP_TEST_DEVICE": DEVICE, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
        done = processes.python("-c", head + program, *arguments, cwd=tmp_path, env=environment)
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-4000:]}"
        return done

    return run
