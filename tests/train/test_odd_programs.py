"""What guides to Supervisor mention: the master "local", and a variable named global_step that is a resource."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from fastsup import train

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


@pytest.mark.parametrize("feeds", [3, [1], "ab"])
def test_feeds_that_are_no_dictionary(impl: Any, graph: Any, feeds: Any) -> None:
    train_op = v1.assign_add(v1.train.get_or_create_global_step(), 1)
    with impl.train.MonitoredSession() as session:
        with pytest.raises(TypeError, match=f"must be a dictionary .*instead of '{type(feeds).__name__}'"):
            session.run(train_op, feed_dict=feeds)


@pytest.mark.skipif(not TF2_BEHAVIOUR, reason="TensorFlow executes eagerly there")
def test_a_session_outside_of_a_graph_says_what_is_missing() -> None:
    """TensorFlow names what it does first, a summary for example: a user of TensorFlow 2 can't know what is wrong."""
    advice = r" A session runs a graph, but TensorFlow is executing eagerly: .*`with tf\.Graph\(\)\.as_default\(\):`"
    for make, text in (
        (train.MonitoredTrainingSession, r"^Merging tf\.summary\.\* ops is not compatible with eager execution\..*"),
        (
            lambda: train.MonitoredSession(hooks=[train.StopAtStepHook(3)]),
            "^Global step should be created to use Stop.*",
        ),
    ):
        with pytest.raises(RuntimeError, match=text + advice):
            make()


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
