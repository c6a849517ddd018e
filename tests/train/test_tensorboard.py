"""What TensorBoard reads where a session's events lie next to those of HParams and of Keras."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from fastsup import train

event_multiplexer = pytest.importorskip("tensorboard.backend.event_processing.event_multiplexer")
hparams = pytest.importorskip("tensorboard.plugins.hparams.api")

v1 = tf.compat.v1


@pytest.mark.one_device("files of events are the same on any device")
def test_a_session_s_events_next_to_those_of_hparams_and_keras(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        v1.summary.scalar("loss", 1.0 / tf.cast(step + 1, tf.float32))
        count = step.assign_add(1)
        hooks = [train.StopAtStepHook(last_step=30)]
        with train.MonitoredTrainingSession(
            checkpoint_dir=str(run), hooks=hooks, save_summaries_steps=10, log_step_count_steps=10
        ) as session:
            session.run_loop(count)
    if not tf.executing_eagerly():
        pytest.skip("tf.summary and Keras need TensorFlow 2 behaviour")
    with tf.summary.create_file_writer(str(run)).as_default():
        hparams.hparams({"rate": 0.1, "optimizer": "adam"}, trial_id="one")
        tf.summary.scalar("accuracy", 0.5, step=30)
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callback = keras.callbacks.TensorBoard(str(run / "keras"))
    model.fit(np.zeros([8, 2]), np.zeros([8, 1]), verbose=0, callbacks=[callback])

    read = event_multiplexer.EventMultiplexer().AddRunsFromDirectory(str(tmp_path)).Reload()
    assert set(read.Runs()) == {"run", "run/keras/train"}
    assert [event.step for event in read.Scalars("run", "loss")] == [1, 11, 21]
    assert [event.step for event in read.Scalars("run", "global_step/sec")] == [11, 21]
    assert [event.step for event in read.Tensors("run", "accuracy")] == [30]
    assert [event.step for event in read.Tensors("run/keras/train", "epoch_loss")] == [0]
    assert set(read.PluginRunToTagToContent("hparams")) == {"run"}
    assert read.Graph("run").node
