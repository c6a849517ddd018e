"""Notifies the tasks of a job of its end, with one small file per ended task in the model directory.

TensorFlow has no such signal: a parameter server runs forever, and an evaluator waits forever if training ends before
`max_steps`. A task that trains deletes its file when it starts, and writes the file when it has finished without an
error. A task that fails or is killed leaves no file: it is expected to be restarted.

A file may be left from an earlier run of the job, and a watcher may read it before the task that wrote it has restarted
and deleted it. So a file that was there before the watcher counts only after `STALE_SECS`. A file system error isn't a
result: it changes nothing until the next check.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping
from typing import Any

from tensorflow.python.framework import errors
from tensorflow.python.lib.io import file_io
from tensorflow.python.platform import tf_logging as logging

from fastsup.cluster.peer_liveness import PeerLiveness
from fastsup.common.file_system import exists, list_names, write_whole

__all__ = ["STALE_SECS", "WORKER_GRACE_SECS", "JobCompletionWatcher", "mark_task_ended", "mark_task_started"]

# Seconds after which a file from before the watcher counts.
STALE_SECS = 600.0
# Seconds that a parameter server continues when the chief has ended and no training worker answers.
WORKER_GRACE_SECS = 600.0
# Seconds between two looks of a sleeping evaluator for the end of the chief.
_LOOK_SECS = 10.0

_CHIEF_FILES = ("chief-0.json", "master-0.json")
_DIRECTORY = "ended_tasks"


def _directory_of(model_dir: Any) -> str | None:
    if not isinstance(model_dir, (str, bytes, os.PathLike)):
        return None
    return os.path.join(os.fsdecode(model_dir), _DIRECTORY)


def _file_of(directory: str, task_type: str, task_id: int) -> str:
    return os.path.join(directory, f"{task_type}-{task_id}.json")


def mark_task_started(model_dir: Any, task_type: str, task_id: int) -> None:
    """Deletes the file that marks a task as ended.

    Args:
      model_dir: the job's model directory. It needn't exist.
      task_type: role of the task.
      task_id: index of the task within its role.
    """
    directory = _directory_of(model_dir)
    if directory is None:
        return
    path = _file_of(directory, task_type, task_id)
    try:
        if exists(path):
            file_io.delete_file_v2(path)
    except errors.NotFoundError:
        pass  # Another restart of the task has deleted it.
    except errors.OpError as error:
        logging.warning("%s can't be deleted. Other tasks may treat this one as ended (%s).", path, error)


def mark_task_ended(model_dir: Any, task_type: str, task_id: int) -> None:
    """Writes the file that marks a task as finished without an error.

    Args:
      model_dir: the job's model directory. If it doesn't exist, nothing is written.
      task_type: role of the task.
      task_id: index of the task within its role.
    """
    directory = _directory_of(model_dir)
    if directory is None:
        return
    path = _file_of(directory, task_type, task_id)
    try:
        if not exists(os.path.dirname(directory)):
            return
        file_io.recursive_create_dir_v2(directory)
        write_whole(path, json.dumps({"id": uuid.uuid4().hex, "ended": time.strftime("%Y-%m-%dT%H:%M:%S%z")}))
    except errors.OpError as error:
        logging.warning("%s can't be written. Other tasks won't detect that this one has ended (%s).", path, error)


class JobCompletionWatcher:
    """Reads which tasks of a job have ended.

    A look at the directory costs the same whatever the number of tasks: two questions whether a file exists, while the
    chief trains, and one list of the directory after that. Files that were there before are read once, at the start,
    and then only as long as they haven't changed.

    Args:
      model_dir: the job's model directory. It needn't exist.
    """

    def __init__(self, model_dir: Any) -> None:
        self._directory = _directory_of(model_dir)
        self._start = time.monotonic()
        # Files from before this watcher that haven't changed since, with their contents; None if it isn't known yet.
        self._old_files: dict[str, str | None] = {}
        # False until the directory could be listed: until then every file may be from before.
        self._knows_old_files = False
        self._look_at_old_files()
        # The workers that may still need a parameter server.
        self._workers = PeerLiveness([], WORKER_GRACE_SECS)

    def _look_at_old_files(self) -> None:
        """Learns which files are from before this watcher, and what they say, as far as that could not be read yet."""
        if not self._knows_old_files:
            names = self._list()
            if names is None:
                return
            self._old_files = dict.fromkeys(names)
            self._knows_old_files = True
        for name, content in list(self._old_files.items()):
            if content is None:
                self._old_files[name] = self._read(name)

    def _list(self) -> set[str] | None:
        """Returns the names of the files; None after a file system error."""
        if self._directory is None:
            return set()
        try:
            return {name for name in list_names(self._directory) if name.endswith(".json")}
        except errors.OpError:
            return None

    def _exists(self, name: str) -> bool | None:
        """Returns True if there is a file; None after a file system error."""
        try:
            return self._directory is not None and exists(os.path.join(self._directory, name))
        except errors.OpError:
            return None

    def _read(self, name: str) -> str | None:
        """Returns the content of a file; None if it was deleted in the meantime, or can't be read."""
        try:
            text: str = file_io.read_file_to_string(os.path.join(str(self._directory), name))
        except errors.OpError:
            return None
        return text

    def _counts(self, name: str) -> bool:
        """Returns True if a file that is there counts."""
        if time.monotonic() - self._start >= STALE_SECS:
            return True
        self._look_at_old_files()
        if not self._knows_old_files:
            return False
        if name not in self._old_files:
            return True
        content = self._read(name)
        if content is None or content == self._old_files[name]:
            return False
        # A file that has changed belongs to this run: each later version of it counts.
        del self._old_files[name]
        return True

    def chief_has_ended(self) -> bool:
        """Returns True if the task that saves the checkpoints has ended, so there won't be another checkpoint."""
        ended = False
        for name in _CHIEF_FILES:
            is_there = self._exists(name)
            if is_there:
                ended = self._counts(name) or ended
            elif is_there is False:
                # The restarted task has deleted it, so every later version belongs to this run.
                self._old_files.pop(name, None)
        return ended

    def sleep(self, secs: float) -> None:
        """Sleeps, at most until the chief has ended.

        Args:
          secs: seconds to sleep if the chief continues.
        """
        look_secs = secs if self._directory is None else _LOOK_SECS
        while secs > 0 and not self.chief_has_ended():
            time.sleep(min(secs, look_secs))
            secs -= look_secs

    def job_has_ended(self, workers: Mapping[int, str]) -> bool:
        """Returns True if no task needs a parameter server now.

        That is the case when the chief and all workers have ended. It is also the case when the chief has ended, and
        none of the other workers has answered for `WORKER_GRACE_SECS`: those were lost, and weren't restarted.

        Args:
          workers: HOST:PORT of each worker in the cluster by its index, the chief excluded.
        """
        if not self.chief_has_ended():
            self._workers.record_alive()
            return False
        there = self._list() or set()

        def has_ended(index: int) -> bool:
            name = f"worker-{index}.json"
            return name in there and self._counts(name)

        self._workers.addresses = [address for index, address in workers.items() if not has_ended(index)]
        return not self._workers.addresses or self._workers.are_lost()
