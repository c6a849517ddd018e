"""Saves that aren't durable, on purpose: each takes a piece out of fastsup's, or exchanges two. The tests must notice.

Only for its own process: what is replaced stays replaced.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from fastsup.checkpoint import durable
from fastsup.common import files
from fastsup.loop import Checkpoints, checkpoint_folder


def _leave_out(*_: Any) -> None:
    """Does nothing, in the place of a piece."""


def no_flush_of_a_checkpoint() -> None:
    durable._flush = _leave_out


def no_flush_of_data() -> None:
    flush = files._fsync
    files._fsync = lambda path: None if ".data-" in path else flush(path)


def no_flush_of_names() -> None:
    files.fsync_directory = _leave_out


def no_flush_of_the_state_file() -> None:
    os.fsync, flush = (lambda fd: None if ".fastsup-" in os.readlink(f"/proc/self/fd/{fd}") else flush(fd)), os.fsync


def no_mark_of_the_first_save() -> None:
    durable.marking_the_first = lambda directory: contextlib.nullcontext()


def a_state_file_that_is_overwritten() -> None:
    def write_state_in_place(path: str, text: str) -> None:
        with open(path, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        files.fsync_directory(os.path.dirname(path))

    durable.write_whole = write_state_in_place


def a_state_file_before_the_flush() -> None:
    flush, write = durable._flush, durable.write_state

    def write_then_flush(directory: str, newest: str, *args: Any, **settings: Any) -> None:
        write(directory, newest, *args, **settings)
        flush(newest)

    durable._flush = _leave_out
    durable.write_state = write_then_flush


def deletions_before_the_state_file() -> None:
    saver = tf.compat.v1.train.Saver
    record = saver._RecordLastCheckpoint

    def record_and_delete(self: Any, path: str) -> None:
        record(self, path)
        self._MaybeDeleteOldCheckpoints()

    saver._RecordLastCheckpoint = record_and_delete


def no_flush_of_a_folder() -> None:
    checkpoint_folder.fsync_tree = _leave_out


def no_flush_of_a_folders_name() -> None:
    checkpoint_folder.fsync_directory = checkpoint_folder.fsync_directory_and_above = _leave_out


def deletions_before_a_folder() -> None:
    save = Checkpoints._save

    def delete_and_save(self: Any, loop: Any, metrics: dict[str, float]) -> None:
        for saved in self._own:
            self._folder.delete(saved.path)
        save(self, loop, metrics)

    Checkpoints._save = delete_and_save


MUTANTS: dict[str, Callable[[], None]] = {
    mutant.__name__: mutant
    for mutant in (
        no_flush_of_a_checkpoint, no_flush_of_data, no_flush_of_names, no_flush_of_the_state_file,
        no_mark_of_the_first_save, a_state_file_that_is_overwritten, a_state_file_before_the_flush,
        deletions_before_the_state_file,
    )
}  # fmt: skip
# Of `fastsup.loop.Checkpoints`.
FOLDER_MUTANTS: dict[str, Callable[[], None]] = {
    mutant.__name__: mutant for mutant in (no_flush_of_a_folder, no_flush_of_a_folders_name, deletions_before_a_folder)
}
