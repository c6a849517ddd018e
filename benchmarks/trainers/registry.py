"""The programs that are compared: the rows of the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["PROGRAMS", "Program"]

_HERE = Path(__file__).with_name("programs")
_EXAMPLES = Path(__file__).parents[2] / "examples"
_KERAS = {"KERAS_BACKEND": "tensorflow"}


@dataclass(frozen=True)
class Program:
    """A row of the table.

    Args:
      name: its name on the command line.
      title: its name in the table.
      path: the program.
      loop: the loop that it uses, one of `probes.PROBES`.
      needs: the modules that its interpreter must have, and whose versions are shown.
      epoch_steps: steps in an epoch.
      settings: environment variables that it needs.
    """

    name: str
    title: str
    path: Path
    loop: str
    needs: tuple[str, ...]
    epoch_steps: int = 43
    settings: dict[str, str] = field(default_factory=dict)


PROGRAMS = (
    Program(
        "fastsup-tf2", "fastsup, TensorFlow 2", _EXAMPLES / "train_tf2.py", "fastsup", ("tensorflow", "keras"),
        settings=_KERAS,
    ),
    # The smaller last batch is left out, as XLA would compile the step for it.
    Program("fastsup-jax", "fastsup, JAX", _EXAMPLES / "train_jax.py", "fastsup", ("jax", "optax"), 42),
    Program("fastsup-torch", "fastsup, PyTorch", _EXAMPLES / "train_torch.py", "fastsup", ("torch",)),
    Program("keras", "Keras `fit`", _HERE / "keras_fit.py", "keras", ("keras", "tensorflow"), settings=_KERAS),
    Program(
        "orbit", "Orbit `Controller`", _HERE / "orbit_controller.py", "orbit", ("orbit", "tensorflow", "keras"),
        settings=_KERAS,
    ),
    Program("lightning", "Lightning `Trainer`", _HERE / "lightning_trainer.py", "lightning", ("lightning", "torch")),
    Program("ignite", "ignite `Engine`", _HERE / "ignite_engine.py", "ignite", ("ignite", "torch")),
)  # fmt: skip
