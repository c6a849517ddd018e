"""Checkpoints written in the background: the files, the order of things, and what goes wrong meanwhile."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import tensorflow as tf
from tensorflow.python.ops import lookup_ops

import fastsup
from fastsup import train
from fastsup.checkpoint.writer import BackgroundSaver

v1 = tf.compat.v1


class SlowSaver(v1.train.Saver):
    """A Saver that writes only when it is told to: `go`. Its saves are in `began` and `ended`."""

    def __init__(self, *args: Any, error: Exception | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.go, self.error = threading.Event(), error
        self.began: list[Any] = []
        self.ended: list[Any] = []
        self.at_once = 0

    def save(self, sess: Any, save_path: Any, global_step: Any = None, **kwargs: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return super().save(sess, save_path, global_step=global_step, **kwargs)
        self.began.append(int(global_step))
        assert len(self.began) == len(self.ended) + 1, "Two writes at a time."
        try:
            assert self.go.wait(60)
            if self.error is not None and self.ended:
                raise self.error
            return super().save(sess, save_path, global_step=global_step, **kwargs)
        finally:
            self.ended.append(int(global_step))


class Program:
    """Two variables that a step increments."""

    def __init__(self, counting_step: Any) -> None:
        self.weight = v1.get_variable("weight", [1000], initializer=v1.zeros_initializer())
        step = counting_step()
        self.step = step.global_step
        self.op = tf.group(v1.assign_add(self.weight, tf.ones([1000])), step.op)


@pytest.fixture
def program(graph: Any, counting_step: Any) -> Program:
    return Program(counting_step)


def hook_for(folder: Any, saver: Any, steps: int = 2, **arguments: Any) -> Any:
    return train.CheckpointSaverHook(str(folder), save_steps=steps, saver=saver, async_save=True, **arguments)


def writing() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("save-")]


def weights_in(path: Any) -> set[float]:
    return set(v1.train.NewCheckpointReader(str(path)).get_tensor("weight").tolist())


# The files.


class Content:
    """What a model may consist of; each makes it in the default graph and gives a step that changes it, or None."""

    @staticmethod
    def numbers() -> Any:
        variables = [
            v1.get_variable(f"v_{kind.name}", [3, 5], kind, initializer=v1.ones_initializer())
            for kind in (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64, tf.uint8, tf.complex64)
        ]
        return tf.group(*(v1.assign(variable, variable + tf.ones_like(variable)) for variable in variables))

    @staticmethod
    def scalars_and_empty() -> Any:
        v1.get_variable("scalar", [], initializer=v1.ones_initializer())
        v1.get_variable("empty", [0, 3], initializer=v1.ones_initializer())
        truth = v1.get_variable("truth", [2], tf.bool, initializer=v1.constant_initializer([True, False]))
        return v1.assign(truth, tf.logical_not(truth))

    @staticmethod
    def strings() -> Any:
        text = v1.get_variable("text", initializer=tf.constant(["a", "", "\0b", "x" * 5000]))
        return v1.assign(text, tf.strings.join([text, "y"]))

    @staticmethod
    def partitioned() -> Any:
        weight = v1.get_variable(
            "weight",
            [10, 4],
            initializer=v1.ones_initializer(),
            partitioner=v1.fixed_size_partitioner(3),
        )
        return tf.group(*(v1.assign_add(part, tf.ones_like(part)) for part in weight))

    @staticmethod
    def tables() -> Any:
        table = lookup_ops.DenseHashTable(tf.int64, tf.float32, -1.0, -1, -2, name="table", checkpoint=True)
        keys = tf.constant([1, 2, 3], tf.int64)
        return table.insert(keys, table.lookup(keys) + 1.0)

    @staticmethod
    def two_devices() -> Any:
        with tf.device("/cpu:0"):
            first = v1.get_variable("first", [7], initializer=v1.ones_initializer())
        with tf.device("/cpu:1"):
            second = v1.get_variable("second", [7], initializer=v1.ones_initializer())
        return tf.group(v1.assign_add(first, tf.ones([7])), v1.assign_add(second, tf.ones([7])))


CONTENTS = {name: make for name, make in vars(Content).items() if not name.startswith("_")}


@pytest.mark.slow
@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("content", list(CONTENTS))
def test_the_files_are_those_of_a_save_that_waits(graph: Any, tmp_path: Any, content: str, sharded: bool) -> None:
    change = CONTENTS[content].__func__()
    saver = v1.train.Saver(sharded=sharded)
    config = v1.ConfigProto(device_count={"CPU": 2})
    with fastsup.Session(config=config) as session:
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        session.run(change)
        for name in ("waited", "background"):
            (tmp_path / name).mkdir()
        waited = saver.save(session, str(tmp_path / "waited" / "save"))
        background = BackgroundSaver(saver)
        background.save(session, str(tmp_path / "background" / "save"), 3)
        session.run(change)
        path = background.wait()
        session.run(change)
    assert path == str(tmp_path / "background" / "save-3")
    expected, found = v1.train.NewCheckpointReader(waited), v1.train.NewCheckpointReader(path)
    assert found.get_variable_to_shape_map() == expected.get_variable_to_shape_map()
    assert found.get_variable_to_dtype_map() == expected.get_variable_to_dtype_map()
    for name in expected.get_variable_to_shape_map():
        numpy.testing.assert_array_equal(found.get_tensor(name), expected.get_tensor(name))
    names = [
        sorted(name.replace("save-3.", "save.") for name in os.listdir(os.path.dirname(p))) for p in (waited, path)
    ]
    assert names[0] == names[1]
    # TensorFlow's own session and Saver take them.
    with v1.Session(config=config) as session:
        saver.restore(session, path)
        saver.save(session, str(tmp_path / "again"))
    again = v1.train.NewCheckpointReader(str(tmp_path / "again"))
    for name in expected.get_variable_to_shape_map():
        numpy.testing.assert_array_equal(again.get_tensor(name), expected.get_tensor(name))


def test_training_goes_on_meanwhile(program: Program, tmp_path: Any, wait_for: Any) -> None:
    saver = SlowSaver()
    with train.MonitoredSession(hooks=[hook_for(tmp_path, saver, steps=100)]) as session:
        for _ in range(50):
            session.run(program.op)
        wait_for(lambda: saver.began)
        assert saver.began == [0]
        assert saver.ended == []
        saver.go.set()
    # What was saved is what was there when it was copied, although fifty steps were run since.
    assert weights_in(tmp_path / "model.ckpt-0") == {0.0}
    assert weights_in(tmp_path / "model.ckpt-50") == {50.0}


def test_copies_are_of_their_own(program: Program, tmp_path: Any) -> None:
    """The second save's copy goes into the memory of the first one's, which is written by then."""
    saver = SlowSaver()
    saver.go.set()
    with train.MonitoredSession(hooks=[hook_for(tmp_path, saver, steps=1)]) as session:
        for _ in range(6):
            session.run(program.op)
    assert saver.ended[:6] == [0, 1, 2, 3, 4, 5]
    assert [weights_in(tmp_path / f"model.ckpt-{step}") for step in range(2, 7)] == [{float(s)} for s in range(2, 7)]


# The order of things.


def test_listeners(program: Program, trace: Any, tmp_path: Any, wait_for: Any) -> None:
    """before_save comes with the copy, after_save with a later step, and end last."""
    saver = SlowSaver()
    listener = trace.listener("listener")
    recorder = trace.hook("hook")
    hooks = [recorder, hook_for(tmp_path, saver, steps=100, listeners=[listener])]
    with train.MonitoredSession(hooks=hooks) as session:
        session.run(program.op)
        assert trace[-4:] == [
            "hook.after_create_session", "listener.before_save:0", "hook.before_run", "hook.after_run"
        ]  # fmt: skip
        saver.go.set()
        wait_for(lambda: not writing())
        session.run(program.op)
        assert trace[-3:] == ["hook.before_run", "hook.after_run", "listener.after_save:0"]
        session.run(program.op)
        del trace[:]
    assert list(trace) == ["hook.end", "listener.before_save:3", "listener.after_save:3", "listener.end:3"]
    assert saver.ended == [0]


def test_events_and_log(program: Program, tmp_path: Any, events: Any, tf_log: Any) -> None:
    def train_with(folder: Any, async_save: bool) -> list[str]:
        tf_log.clear()
        saver = v1.train.Saver()
        hook = train.CheckpointSaverHook(str(folder), save_steps=2, saver=saver, async_save=async_save)
        with train.MonitoredSession(hooks=[hook]) as session:
            for _ in range(5):
                session.run(program.op)
        lines = [line for line in tf_log.messages if "heckpoint" in line and "deprecated" not in line]
        return [line.replace(str(folder), "") for line in lines]

    lines = [train_with(tmp_path / name, name == "background") for name in ("waited", "background")]
    assert sorted(lines[0]) == sorted(lines[1])
    written = [[e for e in events(tmp_path / name) if "CHECKPOINT" in e] for name in ("waited", "background")]
    assert written[0] == written[1] == [f"{step}:CHECKPOINT" for step in (0, 2, 4, 5)]


def test_one_write_at_a_time(program: Program, tmp_path: Any) -> None:
    """The next save waits for the one under way."""
    saver = SlowSaver()
    with train.MonitoredSession(hooks=[hook_for(tmp_path, saver, steps=2)]) as session:
        session.run(program.op)
        started = time.monotonic()
        threading.Timer(0.3, saver.go.set).start()
        session.run(program.op)
        assert time.monotonic() - started > 0.29
        session.run(program.op)
    assert saver.ended == [0, 2]
    assert os.path.basename(v1.train.latest_checkpoint(str(tmp_path))) == "model.ckpt-3"


def test_a_listener_requests_a_stop(program: Program, trace: Any, tmp_path: Any, wait_for: Any) -> None:
    listener = trace.listener("listener", after_save=lambda number, session, step: step >= 2)
    saver = SlowSaver()
    saver.go.set()
    hook = hook_for(tmp_path, saver, steps=2, listeners=[listener])
    runs = 0
    with train.MonitoredSession(hooks=[hook]) as session:
        while not session.should_stop():
            session.run(program.op)
            runs += 1
            wait_for(lambda: not writing())
            assert runs < 10
    assert 3 <= runs <= 5


def test_a_listener_that_looks_at_the_checkpoint(program: Program, trace: Any, tmp_path: Any) -> None:
    """When after_save is called, it is there."""
    seen = []

    def look(number: int, session: Any, step: Any) -> None:
        seen.append((int(step), os.path.basename(v1.train.latest_checkpoint(str(tmp_path)))))

    listener = trace.listener("listener", after_save=look)
    with train.MonitoredSession(hooks=[hook_for(tmp_path, None, steps=2, listeners=[listener])]) as session:
        for _ in range(5):
            session.run(program.op)
    assert seen == [(step, f"model.ckpt-{step}") for step in (0, 2, 4, 5)]


# What goes wrong.


def test_an_error_surfaces_at_the_next_step(program: Program, tmp_path: Any, wait_for: Any) -> None:
    saver = SlowSaver(error=OSError("the disk is full"))
    saver.go.set()
    hook = hook_for(tmp_path, saver, steps=2)
    runs = 0
    with pytest.raises(OSError, match="the disk is full"):
        with train.MonitoredSession(hooks=[hook]) as session:
            for _ in range(20):
                session.run(program.op)
                runs += 1
                wait_for(lambda: not writing())
    # Save 0 went well; save 2 failed after the second step.
    assert runs == 2
    assert os.path.basename(v1.train.latest_checkpoint(str(tmp_path))) == "model.ckpt-0"


def test_an_error_surfaces_in_end(program: Program, tmp_path: Any) -> None:
    saver = SlowSaver(error=OSError("the disk is full"))
    with pytest.raises(OSError, match="the disk is full"):
        with train.MonitoredSession(hooks=[hook_for(tmp_path, saver, steps=1)]) as session:
            threading.Timer(0.1, saver.go.set).start()
            session.run(program.op)
    assert saver.ended == [0, 1]


def test_a_loop_that_fails_waits_for_the_write(program: Program, tmp_path: Any, tf_log: Any) -> None:
    saver = SlowSaver()
    with pytest.raises(KeyError, match="the loop"):
        with train.MonitoredSession(hooks=[hook_for(tmp_path, saver, steps=100)]) as session:
            session.run(program.op)
            threading.Timer(0.3, saver.go.set).start()
            raise KeyError("the loop")
    assert saver.ended == [0]
    assert weights_in(tmp_path / "model.ckpt-0") == {0.0}


@pytest.mark.parametrize("steps", [0, 1])
def test_a_write_that_fails_after_the_loop_has_is_logged(
    program: Program, tmp_path: Any, tf_log: Any, steps: int, wait_for: Any
) -> None:
    saver = SlowSaver(error=OSError("the disk is full"))
    with pytest.raises(KeyError, match="the loop"):
        with train.MonitoredSession(hooks=[hook_for(tmp_path, saver, steps=1)]) as session:
            if steps:
                wait_for(lambda: saver.began)
                saver.go.set()
                session.run(program.op)
            else:
                # As if it were the second save: the first one goes well.
                wait_for(lambda: saver.began)
                saver.began.append(-1)
                saver.ended.append(-1)
                saver.go.set()
            raise KeyError("the loop")
    assert [line for line in tf_log.messages if f"The checkpoint of step {steps} could not be written" in line]


def test_a_preemption_while_it_is_written(program: Program, trace: Any, tmp_path: Any, wait_for: Any) -> None:
    """The session is made again once the checkpoint is there, and from it."""
    saver = SlowSaver()
    listener = trace.listener("listener")
    failures = [tf.errors.AbortedError(None, None, "preempted")]
    started_at = []

    class Preempted(v1.train.SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            started_at.append(int(session.run(program.step)))

        def before_run(self, run_context: Any) -> None:
            if saver.began[-1:] == [2] and failures:
                threading.Timer(0.2, saver.go.set).start()
                raise failures.pop()

    class Go(v1.train.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            # Later writes don't wait: their thread might begin to wait only after the next clear.
            if failures:
                saver.go.clear()

    hook = hook_for(tmp_path, saver, steps=2, listeners=[listener])
    saver.go.set()
    creator = train.ChiefSessionCreator(v1.train.Scaffold(saver=saver), checkpoint_dir=str(tmp_path))
    with train.MonitoredSession(creator, hooks=[Preempted(), Go(), hook]) as session:
        for number in range(6):
            if number == 0:
                wait_for(lambda: saver.ended == [0])
            if number == 2:
                wait_for(lambda: saver.began[-1:] == [2])
            session.run(program.op)
    assert failures == []
    assert started_at == [0, 2]
    assert saver.ended[:2] == [0, 2]
    assert os.path.basename(v1.train.latest_checkpoint(str(tmp_path))) == "model.ckpt-6"
    assert weights_in(tmp_path / "model.ckpt-6") == {6.0}
    assert trace[-1] == "listener.end:6"


# Where it is available.


def test_in_tensorflows_sessions_it_waits(program: Program, tmp_path: Any) -> None:
    saver = SlowSaver()
    with v1.train.MonitoredSession(hooks=[hook_for(tmp_path, saver)]) as session:
        for step in range(1, 4):
            session.run(program.op)
            newest = os.path.basename(v1.train.latest_checkpoint(str(tmp_path)))
            assert newest == f"model.ckpt-{step - step % 2}"
    assert saver.began == []


def test_monitored_training_session(program: Program, tmp_path: Any) -> None:
    with train.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), save_checkpoint_steps=3, save_checkpoint_secs=None, async_save=True
    ) as session:
        for _ in range(10):
            session.run(program.op)
    assert weights_in(tmp_path / "model.ckpt-10") == {10.0}
    with train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as session:
        assert session.run(program.step) == 10


@pytest.mark.parametrize("fails", [False, True])
def test_supervisor(program: Program, tmp_path: Any, fails: bool) -> None:
    saver = SlowSaver(error=OSError("the disk is full") if fails else None)
    saver.go.set()
    sv = train.Supervisor(
        logdir=str(tmp_path), saver=saver, save_model_secs=0.02, save_summaries_secs=0, async_save=True
    )

    def loop() -> None:
        with sv.managed_session() as session:
            while not sv.should_stop() and len(saver.ended) < 5:
                session.run(program.op)

    if fails:
        with pytest.raises(OSError, match="the disk is full"):
            loop()
        assert len(saver.ended) == 2
    else:
        loop()
        assert len(saver.ended) >= 5
    for step in saver.ended[-3:-1] if not fails else saver.ended[:1]:
        assert weights_in(tmp_path / f"model.ckpt-{step}") == {float(step)}


@pytest.fixture(autouse=True)
def _no_write_left() -> Iterator[None]:
    yield
    assert not writing()


def test_waiting_while_another_thread_begins_to_save(
    program: Program, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a Supervisor's thread does. What it begins isn't ended with it: the program waits for the file."""
    starting = threading.Event()
    daemons: list[bool] = []
    begin = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("save-"):
            daemons.append(thread.daemon)
            starting.set()
            time.sleep(0.3)
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    background = BackgroundSaver(v1.train.Saver())
    with fastsup.Session() as session:
        session.run(v1.global_variables_initializer())
        saves = threading.Thread(target=background.save, args=(session, str(tmp_path / "save"), 3), daemon=True)
        saves.start()
        assert starting.wait(30)
        assert background.wait() == str(tmp_path / "save-3")
        saves.join(30)
    assert daemons == [False]
