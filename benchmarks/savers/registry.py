"""The ways to save that are compared: the rows of the table."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["SAVERS", "Saver"]


@dataclass(frozen=True)
class Saver:
    """A row of the table.

    Args:
      title: its name in the table.
      module: the file in `programs/` that has its program.
      program: the name of the program there.
      environment: the environment that it runs in, see `benchmarks/peer_environments.py`.
      settings: environment variables that it needs.
      by_ctime: whether it looks for the newest file by the time of the file's last change of status.
    """

    title: str
    module: str
    program: str
    environment: str = "here"
    settings: dict[str, str] = field(default_factory=dict)
    by_ctime: bool = False


_KERAS = {"KERAS_BACKEND": "tensorflow"}

SAVERS = (
    Saver("fastsup, MonitoredTrainingSession", "in_graphs", "fastsup_session"),
    Saver("fastsup, Supervisor", "in_graphs", "fastsup_supervisor"),
    Saver("fastsup, StepLoop", "in_functions", "fastsup_step_loop"),
    Saver("fastsup, monitored_function", "in_functions", "fastsup_function"),
    Saver("TensorFlow, MonitoredTrainingSession", "in_graphs", "tf_session"),
    Saver("TensorFlow, Supervisor", "in_graphs", "tf_supervisor"),
    Saver("tf.train.CheckpointManager", "in_functions", "tf_manager"),
    Saver("Keras, ModelCheckpoint, weights", "in_keras", "keras_weights", settings=_KERAS),
    Saver("Keras, ModelCheckpoint, one model", "in_keras", "keras_model", settings=_KERAS),
    Saver("Keras, ModelCheckpoint, a model per epoch", "in_keras", "keras_models", settings=_KERAS, by_ctime=True),
    Saver("Keras, BackupAndRestore", "in_keras", "keras_backup", settings=_KERAS),
    Saver("Keras, BackupAndRestore, double", "in_keras", "keras_double_backup", settings=_KERAS),
    Saver("Orbax, CheckpointManager", "in_orbax", "orbax", "orbax"),
    Saver("Lightning, ModelCheckpoint", "in_torch", "lightning", "torch"),
    Saver("ignite, Checkpoint and DiskSaver", "in_torch", "ignite", "torch"),
    Saver("PyTorch, torch.save", "in_torch", "torch_save", "torch"),
)
