"""The loop of a training program: signals, resuming, recovery."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from processes import Processes

import fastsup.core
from fastsup.loop import CheckpointHook, PeriodicHook, StepLoop


class Model:
    """A variable that counts its steps, and a step that fails when it is told to."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.count = tf.Variable(0, dtype=tf.int64)
        self.checkpoint = tf.train.Checkpoint(count=self.count)
        self.saver = CheckpointHook(self.checkpoint, every_steps=5, directory=directory, **options)
        self.errors: dict[int, list[Exception]] = {}

    def step(self) -> int:
        errors = self.errors.get(int(self.count.numpy()))
        if errors:
            raise errors.pop(0)
        return int(self.count.assign_add(1).numpy())


def saved_steps(directory: Path) -> list[int]:
    return sorted(int(path.name[5:-6]) for path in directory.glob("ckpt-*.index"))


def unavailable() -> Exception:
    return tf.errors.UnavailableError(None, None, "a server has gone")


pytestmark = pytest.mark.skipif(not tf.executing_eagerly(), reason="These are programs of TensorFlow 2.")


def test_it_is_the_loop_of_the_core() -> None:
    assert issubclass(StepLoop, fastsup.core.StepLoop)
    assert StepLoop(int, max_steps=3).run() == 0


@pytest.mark.parametrize("async_save", [False, True])
def test_a_checkpoint_and_a_directory(tmp_path: Path, async_save: bool) -> None:
    model = Model(tmp_path, max_to_keep=2, async_save=async_save)
    StepLoop(model.step, [model.saver], max_steps=12).run()
    assert saved_steps(tmp_path) == [10, 12]
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "ckpt-12")
    assert tf.train.load_variable(str(tmp_path / "ckpt-10"), "count/.ATTRIBUTES/VARIABLE_VALUE") == 10


def test_async_save_writes_the_values_of_its_step(tmp_path: Path) -> None:
    values = tf.Variable(tf.zeros([300_000]))
    saver = CheckpointHook(
        tf.train.Checkpoint(values=values), every_steps=4, directory=tmp_path, max_to_keep=None, async_save=True
    )
    StepLoop(lambda: values.assign_add(tf.ones([300_000])), [saver], max_steps=40).run()
    assert saved_steps(tmp_path) == list(range(4, 41, 4))
    for step in saved_steps(tmp_path):
        saved = tf.train.load_variable(str(tmp_path / f"ckpt-{step}"), "values/.ATTRIBUTES/VARIABLE_VALUE")
        assert set(saved) == {step}


def test_an_async_write_that_fails_is_raised_at_the_end(tmp_path: Path, caplog: Any) -> None:
    def spoil() -> None:
        shutil.rmtree(tmp_path / "logs")
        (tmp_path / "logs").write_text("no folder")

    def step() -> None:
        model.step()
        spoil()

    def fail() -> None:
        spoil()
        model.saver._save(7)
        raise KeyError("the step's error")

    model = Model(tmp_path / "logs", async_save=True)
    loop = StepLoop(model.step, [model.saver], max_steps=5)
    loop.run()
    with pytest.raises(tf.errors.OpError):
        StepLoop(step, [model.saver], max_steps=1).run()
    # An error of the step isn't hidden by it.
    (tmp_path / "logs").unlink()
    with pytest.raises(KeyError, match="the step's error"), caplog.at_level(logging.ERROR, "fastsup"):
        StepLoop(fail, [model.saver], max_steps=1).run()
    assert "could not be written" in caplog.text


def test_an_older_checkpoint_is_not_taken_for_an_error_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Model(tmp_path)
    StepLoop(first.step, [first.saver], max_steps=7).run()
    second = Model(tmp_path)
    failures = [unavailable()]
    restore = tf.train.Checkpoint.restore

    def restore_or_fail(checkpoint: Any, *args: Any) -> Any:
        if failures:
            raise failures.pop()
        return restore(checkpoint, *args)

    monkeypatch.setattr(tf.train.Checkpoint, "restore", restore_or_fail)
    with pytest.raises(tf.errors.UnavailableError):
        StepLoop(second.step, [second.saver], resume_from=second.saver).run()
    # In the middle of training it counts as one more failure of the step.
    fails = [True]

    def step() -> int:
        if second.count == 9 and fails:
            fails.clear()
            failures.append(unavailable())
            raise unavailable()
        return second.step()

    loop = StepLoop(step, max_steps=9, resume_from=second.saver, max_recoveries=2)
    # Two steps, the checkpoint of step 7 again, and two more.
    assert (loop.run(), loop.restored_step, failures) == (9, 7, [])


