"""The hook and the listener by which the tasks of a job note what they do: see chaos_notes.py."""

from __future__ import annotations

import os
import time
from typing import Any

import tensorflow as tf
from chaos_notes import Notes, note_line

v1 = tf.compat.v1


class Progress(v1.train.SessionRunHook):
    """Notes each step, and what the chief starts from; makes steps last until the test has made the file "hurry"."""

    def __init__(self, folder: str, task: str, step_secs: float) -> None:
        self._notes = Notes(os.path.join(folder, f"{task}.notes"))
        self._hurry = os.path.join(folder, "hurry")
        self._journal = os.path.join(folder, "journal") if task == "chief-0" else None
        self._secs = step_secs

    def begin(self) -> None:
        self._step = v1.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._journal is not None:
            note_line(self._journal, "start", int(session.run(self._step)))

    def before_run(self, run_context: Any) -> Any:
        return v1.train.SessionRunArgs(self._step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._notes.add_step(int(run_values.results))
        time.sleep(0.001 if os.path.exists(self._hurry) else self._secs)


class Journal(v1.train.CheckpointSaverListener):
    """Notes each checkpoint when its save has returned."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, "journal")

    def after_save(self, session: Any, global_step_value: Any) -> None:
        note_line(self._path, "saved", int(global_step_value))
