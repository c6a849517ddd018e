"""Leaves the newest checkpoint as it is if it already holds the state that is to be saved.

TensorFlow's hook saves the state that was just restored again, under the same name. The saver truncates the index file
in place, so for a moment the newest checkpoint is torn: a program that is killed at that moment loses it.
"""

from __future__ import annotations

import os
from typing import Any

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.lib.io import file_io

from fastsup.checkpoint.durable import checkpoint_name, is_plain_saver, write_state
from fastsup.runtime.session import Session

__all__ = ["UNCHANGED", "reuse_unchanged_checkpoint"]

# Logged in place of TensorFlow's line about a save. Takes the step and the path of the checkpoint.
UNCHANGED = (
    "The checkpoint of step %d, %s, holds this state already and is left as it is. "
    "See `python -m fastsup docs dropin#checkpoints`."
)


def reuse_unchanged_checkpoint(
    session: Session, saver: Any, save_path: str, step: Any, write_meta_graph: bool
) -> str | None:
    """Finds the checkpoint that a save would overwrite with the same values.

    If there is one, does the rest of the save: writes the `.meta` file if it is missing, and the state file.

    Args:
      session: the session whose variables are to be saved.
      saver: the saver that is to save them.
      save_path: path of the checkpoint, without the step.
      step: the global step to name the checkpoint by; None for a name without a step.
      write_meta_graph: whether a `.meta` file with the graph accompanies the checkpoint.

    Returns:
      The path of that checkpoint; None if the variables have to be saved.
    """
    if not is_plain_saver(saver):
        return None
    path = session._unchanged_checkpoint()
    if path is None or step is None or path not in saver.last_checkpoints:
        return None
    if os.path.abspath(str(checkpoint_name(saver, save_path, step))) != os.path.abspath(path):
        return None
    if not checkpoint_management.checkpoint_exists_internal(path):
        return None
    if write_meta_graph:
        meta_graph = checkpoint_management.meta_graph_filename(path)
        if not file_io.file_exists(meta_graph):
            with session.graph.as_default():
                saver.export_meta_graph(meta_graph)
    if saver.last_checkpoints[-1] != path:
        # The program has gone back to an older one: it is the newest from now on, as after a save.
        saver._RecordLastCheckpoint(path)
    # The state file may be lost, or name another checkpoint that is damaged.
    write_state(os.path.dirname(save_path), path, saver.last_checkpoints, saver._save_relative_paths)
    return path
