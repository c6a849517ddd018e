"""The examples of the guide to Supervisor, as programs."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1


def model(name: str = "weights") -> Any:
    """A model that learns the sum of a row: its train op and its loss. The global step is in the graph."""
    rows = tf.constant([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]])
    weights = v1.get_variable(name, shape=[2, 1], initializer=v1.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(rows, weights) - tf.reduce_sum(rows, 1, keepdims=True)))
    v1.summary.scalar("loss", loss)
    optimizer = v1.train.GradientDescentOptimizer(0.05)
    return optimizer.minimize(loss, global_step=v1.train.get_or_create_global_step()), loss


def test_simple_program(impl: Any, graph: Any, tmp_path: Any) -> None:
    train_op, loss = model()
    # The services' first checkpoint is left out: it would be there before the last step, or not, as it happens.
    sv = impl.train.Supervisor(logdir=str(tmp_path), save_model_secs=0, save_summaries_secs=0)
    with sv.managed_session() as sess:
        before = sess.run(loss)
        for _ in range(200):
            if sv.should_stop():
                break
            sess.run(train_op)
        assert sess.run(loss) < before / 100
    assert sv.should_stop()


def test_larger_model(impl: Any, graph: Any, tmp_path: Any, events: Any) -> None:
    """No summary service: the loop computes the summaries between two steps, where they take no memory of a step."""
    train_op, _ = model()
    summary_op = v1.summary.merge_all()
    sv = impl.train.Supervisor(logdir=str(tmp_path), summary_op=None, save_model_secs=0, save_summaries_secs=0)
    with sv.managed_session() as sess:
        for step in range(250):
            if sv.should_stop():
                break
            if step % 100 == 0:
                _, summary = sess.run([train_op, summary_op])
                sv.summary_computed(sess, summary)
            else:
                sess.run(train_op)
    assert [text for text in events(tmp_path) if text.endswith("loss")] == ["1:loss", "101:loss", "201:loss"]


def test_pre_trained_model(impl: Any, tmp_path: Any) -> None:
    """The parts that were trained before are loaded, once; what is new is initialised; a restart loads neither."""
    before, logdir = str(tmp_path / "before"), str(tmp_path / "after")
    with tf.Graph().as_default():
        train_op, _ = model("first")
        sv = impl.train.Supervisor(logdir=before, save_model_secs=0, save_summaries_secs=0)
        with sv.managed_session() as sess:
            for _ in range(50):
                sess.run(train_op)
            sv.saver.save(sess, sv.save_path, global_step=sv.global_step)
    trained = v1.train.load_variable(before, "first")
    loaded: list[Any] = []

    def program() -> Any:
        with tf.Graph().as_default():
            train_op, _ = model("first")
            second = v1.get_variable("second", initializer=[5.0])
            parts = [variable for variable in v1.global_variables() if variable.op.name == "first"]
            pre_trained = v1.train.Saver(parts)

            def load_pretrain(sess: Any) -> None:
                loaded.append(sess)
                pre_trained.restore(sess, v1.train.latest_checkpoint(before))

            sv = impl.train.Supervisor(logdir=logdir, init_fn=load_pretrain, save_model_secs=0, save_summaries_secs=0)
            with sv.managed_session() as sess:
                found = sess.run([*parts, second, v1.train.get_global_step()])
                sess.run(train_op)
                sv.saver.save(sess, sv.save_path, global_step=sv.global_step)
                return found

    weights, second, step = program()
    assert weights.tolist() == trained.tolist()
    assert second == [5.0]
    assert step == 0
    weights, second, step = program()
    assert weights.tolist() != trained.tolist()
    assert step == 1
    assert len(loaded) == 1


# TensorFlow's reads the global step eagerly in a thread, under TensorFlow 2 behaviour, and fails there.
SUMMARIES_IN_THREADS = ["tensorflow", "fastsup"] if os.environ.get("FASTSUP_TEST_WORLD") == "v1" else ["fastsup"]


@pytest.mark.parametrize("name", SUMMARIES_IN_THREADS)
def test_own_service(both: Any, name: str, graph: Any, tmp_path: Any, events: Any) -> None:
    """Summaries of one's own, on a schedule of one's own, in the same events file."""
    train_op, _ = model()
    my_additional_summary_op = v1.summary.scalar("mine", tf.constant(1.0), collections=[])
    written = threading.Event()

    def my_additional_summaries(sv: Any, sess: Any) -> None:
        sv.summary_computed(sess, sess.run(my_additional_summary_op))
        written.set()

    sv = getattr(both, name).train.Supervisor(logdir=str(tmp_path), save_model_secs=0, save_summaries_secs=0)
    with sv.managed_session() as sess:
        sv.loop(1200, my_additional_summaries, args=(sv, sess))
        assert written.wait(60)
        sess.run(train_op)
    assert [text for text in events(tmp_path) if text.endswith("mine")] == ["0:mine"]
    assert len([file for file in os.listdir(tmp_path) if file.startswith("events")]) == 1


def test_losses_printed_by_a_thread(impl: Any, graph: Any) -> None:
    train_op, loss = model()
    losses: list[float] = []

    def print_loss(sess: Any) -> None:
        losses.append(float(sess.run(loss)))

    sv = impl.train.Supervisor()
    with sv.managed_session("") as sess:
        sv.loop(0.01, print_loss, (sess,))
        end = time.monotonic() + 60
        while not sv.should_stop():
            assert time.monotonic() < end
            sess.run(train_op)
            if losses and losses[-1] < 1.0 and len(losses) > 3:
                sv.request_stop()
    assert losses == sorted(losses, reverse=True)