def test_resumes(tmp_path: Path) -> None:
    first = Model(tmp_path)
    StepLoop(first.step, [first.saver], max_steps=7, resume_from=first.saver).run()
    second = Model(tmp_path)
    loop = StepLoop(second.step, [second.saver], max_steps=13, resume_from=second.saver.manager)
    assert loop.run() == 13
    assert (loop.restored_step, loop.global_step, loop.steps) == (7, 13, 6)
    assert saved_steps(tmp_path) == [5, 7, 10, 13]
    third = Model(tmp_path)
    loop = StepLoop(third.step, [third.saver], steps=4, resume_from=third.saver)
    assert (loop.max_steps, loop.run(), loop.max_steps) == (4, 17, 17)
    assert (loop.restored_step, loop.global_step, loop.steps) == (13, 17, 4)


def test_no_step_where_the_checkpoint_has_reached_the_last_one(tmp_path: Path, caplog: Any) -> None:
    """As Estimator.train, which logs it; but the hooks begin and end, as in a loop whose last step that is."""
    first = Model(tmp_path)
    StepLoop(first.step, [first.saver], max_steps=7).run()
    second = Model(tmp_path)
    called: list[str] = []

    class Notes(PeriodicHook):
        def begin(self, loop: Any) -> None:
            called.append("begin")
            super().begin(loop)

        def end(self, loop: Any) -> None:
            called.append("end")

    loop = StepLoop(second.step, [Notes(1), second.saver], max_steps=6, resume_from=second.saver)
    with caplog.at_level(logging.INFO, logger="fastsup"):
        assert loop.run() is None
    assert (loop.steps, loop.global_step, loop.should_stop(), called) == (0, 7, True, ["begin", "end"])
    assert "Skipping training: the global step is already 7, and the loop ends at 6." in caplog.messages


def test_a_resumed_checkpoint_is_not_written_again(tmp_path: Path) -> None:
    first = Model(tmp_path)
    StepLoop(first.step, [first.saver], max_steps=5).run()
    before = os.stat(tmp_path / "ckpt-5.index").st_mtime_ns
    second = Model(tmp_path)
    StepLoop(second.step, [second.saver], max_steps=5, resume_from=second.saver).run()
    assert os.stat(tmp_path / "ckpt-5.index").st_mtime_ns == before


def damage(path: Path) -> None:
    data = next(path.parent.glob(f"{path.name}.data-*"))
    data.write_bytes(b"")


def test_an_older_checkpoint_is_restored_where_the_newest_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Model(tmp_path)
    StepLoop(first.step, [first.saver], max_steps=12).run()
    damage(tmp_path / "ckpt-12")
    second = Model(tmp_path)
    loop = StepLoop(second.step, steps=1, resume_from=second.saver)
    with caplog.at_level(logging.WARNING, logger="fastsup"):
        assert loop.run() == 11
    assert loop.restored_step == 10
    assert "ckpt-12 can't be restored" in caplog.text


def test_no_start_from_scratch_where_all_are_damaged(tmp_path: Path) -> None:
    first = Model(tmp_path)
    StepLoop(first.step, [first.saver], max_steps=6).run()
    for step in (5, 6):
        damage(tmp_path / f"ckpt-{step}")
    second = Model(tmp_path)
    with pytest.raises(RuntimeError, match=r"(?s)No checkpoint .*ckpt-6: .*ckpt-5: "):
        StepLoop(second.step, steps=1, resume_from=second.saver).run()
    assert saved_steps(tmp_path) == [5, 6]


STATE_FILES = {
    "missing": None,
    "empty": b"",
    "cut": b'model_checkpoint_path: "ck',
    "another text": b"step 6 is the best",
    "random bytes": bytes(range(128, 256)),
}


