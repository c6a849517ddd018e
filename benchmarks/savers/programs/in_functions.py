"""Steps of TF 2: `tf.train.CheckpointManager` as its guide shows it, and ours."""

import tensorflow as tf
from job import EVERY, SIZE

from fastsup.loop import CheckpointHook, StepLoop, StopAtStepHook


class _Model:
    def __init__(self):
        self.weights = tf.Variable(tf.zeros([SIZE]))
        self.checkpoint = tf.train.Checkpoint(weights=self.weights)

    def step(self):
        return self.weights.assign_add(tf.ones([SIZE]))


def manager(job):
    """`tf.train.CheckpointManager`: `restore_or_initialize`, and `save` every few steps."""
    model = _Model()
    counter = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(weights=model.weights, step=counter)
    saves = tf.train.CheckpointManager(checkpoint, job.folder, max_to_keep=1)
    saves.restore_or_initialize()
    job.started(counter.numpy(), model.weights.numpy())
    while counter.numpy() < job.last:
        model.step()
        counter.assign_add(1)
        if counter.numpy() % EVERY == 0 or counter.numpy() == job.last:
            saves.save(checkpoint_number=counter)
            job.returned(counter.numpy())
        job.rested()


def step_loop(job):
    """`StepLoop` with a `CheckpointHook`."""
    model = _Model()
    saver = CheckpointHook(model.checkpoint, every_steps=EVERY, directory=job.folder, max_to_keep=1)

    def step():
        # The hooks of the step before have returned.
        number = loop.global_step
        job.started(number, model.weights.numpy())
        if number % EVERY == 0:
            job.returned(number)
        job.rested()
        return model.step()

    loop = StepLoop(step, [saver, StopAtStepHook(last_step=job.last)], resume_from=saver)
    loop.run()
    job.returned(job.last)


PROGRAMS = {"tf_manager": manager, "fastsup_step_loop": step_loop}
