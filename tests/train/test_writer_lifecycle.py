"""What is open while a session's hooks write events, and what is left open when it has ended."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from fastsup import train

v1 = tf.compat.v1


def open_files(folder: Path) -> list[str]:
    """The files of a folder that this process has open."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if path.startswith(str(folder)):
            found.append(path)
    return found


def writer_threads() -> int:
    return sum(thread.name == "EventLoggerThread" for thread in threading.enumerate())


def steps_on_disk(folder: Path) -> list[int]:
    """The steps of all scalar summaries, in the order in which TensorBoard reads them."""
    return [
        event.step
        for path in sorted(folder.glob("*tfevents*"))
        for event in v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag == "loss"
    ]


@pytest.fixture(autouse=True)
def no_writers() -> Iterator[None]:
    v1.summary.FileWriterCache.clear()
    yield
    v1.summary.FileWriterCache.clear()


def build() -> Any:
    step = v1.train.get_or_create_global_step()
    v1.summary.scalar("loss", tf.cast(step, tf.float32))
    return v1.assign_add(step, tf.constant(1, tf.int64)).op


def session(folder: Path, **kwargs: Any) -> Any:
    return train.MonitoredTrainingSession(
        checkpoint_dir=str(folder), save_summaries_steps=1, log_step_count_steps=2, save_checkpoint_secs=600, **kwargs
    )


class Failing(train.SessionRunHook):
    """Raises in one of its callbacks."""

    def __init__(self, callback: str) -> None:
        def fail(*_args: Any) -> None:
            raise ValueError("broken hook")

        setattr(self, callback, fail)


def runs(folder: Path, op: Any, **kwargs: Any) -> None:
    with session(folder, **kwargs) as monitored:
        for _ in range(5):
            monitored.run(op)


def ends_normally(folder: Path, op: Any) -> None:
    runs(folder, op)


def step_fails(folder: Path, op: Any) -> None:
    with pytest.raises(ZeroDivisionError), session(folder) as monitored:
        for _ in range(5):
            monitored.run(op)
        raise ZeroDivisionError


def hook_fails(callback: str) -> Callable[[Path, Any], None]:
    def way(folder: Path, op: Any) -> None:
        with pytest.raises(ValueError, match="broken hook"):
            runs(folder, op, hooks=[Failing(callback)])

    way.__name__ = f"{callback}_fails"
    return way


def hook_stops(folder: Path, op: Any) -> None:
    with session(folder, hooks=[train.StopAtStepHook(num_steps=5)]) as monitored:
        while not monitored.should_stop():
            monitored.run(op)


def no_session(folder: Path, op: Any) -> None:
    """The session can't be made: a mistake in the program."""
    with pytest.raises((tf.errors.OpError, RuntimeError)):
        session(folder, scaffold=train.Scaffold(init_op=tf.debugging.Assert(False, ["no"], name="never")))


WAYS_OUT = [
    ends_normally, hook_stops, step_fails, no_session,
    *(hook_fails(name) for name in ("begin", "after_create_session", "before_run", "after_run", "end")),
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS_OUT, ids=lambda way: way.__name__)
def test_closed_on_every_way_out(way: Any, tmp_path: Path) -> None:
    threads = writer_threads()
    with tf.Graph().as_default():
        way(tmp_path, build())
    assert open_files(tmp_path) == []
    assert writer_threads() == threads
    written = steps_on_disk(tmp_path)
    assert written == sorted(written)
    if way in (ends_normally, hook_stops, step_fails):
        assert len(written) == 5


def test_the_next_session_writes_on(tmp_path: Path) -> None:
    """In the same second, too, in which a new file of TensorFlow's would get the name of the old one."""
    for _ in range(3):
        with tf.Graph().as_default():
            runs(tmp_path, build())
        assert open_files(tmp_path) == []
    assert steps_on_disk(tmp_path) == list(range(15)) or steps_on_disk(tmp_path) == list(range(1, 16))


