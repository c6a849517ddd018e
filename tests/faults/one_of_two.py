"""A training that makes a step, and saves, for each line of its input: `python one_of_two.py WAY FOLDER`.

It prints "ready" before each step. At the end of the input it ends.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from fastsup import train
from fastsup.loop import CheckpointHook, StepLoop

v1 = tf.compat.v1


def lines(checkpoint: Any = None) -> Iterator[str]:
    """Waits for the write of the step before: two writes of one checkpoint at a time fail, in TensorFlow too."""
    while True:
        for thread in threading.enumerate():
            if thread.name.startswith("save-"):
                thread.join()
        if checkpoint is not None:
            checkpoint.sync()
        print("ready", flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        yield line


def step_in_graph() -> Any:
    v1.get_variable("weights", [4], initializer=v1.zeros_initializer())
    return v1.assign_add(v1.train.get_or_create_global_step(), 1)


def session(folder: str, async_save: bool = False) -> None:
    with tf.Graph().as_default():
        step = step_in_graph()
        with train.MonitoredTrainingSession(
            checkpoint_dir=folder, save_checkpoint_steps=1, save_summaries_steps=None, async_save=async_save
        ) as training:
            for _ in lines():
                training.run(step)


def async_session(folder: str) -> None:
    session(folder, async_save=True)


def supervisor(folder: str) -> None:
    with tf.Graph().as_default():
        step = step_in_graph()
        counter = v1.train.get_global_step()
        sv = train.Supervisor(logdir=folder, save_model_secs=0, summary_op=None)
        with sv.managed_session() as managed:
            for _ in lines():
                managed.run(step)
                sv._save(managed, sv.saver, sv.save_path, global_step=counter)


def step_loop(folder: str, async_save: bool = False, resumes: bool = True) -> None:
    weights = tf.Variable(tf.zeros([4]))
    checkpoint = tf.train.Checkpoint(weights=weights)
    given = lines(checkpoint)

    def step() -> None:
        if next(given, None) is None:
            loop.request_stop()
        weights.assign_add(tf.ones([4]))

    saver = CheckpointHook(checkpoint, every_steps=1, directory=folder, async_save=async_save)
    loop = StepLoop(step, [saver], resume_from=saver if resumes else None)
    loop.run()


def async_step_loop(folder: str) -> None:
    step_loop(folder, async_save=True)


def step_loop_from_the_start(folder: str) -> None:
    step_loop(folder, resumes=False)


WAYS: dict[str, Callable[[str], None]] = {
    way.__name__: way
    for way in (
        session, async_session, supervisor, step_loop, async_step_loop, step_loop_from_the_start,
    )
}  # fmt: skip

if __name__ == "__main__":
    WAYS[sys.argv[1]](sys.argv[2])
