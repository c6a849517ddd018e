"""What becomes of a training whose newest checkpoint is damaged: under TensorFlow's classes and under ours.

`python tests/train/damage_table.py --write` measures it and writes the table of docs/recovery.md. The test measures it
too, and compares.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import logging
import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import tensorflow as tf

v1 = tf.compat.v1

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "recovery.md")
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
SAVE_STEPS, ABORT_AT, LAST_STEP = 10, 35, 60
NEWEST, OLDER = 30, 20


class Measured(NamedTuple):
    """What a run did: in words, the warnings it gave, and the files that were there before and are gone or changed."""

    outcome: str
    warnings: list[str]
    lost: list[str]


# The damage.


def _path(folder: str, step: int, ending: str) -> str:
    return os.path.join(folder, f"model.ckpt-{step}{ending}")


def _data(folder: str, step: int = NEWEST) -> str:
    """The data file with the weights: the first of two."""
    return _path(folder, step, ".data-00000-of-00002")


def _index(folder: str, step: int = NEWEST) -> str:
    return _path(folder, step, ".index")


def _cut(path: str, size: int | None = None) -> None:
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) // 2 if size is None else size)


def _flip(path: str, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def _fill(path: str) -> None:
    with open(path, "r+b") as file:
        file.write(b"\xa5" * os.path.getsize(path))


def _state(folder: str, text: bytes) -> None:
    with open(os.path.join(folder, "checkpoint"), "wb") as file:
        file.write(text)


def _point_to(folder: str, place: str) -> None:
    paths = [os.path.join(place, f"model.ckpt-{step}") for step in range(0, NEWEST + 1, SAVE_STEPS)]
    lines = [f'model_checkpoint_path: "{paths[-1]}"'] + [f'all_model_checkpoint_paths: "{path}"' for path in paths]
    _state(folder, "\n".join(lines).encode())


def _delete_newest(folder: str) -> None:
    for path in glob.glob(glob.escape(_path(folder, NEWEST, "")) + ".*"):
        os.remove(path)


def _next_save(folder: str) -> int:
    """Copies the newest checkpoint to what the next save would have written, unknown to the state file."""
    step = NEWEST + SAVE_STEPS
    for path in glob.glob(glob.escape(_path(folder, NEWEST, "")) + ".*"):
        shutil.copy(path, path.replace(f"-{NEWEST}.", f"-{step}."))
    return step


def _crash_before_the_index(folder: str) -> None:
    os.remove(_index(folder, _next_save(folder)))


def _crash_in_the_index(folder: str) -> None:
    _cut(_index(folder, _next_save(folder)))


def _crash_before_the_state_file(folder: str) -> None:
    _next_save(folder)


def _crash_in_the_data(folder: str) -> None:
    parts = _path(folder, NEWEST + SAVE_STEPS, "_temp")
    os.mkdir(parts)
    shutil.copy(_data(folder), os.path.join(parts, "part-00000-of-00002.data-00000-of-00001.tempstate1"))


def _disk_full(folder: str) -> None:
    """A save to which the system gives no more room than for a few hundred bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with tf.Graph().as_default():
        saver, _, _ = model()
        with v1.Session(config=two_devices()) as session:
            session.run(v1.global_variables_initializer())
            resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
            try:
                saver.save(session, os.path.join(folder, "model.ckpt"), NEWEST + SAVE_STEPS, write_meta_graph=False)
            except (tf.errors.OpError, OSError):
                return
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    raise AssertionError("The save should have failed.")


