"""Notifies the tasks of a job of its end, through one small file per finished task in the model directory.

TensorFlow has no such signal. A parameter server runs forever, and an evaluator waits forever if training ends before
`max_steps`. A training task deletes its file when it starts, and writes the file when it finishes without an error. A
task that fails or is killed leaves no file, because it is expected to restart.

A file may remain from an earlier run of the job, and a watcher may read the file before the restarted task deletes it.
A file that existed before the watcher therefore counts only after `STALE_SECS`. A file system error isn't a result, and
changes nothing until the next check.
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

# Seconds after which a file counts although it was written before the watcher started.
STALE_SECS = 600.0
# Seconds that a parameter server continues if the chief has ended and no training worker answers.
WORKER_GRACE_SECS = 600.0
# Seconds between checks by a sleeping evaluator for the end of the chief.
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
      model_dir: the job's model directory, which may not exist yet.
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
        pass  # Another restart of the task deleted the file.
    except errors.OpError as error:
        logging.warning("%s can't be deleted. Other tasks may treat this one as ended (%s).", path, error)


def mark_task_ended(model_dir: Any, task_type: str, task_id: int) -> None:
    """Writes the file that marks a task as finished without an error.

    Args:
      model_dir: the job's model directory. If it doesn't exist, does nothing.
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
    """Determines which tasks of a job have ended.

    The cost of a check doesn't depend on the number of tasks. While the chief trains, a check tests whether two files
    exist. After that, it lists the directory once. Files from before the watcher are read once, at the start, and again
    only until they change.

    Args:
      model_dir: the job's model directory, which may not exist yet.
    """

    def __init__(self, model_dir: Any) -> None:
        self._directory = _directory_of(model_dir)
        self._start = time.monotonic()
        # Unchanged files from before this watcher started, with their contents, or None for contents that aren't known
        # yet.
        self._old_files: dict[str, str | None] = {}
        # False until the directory has been listed. Until then, any file may be from before the watcher started.
        self._knows_old_files = False
        self._look_at_old_files()
        # The workers that may still need a parameter server.
        self._workers = PeerLiveness([], WORKER_GRACE_SECS)

    def _look_at_old_files(self) -> None:
        """Finds and reads the files from before this watcher, as far as this hasn't succeeded yet."""
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
        """Returns the names of the files, or None after a file system error."""
        if self._directory is None:
            return set()
        try:
            return {name for name in list_names(self._directory) if name.endswith(".json")}
        except errors.OpError:
            return None

    def _exists(self, name: str) -> bool | None:
        """Returns True if a file exists, or None after a file system error."""
        try:
            return self._directory is not None and exists(os.path.join(self._directory, name))
        except errors.OpError:
            return None

    def _read(self, name: str) -> str | None:
        """Returns a file's content, or None if the file was deleted in the meantime or can't be read."""
        try:
            text: str = file_io.read_file_to_string(os.path.join(str(self._directory), name))
        except errors.OpError:
            return None
        return text

    def _counts(self, name: str) -> bool:
        """Returns True if an existing file counts."""
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
        # A changed file belongs to this run, and so does each later version.
        del self._old_files[name]
        return True

    def chief_has_ended(self) -> bool:
        """Returns True if the task that saves the checkpoints has ended, so that there won't be another checkpoint."""
        ended = False
        for name in _CHIEF_FILES:
            is_there = self._exists(name)
            if is_there:
                ended = self._counts(name) or ended
            elif is_there is False:
                # The restarted task deleted the file, so every later version belongs to this run.
                self._old_files.pop(name, None)
        return ended

    def sleep(self, secs: float) -> None:
        """Sleeps, but not longer than until the chief has ended.

        Args:
          secs: seconds to sleep if the chief continues.
        """
        look_secs = secs if self._directory is None else _LOOK_SECS
        while secs > 0 and not self.chief_has_ended():
            time.sleep(min(secs, look_secs))
            secs -= look_secs

    def job_has_ended(self, workers: Mapping[int, str]) -> bool:
        """Returns True if no task needs a parameter server now.

        This is the case if the chief and all workers have ended. It is also the case if the chief has ended, and none
        of the remaining workers has answered for `WORKER_GRACE_SECS`: they were lost and not restarted.

        Args:
          workers: HOST:PORT of each worker in the cluster by index, without the chief.
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
