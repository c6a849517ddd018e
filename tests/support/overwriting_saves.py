"""Programs that save a second time at a step that has a checkpoint, in each of the ways to save.

Each is called with a folder and a value, and saves the checkpoint of step 12 there, in which all weights have that
value. It restores nothing from the checkpoint that it overwrites.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from ways_to_save import SIZE

import fastsup
from fastsup import estimator, train
from fastsup.contrib.learn.monitors import CheckpointSaver
from fastsup.estimator.collective.saving import LeaderSaverHook
from fastsup.loop import CheckpointHook, Checkpoints, StepLoop

v1 = tf.compat.v1
STEP = 12


def _model_at_the_step(value: float) -> Any:
    """Variables in the default graph, as after 12 steps. Returns the variable of the global step."""
    v1.get_variable("weights", [SIZE], initializer=v1.constant_initializer(value))
    return v1.get_variable(
        v1.GraphKeys.GLOBAL_STEP,
        [],
        tf.int64,
        v1.constant_initializer(STEP),
        trainable=False,
        collections=[v1.GraphKeys.GLOBAL_VARIABLES, v1.GraphKeys.GLOBAL_STEP],
    )


def saver_hook(
    folder: str, value: float, async_save: bool = False, new_hook: Any = train.CheckpointSaverHook, **saver: Any
) -> None:
    """Its session starts at step 12, and saves then. (That of another directory may have been restored.)"""
    with tf.Graph().as_default():
        _model_at_the_step(value)
        hook = new_hook(
            checkpoint_dir=folder, save_steps=100, saver=v1.train.Saver(max_to_keep=1, **saver), async_save=async_save
        )
        with train.MonitoredSession(hooks=[hook]):
            pass


def async_saver_hook(folder: str, value: float) -> None:
    saver_hook(folder, value, async_save=True)


def sharded_saver_hook(folder: str, value: float) -> None:
    saver_hook(folder, value, sharded=True)


def leader_saver_hook(folder: str, value: float) -> None:
    """The hook of a collective training's leader, for a model that the leader saves on its own."""
    saver_hook(folder, value, new_hook=functools.partial(LeaderSaverHook, None))


def supervisor_save(folder: str, value: float, async_save: bool = False) -> None:
    """Assigns the weights after the restore."""
    with tf.Graph().as_default():
        counter = _model_at_the_step(0)
        (weights,) = v1.trainable_variables()
        assign = v1.assign(weights, tf.fill([SIZE], value))
        saver = v1.train.Saver(max_to_keep=1)
        sv = train.Supervisor(logdir=folder, saver=saver, save_model_secs=0, summary_op=None, async_save=async_save)
        with sv.managed_session() as managed:
            managed.run(assign)
            sv._save(managed, sv.saver, sv.save_path, global_step=counter)


def async_supervisor_save(folder: str, value: float) -> None:
    supervisor_save(folder, value, async_save=True)


def monitor(folder: str, value: float) -> None:
    """The monitor of tf.contrib.learn."""
    with tf.Graph().as_default(), fastsup.Session() as session:
        _model_at_the_step(value)
        session.run(v1.global_variables_initializer())
        saver = CheckpointSaver(folder, save_steps=1, saver=v1.train.Saver(max_to_keep=1))
        saver.begin()
        saver.post_step(STEP, session)


class _Weights:
    """The weights of eager code, whose one step is the twelfth."""

    def __init__(self, value: float) -> None:
        self.weights = tf.Variable(tf.fill([SIZE], value - 1.0))
        self.checkpoint = tf.train.Checkpoint(weights=self.weights)

    def step(self) -> Any:
        return self.weights.assign_add(tf.ones([SIZE]))

    def run_loop_with(self, hook: Any) -> None:
        StepLoop(self.step, [hook], initial_step=STEP - 1, steps=1).run()


def hook_with_directory(folder: str, value: float, async_save: bool = False) -> None:
    """A StepLoop that begins anew in a directory with checkpoints: without `resume_from`."""
    model = _Weights(value)
    model.run_loop_with(
        CheckpointHook(model.checkpoint, every_steps=1, directory=folder, max_to_keep=1, async_save=async_save)
    )


def async_hook_with_directory(folder: str, value: float) -> None:
    hook_with_directory(folder, value, async_save=True)


class _OwnState(tf.train.CheckpointManager):  # type: ignore[misc]
    """A manager of the program's own, which writes the state file as TensorFlow's does."""

    def _record_state(self) -> None:
        super()._record_state()


def hook_with_manager(folder: str, value: float, manager: Any = tf.train.CheckpointManager) -> None:
    model = _Weights(value)
    model.run_loop_with(CheckpointHook(manager(model.checkpoint, folder, max_to_keep=1), every_steps=1))


def hook_with_own_manager(folder: str, value: float) -> None:
    hook_with_manager(folder, value, _OwnState)


def checkpoints(folder: str, value: float) -> None:
    """Without TensorFlow."""
    saver = Checkpoints(folder, {"weights": np.full(SIZE, value, np.float32)}, every_steps=1, keep=1)
    StepLoop(int, [saver], initial_step=STEP - 1, steps=1).run()


def input_pipeline(folder: str) -> None:
    """Trains to the end of an input of 12 elements, and saves its iterator then: called again, over itself."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        step = v1.train.get_or_create_global_step()
        loss = tf.reduce_sum(features)
        with tf.control_dependencies([loss]):
            return estimator.EstimatorSpec(mode, loss=loss, train_op=v1.assign_add(step, 1))

    config = estimator.RunConfig(folder, save_checkpoints_steps=100, log_step_count_steps=None, save_summary_steps=None)
    model = estimator.Estimator(model_fn, config=config)
    hooks = [estimator.experimental.CheckpointInputPipelineHook(model)]
    model.train(lambda: tf.data.Dataset.range(STEP), hooks=hooks)


OVERWRITING: dict[str, Callable[[str, float], None]] = {
    way.__name__: way
    for way in (
        saver_hook, async_saver_hook, sharded_saver_hook, leader_saver_hook, supervisor_save, async_supervisor_save,
        monitor, hook_with_directory, async_hook_with_directory, hook_with_manager, hook_with_own_manager,
        checkpoints,
    )
}  # fmt: skip