DAMAGES: dict[str, Callable[[str], None]] = {
    "data file cut in half": lambda folder: _cut(_data(folder)),
    "data file of zero length": lambda folder: _cut(_data(folder), 0),
    "data file missing": lambda folder: os.remove(_data(folder)),
    "one of two data files missing": lambda folder: os.remove(_path(folder, NEWEST, ".data-00001-of-00002")),
    "one bit of the data flipped": lambda folder: _flip(_data(folder), 1000),
    "data overwritten": lambda folder: _fill(_data(folder)),
    "index cut in half": lambda folder: _cut(_index(folder)),
    "index of zero length": lambda folder: _cut(_index(folder), 0),
    "index missing": lambda folder: os.remove(_index(folder)),
    "one bit of the index flipped": lambda folder: _flip(_index(folder), 40),
    "index overwritten": lambda folder: _fill(_index(folder)),
    "all files of the newest deleted": _delete_newest,
    "state file missing": lambda folder: os.remove(os.path.join(folder, "checkpoint")),
    "state file empty": lambda folder: _state(folder, b""),
    "state file with other text": lambda folder: _state(folder, b"these are not the paths"),
    "state file with random bytes": lambda folder: _state(folder, b"\x00\xff\xfe\x80{{"),
    "state file cut in half": lambda folder: _cut(os.path.join(folder, "checkpoint")),
    "state file with the paths of another place": lambda folder: _point_to(folder, "/nowhere/model"),
    "killed while the data was written": _crash_in_the_data,
    "killed between data and index": _crash_before_the_index,
    "killed while the index was written": _crash_in_the_index,
    "killed between index and state file": _crash_before_the_state_file,
    "disk full during a save": _disk_full,
}

# The newest one that is whole and that the state file, where it can be read, goes by.
WANTED_STEP = {name: OLDER if name.startswith(("data", "index", "one ", "all files")) else NEWEST for name in DAMAGES}
# Nothing is lost or in doubt there: the save was complete, and the state file goes by the one before.
WITHOUT_WARNING = {"killed between index and state file"}


# The program.


def two_devices() -> Any:
    """The session's configuration: two devices, so that a checkpoint has two data files."""
    return v1.ConfigProto(device_count={"CPU": 2})


def model() -> tuple[Any, Any, Any]:
    """A model whose weights always equal its global step: its saver, the step, and an op that trains."""
    with tf.device("/cpu:0"):
        step = v1.train.get_or_create_global_step()
        weights = v1.get_variable("weights", [400], initializer=v1.zeros_initializer())
    with tf.device("/cpu:1"):
        bias = v1.get_variable("bias", [4], initializer=v1.zeros_initializer())
    with tf.control_dependencies([v1.assign_add(weights, tf.ones([400])), v1.assign_add(bias, tf.ones([4]))]):
        train_op = v1.assign_add(step, tf.constant(1, tf.int64)).op
    return v1.train.Saver(sharded=True), step, train_op


def _contents(folder: str) -> dict[str, bytes]:
    found = {}
    for path in glob.glob(os.path.join(glob.escape(folder), "model.ckpt-*")):
        if os.path.isfile(path):
            with open(path, "rb") as file:
                found[os.path.basename(path)] = file.read()
    return found


def _lost(before: dict[str, bytes], folder: str, restored: int) -> list[str]:
    """What is gone, and what has changed of the checkpoints newer than the one restored (which is saved again)."""
    after = _contents(folder)
    newer = {name for name in before if int(name.split("-")[1].split(".")[0]) > restored}
    return sorted(name for name in before if name not in after or (name in newer and after[name] != before[name]))


class _Observer(v1.train.SessionRunHook):
    """Notes at which step each session starts, and does the damage once, with the AbortedError of a preemption."""

    def __init__(self, folder: str, do_damage: Callable[[str], None] | None) -> None:
        self.folder, self.do_damage = folder, do_damage
        self.started_at: list[int] = []
        self.before = _contents(folder)
        self.lost: list[str] = []
        self.steps = 0

    def begin(self) -> None:
        self.reads = {variable.op.name: variable.read_value() for variable in v1.global_variables()}

    def after_create_session(self, session: Any, coord: Any) -> None:
        values = session.run(self.reads)
        step = int(values["global_step"])
        assert set(values["weights"]) == set(values["bias"]) == {step}, "The variables aren't of one step."
        self.started_at.append(step)
        # Compared here, before training goes on and its own saves come round to the same names.
        self.lost = _lost(self.before, self.folder, restored=step)

    def before_run(self, run_context: Any) -> None:
        self.steps += 1
        if self.steps > ABORT_AT and self.do_damage is not None:
            do_damage, self.do_damage = self.do_damage, None
            do_damage(self.folder)
            self.before = _contents(self.folder)
            raise tf.errors.AbortedError(None, None, "preempted")


@contextlib.contextmanager
def _collected_warnings() -> Iterator[list[str]]:
    found: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            # TensorFlow's notes on deprecation come once a process, wherever that happens to be. That a session is made
            # again is said too, whatever its checkpoints are like.
            if not record.getMessage().startswith(("From ", "An error was raised. This may be due to a preemption")):
                found.append(record.getMessage())

    collector = Collector(logging.WARNING)
    logger = logging.getLogger("tensorflow")
    logger.addHandler(collector)
    try:
        yield found
    finally:
        logger.removeHandler(collector)


