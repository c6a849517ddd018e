"""Sessions on a cluster: what a plan computes on another task comes back whole."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.python.training import training_util

import fastsup
from fastsup import train

v1 = tf.compat.v1


@pytest.fixture
def chief() -> str:
    """The target of a chief with a parameter server, both in this process."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(("localhost", 0))
        ps, chief = ([f"localhost:{each.getsockname()[1]}"] for each in sockets)
    cluster = {"ps": ps, "chief": chief}
    servers = [tf.distribute.Server(cluster, job_name=job, task_index=0) for job in cluster]
    return str(servers[1].target)


def test_the_step_and_the_guarded_read_of_it_together(chief: str, graph: tf.Graph) -> None:
    with v1.device("/job:ps"):
        step = v1.train.get_or_create_global_step()
    guarded = training_util._get_or_create_global_step_read()
    with fastsup.Session(chief) as session:
        session.run(v1.global_variables_initializer())
        assert session.run([step, guarded, step]) == [0, 0, 0]
        assert session.run([guarded, step]) == [0, 0]


def test_two_hooks_of_which_each_reads_the_step_in_its_way(chief: str, graph: tf.Graph, tmp_path: Path) -> None:
    with v1.device("/job:ps"):
        step = v1.train.get_or_create_global_step()
        increment = v1.assign_add(step, 1).op
        v1.summary.scalar("one", tf.constant(1.0))
    log = train.LoggingTensorHook({"step": step}, every_n_iter=2)
    with train.MonitoredTrainingSession(
        chief, checkpoint_dir=str(tmp_path), hooks=[log, train.StopAtStepHook(last_step=5)], save_summaries_steps=1
    ) as session:
        while not session.should_stop():
            session.run(increment)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-5")
