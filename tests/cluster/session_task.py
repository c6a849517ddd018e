"""One task of a small job without an Estimator: between-graph replication with a MonitoredTrainingSession.

python session_task.py MODEL_DIR SETTINGS

The parameter server serves until it is killed, as `tf.distribute.Server.join` does.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import tensorflow as tf
from chaos_notes import Notes, note_line
from program import set_up_process

from fastsup import train
from fastsup.runtime import remote_close

v1 = tf.compat.v1
SIZE = 1000
DEFAULTS: dict[str, Any] = {
    "max_steps": 2000, "save_steps": 10, "save_secs": None, "step_secs": 0.05, "wait_secs": 60, "close_secs": 10,
    "alarm_secs": 170, "recovery_wait_secs": 0.5, "keep_every_n_hours": 10000, "max_to_keep": 5,
}  # fmt: skip


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


def graph_step() -> Any:
    """A step: each weight grows by 1, and then the global step."""
    weights = v1.get_variable("count_0", [SIZE], initializer=v1.zeros_initializer(), use_resource=False)
    with tf.control_dependencies([v1.assign_add(weights, tf.ones([SIZE]), use_locking=True)]):
        return v1.assign_add(v1.train.get_or_create_global_step(), 1)


def main(model_dir: str, settings: dict[str, Any]) -> None:
    set_up_process(settings["alarm_secs"])
    remote_close.CLOSE_SECS = settings["close_secs"]
    tf_config = json.loads(os.environ["TF_CONFIG"])
    role, index = tf_config["task"]["type"], tf_config["task"]["index"]
    server = v1.train.Server(tf_config["cluster"], job_name=role, task_index=index)
    print("Start Tensorflow server.", flush=True)
    if role == "ps":
        server.join()
    folder = os.path.dirname(model_dir)
    with tf.Graph().as_default():
        with v1.device(
            v1.train.replica_device_setter(cluster=tf_config["cluster"], worker_device=f"/job:{role}/task:{index}")
        ):
            step = graph_step()
        saver = v1.train.Saver(
            max_to_keep=settings["max_to_keep"], keep_checkpoint_every_n_hours=settings["keep_every_n_hours"]
        )
        scaffold = train.Scaffold(saver=saver)
        chief_only = [
            train.CheckpointSaverHook(
                model_dir, settings["save_secs"], settings["save_steps"] if settings["save_secs"] is None else None,
                scaffold=scaffold, listeners=[Journal(folder)],
            )
        ]  # fmt: skip
        with train.MonitoredTrainingSession(
            server.target,
            is_chief=role == "chief",
            checkpoint_dir=model_dir,
            scaffold=scaffold,
            hooks=[
                train.StopAtStepHook(last_step=settings["max_steps"]),
                Progress(folder, f"{role}-{index}", settings["step_secs"]),
            ],
            chief_only_hooks=chief_only,
            save_checkpoint_steps=None,
            save_checkpoint_secs=None,
            save_summaries_steps=None,
            log_step_count_steps=None,
            max_wait_secs=settings["wait_secs"],
            recovery_wait_secs=settings["recovery_wait_secs"],
        ) as session:
            while not session.should_stop():
                session.run(step)


if __name__ == "__main__":
    main(sys.argv[1], {**DEFAULTS, **json.loads(sys.argv[2])})
