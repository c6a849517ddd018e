"""The environments of other libraries: which packages each needs, and where they lie.

`python -m benchmarks --peers` runs loops in them, and `python -m benchmarks.savers` ways to save.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["ENVIRONMENTS", "PEERS", "Peer", "default_folder", "install", "install_peers", "python_of"]

# For each environment, the arguments of its calls of pip. "here" is the interpreter that runs the benchmark.
ENVIRONMENTS: dict[str, list[list[str]]] = {
    "here": [],
    "tensorflow-2.15": [["tensorflow-cpu==2.15.1", "tensorflow-estimator==2.15.0", "numpy<2"]],
    # Orbit is a part of a distribution whose other parts need much that Orbit doesn't.
    "orbit": [["tensorflow>=2.16,<2.23", "tf_keras>=2.16,<2.23"], ["--no-deps", "tf-models-official"]],
    "jax": [["jax", "keras"]],
    # CLU's writers import TensorFlow and TensorBoard.
    "clu": [["jax", "clu", "tensorflow-cpu", "tensorboard"]],
    "orbax": [["jax", "orbax-checkpoint"]],
    "torch": [["torch", "keras", "pytorch-ignite", "lightning"]],
}


@dataclass(frozen=True)
class Peer:
    """A row of the table.

    Args:
      title: its name in the table.
      adapter: its name in `adapters/worker.py`.
      environment: the environment that it runs in.
      settings: environment variables that it needs.
    """

    title: str
    adapter: str
    environment: str = "here"
    settings: dict[str, str] = field(default_factory=dict)


PEERS = (
    Peer("fastsup, MonitoredTrainingSession.run_loop", "fastsup_session"),
    Peer("fastsup, StepLoop of a fastsup.function", "fastsup_step_loop"),
    Peer("fastsup.function in a loop of Python", "fastsup_function"),
    Peer("fastsup, StepLoop of a compiled step, arrays", "fastsup_compiled"),
    Peer(
        "Keras fit, compiled, fastsup.keras.accelerate, arrays",
        "fastsup_keras_compiled",
        settings={"KERAS_BACKEND": "tensorflow"},
    ),
    Peer("Keras fit, fastsup.keras.accelerate", "fastsup_keras", settings={"KERAS_BACKEND": "tensorflow"}),
    Peer("fastsup, Estimator", "fastsup_estimator"),
    Peer("TensorFlow, MonitoredTrainingSession", "tf_session"),
    Peer("TensorFlow 2.15, Estimator", "tf_estimator", "tensorflow-2.15"),
    Peer("tf.function in a loop of Python", "tf_function"),
    Peer("tf.function, compiled, arrays", "tf_function_compiled"),
    Peer("Keras fit on TensorFlow, compiled, arrays", "keras_compiled", settings={"KERAS_BACKEND": "tensorflow"}),
    Peer("Orbit, 100 steps in a function", "orbit", "orbit"),
    Peer("Keras fit on TensorFlow", "keras_1", settings={"KERAS_BACKEND": "tensorflow"}),
    Peer("Keras fit on TensorFlow, 100 steps in a function", "keras_100", settings={"KERAS_BACKEND": "tensorflow"}),
    Peer("Keras fit on JAX", "keras_1", "jax", {"KERAS_BACKEND": "jax"}),
    Peer("Keras fit on JAX, 100 steps in a function", "keras_100", "jax", {"KERAS_BACKEND": "jax"}),
    Peer("Keras fit on PyTorch", "keras_1", "torch", {"KERAS_BACKEND": "torch"}),
    Peer("JAX, a jitted step", "jax", "jax"),
    Peer("JAX, lax.scan of 100 steps", "jax_scan", "jax"),
    Peer("JAX, CLU's periodic actions", "clu", "clu"),
    Peer("PyTorch", "torch", "torch"),
    Peer("PyTorch, ignite", "ignite", "torch"),
    Peer("PyTorch, Lightning", "lightning", "torch"),
)


def default_folder() -> Path:
    """Where the environments lie: `~/.cache/fastsup/peers`, or in `XDG_CACHE_HOME`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastsup" / "peers"


def python_of(environment: str, folder: Path) -> str | None:
    """The interpreter of an environment; None if the environment isn't installed.

    Args:
      environment: its name.
      folder: where the environments lie.
    """
    if environment == "here":
        return sys.executable
    finished = folder / environment / "finished"
    return str(folder / environment / "bin" / "python") if finished.exists() else None


def install_peers(folder: Path, adapters: Iterable[str] = ()) -> None:
    """Installs the environments of the peers that aren't there yet: some gigabytes.

    Args:
      folder: where they lie; made if need be.
      adapters: the peers that are run, by their adapters; all if there is none.

    Raises:
      subprocess.CalledProcessError: pip has failed.
      RuntimeError: no Python is there that TensorFlow 2.15 runs on.
    """
    install(folder, {peer.environment for peer in PEERS if not adapters or peer.adapter in set(adapters)})


def install(folder: Path, wanted: Collection[str]) -> None:
    """Installs the environments that aren't there yet.

    Args:
      folder: where they lie; made if need be.
      wanted: their names.

    Raises:
      subprocess.CalledProcessError: pip has failed.
      RuntimeError: no Python is there that TensorFlow 2.15 runs on.
    """
    for name, calls in ENVIRONMENTS.items():
        if name not in wanted or python_of(name, folder) is not None:
            continue
        place = folder / name
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([_base_python(name), "-m", "venv", str(place)], check=True)
        for arguments in calls:
            subprocess.run([str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *arguments], check=True)
        (place / "finished").touch()


def _base_python(environment: str) -> str:
    """The interpreter that an environment is made with: TensorFlow 2.15 needs Python 3.11 or an older one."""
    if environment != "tensorflow-2.15" or sys.version_info < (3, 12):
        return sys.executable
    found = shutil.which("python3.11") or shutil.which("python3.10")
    if found is None:
        raise RuntimeError("TensorFlow 2.15 needs python3.11 or python3.10 on the PATH; there is neither.")
    return found
