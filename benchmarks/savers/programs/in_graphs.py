"""Sessions and Supervisors: TensorFlow's, and ours."""

import functools

import tensorflow as tf
from job import EVERY, SIZE

v1 = tf.compat.v1


def _graph():
    """The weights and the step."""
    weights = v1.get_variable("weights", [SIZE], initializer=v1.zeros_initializer())
    counter = v1.train.get_or_create_global_step()
    return weights, counter, v1.group(v1.assign_add(weights, tf.ones([SIZE])), v1.assign_add(counter, 1))


class _Saves(v1.train.CheckpointSaverListener):
    def __init__(self, job):
        self._job = job

    def after_save(self, session, global_step_value):
        self._job.returned(global_step_value)


class _Steps(v1.train.SessionRunHook):
    def __init__(self, job, weights, counter):
        self._job, self._weights, self._counter = job, weights, counter

    def after_create_session(self, session, coord):
        self._job.started(*session.run([self._counter, self._weights]))

    def after_run(self, run_context, run_values):
        self._job.rested()


def session(train, job):
    """`MonitoredTrainingSession` with a `CheckpointSaverHook`."""
    with tf.Graph().as_default():
        weights, counter, step = _graph()
        scaffold = train.Scaffold(saver=v1.train.Saver(max_to_keep=1))
        saver = train.CheckpointSaverHook(job.folder, save_steps=EVERY, scaffold=scaffold, listeners=[_Saves(job)])
        with train.MonitoredTrainingSession(
            checkpoint_dir=job.folder,
            scaffold=scaffold,
            chief_only_hooks=[saver],
            hooks=[_Steps(job, weights, counter), train.StopAtStepHook(last_step=job.last)],
            save_checkpoint_steps=None,
            save_checkpoint_secs=None,
            save_summaries_steps=None,
            save_summaries_secs=None,
            log_step_count_steps=None,
        ) as training:
            while not training.should_stop():
                training.run(step)


def supervisor(train, timer_thread, job):
    """`Supervisor`, which saves by its timer's thread: that is run in the steps in which it is due."""
    with tf.Graph().as_default():
        weights, counter, step = _graph()
        saver = v1.train.Saver(max_to_keep=1)
        # No other service runs: TensorFlow's threads fail under TF 2 behaviour, for want of a graph.
        sv = train.Supervisor(logdir=job.folder, saver=saver, save_model_secs=0, save_summaries_secs=0)
        with sv.managed_session() as managed:
            number, values = managed.run([counter, weights])
            job.started(number, values)
            timer = timer_thread(sv, managed)
            while number < job.last and not sv.should_stop():
                managed.run(step)
                number += 1
                if number % EVERY == 0 or number == job.last:
                    timer.run_loop()
                    job.returned(number)
                job.rested()


def _tensorflow():
    from tensorflow.python.training import supervisor as supervisors

    return {
        "tf_session": functools.partial(session, v1.train),
        "tf_supervisor": functools.partial(supervisor, v1.train, supervisors.SVTimerCheckpointThread),
    }


def _fastsup():
    from fastsup import train
    from fastsup.train.supervisor.services import SVTimerCheckpointThread

    return {
        "fastsup_session": functools.partial(session, train),
        "fastsup_supervisor": functools.partial(supervisor, train, SVTimerCheckpointThread),
    }


PROGRAMS = {**_tensorflow(), **_fastsup()}
