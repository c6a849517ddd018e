"""Opening, running and closing sessions again and again leaves nothing behind: no memory, thread or file descriptor.

`FASTSUP_STORM=long` does it 500 times.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from typing import Any

import pytest
import tensorflow as tf

from fastsup import train

v1 = tf.compat.v1
COUNT = 500 if os.environ.get("FASTSUP_STORM") == "long" else 60
# What has to be made once, in the process or in its allocator, is made in these.
WARM_UP = 100 if COUNT > 100 else 25
STEPS = 10
# A leak shows in every round; that an allocator takes another arena, of some megabytes, shows in one.
ROUNDS = 3
# Resident memory that one session may leave. Measured over 240 sessions of each kind: 1,000 to 8,000 bytes.
BYTES_EACH = 32_768


def monitored(folder: str) -> None:
    step = v1.train.get_or_create_global_step()
    op = v1.assign_add(step, tf.constant(1, tf.int64)).op
    v1.summary.scalar("loss", tf.constant(1.5))
    with train.MonitoredTrainingSession(
        checkpoint_dir=folder,
        hooks=[train.WatchdogHook(1000), train.StopAtStepHook(num_steps=STEPS)],
        save_checkpoint_steps=5,
        save_checkpoint_secs=None,
        save_summaries_steps=5,
        log_step_count_steps=5,
    ) as session:
        while not session.should_stop():
            session.run(op)


def in_background(folder: str) -> None:
    step = v1.train.get_or_create_global_step()
    op = v1.assign_add(step, tf.constant(1, tf.int64)).op
    with train.MonitoredTrainingSession(
        checkpoint_dir=folder, save_checkpoint_steps=5, save_checkpoint_secs=None, async_save=True
    ) as session:
        for _ in range(STEPS):
            session.run(op)


def supervised(folder: str) -> None:
    step = v1.train.get_or_create_global_step()
    op = v1.assign_add(step, tf.constant(1, tf.int64)).op
    v1.summary.scalar("loss", tf.constant(1.5))
    sv = train.Supervisor(logdir=folder, save_model_secs=1000, save_summaries_secs=1000)
    with sv.managed_session() as session:
        for _ in range(STEPS):
            session.run(op)


def used() -> tuple[int, int, int]:
    """Bytes of resident memory, threads, and open file descriptors."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resident, threading.active_count(), len(os.listdir("/proc/self/fd"))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("use", [monitored, in_background, supervised])
def test_nothing_is_left(use: Any, tmp_path: Any) -> None:
    def use_often(count: int) -> None:
        for number in range(count):
            folder = tmp_path / str(number)
            with tf.Graph().as_default():
                use(str(folder))

    use_often(WARM_UP)
    memory, *before = used()
    kernel_threads = len(os.listdir("/proc/self/task"))
    growths = []
    for _ in range(ROUNDS):
        use_often(COUNT // ROUNDS)
        memory_before, (memory, *after) = memory, used()
        growths.append(memory - memory_before)
        assert after == before
        assert len(os.listdir("/proc/self/task")) <= kernel_threads
    assert min(growths) < COUNT // ROUNDS * BYTES_EACH, growths
