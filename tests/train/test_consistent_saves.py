"""Saves happen between two steps: all variables of a checkpoint are of one step, and nobody waits for ever for another.

`FASTSUP_STORM=long` has the training of the first test run for a minute.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import tensorflow as tf

import fastsup
from fastsup import train
from fastsup.checkpoint import durable

v1 = tf.compat.v1
SECS = 60.0 if os.environ.get("FASTSUP_STORM") == "long" else 3.0


class Model:
    """Eight variables that a step increments, in any order, so that all of them are always equal between two steps."""

    def __init__(self, size: int = 2000) -> None:
        self.step = v1.train.get_or_create_global_step()
        self.variables = [v1.get_variable(f"v{i}", [size], initializer=v1.zeros_initializer()) for i in range(8)]
        adds = [v1.assign_add(variable, tf.ones([size]), use_locking=True) for variable in self.variables]
        adds.append(v1.assign_add(self.step, tf.constant(1, tf.int64), use_locking=True))
        self.op = tf.group(*adds)
        self.saver = v1.train.Saver(max_to_keep=100_000)
        self.init = v1.global_variables_initializer()


@pytest.fixture
def model(graph: Any) -> Model:
    return Model()


@pytest.fixture
def session(model: Model) -> Iterator[Any]:
    with fastsup.Session() as opened:
        opened.run(model.init)
        yield opened


def checkpoints(folder: Any) -> list[str]:
    return sorted(
        os.path.join(folder, name.removesuffix(".index")) for name in os.listdir(folder) if name.endswith(".index")
    )


def values_of(path: str) -> set[float]:
    """The values that a checkpoint has for the variables, each of which should be the same."""
    reader = v1.train.NewCheckpointReader(path)
    return {
        float(value) for i in range(8) for value in numpy.unique(reader.get_tensor(f"v{i}"))
    } | {float(reader.get_tensor("global_step"))}  # fmt: skip


def until_saved(folder: Any) -> Iterator[None]:
    """Goes on for SECS, and then until there are six checkpoints, as a busy machine takes longer: a minute at most."""
    started = time.monotonic()
    while (passed := time.monotonic() - started) < SECS or (passed < 60 and len(checkpoints(folder)) < 6):
        yield


def torn(folder: Any) -> list[str]:
    return [path for path in checkpoints(folder) if len(values_of(path)) > 1]


def in_thread(graph: Any, body: Callable[[], Any]) -> threading.Thread:
    def run() -> None:
        with graph.as_default():
            body()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


class Steppers:
    """Threads that step as fast as they can, until the block ends."""

    def __init__(self, graph: Any, session: Any, op: Any, count: int = 2) -> None:
        self.done = threading.Event()
        self.graph, self.session, self.op, self.count = graph, session, op, count

    def step(self) -> None:
        while not self.done.is_set():
            self.session.run(self.op)

    def __enter__(self) -> None:
        self.threads = [in_thread(self.graph, self.step) for _ in range(self.count)]

    def __exit__(self, *error: Any) -> None:
        self.done.set()
        for thread in self.threads:
            thread.join()


# No torn checkpoint.


@pytest.mark.slow
def test_a_user_who_saves_while_threads_step(graph: Any, model: Model, session: Any, tmp_path: Any) -> None:
    """In ten seconds of the same program 9 of 171 checkpoints of TensorFlow's own session were torn."""
    with Steppers(graph, session, model.op):
        number = 0
        for _ in until_saved(tmp_path):
            # Without the global step in the name: that was read before the save.
            model.saver.save(session, str(tmp_path / "save"), global_step=number, write_meta_graph=False)
            number += 1
            time.sleep(0.05)
    assert len(checkpoints(tmp_path)) == number > 5
    assert torn(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("async_save", [False, True])
def test_a_supervisors_service(graph: Any, tmp_path: Any, async_save: bool) -> None:
    model = Model()
    sv = train.Supervisor(
        logdir=str(tmp_path), saver=model.saver, save_model_secs=0.05, save_summaries_secs=0, async_save=async_save
    )
    with sv.managed_session() as session:
        with Steppers(graph, session, model.op, count=1):
            for _ in until_saved(tmp_path):
                session.run(model.op)
    found = checkpoints(tmp_path)
    assert len(found) > 5
    assert torn(tmp_path) == []
    # Named by the step that they hold.
    assert all(values_of(path) == {float(path.rpartition("-")[2])} for path in found)


@pytest.mark.slow
@pytest.mark.parametrize("async_save", [False, True])
def test_a_hook_while_other_threads_step(graph: Any, tmp_path: Any, async_save: bool) -> None:
    model = Model()
    hook = train.CheckpointSaverHook(str(tmp_path), save_secs=0.05, saver=model.saver, async_save=async_save)
    with train.MonitoredSession(hooks=[hook]) as session:
        with Steppers(graph, session.raw_session(), model.op):
            for _ in until_saved(tmp_path):
                session.run(model.op)
    assert len(checkpoints(tmp_path)) > 5
    assert torn(tmp_path) == []


# Nobody waits for ever.


def test_a_step_that_never_ends(
    graph: Any, model: Model, session: Any, tmp_path: Any, tf_log: Any, wait_for: Any
) -> None:
    with tf.control_dependencies([v1.FIFOQueue(1, tf.float32, shapes=[()]).dequeue()]):
        stuck = v1.assign_add(model.variables[0], tf.ones([2000])).op
    failures: list[Any] = []

    def run_stuck() -> None:
        try:
            session.run(stuck)
        except tf.errors.CancelledError as error:
            failures.append(error)

    thread = in_thread(graph, run_stuck)
    wait_for(lambda: session.gate.running)
    session.gate.patience_secs = 0.3
    started = time.monotonic()
    model.saver.save(session, str(tmp_path / "save"), write_meta_graph=False)
    assert 0.3 <= time.monotonic() - started < 20
    assert [record for record in tf_log.messages if "its variables may come from different steps" in record]
    # Nor does it stop other steps.
    session.run(model.op)
    session.close()
    thread.join()
    assert len(failures) == 1


def test_steps_that_wait_for_each_other(graph: Any, model: Model, session: Any, tmp_path: Any, wait_for: Any) -> None:
    """The first waits for what the second brings; the second comes while a save holds steps back."""
    queue = v1.FIFOQueue(1, tf.float32, shapes=[()])
    with tf.control_dependencies([queue.dequeue()]):
        first = v1.assign_add(model.variables[0], tf.ones([2000])).op
    with tf.control_dependencies([queue.enqueue(1.0)]):
        second = v1.assign_add(model.variables[1], tf.ones([2000])).op
    session.gate.turn_secs = 0.2
    waits = in_thread(graph, lambda: session.run(first))
    wait_for(lambda: session.gate.running)
    started = time.monotonic()
    saves = in_thread(graph, lambda: model.saver.save(session, str(tmp_path / "save"), write_meta_graph=False))
    time.sleep(0.1)
    session.run(second)
    waits.join()
    saves.join()
    assert time.monotonic() - started < 20
    assert len(checkpoints(tmp_path)) == 1


def test_reads_and_enqueues_are_not_held_back(graph: Any, model: Model, session: Any) -> None:
    queue = v1.FIFOQueue(100, tf.float32, shapes=[()])
    enqueue, size = queue.enqueue(1.0), queue.size()
    read = model.variables[0].read_value()
    with session.gate:
        done = []

        def work() -> None:
            for _ in range(10):
                session.run(enqueue)
                session.run(read)
            done.append(session.run(size))

        in_thread(graph, work).join(60)
        assert done == [10]
        stepping = in_thread(graph, lambda: done.append(session.run(model.op)))
        stepping.join(0.3)
        assert len(done) == 1
    stepping.join()
    assert len(done) == 2


@pytest.mark.parametrize("executor", ["inline", "thread_pool"])
def test_a_save_inside_a_step(graph: Any, model: Model, tmp_path: Any, executor: str) -> None:
    """The step waits for the save, and the save, but not for ever, for the step."""
    session = fastsup.Session(executor=executor)
    session.run(model.init)
    saved: list[Any] = []

    def save() -> Any:
        with graph.as_default():
            saved.append(model.saver.save(session, str(tmp_path / "save"), write_meta_graph=False))
        return numpy.float32(1)

    with tf.control_dependencies([v1.py_func(save, [], tf.float32)]):
        saving_step = v1.assign_add(model.variables[0], tf.ones([2000])).op
    session.gate.patience_secs = 0.3
    session.run(saving_step)
    session.close()
    assert saved == [str(tmp_path / "save")]
    assert checkpoints(tmp_path) == saved


def test_a_save_between_two_steps_by_hand(model: Model, session: Any, tmp_path: Any) -> None:
    with session.gate:
        before = session.run(model.step)
        model.saver.save(session, str(tmp_path / "save"), global_step=before, write_meta_graph=False)
        session.run(model.op)
    assert values_of(str(tmp_path / "save-0")) == {0.0}
    assert session.run(model.step) == 1


# Its queue runner's thread is in the midst of a run when the session is closed, in TensorFlow too.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_synchronous_replicas_on_one_worker(graph: Any, tmp_path: Any) -> None:
    """Its token queue and its accumulators make steps wait for runs of another thread, in the midst of saves."""
    step = v1.train.get_or_create_global_step()
    weight = v1.get_variable("weight", [10], initializer=v1.zeros_initializer())
    optimizer = v1.train.SyncReplicasOptimizer(
        v1.train.GradientDescentOptimizer(0.1), replicas_to_aggregate=1, total_num_replicas=1
    )
    op = optimizer.minimize(tf.reduce_sum(tf.square(weight - 1.0)), global_step=step)
    hook = optimizer.make_session_run_hook(is_chief=True)
    saver = train.CheckpointSaverHook(str(tmp_path), save_steps=1)
    started = time.monotonic()
    with train.MonitoredSession(hooks=[hook, saver], stop_grace_period_secs=1) as session:
        for _ in range(20):
            session.run(op)
        reached = session.raw_session().run(step)
    assert reached >= 19
    assert time.monotonic() - started < 60


# On the disk before it is named.


class Order(list[str]):
    """In which order things happen to files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: OSError | None = None) -> None:
        sync, write_state = os.fsync, durable.write_state

        def note_sync(descriptor: int) -> None:
            name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
            # The new state file has its own name until it is complete.
            self.append("sync " + ("checkpoint" if name.startswith(".fastsup-") else name))
            if error is not None and name.endswith(".index"):
                raise error
            sync(descriptor)

        def note_state(*args: Any, **kwargs: Any) -> Any:
            self.append("state")
            return write_state(*args, **kwargs)

        monkeypatch.setattr(os, "fsync", note_sync)
        monkeypatch.setattr(durable, "write_state", note_state)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_checkpoint_that_another_task_has_written_elsewhere_is_reported(
    model: Model, session: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, tf_log: Any, elsewhere: bool
) -> None:
    """As when a parameter server has a directory of this name on its own disk."""
    if elsewhere:
        save = model.saver.save

        def save_elsewhere(*args: Any, **kwargs: Any) -> Any:
            path = save(*args, **kwargs)
            for name in tmp_path.glob("model.ckpt-1.[di]*"):
                name.unlink()
            return path

        monkeypatch.setattr(v1.train.Saver, "save", lambda saver, *args, **kwargs: save_elsewhere(*args, **kwargs))
    path = durable.save_durably(model.saver, session, str(tmp_path / "model.ckpt"), 1)
    warned = [message for message in tf_log.messages if "this process can't find it" in message]
    assert len(warned) == elsewhere
    assert all(message.startswith(f"{path} was saved, but") for message in warned)


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("async_save", [False, True])
def test_the_files_are_on_the_disk_before_the_state_file_names_them(
    graph: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, async_save: bool, sharded: bool
) -> None:
    Model()
    order = Order(monkeypatch)
    saver = v1.train.Saver(sharded=sharded)
    hook = train.CheckpointSaverHook(str(tmp_path), save_steps=10, saver=saver, async_save=async_save)
    with train.MonitoredSession(hooks=[hook]):
        pass
    ending, directory = ("index", "data-00000-of-00001", "meta"), f"sync {tmp_path.name}"
    before, after = order[: order.index("state")], order[order.index("state") + 1 :]
    # Each file once, then the names in the directory.
    assert {f"sync model.ckpt-0.{name}" for name in ending} == set(before[-len(ending) - 1 : -1])
    assert before[-1] == directory
    assert after == ["sync checkpoint", directory]


@pytest.mark.parametrize("async_save", [False, True])
def test_an_error_of_the_disk_surfaces(
    graph: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, async_save: bool
) -> None:
    model = Model()
    saver = v1.train.Saver()
    hook = train.CheckpointSaverHook(str(tmp_path), save_steps=2, saver=saver, async_save=async_save)
    with pytest.raises(tf.errors.UnknownError, match=r"ckpt-\d+\.\S+ can't be flushed to the disk; the disk"):
        with train.MonitoredSession(hooks=[hook]) as session:
            session.run(model.op)
            while v1.train.latest_checkpoint(str(tmp_path)) is None:
                time.sleep(0.01)
            order = Order(monkeypatch, OSError(errno.EIO, "the disk"))
            for _ in range(20):
                session.run(model.op)
                time.sleep(0.05)
    assert "state" not in order
    monkeypatch.undo()
    assert v1.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-0")
    assert saver.last_checkpoints == [str(tmp_path / "model.ckpt-0")]


def test_a_file_system_that_cant_is_no_error(model: Model, session: Any, tmp_path: Any, monkeypatch: Any) -> None:
    Order(monkeypatch, OSError(errno.EINVAL, "not here"))
    model.saver.save(session, str(tmp_path / "save"), write_meta_graph=False)
    assert v1.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "save")


def test_a_save_within_a_save_opens_nothing(graph: Any, model: Model, session: Any, wait_for: Any) -> None:
    """The steps of other threads wait until the outer one has ended."""
    done: list[int] = []
    with session.gate:
        with session.gate:
            pass
        step = in_thread(graph, lambda: (session.run(model.op), done.append(1)))
        time.sleep(0.2)
        assert session.gate.closed
        assert not done
    wait_for(lambda: done)
    step.join()
    assert not session.gate.closed
