"""A training that is killed, and goes on by Keras's BackupAndRestore: with an accelerated model as with Keras's own."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from processes import Processes

pytestmark = [pytest.mark.timeout(180), pytest.mark.only_device("XLA compiles steps for one CPU alone")]

PROGRAM = """
import os, sys

import keras
import numpy as np

import fastsup

folder, is_accelerated, fuse, crash = {folder!r}, {accelerated}, {fuse!r}, {crash}
keras.utils.set_random_seed(5)
x = np.random.default_rng(0).random((96, 8)).astype(np.float32)
model = keras.Sequential([keras.Input([8]), keras.layers.Dropout(0.1), keras.layers.Dense(1)])
model.compile("adam", "mse", jit_compile=fuse == "always")
if is_accelerated:
    fastsup.keras.accelerate(model, fuse=fuse)

class Crash(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        print("epoch", epoch, flush=True)
        if epoch == crash:
            os.kill(os.getpid(), 9)

callbacks = [keras.callbacks.BackupAndRestore(folder), Crash()]
history = model.fit(x, x.sum(axis=1), epochs=4, verbose=0, callbacks=callbacks)
print(history.history["loss"], [weight.tobytes() for weight in model.get_weights()])
"""


@pytest.mark.parametrize("fuse", ["auto", "always"])
def test_goes_on_after_a_crash(fuse: str, tmp_path: Path, processes: Processes) -> None:
    ends = []
    for accelerated in (False, True):
        folder = str(tmp_path / f"backup-{accelerated}")
        for crash, code, epochs in ((2, -9, [0, 1, 2]), (None, 0, [2, 3])):
            program = PROGRAM.format(folder=folder, accelerated=accelerated, fuse=fuse, crash=crash)
            done = processes.python("-c", textwrap.dedent(program))
            assert done.returncode == code, done.stderr
            lines = done.stdout.splitlines()
            assert [line for line in lines if line.startswith("epoch")] == [f"epoch {epoch}" for epoch in epochs]
        ends.append(lines[-1])
    assert ends[0] == ends[1]