def test_hooks_and_writers_can_be_used_again(tmp_path: Path) -> None:
    hook = v1.train.SummarySaverHook(save_steps=1, output_dir=str(tmp_path), scaffold=train.Scaffold())
    with tf.Graph().as_default():
        writer = v1.summary.FileWriterCache.get(str(tmp_path))
    for number in range(2):
        with tf.Graph().as_default():
            op = build()
            hook._scaffold = train.Scaffold()
            with train.MonitoredSession(train.ChiefSessionCreator(hook._scaffold), hooks=[hook]) as monitored:
                monitored.run(op)
        assert open_files(tmp_path) == []
        writer.add_summary(v1.Summary(value=[v1.Summary.Value(tag="loss", simple_value=1.0)]), 100 + number)
        assert v1.summary.FileWriterCache.get(str(tmp_path)) is writer
    writer.close()
    assert open_files(tmp_path) == []
    assert [step for step in steps_on_disk(tmp_path) if step >= 100] == [100, 101]
    assert len(steps_on_disk(tmp_path)) == 4


def test_open_as_long_as_another_session_writes(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        op = build()
        with session(tmp_path) as outer:
            outer.run(op)
            with tf.Graph().as_default():
                runs(tmp_path, build())
            assert open_files(tmp_path)
            outer.run(op)
    assert open_files(tmp_path) == []
    assert len(list(tmp_path.glob("*tfevents*"))) == 1
    assert len(steps_on_disk(tmp_path)) == 7


def test_a_writer_of_the_program_stays_open(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        op = build()
        writer = v1.summary.FileWriter(str(tmp_path))
        hook = train.SummarySaverHook(save_steps=1, summary_writer=writer, summary_op=v1.summary.merge_all())
        with pytest.raises(ZeroDivisionError), train.MonitoredSession(hooks=[hook]) as monitored:
            monitored.run(op)
            raise ZeroDivisionError
        assert open_files(tmp_path)
        assert len(steps_on_disk(tmp_path)) == 1
        writer.close()


def test_a_hook_that_cannot_tell_its_writer(tmp_path: Path) -> None:
    """Keeps no session from being closed, neither its own nor another one."""

    class Odd(train.SessionRunHook):
        @property
        def _summary_writer(self) -> Any:
            raise ValueError("not now")

    with tf.Graph().as_default():
        op = build()
        odd = train.MonitoredSession(hooks=[Odd()])
        with tf.Graph().as_default():
            runs(tmp_path, build())
        raw = odd.raw_session()
        odd.run(op)
        odd.close()
        assert raw._closed
    assert open_files(tmp_path) == []


def test_listeners_find_the_graph(tmp_path: Path) -> None:
    found = []

    class Listener(train.CheckpointSaverListener):
        def before_save(self, session: Any, global_step_value: Any) -> None:
            found.append((tmp_path / "graph.pbtxt").exists())

    with tf.Graph().as_default():
        build()
        hook = train.CheckpointSaverHook(str(tmp_path), save_steps=10, listeners=[Listener()])
        train.MonitoredSession(hooks=[hook]).close()
    assert found == [True]


def test_summaries_of_many_short_steps_are_all_there_in_their_order(graph: Any, tmp_path: Path) -> None:
    """They are written together, and those of somebody else's between them where they belong."""
    op = build()
    with session(tmp_path, hooks=[train.StopAtStepHook(num_steps=1000)]) as monitored:
        monitored.run_loop(op, steps=700)
        writer = v1.summary.FileWriterCache.get(str(tmp_path))
        writer.add_summary(v1.Summary(value=[v1.Summary.Value(tag="loss", simple_value=0.0)]), 10_000)
        monitored.run_loop(op)
    steps = steps_on_disk(tmp_path)
    assert sorted(steps) == [*range(1, 1001), 10_000]
    steps.remove(10_000)
    assert steps == sorted(steps)
