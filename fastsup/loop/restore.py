"""The newest intact checkpoint of a `tf.train.CheckpointManager`, found and restored as sessions do it."""

from __future__ import annotations

import collections
import logging
import os
import re
import time
from typing import Any

from fastsup.loop.managers import is_tensorflows

_logger = logging.getLogger("fastsup")


def restore_newest(manager: Any) -> int | None:
    """Restores the newest intact checkpoint.

    It is looked for in the directory, not only in the state file, which may be lost or damaged.

    Args:
      manager: the `tf.train.CheckpointManager`, or an object with such attributes.

    Returns:
      The number at the end of the checkpoint's name, which is its global step; None without a checkpoint.

    Raises:
      NoIntactCheckpointError: there are checkpoints, and none is intact. It is a RuntimeError, too.
      ValueError: a checkpoint has no number at the end of its name, or doesn't fit the objects.
      AssertionError: a checkpoint has no value for any of the objects.
      tf.errors.OpError, OSError, MemoryError: the files can't be read at present, or not by this user; an older
        checkpoint isn't tried.
    """
    from fastsup.checkpoint.restore import CheckpointRestorer

    def restore(path: str) -> None:
        _number_of(path)
        status = manager.checkpoint.restore(path)
        _check_match(manager.checkpoint, status, path)

    listing, place = _listing_of(manager)
    restored = CheckpointRestorer(restore, lambda: None).restore_first(listing, place)
    if restored is None:
        return None
    path, rotation = restored
    if is_tensorflows(manager):
        _continue_after(manager, path, rotation)
    _logger.info("Restored %s: going on after global step %d.", path, _number_of(path))
    return _number_of(path)


def _listing_of(manager: Any) -> tuple[Any, str]:
    """The checkpoints in the order in which they are tried, and the name of the place in which they are."""
    from fastsup.checkpoint.directory import STATE_FILE, Listing, list_checkpoints, note_state, stem_of

    if is_tensorflows(manager):
        note_state(os.path.join(manager.directory, STATE_FILE))
        listing = list_checkpoints(manager.directory)
        if not listing.named:
            # Those of other names may be another program's.
            name = os.path.basename(manager._prefix)
            own = [path for path in listing.paths if stem_of(path) == name]
            listing = listing._replace(paths=own or listing.paths)
        return listing, manager.directory
    newest = manager.latest_checkpoint
    if newest is None:
        return Listing([], [], [], False, []), repr(manager)
    older = [path for path in reversed(manager.checkpoints) if path != newest]
    return Listing([newest, *older], list(manager.checkpoints), [], True, []), repr(manager)


def _continue_after(manager: Any, path: str, rotation: list[str]) -> None:
    """Has a manager go on from a checkpoint, where that isn't the one that its state file calls the newest."""
    newest = manager.latest_checkpoint
    if newest is not None and os.path.normpath(newest) == os.path.normpath(path):
        return
    kept = {os.path.normpath(other) for other in rotation} - {os.path.normpath(path)}
    times = [(other, secs) for other, secs in manager._maybe_delete.items() if os.path.normpath(other) in kept]
    manager._maybe_delete = collections.OrderedDict([*times, (path, time.time())])
    manager._latest_checkpoint = path


def _check_match(checkpoint: Any, status: Any, path: str) -> None:
    """Refuses a checkpoint without a value for any of the objects: training would go on from initial values.

    TensorFlow's `assert_nontrivial_match` lets such a checkpoint pass, since the counter of the saves fits always.
    """
    matched = getattr(getattr(status, "_checkpoint", None), "object_by_proto_id", None)
    if matched is None:
        _check_older_form(status, path)
        return
    counter = getattr(checkpoint, "_save_counter", None)
    root = getattr(status, "_root", checkpoint)
    if any(known is not root and known is not counter for known in matched.values()):
        return
    names = sorted(name for name in checkpoint._trackable_children() if name != "save_counter")
    if names:
        status.expect_partial()  # TensorFlow need not warn of it, too.
        raise AssertionError(
            f"Nothing except the root object matched a checkpointed value. The checkpoint {path} has no value for "
            f"any of {names}: it is another program's, or these have other names in it. Pass the objects under the "
            "names that they were saved with, or use another directory."
        )


def _check_older_form(status: Any, path: str) -> None:
    """Refuses a checkpoint that TensorFlow has taken for one of its older form, of a Saver, though it isn't one.

    It does so if reading the index has failed, in the middle of it, and restores nothing then.
    """
    from tensorflow.python.checkpoint.checkpoint import NameBasedSaverStatus
    from tensorflow.python.framework import errors

    from fastsup.checkpoint.directory import is_object_based, open_checkpoint

    # Another library has other ones.
    if isinstance(status, NameBasedSaverStatus) and is_object_based(open_checkpoint(path)[1]):
        raise errors.UnavailableError(None, None, f"{path}.index could not be read, so nothing was restored from it.")


def _number_of(path: str) -> int:
    found = re.search(r"-(\d+)$", path)
    if found is None:
        raise ValueError(f"The checkpoint {path!r} has no number at the end of its name, which tells the global step.")
    return int(found.group(1))
