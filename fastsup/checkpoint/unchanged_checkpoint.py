"""The checkpoint that holds the present state already: it is not written again over itself.

TensorFlow's hook saves what it has just restored, under the same name. The saver truncates the index in place, so for a
moment the newest checkpoint is torn, and a program that is killed then loses it.
"""

from __future__ import annotations

import os
from typing import Any

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.lib.io import file_io
from tensorflow.python.training.saver import Saver

from fastsup.runtime.session import Session

__all__ = ["LEFT_AS_IT_IS", "checkpoint_of_now"]

# What is logged in place of TensorFlow's line about a save: the step, and the checkpoint's path.
LEFT_AS_IT_IS = "The checkpoint of step %d, %s, holds this state already and is left as it is."


def checkpoint_of_now(session: Session, saver: Any, save_path: str, step: Any, write_meta_graph: bool) -> str | None:
    """The checkpoint that a save would overwrite with the very same values. Does what else the save would do.

    Args:
      session: the session whose variables are to be saved.
      saver: the saver that is to save them.
      save_path: path of the checkpoint, without the step.
      step: the global step to name it by; None for none.
      write_meta_graph: whether the graph should lie beside it.

    Returns:
      Its path; None if it has to be saved.
    """
    if getattr(type(saver), "save", None) is not Saver.save or "save" in vars(saver):
        return None  # Somebody's own, which may do more than to write these files.
    path = session._unchanged_checkpoint()
    newest = saver.last_checkpoints[-1:]
    if path is None or step is None or newest != [path]:
        return None
    number = f"{int(step):08d}" if saver._pad_step_number else str(int(step))
    if os.path.abspath(f"{save_path}-{number}") != os.path.abspath(path):
        return None
    if not checkpoint_management.checkpoint_exists_internal(path):
        return None
    if write_meta_graph:
        meta_graph = checkpoint_management.meta_graph_filename(path)
        if not file_io.file_exists(meta_graph):
            with session.graph.as_default():
                saver.export_meta_graph(meta_graph)
    # It may have named another one, damaged, or been lost. It is replaced as a whole.
    checkpoint_management.update_checkpoint_state_internal(
        save_dir=os.path.dirname(save_path),
        model_checkpoint_path=path,
        all_model_checkpoint_paths=saver.last_checkpoints,
        save_relative_paths=saver._save_relative_paths,
    )
    return path
