"""How the tasks of a job learn that it has ended: a small file in the model directory for each task that has.

TensorFlow has nothing of the kind: a parameter server serves for ever, and an evaluator waits for ever if training
ends before `max_steps`. A task that trains takes its file away when it starts and writes it when it has ended well. One
that fails or is killed writes none: it is to be started again.

A file may be left from an earlier run of the job, which a task may see before the task that wrote it is up again and
has taken it away. So what is there when a task starts to watch counts only once it has stayed for `STALE_SECS`.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from typing import Any

from tensorflow.python.framework import errors
from tensorflow.python.lib.io import file_io
from tensorflow.python.platform import tf_logging as logging

from fastsup.runtime.remote_files import write_whole

__all__ = ["STALE_SECS", "WORKERS_SECS", "JobWatch", "note_end", "note_start"]

# Seconds that a file from before has to stay until it counts.
STALE_SECS = 600.0
# Seconds that a parameter server goes on serving workers when the chief has ended.
WORKERS_SECS = 600.0

_CHIEFS = ("chief", "master")
_DIRECTORY = "ended_tasks"


def _directory(model_dir: Any) -> str | None:
    if not isinstance(model_dir, (str, bytes, os.PathLike)):
        return None
    return os.path.join(os.fsdecode(model_dir), _DIRECTORY)


def _marker(directory: str, task_type: str, task_id: int) -> str:
    return os.path.join(directory, f"{task_type}-{task_id}.json")


def note_start(model_dir: Any, task_type: str, task_id: int) -> None:
    """Takes away what says that a task has ended, because it has started again.

    Args:
      model_dir: the job's model directory. It needn't exist.
      task_type: role of the task.
      task_id: index of the task among those of its role.
    """
    directory = _directory(model_dir)
    if directory is None:
        return
    path = _marker(directory, task_type, task_id)
    try:
        if file_io.file_exists_v2(path):
            file_io.delete_file_v2(path)
    except errors.OpError as error:
        logging.warning("%s can't be deleted. Other tasks may take this one for ended (%s).", path, error)


def note_end(model_dir: Any, task_type: str, task_id: int) -> None:
    """Writes down that a task has ended well.

    Args:
      model_dir: the job's model directory. Nothing is written if it doesn't exist.
      task_type: role of the task.
      task_id: index of the task among those of its role.
    """
    directory = _directory(model_dir)
    if directory is None or not file_io.is_directory(os.path.dirname(directory)):
        return
    path = _marker(directory, task_type, task_id)
    try:
        file_io.recursive_create_dir_v2(directory)
        write_whole(path, json.dumps({"id": uuid.uuid4().hex, "ended": time.strftime("%Y-%m-%dT%H:%M:%S%z")}))
    except (OSError, errors.OpError) as error:
        logging.warning("%s can't be written. Other tasks won't learn that this one has ended (%s).", path, error)


class JobWatch:
    """Looks for what the tasks of a job have written down about their end.

    Args:
      model_dir: the job's model directory. It needn't exist.
    """

    def __init__(self, model_dir: Any) -> None:
        self._directory = _directory(model_dir)
        self._start = time.monotonic()
        self._before = self._read()
        self._chief_ended_at: float | None = None

    def _read(self) -> dict[str, str]:
        """What is in each of the files."""
        if self._directory is None:
            return {}
        found = {}
        try:
            names = file_io.list_directory_v2(self._directory) if file_io.is_directory(self._directory) else []
            for name in names:
                if name.endswith(".json"):
                    found[name] = file_io.read_file_to_string(os.path.join(self._directory, name))
        except errors.OpError:
            pass  # Taken away between two looks, or a file system that is away for a moment: the next look tells.
        return found

    def _ended(self) -> set[str]:
        found = self._read()
        if time.monotonic() - self._start >= STALE_SECS:
            return set(found)
        # What has changed, or gone, is from this run: whatever follows counts.
        self._before = {name: text for name, text in self._before.items() if found.get(name) == text}
        return {name for name in found if name not in self._before}

    def chief_has_ended(self) -> bool:
        """Whether the task that saves the checkpoints has ended: there will be no further one."""
        return any(f"{chief}-0.json" in self._ended() for chief in _CHIEFS)

    def job_has_ended(self, num_workers: int) -> bool:
        """Whether no task needs a parameter server any more.

        That is so when the chief and all workers have ended, or the chief for `WORKERS_SECS`.

        Args:
          num_workers: how many workers the cluster has beside the chief.
        """
        ended = self._ended()
        if not any(f"{chief}-0.json" in ended for chief in _CHIEFS):
            self._chief_ended_at = None
            return False
        if all(f"worker-{index}.json" in ended for index in range(num_workers)):
            return True
        if self._chief_ended_at is None:
            self._chief_ended_at = time.monotonic()
        return time.monotonic() - self._chief_ended_at >= WORKERS_SECS
