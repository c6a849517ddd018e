"""The newest checkpoint of a `tf.train.CheckpointManager` that can be read, restored."""

from __future__ import annotations

import logging
import re
from typing import Any

from fastsup.common.tensorflow_errors import is_read_failure

_logger = logging.getLogger("fastsup")


def restore_newest(manager: Any) -> int | None:
    """Restores the newest checkpoint that can be read. If there is none, calls the manager's `init_fn`.

    Args:
      manager: the `tf.train.CheckpointManager`.

    Returns:
      The number at the end of the checkpoint's name, which is its global step; None if there is no checkpoint.

    Raises:
      RuntimeError: there are checkpoints, and none can be read.
      ValueError: a checkpoint has no number at the end of its name.
      tf.errors.OpError, OSError, MemoryError: the files can't be read at present, or not by this user; an older
        checkpoint isn't tried.
    """
    if manager.latest_checkpoint is None:
        manager.restore_or_initialize()
        return None
    # A manager's list leaves out the checkpoints that it preserves for ever, of which the newest may be one.
    older = [path for path in reversed(manager.checkpoints) if path != manager.latest_checkpoint]
    failures = []
    paths = [manager.latest_checkpoint, *older]
    for path in paths:
        global_step = _number_of(path)
        try:
            manager.checkpoint.restore(path)
        except Exception as error:
            if is_read_failure(error):
                raise
            failures.append(f"{path}: {type(error).__name__}: {error}")
            what_now = "" if path is paths[-1] else " An older one is tried."
            _logger.warning("The checkpoint %s can't be read: %s.%s", path, error, what_now)
            continue
        _logger.info("Restored %s: going on after global step %d.", path, global_step)
        return global_step
    raise RuntimeError(
        "None of the checkpoints can be read, so training doesn't start. Move them away to start from the "
        "beginning. " + "; ".join(failures)
    )


def _number_of(path: str) -> int:
    found = re.search(r"-(\d+)$", path)
    if found is None:
        raise ValueError(f"The checkpoint {path!r} has no number at the end of its name, which tells the global step.")
    return int(found.group(1))