@pytest.mark.parametrize("content", STATE_FILES.values(), ids=list(STATE_FILES))
def test_a_state_file_that_is_lost_costs_nothing(tmp_path: Path, content: bytes | None) -> None:
    first = Model(tmp_path)
    StepLoop(first.step, [first.saver], max_steps=6).run()
    kept = {path.name: path.read_bytes() for path in tmp_path.glob("ckpt-*")}
    (tmp_path / "checkpoint").unlink()
    if content is not None:
        (tmp_path / "checkpoint").write_bytes(content)
    second = Model(tmp_path)
    loop = StepLoop(second.step, [second.saver], max_steps=7, resume_from=second.saver)
    loop.run()
    assert (loop.restored_step, loop.global_step) == (6, 7)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-7")
    assert all((tmp_path / name).read_bytes() == data for name, data in kept.items() if name.startswith("ckpt-6"))


def test_the_checkpoints_of_another_manager_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    other = tf.train.Checkpoint(other=tf.Variable(1.0))
    other.write(str(tmp_path / "other-99"))
    first = Model(tmp_path)
    StepLoop(first.step, [first.saver], max_steps=6).run()
    (tmp_path / "checkpoint").unlink()
    second = Model(tmp_path)
    loop = StepLoop(second.step, steps=1, resume_from=second.saver)
    loop.run()
    assert loop.restored_step == 6


def test_a_folder_that_cant_be_listed_is_no_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Model(tmp_path)
    StepLoop(first.step, [first.saver], max_steps=6).run()
    second = Model(tmp_path)

    def fail(path: str) -> list[str]:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("fastsup.common.file_system.os.listdir", fail)
    with pytest.raises(tf.errors.UnknownError, match="Input/output error"):
        StepLoop(second.step, [second.saver], steps=1, resume_from=second.saver).run()
    assert saved_steps(tmp_path) == [5, 6]


def test_a_checkpoint_of_which_nothing_fits(tmp_path: Path) -> None:
    """TensorFlow's assert_nontrivial_match lets it pass, as the counter of the saves fits."""
    first = Model(tmp_path)
    StepLoop(first.step, [first.saver], max_steps=6).run()
    renamed = tf.train.Checkpoint(weights=tf.Variable(0.0))
    saver = CheckpointHook(renamed, every_steps=5, directory=tmp_path)
    with pytest.raises(AssertionError, match=r"ckpt-6 has no value for any of \['weights'\]"):
        StepLoop(int, [saver], steps=1, resume_from=saver).run()
    assert saved_steps(tmp_path) == [5, 6]


