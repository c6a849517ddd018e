"""One task of a small job without an Estimator: between-graph replication with a MonitoredTrainingSession.

python session_task.py MODEL_DIR SETTINGS

The parameter server serves until it is killed, as `tf.distribute.Server.join` does.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import tensorflow as tf
from noting_hooks import Journal, Progress
from program import set_up_process

from fastsup import train
from fastsup.runtime import session as sessions
from fastsup.train.session import server_watch

v1 = tf.compat.v1
SIZE = 1000
DEFAULTS: dict[str, Any] = {
    "max_steps": 2000, "save_steps": 10, "save_secs": None, "step_secs": 0.05, "wait_secs": 60, "close_secs": 10,
    "silent_secs": 60, "alarm_secs": 170, "recovery_wait_secs": 0.5, "keep_every_n_hours": 10000, "max_to_keep": 5,
}  # fmt: skip


def graph_step() -> Any:
    """A step: each weight grows by 1, and then the global step."""
    weights = v1.get_variable("count_0", [SIZE], initializer=v1.zeros_initializer(), use_resource=False)
    with tf.control_dependencies([v1.assign_add(weights, tf.ones([SIZE]), use_locking=True)]):
        return v1.assign_add(v1.train.get_or_create_global_step(), 1)


def main(model_dir: str, settings: dict[str, Any]) -> None:
    set_up_process(settings["alarm_secs"])
    sessions.CLOSE_SECS = settings["close_secs"]
    server_watch.STILL_SECS = server_watch.ANSWER_SECS = settings["silent_secs"]
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