def _train(impl: Any, folder: str, do_damage: Callable[[str], None] | None) -> Measured:
    observer = _Observer(folder, do_damage)
    starts = 1 if do_damage is None else 2
    error = None
    with tf.Graph().as_default(), _collected_warnings() as warnings:
        saver, _, train_op = model()
        try:
            with impl.train.MonitoredTrainingSession(
                checkpoint_dir=folder,
                scaffold=v1.train.Scaffold(saver=saver),
                hooks=[impl.train.StopAtStepHook(last_step=LAST_STEP), observer],
                save_checkpoint_steps=SAVE_STEPS,
                save_checkpoint_secs=None,
                save_summaries_steps=None,
                save_summaries_secs=None,
                log_step_count_steps=None,
                config=two_devices(),
            ) as session:
                while not session.should_stop():
                    session.run(train_op)
        except Exception as raised:
            error = raised
    if error is not None:
        outcome = f"`{type(error).__name__}`"
    elif len(observer.started_at) < starts:
        outcome = f"ends as if the input had ended, after {observer.steps - 1} of {LAST_STEP} steps"
    elif observer.started_at[-1] == 0:
        outcome = "starts again at step 0"
    else:
        outcome = f"step {observer.started_at[-1]} restored"
    return Measured(outcome, warnings, observer.lost)


def _train_before(folder: str) -> None:
    """The checkpoints that the damage is done to: steps 0, 10, 20 and 30."""
    with tf.Graph().as_default():
        saver, _, train_op = model()
        with v1.Session(config=two_devices()) as session:
            session.run(v1.global_variables_initializer())
            for step in range(NEWEST + 1):
                if step % SAVE_STEPS == 0:
                    saver.save(session, os.path.join(folder, "model.ckpt"), step)
                session.run(train_op)


def measure(impl: Any, damage: str, mid_run: bool) -> Measured:
    """Trains, does the damage, and trains on: in a new process' session, or in the running one after a preemption.

    Args:
      impl: the session layer, with `.train`.
      damage: a key of DAMAGES.
      mid_run: whether the session is recovered while it runs; else a new one is started after the damage.
    """
    folder = tempfile.mkdtemp()
    try:
        if mid_run:
            return _train(impl, folder, DAMAGES[damage])
        _train_before(folder)
        DAMAGES[damage](folder)
        return _train(impl, folder, None)
    finally:
        shutil.rmtree(folder)
        v1.summary.FileWriterCache.clear()


# The page.


def row(damage: str, tensorflow: tuple[Measured, Measured], fastsup: tuple[Measured, Measured]) -> str:
    """A line of the table: the damage, and what came of it under either, at the start and in mid-run."""
    cells = [damage, *(measured.outcome for measured in (*tensorflow, *fastsup))]
    return f"| {' | '.join(cells)} |"


def rows_of_the_page() -> list[str]:
    with open(PAGE, encoding="utf-8") as file:
        table = file.read().split(BEGIN)[1].split(END)[0]
    return table.splitlines()[2:]


def table() -> list[str]:
    """Measures each damage under either. Returns the lines of the table."""
    import fastsup

    tensorflow, ours = SimpleNamespace(train=v1.train), SimpleNamespace(train=fastsup.train)
    lines = [
        "| damage | TensorFlow, at the start | TensorFlow, in mid-run | fastsup, at the start | fastsup, in mid-run |",
        "|---|---|---|---|---|",
    ]
    for damage in DAMAGES:
        theirs, our = ([measure(impl, damage, mid_run) for mid_run in (False, True)] for impl in (tensorflow, ours))
        lines.append(row(damage, tuple(theirs), tuple(our)))
    return lines


def write_page(lines: list[str]) -> None:
    with open(PAGE, encoding="utf-8") as file:
        before, rest = file.read().split(BEGIN)
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(before + BEGIN + "\n".join(lines) + "\n" + END + rest.split(END)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table of docs/recovery.md, too")
    arguments = parser.parse_args()
    lines = table()
    print("\n".join(lines))
    if arguments.write:
        write_page(lines)


if __name__ == "__main__":
    main()
