"""Tests that need a GPU. FASTSUP_TEST_DEVICE=/cpu:1 tries them on a second CPU device where there is none."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accelerator import CannotBuildError, built
from processes import Processes

DEVICE = os.environ.get("FASTSUP_TEST_DEVICE", "/gpu:0")


@pytest.fixture(scope="session")
def number_of_gpus(processes: Processes) -> int:
    """How many GPUs TensorFlow finds, asked in its own process: this one may have to train on the CPU."""
    program = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
    done = processes.python("-c", program)
    return int(done.stdout.split()[-1]) if done.returncode == 0 else 0


@pytest.fixture
def run_program(tmp_path: Path, processes: Processes, number_of_gpus: int) -> Callable[..., Any]:
    """Runs a program in its own process, which has the device as `DEVICE` and its ConfigProto as `config`."""
    if DEVICE.startswith("/gpu") and number_of_gpus == 0:
        pytest.skip("TensorFlow finds no GPU here; FASTSUP_TEST_DEVICE=/cpu:1 takes a second CPU device instead")
    head = f"import os, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom device import *\n"

    def run(program: str, *arguments: Any, code: int = 0) -> Any:
        environment = {**os.environ, "FASTSUP_TEST_DEVICE": DEVICE, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
        done = processes.python("-c", head + program, *arguments, cwd=tmp_path, env=environment)
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-4000:]}"
        return done

    return run


HEAD = """
import os
from tensorflow.python.framework import load_library
load_library.load_pluggable_device_library(os.environ["ACCELERATOR_LIBRARY"])
import json, time
import numpy as np
import tensorflow as tf
"""


@pytest.fixture(scope="session")
def library(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.getbasetemp()
    try:
        return built(folder if os.environ.get("PYTEST_XDIST_WORKER") is None else folder.parent, processes.run)
    except CannotBuildError as error:
        pytest.skip(f"the fake accelerator can't be built here: {error}")


@pytest.fixture
def run(processes: Processes, library: Path) -> Callable[..., Any]:
    """Runs a program with the fake accelerator. Returns what it prints last, as JSON."""

    def run_program(program: str, code: int = 0, **settings: Any) -> Any:
        named = {f"ACCELERATOR_{name.upper()}": str(value) for name, value in settings.items()}
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "ACCELERATOR_LIBRARY": str(library), **named}
        done = processes.python("-c", HEAD + program, env=environment)
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-4000:]}"
        return json.loads(done.stdout.splitlines()[-1]) if code == 0 else None

    return run_program
