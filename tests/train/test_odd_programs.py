"""What guides to Supervisor mention: the master "local", and a variable named global_step that is a resource."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1
TF2_BEHAVIOUR = tf.executing_eagerly()


def resource_step() -> Any:
    return v1.get_variable(
        "global_step", [], tf.int64, initializer=v1.zeros_initializer(), trainable=False, use_resource=True
    )


def run(session: Any, train_op: Any) -> int:
    for _ in range(3):
        session.run(train_op)
    return int(session.run("global_step/Read/ReadVariableOp:0"))


def test_the_master_local(impl: Any, graph: Any) -> None:
    train_op = v1.assign_add(v1.train.get_or_create_global_step(), 1)
    opens = [
        lambda: impl.Session("local").run(train_op),
        lambda: impl.train.MonitoredTrainingSession(master="local"),
        lambda: impl.train.Supervisor().prepare_or_wait_for_session("local"),
    ]
    for open_session in opens:
        with pytest.raises(tf.errors.NotFoundError, match="No session factory registered"):
            open_session()


def test_a_resource_variable_as_the_step_of_a_supervisor(impl: Any, graph: Any, tf_log: Any) -> None:
    train_op = v1.assign_add(resource_step(), 1)
    sv = impl.train.Supervisor()
    assert sv.global_step is None
    assert "Found 'global_step' is not an int type: <dtype: 'resource'>" in tf_log.text
    with sv.managed_session() as session:
        assert run(session, train_op) == 3


def test_the_services_of_such_a_supervisor(impl: Any, graph: Any, tmp_path: Path) -> None:
    if impl.name == "tensorflow" and TF2_BEHAVIOUR:
        pytest.skip("under TF 2 behaviour TensorFlow's services fail")
    train_op = v1.assign_add(resource_step(), 1)
    sv = impl.train.Supervisor(logdir=str(tmp_path), save_model_secs=0.05, save_summaries_secs=0)
    with sv.managed_session() as session:
        assert run(session, train_op) == 3
        while not os.path.exists(tmp_path / "checkpoint"):
            assert not sv.coord.wait_for_stop(0.05)
    assert v1.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt")


def test_a_monitored_session_without_hooks_has_no_use_for_it(impl: Any, graph: Any) -> None:
    train_op = v1.assign_add(resource_step(), 1)
    with impl.train.MonitoredSession() as session:
        assert run(session, train_op) == 3


def test_hooks_that_need_a_step_say_so(impl: Any, graph: Any, tmp_path: Path) -> None:
    resource_step()
    with pytest.raises(TypeError, match='Existing "global_step" does not have integer type'):
        impl.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path))


def test_one_in_the_collection_is_the_step(impl: Any, graph: Any) -> None:
    step = resource_step()
    v1.add_to_collection(v1.GraphKeys.GLOBAL_STEP, step)
    train_op = v1.assign_add(step, 1)
    sv = impl.train.Supervisor()
    assert sv.global_step is step
    with sv.managed_session() as session:
        assert run(session, train_op) == 3
