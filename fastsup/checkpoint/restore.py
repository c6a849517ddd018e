"""Restores the newest intact checkpoint, and reports the damaged ones."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError
from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging

from fastsup.checkpoint.directory import (
    MISSING,
    STATE_FILE,
    Listing,
    damage_of,
    is_in,
    is_unfinished,
    latest_intact_checkpoint,
    list_checkpoints,
    step_of,
)
from fastsup.checkpoint.other_writers import note_state
from fastsup.common.errors import is_read_failure

__all__ = ["CheckpointRestorer", "NoIntactCheckpointError"]


class NoIntactCheckpointError(errors.DataLossError, ValueError, RuntimeError):  # type: ignore[misc]
    """Raised if there are checkpoints and each of them is damaged or incomplete.

    It is also a ValueError, as TensorFlow raises that for a checkpoint whose files are missing; and a RuntimeError,
    because `StepLoop` raises that where it can't begin.

    Args:
      place: path of the directory or of the checkpoint to restore.
      failures: list of (path, cause), one for each checkpoint that was tried.
      intact: path of an intact checkpoint that wasn't tried, or None.
    """

    def __init__(self, place: str, failures: list[tuple[str, str]], intact: str | None = None) -> None:
        self.failures: list[tuple[str, str]] = list(failures)
        self.intact: str | None = intact
        self._place = place
        if [path for path, _ in failures] == [place]:
            message = f"{place} can't be restored, and is left as it is: {failures[0][1]}."
        else:
            lines = "".join(f"\n  {path}: {cause}" for path, cause in failures)
            message = f"No checkpoint of {place} can be restored; each was tried:{lines}\nNone of them was changed."
        remedy = (
            "Copy an intact checkpoint there, or start training in an empty directory."
            if intact is None
            else f"{intact} is intact: pass it as the path of the checkpoint, or train, which goes on from it."
        )
        super().__init__(None, None, f"{message} {remedy}")

    def __reduce__(self) -> Any:
        return type(self), (self._place, self.failures, self.intact)


class CheckpointRestorer:
    """Restores a model from the newest intact checkpoint.

    It can be called again while a program waits for a checkpoint; it warns of each damaged checkpoint once.

    Args:
      restore: function that restores a checkpoint; its argument is the path.
      prepare: function without arguments, called before each `restore`. Its errors don't count as damage.
    """

    def __init__(self, restore: Callable[[str], None], prepare: Callable[[], None]) -> None:
        self._restore = restore
        self._prepare = prepare
        self._warnings: set[str] = set()

    def _warn(self, text: str) -> None:
        if text not in self._warnings:
            self._warnings.add(text)
            logging.warning("%s See `python -m fastsup docs recovery`.", text)

    def _restore_or_explain(self, path: str) -> str | None:
        """Restores a checkpoint. Returns None, or the damage that prevents it; raises a mistake of the program."""
        self._prepare()
        try:
            self._restore(path)
        except (errors.OpError, ValueError, IndexError, RuntimeError, DecodeError) as error:
            if is_read_failure(error):
                raise
            # Reading the whole checkpoint tells damage from a mistake of the program. It is slow, so only failures do.
            cause = damage_of(path)
            if cause is None and isinstance(error, (errors.DataLossError, errors.OutOfRangeError)):
                # The server that restores may see other files than this process.
                cause = " ".join(str(error).split())
            if cause is None:
                raise
            return cause
        return None

    def restore_checkpoint(self, path: str) -> None:
        """Restores one checkpoint.

        Args:
          path: the checkpoint's path.

        Raises:
          NoIntactCheckpointError: the checkpoint is damaged or incomplete.
          ValueError: no file of the checkpoint exists.
          Exception: the saver's error for a checkpoint that doesn't fit the model.
        """
        cause = self._restore_or_explain(path)
        if cause == MISSING:
            raise ValueError(f"The passed save_path is not a valid checkpoint: {path}")
        if cause is not None:
            raise NoIntactCheckpointError(path, [(path, cause)], latest_intact_checkpoint(os.path.dirname(path) or "."))

    def restore_newest(self, directory: Any, expects_writer: bool = False) -> tuple[str, list[str]] | None:
        """Restores the newest intact checkpoint of a directory.

        Args:
          directory: path of the directory.
          expects_writer: whether another process is expected to write the first checkpoint. Then damage isn't an error
            while the state file names no checkpoint.

        Returns:
          (path, rotation): the path of the restored checkpoint, and the paths of the checkpoints that the saver may
          delete later, oldest first. None if no checkpoint was ever saved completely.

        Raises:
          NoIntactCheckpointError: there are checkpoints, and none is intact.
          Exception: the saver's error for a checkpoint that doesn't fit the model.
        """
        note_state(os.path.join(os.fspath(directory), STATE_FILE))
        return self.restore_first(list_checkpoints(directory), os.fspath(directory), expects_writer)

    def restore_first(self, listing: Listing, place: str, expects_writer: bool = False) -> tuple[str, list[str]] | None:
        """Restores the first checkpoint of a list that is intact.

        Args:
          listing: the checkpoints, in the order in which they are tried.
          place: path of the directory.
          expects_writer: as for `restore_newest`. So are the result and the errors.
        """
        paths = listing.paths
        waiting = expects_writer and not listing.named
        if waiting:
            # Another process may be writing such a checkpoint now.
            paths = [path for path in paths if not is_unfinished(path)]
            if not paths:
                return None
        for remark in listing.remarks:
            self._warn(remark + ".")
        failures: list[tuple[str, str]] = []
        for path, older in itertools.zip_longest(paths, paths[1:]):
            cause = self._restore_or_explain(path)
            if cause is None:
                unfinished = [other for other in paths if other not in _tried(failures) and is_unfinished(other)]
                self._warn_of_interrupted([*unfinished, *listing.interrupted], step_of(path))
                return path, _rotation(listing, path, _tried(failures), place)
            failures.append((path, cause))
            what_now = "" if older is None else f" {os.path.basename(older)} is tried in its place."
            self._warn(f"The checkpoint {path} can't be restored and is left as it is: {cause}.{what_now}")
        if waiting:
            return None
        self._warn_of_interrupted(listing.interrupted, None)
        if not failures:
            return None
        if listing.in_first_save or (not listing.named and len(failures) == 1 and is_unfinished(failures[0][0])):
            # No state file has ever named a checkpoint of this directory.
            self._warn(f"{failures[0][0]} is of the first save, which never ended: nothing had been saved yet.")
            return None
        raise NoIntactCheckpointError(place, failures)

    def _warn_of_interrupted(self, interrupted: list[str], restored_step: int | None) -> None:
        for path in interrupted:
            step = step_of(path)
            if restored_step is None or (step is not None and step > restored_step):
                self._warn(
                    f"{path} isn't used: it has no complete index, so its save was interrupted or is still under way."
                )


def _tried(failures: list[tuple[str, str]]) -> set[str]:
    """Returns the paths of the checkpoints that failed."""
    return {path for path, _ in failures}


def _rotation(listing: Listing, restored: str, damaged: set[str], directory: str) -> list[str]:
    """Returns the checkpoints that a saver may delete later: none that is damaged or in another directory."""
    kept = [path for path in listing.rotation if path not in damaged]
    return kept if restored in kept or not is_in(restored, directory) else [*kept, restored]