def test_a_checkpoint_that_lacks_a_variable(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """TensorFlow restores the others. The loop names those that keep their values."""
    old, new = tf.Variable(1.0), tf.Variable(5.0)
    StepLoop(float, [CheckpointHook(tf.train.Checkpoint(w=old), 5, directory=tmp_path)], max_steps=5).run()
    hook = CheckpointHook(tf.train.Checkpoint(w=old, layer=tf.train.Checkpoint(bias=new)), 5, directory=tmp_path)
    StepLoop(float, [hook], max_steps=6, resume_from=hook).run()
    assert f"{tmp_path}/ckpt-5 has no value for layer/bias: training continues" in caplog.text
    assert float(new) == 5.0


def test_a_checkpoint_of_another_shape_names_its_path(tmp_path: Path) -> None:
    StepLoop(float, [CheckpointHook(tf.train.Checkpoint(w=tf.Variable(1.0)), 5, directory=tmp_path)], max_steps=5).run()
    hook = CheckpointHook(tf.train.Checkpoint(w=tf.Variable([1.0, 2.0])), 5, directory=tmp_path)
    with pytest.raises(ValueError, match="incompatible tensor with shape") as raised:
        StepLoop(float, [hook], max_steps=6, resume_from=hook).run()
    assert raised.value.__notes__ == [f"Raised when {tmp_path}/ckpt-5 was restored."]


def test_a_hook_that_only_restores_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook = CheckpointHook(tf.train.Checkpoint(), 5, directory=tmp_path)
    StepLoop(float, [hook], max_steps=1, resume_from=hook)
    StepLoop(float, [], max_steps=1, resume_from=hook.manager)
    assert "among the hooks" not in caplog.text
    StepLoop(float, [], max_steps=1, resume_from=hook)
    assert re.search(r"resume_from, .*CheckpointHook.*, isn't among the hooks", caplog.text)


def test_objects_that_are_made_later(tmp_path: Path) -> None:
    """A checkpoint without objects yet: their values are restored when they are made."""
    first = Model(tmp_path)
    StepLoop(first.step, [first.saver], max_steps=6).run()
    later = tf.train.Checkpoint()
    saver = CheckpointHook(later, every_steps=100, save_at_end=False, directory=tmp_path)
    loop = StepLoop(int, [saver], steps=1, resume_from=saver)
    loop.run()
    later.count = tf.Variable(0, dtype=tf.int64)
    assert (loop.restored_step, int(later.count)) == (6, 6)


def test_init_fn_runs_where_there_is_no_checkpoint(tmp_path: Path) -> None:
    model = Model(tmp_path)
    manager = tf.train.CheckpointManager(
        model.checkpoint, str(tmp_path), max_to_keep=1, init_fn=lambda: model.count.assign(100)
    )
    assert StepLoop(model.step, max_steps=4, initial_step=3, resume_from=manager).run() == 101


def test_recovers_and_calls_the_step_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = Model(tmp_path)
    model.errors = {3: [unavailable()], 7: [tf.errors.AbortedError(None, None, "x"), unavailable()]}
    started = time.monotonic()
    loop = StepLoop(model.step, max_steps=10, max_recoveries=2)
    with caplog.at_level(logging.WARNING, logger="fastsup"):
        assert loop.run() == 10
    assert 0.1 < time.monotonic() - started < 5
    tries = [
        re.search(r"after global step (\d+) failed: .* \(Failure (\d+) of at most 3 in a row", record.getMessage())
        for record in caplog.records
    ]
    assert [found and found.groups() for found in tries] == [("3", "1"), ("7", "1"), ("7", "2")]


@pytest.mark.parametrize("limit", ["max_steps", "steps"])
@pytest.mark.parametrize("profiled", [False, True])
def test_recovers_from_a_checkpoint(tmp_path: Path, profiled: bool, limit: str) -> None:
    """The steps that are lost are made again: the global step at which the loop ends stays the same."""
    model = Model(tmp_path)
    model.errors = {8: [unavailable()]}
    profiler = fastsup.HookProfiler() if profiled else None
    limits: Any = {limit: 12, "resume_from": model.saver, "max_recoveries": None}
    loop = StepLoop(model.step, [model.saver], profiler=profiler, **limits)
    assert loop.run() == 12
    assert (loop.steps, loop.global_step, loop.max_steps) == (15, 12, 12)
    assert saved_steps(tmp_path) == [5, 10, 12]
    assert (loop.run(), loop.steps) == (12, 15)


@pytest.mark.parametrize(
    ("error", "max_recoveries"),
    [(unavailable, 0), (unavailable, 1), (lambda: tf.errors.DataLossError(None, None, ""), 5), (ValueError, None)],
)
def test_gives_up(tmp_path: Path, error: Any, max_recoveries: int | None) -> None:
    model = Model(tmp_path)
    errors = [error() for _ in range(3)]
    model.errors = {2: list(errors)}
    with pytest.raises(type(errors[0])):
        StepLoop(model.step, [model.saver], max_recoveries=max_recoveries).run()
    assert saved_steps(tmp_path) == []
    assert len(model.errors[2]) == (1 if max_recoveries == 1 else 2)


def test_a_stop_ends_the_wait_for_the_next_try(tmp_path: Path) -> None:
    model = Model(tmp_path)
    model.errors = {0: [unavailable() for _ in range(20)]}

    class Stopping(Exception):
        pass

    loop = StepLoop(model.step, max_recoveries=None)
    logger = logging.getLogger("fastsup")

    def stop(record: logging.LogRecord) -> bool:
        if "(Failure 12 " in record.getMessage():
            loop.request_stop()
        return False

    logger.addFilter(stop)
    sleep = time.sleep
    try:
        time.sleep = lambda secs: sleep(0.0001)
        moments = iter(range(10**9))
        monotonic, time.monotonic = time.monotonic, lambda: float(next(moments))
        assert loop.run() is None
    finally:
        time.sleep, time.monotonic = sleep, monotonic
        logger.removeFilter(stop)
    assert len(model.errors[0]) == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_recoveries": 1.5}, "max_recoveries must be an integer or None, got 1.5"),
        ({"max_recoveries": True}, "max_recoveries must be an integer or None, got True"),
        ({"recover_from": "x"}, "recover_from must be a class of errors, or a tuple of such classes, got 'x'"),
        ({"recover_from": (OSError, StopIteration)}, "recover_from must be a class of errors, or a tuple"),
        ({"recover_from": KeyboardInterrupt}, "recover_from must be a class of errors, or a tuple"),
        ({"resume_from": "folder"}, r"resume_from must be a Checkpoints, .* got 'folder'"),
        (
            {"resume_from": CheckpointHook(print, every_steps=1)},
            "resume_from must be a Checkpoints",
        ),
    ],
)
def test_wrong_types(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        StepLoop(int, **arguments)


def test_wrong_values(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_recoveries must not be negative, got -1"):
        StepLoop(int, max_recoveries=-1)
    with pytest.raises(TypeError, match=r"directory is for the checkpoints of a tf\.train\.Checkpoint, got <built-in"):
        CheckpointHook(print, every_steps=1, directory=tmp_path)
    with pytest.raises(TypeError, match=r"async_save requires a tf\.train\.CheckpointManager, .*got <built-in"):
        CheckpointHook(print, every_steps=1, async_save=True)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "best"\nall_model_checkpoint_paths: "best"\n')
    model = Model(tmp_path)
    model.checkpoint.write(str(tmp_path / "best"))
    with pytest.raises(ValueError, match=r"best' has no number at the end of its name"):
        StepLoop(model.step, steps=1, resume_from=model.saver).run()


# A program that sends itself a signal, or two. Prints what it saved. Of a launcher, the second signal is a copy of the
# first one if it comes within 0.2 seconds: where the machine holds the program up until then, it says so and ends.
PROGRAM = """
import os, signal, sys, threading, time
import tensorflow as tf
from fastsup.loop import CheckpointHook, StepLoop
how, number, directory = sys.argv[1], getattr(signal, sys.argv[2]), sys.argv[3]
count = tf.Variable(0)
saver = CheckpointHook(tf.train.Checkpoint(count=count), every_secs=1000, directory=directory)

def step():
    value = int(count.assign_add(1).numpy())
    if value == 20:
        sent = time.monotonic()
        os.kill(os.getpid(), number)
        for _ in range(10_000):
            pass  # Bytecode in the step, where a handler may run.
        if how == "by a launcher, too" and time.monotonic() - sent > 0.1:
            print("late", flush=True)
            os._exit(0)
        if how == "twice":
            time.sleep(0.3)
        if how in ("twice", "by a launcher, too"):
            os.kill(os.getpid(), number)
            time.sleep(0.1 if how == "by a launcher, too" else 30)
    count.assign_add(0)
    return value

native = tf.function(lambda: count.assign_add(1))
def stop_later():
    while int(count.numpy()) < 20:
        time.sleep(0.001)
    os.kill(os.getpid(), number)

if how == "thread":
    threading.Thread(target=stop_later, daemon=True).start()
loop = StepLoop(native if how == "thread" else step, [saver], handle_signals=False if how == "off" else None)
try:
    loop.run()
finally:
    print(loop.global_step == int(count.numpy()), flush=True)
"""


@pytest.mark.parametrize(
    ("how", "name", "code", "saved"),
    [
        ("once", "SIGTERM", 143, True),
        ("once", "SIGINT", -signal.SIGINT, True),
        ("thread", "SIGTERM", 143, True),
        ("by a launcher, too", "SIGTERM", 143, True),
        ("by a launcher, too", "SIGINT", -signal.SIGINT, True),
        ("twice", "SIGTERM", -signal.SIGTERM, False),
        ("off", "SIGTERM", -signal.SIGTERM, False),
    ],
)
def test_signals(processes: Processes, tmp_path: Path, how: str, name: str, code: int, saved: bool) -> None:
    for attempt in range(10):
        folder = tmp_path / str(attempt)
        ended = processes.python("-c", PROGRAM, how, name, folder)
        if ended.stdout != "late\n":
            break
    assert ended.returncode == code, (ended.stdout, ended.stderr)
    path = tf.train.latest_checkpoint(str(folder))
    if not saved:
        assert path is None
        return
    assert ended.stdout == "True\n"
    count = int(tf.train.load_variable(path, "count/.ATTRIBUTES/VARIABLE_VALUE"))
    assert path.endswith(f"ckpt-{count}")
    assert how == "thread" or count == 20
    assert f"After the signal: the last checkpoint is {path}." in ended.stderr
    assert f"{name}: ending after this step. If the program saves checkpoints, the" in ended.stderr


def test_in_another_thread_signals_cannot_be_handled(caplog: pytest.LogCaptureFixture) -> None:
    for requested in (True, None):
        loop = StepLoop(int, [CheckpointHook(print, 10)], max_steps=1, handle_signals=requested)
        thread = threading.Thread(target=loop.run, name="trainer")
        thread.start()
        thread.join()
    (message,) = [record.getMessage() for record in caplog.records if record.name == "fastsup"]
    assert message.startswith("handle_signals=True has no effect in trainer: ")


LONG_STEP = """
import ctypes, os, sys
from fastsup.loop import StepLoop

def step():
    print("now", flush=True)
    ctypes.CDLL(None).usleep(2_000_000)  # Python handles no signal meanwhile, and this one interrupts it.
    ctypes.CDLL(None).usleep(3_000_000)

StepLoop(step, handle_signals=True).run()
"""


def test_ctrl_c_at_a_terminal_is_answered_before_the_step_ends(processes: Processes) -> None:
    terminal, child_s = os.openpty()
    try:
        with processes.start_python("-c", LONG_STEP, stdout=subprocess.PIPE, stderr=child_s, text=True) as child:
            try:
                assert child.stdout is not None
                assert child.stdout.readline() == "now\n"
                time.sleep(0.2)
                child.send_signal(signal.SIGINT)
                assert os.read(terminal, 1000).startswith(b"Ctrl-C: ending after the running step. A second one ends")
                assert child.poll() is None
                assert child.wait(60) == -signal.SIGINT
            finally:
                child.kill()
    finally:
        os.close(terminal)
        os.close(child_s)


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    seen = []

    class Looking(PeriodicHook):
        def act(self, loop: Any) -> None:
            seen.append(signal.getsignal(signal.SIGTERM))

    StepLoop(int, [Looking(every_steps=1)], max_steps=1, handle_signals=True).run()
    assert seen != [before[0]]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


# Ends that fail.


class Ends(fastsup.core.Hook):
    """A hook that notes its end, and raises an error in it."""

    def __init__(self, ended: list[str], name: str, error: BaseException | None = None) -> None:
        super().__init__()
        self.ended, self.name, self.error = ended, name, error

    def begin(self, loop: Any) -> None:
        self.never_due()

    def end(self, loop: Any) -> None:
        self.ended.append(self.name)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("is_recorded", [False, True])
def test_all_hooks_end_and_the_first_error_is_raised(tmp_path: Path, caplog: Any, is_recorded: bool) -> None:
    ended: list[str] = []
    model = Model(tmp_path)
    hooks = [Ends(ended, "first", ValueError("of the first")), Ends(ended, "second", KeyError("of the second"))]
    profiler = fastsup.HookProfiler() if is_recorded else None
    with pytest.raises(ValueError, match="of the first"), caplog.at_level(logging.ERROR, "fastsup"):
        StepLoop(model.step, [*hooks, model.saver], max_steps=3, profiler=profiler).run()
    assert ended == ["first", "second"]
    assert saved_steps(tmp_path) == [3]
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["'of the second'"]


def test_an_end_that_fails_after_a_signal(tmp_path: Path, caplog: Any) -> None:
    ended: list[str] = []
    model = Model(tmp_path)

    def step() -> None:
        if model.step() == 3:
            signal.raise_signal(signal.SIGTERM)

    hooks = [Ends(ended, "first", ValueError("of the first")), model.saver]
    with pytest.raises(SystemExit) as raised, caplog.at_level(logging.ERROR, "fastsup"):
        StepLoop(step, hooks).run()
    assert raised.value.code == 143
    assert saved_steps(tmp_path) == [3]
    assert "ended with an error after the signal: of the first" in caplog.text


def test_a_background_write_that_fails_is_made_up_for_at_the_end(tmp_path: Path, monkeypatch: Any) -> None:
    """The write of the last step fails. At the end the same step is saved again, and the error is still raised."""
    from fastsup.checkpoint import durable

    model = Model(tmp_path, async_save=True)
    write, failed = durable.write_whole, []

    def fail_once(*args: Any) -> None:
        # The state file, not the mark of the first save.
        if not failed and Path(args[0]).name == "checkpoint":
            failed.append(1)
            raise tf.errors.ResourceExhaustedError(None, None, "the disk is full")
        write(*args)

    monkeypatch.setattr(durable, "write_whole", fail_once)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="the disk is full"):
        StepLoop(model.step, [model.saver], max_steps=5).run()
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "ckpt-5")
