"""The longest pause of training for a checkpoint, between the ends of two steps."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import tensorflow as tf

import fastsup.train

v1 = tf.compat.v1

MEGABYTES, VARIABLES = 200, 20
SAVE_SECS = 3.0
SAVES = 2

TENSORFLOW = "tf MonitoredTrainingSession"
WAITING = "fastsup MonitoredTrainingSession"
BACKGROUND = "fastsup MonitoredTrainingSession, async_save"
ARGUMENTS: Mapping[str, tuple[Any, dict[str, Any]]] = {
    TENSORFLOW: (v1.train, {}),
    WAITING: (fastsup.train, {}),
    BACKGROUND: (fastsup.train, {"async_save": True}),
}


def longest_pause(train: Any, arguments: dict[str, Any], megabytes: int = MEGABYTES, device: str = "") -> float:
    """Trains with some saves, and measures the pauses.

    Args:
      train: module with `MonitoredTrainingSession`.
      arguments: more arguments for it.
      megabytes: size of all variables, in 10^6 bytes.
      device: the device for the variables; empty for TensorFlow's choice.

    Returns:
      The longest time from the end of a step to the end of the next one, in seconds.
    """
    with tf.Graph().as_default(), tempfile.TemporaryDirectory() as folder:
        length = megabytes * 1_000_000 // 4 // VARIABLES
        with tf.device(device or None):
            for number in range(VARIABLES):
                v1.get_variable(f"v{number}", [length], initializer=v1.random_uniform_initializer(), use_resource=True)
            weights = v1.get_variable("weights", [200, 200], initializer=v1.ones_initializer(), use_resource=True)
            product = tf.matmul(weights, weights) / 200.0
        with tf.control_dependencies([weights.assign(product)]):
            train_op = v1.assign_add(v1.train.get_or_create_global_step(), tf.constant(1, tf.int64)).op
        with train.MonitoredTrainingSession(
            checkpoint_dir=folder, save_checkpoint_secs=SAVE_SECS, save_checkpoint_steps=None, **arguments
        ) as session:
            longest, before = 0.0, perf_counter()
            end = before + SAVE_SECS * (SAVES + 0.5)
            while before < end:
                session.run(train_op)
                now = perf_counter()
                longest, before = max(longest, now - before), now
        return longest


def alternate_pauses(rounds: int) -> dict[str, list[float]]:
    """Measures all contenders in turns. A run takes about ten seconds.

    Args:
      rounds: 7 for each run of each contender.

    Returns:
      The longest pause of each run in seconds, by contender.
    """
    samples: dict[str, list[float]] = {name: [] for name in ARGUMENTS}
    for _ in range(max(1, rounds // 7)):
        for name, (train, arguments) in ARGUMENTS.items():
            samples[name].append(longest_pause(train, arguments))
    return samples
