"""A training that is killed again and again, at random moments, and must go on from a checkpoint that is whole and new.

`python tests/train/kill_storm.py --kills 300` prints what became of so many kills; the test does fewer.

The training saves every few steps, each step and each save taking milliseconds, so most kills hit a save. After each
completed step it notes its number in a file that is mapped into its memory, which survives it: that is how the parent
knows how far it was. Children import TensorFlow ahead of their turn.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

SAVE_STEPS = 3
VARIABLES = 8
START_SECS = 120.0
# What a child notes: the step that it has restored, the step that it has completed, and whether its variables were of
# one step; -1 for what it hasn't come to yet.
_NOTES = struct.Struct("qqq")


class Notes:
    """What a child has noted.

    Args:
      path: the file.
    """

    def __init__(self, path: str) -> None:
        if not os.path.exists(path):
            with open(path, "wb") as file:
                file.write(_NOTES.pack(-1, -1, -1))
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _NOTES.size)

    def write(self, restored: int, completed: int, consistent: int) -> None:
        _NOTES.pack_into(self._memory, 0, restored, completed, consistent)

    def read(self) -> tuple[int, int, int]:
        return _NOTES.unpack_from(self._memory, 0)  # type: ignore[return-value]

    def close(self) -> None:
        self._memory.close()


# The child.


def train(folder: str, notes_path: str, async_save: bool) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    import tensorflow as tf

    import fastsup.train

    v1 = tf.compat.v1
    notes = Notes(notes_path)

    class Check(v1.train.SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            values = [int(value) for value in session.run(reads)]
            notes.write(values[0], values[0], int(len(set(values)) == 1))

    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        one = tf.constant(1, tf.int64)
        variables = [
            v1.get_variable(f"v{i}", [1000], tf.int64, initializer=v1.zeros_initializer()) for i in range(VARIABLES)
        ]
        with tf.control_dependencies([v1.assign_add(variable, one * tf.ones_like(variable)) for variable in variables]):
            train_op = v1.assign_add(step, one).op
        reads = [step.read_value()] + [variable.read_value()[i] for i, variable in enumerate(variables)]
        print("ready", flush=True)
        if not sys.stdin.readline():
            return
        with fastsup.train.MonitoredTrainingSession(
            checkpoint_dir=folder,
            hooks=[Check()],
            save_checkpoint_steps=SAVE_STEPS,
            save_checkpoint_secs=None,
            log_step_count_steps=None,
            async_save=async_save,
        ) as session:
            restored, completed, consistent = notes.read()
            while not session.should_stop():
                session.run(train_op)
                completed += 1
                notes.write(restored, completed, consistent)


# The parent.


class Outcome(NamedTuple):
    """What became of the kills.

    Args:
      kills: how many there were.
      restarts: how many of them were followed by a restart that got as far as to restore, before the next kill.
      in_a_save: how many left a checkpoint behind that the state file doesn't name.
      stale: "restored step, completed step" of each restart from a checkpoint more than an interval old.
      torn: steps of the restarts whose variables were of different steps.
      failed: what the children printed that ended by themselves.
      last_step: the step that was reached.
    """

    kills: int
    restarts: int
    in_a_save: int
    stale: list[tuple[int, int]]
    torn: list[int]
    failed: list[str]
    last_step: int


def start_python(*arguments: str, **settings: Any) -> subprocess.Popen[Any]:
    """Starts Python. The settings are those of `subprocess.Popen`."""
    return subprocess.Popen([sys.executable, *arguments], **settings)


Starter = Callable[..., subprocess.Popen[Any]]


class Child:
    """A training in its own process, which waits for `go`."""

    def __init__(self, folder: str, async_save: bool, starter: Starter) -> None:
        descriptor, self.log_path = tempfile.mkstemp(prefix="log-", dir=os.path.dirname(folder))
        self.notes_path = self.log_path + ".notes"
        self.notes = Notes(self.notes_path)
        arguments = [os.path.abspath(__file__), "--child", folder, self.notes_path, *["--async-save"] * async_save]
        pipe = subprocess.PIPE
        with os.fdopen(descriptor, "wb") as log:
            self.process = starter(*arguments, stdin=pipe, stdout=pipe, stderr=log, text=True)

    def go(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        line = self.process.stdout.readline()
        assert line == "ready\n", self.log()
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def wait_for_step(self) -> None:
        """Returns when it has completed a step, or has ended."""
        limit = time.monotonic() + START_SECS
        while True:
            restored, completed, _ = self.notes.read()
            if completed > restored or self.process.poll() is not None:
                return
            assert time.monotonic() < limit, self.log()
            time.sleep(0.001)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def log(self) -> str:
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
        self.notes.close()


def _has_unnamed_checkpoint(folder: str) -> bool:
    try:
        with open(os.path.join(folder, "checkpoint"), encoding="utf-8") as file:
            named = set(re.findall(r"model\.ckpt-(\d+)", file.read()))
    except FileNotFoundError:
        named = set()
    begun = {found[1] for name in os.listdir(folder) if (found := re.match(r"model\.ckpt-(\d+)", name))}
    newest = max(map(int, named), default=-1)
    return any(int(step) > newest for step in begun)


@contextlib.contextmanager
def _children(folder: str, async_save: bool, count: int, ahead: int, starter: Starter) -> Iterator[Iterator[Child]]:
    waiting: list[Child] = []
    every: list[Child] = []

    def one_after_the_other() -> Iterator[Child]:
        for number in range(count):
            while len(waiting) <= min(ahead, count - number - 1):
                waiting.append(Child(folder, async_save, starter))
                every.append(waiting[-1])
            child = waiting.pop(0)
            yield child
            child.close()

    try:
        yield one_after_the_other()
    finally:
        for child in every:
            if child.process.returncode is None:
                child.close()


def storm(kills: int, seed: int, async_save: bool = False, ahead: int = 2, starter: Starter = start_python) -> Outcome:
    """Kills a training so many times, and restarts it once more.

    Args:
      kills: how often.
      seed: of the random moments.
      async_save: whether checkpoints are written in the background.
      ahead: how many children get ready while one trains.
      starter: starts Python, as `start_python` does.
    """
    moments = random.Random(seed)
    # A save in the background is named when the next one begins: two intervals may be lost.
    interval = SAVE_STEPS * (2 if async_save else 1)
    restarts = in_a_save = 0
    completed = -1
    stale, torn, failed = [], [], []
    with tempfile.TemporaryDirectory() as place:
        folder = os.path.join(place, "model")
        os.mkdir(folder)
        with _children(folder, async_save, kills + 1, ahead, starter) as children:
            for number, child in enumerate(children):
                last = number == kills
                child.go()
                if not last and moments.random() < 0.2:
                    time.sleep(moments.uniform(0, 1))  # While it starts.
                else:
                    child.wait_for_step()
                    time.sleep(moments.uniform(0, 0.2))
                if child.process.poll() is not None:
                    failed.append(child.log())
                child.kill()
                in_a_save += not last and _has_unnamed_checkpoint(folder)
                restored, reached, consistent = child.notes.read()
                if restored < 0:
                    continue
                restarts += number > 0
                if restored <= completed - interval:
                    stale.append((restored, completed))
                if not consistent:
                    torn.append(restored)
                completed = reached
    return Outcome(kills, restarts, in_a_save, stale, torn, failed, completed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--async-save", action="store_true")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        train(*options.child, options.async_save)
        return 0
    outcome = storm(options.kills, options.seed, options.async_save)
    for name, value in outcome._asdict().items():
        print(f"{name}: {value}")
    return 1 if outcome.stale or outcome.torn or outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
