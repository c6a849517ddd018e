"""Restoring the newest checkpoint that isn't damaged, and saying which were."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging

from fastsup.checkpoint.directory import MISSING, Listing, damage_of, is_in, is_unfinished, list_checkpoints, step_of

__all__ = ["NoIntactCheckpointError", "Recovery"]

# What says nothing about the files: the machine that was to read them, or the right to.
_NOT_THE_FILES = (
    errors.AbortedError,
    errors.CancelledError,
    errors.DeadlineExceededError,
    errors.PermissionDeniedError,
    errors.ResourceExhaustedError,
    errors.UnauthenticatedError,
    errors.UnavailableError,
)


class NoIntactCheckpointError(errors.DataLossError, ValueError):  # type: ignore[misc]
    """There are checkpoints, and each of them is damaged or incomplete.

    A ValueError too, which is what TensorFlow raises for a checkpoint whose files are gone.

    Args:
      place: the directory or the checkpoint that was to be restored.
      failures: (path, cause) of each checkpoint that was tried.
    """

    def __init__(self, place: str, failures: list[tuple[str, str]]) -> None:
        self.failures = list(failures)
        lines = "".join(f"\n  {path}: {cause}" for path, cause in failures)
        super().__init__(
            None,
            None,
            f"No checkpoint of {place} can be restored; each was tried:{lines}\n"
            "All of them were left as they are. Bring back an intact one, or start anew in an empty directory.",
        )

    def __reduce__(self) -> Any:
        return type(self), (self.message, self.failures)


class Recovery:
    """One attempt to restore a model, which warns of each damaged checkpoint once however often it is repeated.

    Args:
      restore: function that restores the checkpoint whose path it is given.
      prepare: function without arguments, called before each `restore`. Its errors are never a checkpoint's fault.
    """

    def __init__(self, restore: Callable[[str], None], prepare: Callable[[], None]) -> None:
        self._restore = restore
        self._prepare = prepare
        self._said: set[str] = set()

    def _warn(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            logging.warning("%s", text)

    def _damage(self, path: str) -> str | None:
        """Restores a checkpoint, or says what is wrong with it. A mistake of the program's is raised as it is."""
        self._prepare()
        try:
            self._restore(path)
        except _NOT_THE_FILES:
            raise
        except (errors.OpError, ValueError, IndexError, RuntimeError) as error:
            # Whether the files or the program are to blame: reading everything tells. It takes time, but only here.
            cause = damage_of(path)
            if cause is None and isinstance(error, (errors.DataLossError, errors.OutOfRangeError)):
                # Whoever restores sees other files than we do here.
                cause = " ".join(str(error).split())
            if cause is None:
                raise
            return cause
        return None

    def from_file(self, path: str) -> None:
        """Restores one checkpoint.

        Args:
          path: the checkpoint's path.

        Raises:
          NoIntactCheckpointError: it is damaged or incomplete.
          ValueError: there is no such checkpoint.
          Whatever the saver raises for a checkpoint that doesn't fit the model.
        """
        cause = self._damage(path)
        if cause == MISSING:
            raise ValueError(f"The passed save_path is not a valid checkpoint: {path}")
        if cause is not None:
            raise NoIntactCheckpointError(path, [(path, cause)])

    def from_directory(self, directory: Any, none_named_yet: bool = False) -> tuple[str, list[str]] | None:
        """Restores the newest intact checkpoint of a directory.

        Args:
          directory: path of the directory.
          none_named_yet: whether somebody else is expected to write checkpoints here: then damage doesn't count as
            long as the state file names none.

        Returns:
          None if nothing was ever saved there completely. Else the checkpoint's path, and the paths of the checkpoints
          that the saver may go on to delete in their turn, oldest first.

        Raises:
          NoIntactCheckpointError: there are checkpoints, and none is intact.
          Whatever the saver raises for a checkpoint that doesn't fit the model.
        """
        listing = list_checkpoints(directory)
        paths = listing.paths
        waiting = none_named_yet and not listing.named
        if waiting:
            # Its writer may be in the middle of it.
            paths = [path for path in paths if not is_unfinished(path)]
            if not paths:
                return None
        for remark in listing.remarks:
            self._warn(remark + ".")
        failures: list[tuple[str, str]] = []
        for path in paths:
            cause = self._damage(path)
            if cause is None:
                unfinished = [other for other in paths if other not in _tried(failures) and is_unfinished(other)]
                self._report_interrupted([*unfinished, *listing.interrupted], step_of(path))
                return path, _rotation(listing, path, _tried(failures), os.fspath(directory))
            failures.append((path, cause))
            self._warn(f"The checkpoint {path} can't be restored and is left as it is: {cause}.")
        if waiting:
            return None
        self._report_interrupted(listing.interrupted, None)
        if not failures:
            return None
        if not listing.named and len(failures) == 1 and is_unfinished(failures[0][0]):
            # No state file has ever named it: it was the very first save, interrupted before its end.
            self._warn(f"{failures[0][0]} was never finished, and is the only one: nothing had been saved yet.")
            return None
        raise NoIntactCheckpointError(os.fspath(directory), failures)

    def _report_interrupted(self, interrupted: list[str], restored_step: int | None) -> None:
        for path in interrupted:
            step = step_of(path)
            if restored_step is None or (step is not None and step > restored_step):
                self._warn(f"{path} isn't used: without a complete index its save was interrupted, or isn't done.")


def _tried(failures: list[tuple[str, str]]) -> set[str]:
    """The paths of what failed."""
    return {path for path, _ in failures}


def _rotation(listing: Listing, restored: str, damaged: set[str], directory: str) -> list[str]:
    """What a saver may go on to delete in its turn: nothing damaged, and nothing that lies elsewhere."""
    kept = [path for path in listing.rotation if path not in damaged]
    return kept if restored in kept or not is_in(restored, directory) else [*kept, restored]
