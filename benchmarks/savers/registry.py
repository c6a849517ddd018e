"""The ways to save that are compared: the rows of the table."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["SAVERS", "Saver"]


@dataclass(frozen=True)
class Saver:
    """A row of the table.

    Args:
      title: its name in the table.
      does: how it saves and how its program resumes, in Markdown.
      module: the file in `programs/` that has its program.
      program: the name of the program there.
      environment: the environment that it runs in, see `benchmarks/peer_environments.py`.
      settings: environment variables that it needs.
      by_ctime: whether it looks for the newest file by the time of the file's last change of status.
    """

    title: str
    does: str
    module: str
    program: str
    environment: str = "here"
    settings: dict[str, str] = field(default_factory=dict)
    by_ctime: bool = False


_KERAS = {"KERAS_BACKEND": "tensorflow"}

SAVERS = (
    Saver(
        "fastsup, MonitoredTrainingSession",
        "`CheckpointSaverHook`, `Saver(max_to_keep=1)`, also saves at the end; the session restores",
        "in_graphs",
        "fastsup_session",
    ),
    Saver(
        "fastsup, Supervisor",
        "the service of `save_model_secs`, run every five steps and at the end; `managed_session` restores",
        "in_graphs",
        "fastsup_supervisor",
    ),
    Saver(
        "fastsup, StepLoop",
        "`CheckpointHook(max_to_keep=1)`, also saves at the end; `resume_from`",
        "in_functions",
        "fastsup_step_loop",
    ),
    Saver(
        "fastsup, Checkpoints",
        "`Checkpoints(keep=1)` of a NumPy array, also saves at the end; `resume_from`",
        "in_numpy",
        "fastsup_checkpoints",
    ),
    Saver("TensorFlow, MonitoredTrainingSession", "the same program as fastsup's session", "in_graphs", "tf_session"),
    Saver("TensorFlow, Supervisor", "the same program as fastsup's Supervisor", "in_graphs", "tf_supervisor"),
    Saver(
        "tf.train.CheckpointManager",
        "`save` every five steps and at the end, `max_to_keep=1`; `restore_or_initialize`",
        "in_functions",
        "tf_manager",
    ),
    Saver(
        "Keras, ModelCheckpoint, weights",
        "`save_weights_only=True`, one file that each save overwrites; `load_weights`",
        "in_keras",
        "keras_weights",
        settings=_KERAS,
    ),
    Saver(
        "Keras, ModelCheckpoint, one model",
        "one `.keras` file that each save overwrites; `load_model`",
        "in_keras",
        "keras_model",
        settings=_KERAS,
    ),
    Saver(
        "Keras, ModelCheckpoint, a model per epoch",
        "a `.keras` file for each epoch; `load_model` of the newest by its time, as in Keras's guide to training",
        "in_keras",
        "keras_models",
        settings=_KERAS,
        by_ctime=True,
    ),
    Saver(
        "Keras, BackupAndRestore",
        "`delete_checkpoint=False`; restores in `fit`",
        "in_keras",
        "keras_backup",
        settings=_KERAS,
    ),
    Saver(
        "Keras, BackupAndRestore, double",
        "the same, with `double_checkpoint=True`",
        "in_keras",
        "keras_double_backup",
        settings=_KERAS,
    ),
    Saver(
        "Orbax, CheckpointManager",
        "`save_interval_steps=5`, `max_to_keep=1`, `wait_until_finished` after each save; `restore(latest_step())`",
        "in_orbax",
        "orbax",
        "orbax",
    ),
    Saver(
        "Lightning, ModelCheckpoint",
        '`every_n_train_steps=5`, `save_last=True`, `save_top_k=1`; `fit(ckpt_path="last")`',
        "in_torch",
        "lightning",
        "torch",
    ),
    Saver(
        "ignite, Checkpoint and DiskSaver",
        "every five iterations, `n_saved=1`, `atomic=True`; `load_objects` of the file with the greatest number",
        "in_torch",
        "ignite",
        "torch",
    ),
    Saver(
        "PyTorch, torch.save",
        "a dictionary in one file that each save overwrites, every five steps and at the end; `torch.load`",
        "in_torch",
        "torch_save",
        "torch",
    ),
)
