"""Several threads in one monitored session."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import fastsup

v1 = tf.compat.v1

THREADS = 8


def in_threads(body: Callable[[int], None]) -> None:
    """Calls it in each thread with the thread's number, all at once, and raises what one of them has raised."""
    together = threading.Barrier(THREADS)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        together.wait(60)
        try:
            body(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if errors:
        raise errors[0]


@pytest.mark.parametrize("python_hook", [True, False])
@pytest.mark.timeout(170)
def test_runs_that_move_the_step_differently(impl: Any, graph: Any, python_hook: bool) -> None:
    """In some the step is counted, in others it has to be fetched, and each run has to know which it was itself."""
    step = v1.train.get_or_create_global_step()
    values = tf.constant([1.0, 2.0]) * 2
    one = v1.assign_add(step, 1, use_locking=True)
    with tf.control_dependencies([v1.assign_add(step, 1, use_locking=True)]):
        two = tf.group(v1.assign_add(step, 1, use_locking=True))
    seen = []

    class Asks(v1.train.SessionRunHook):  # type: ignore[misc]
        def before_run(self, run_context: Any) -> Any:
            return v1.train.SessionRunArgs({"values": values})

        def after_run(self, run_context: Any, run_values: Any) -> None:
            seen.append(run_values.results["values"].tolist())

    hooks = [
        impl.train.StopAtStepHook(last_step=10**9),
        impl.train.StepCounterHook(every_n_steps=10**6, output_dir=None),
    ]
    hooks += [Asks()] if python_hook else [impl.train.NanTensorHook(values[0])]
    runs = 400
    fetches = [one, [two, values], values, values]
    with impl.train.MonitoredSession(hooks=hooks) as session:

        def work(number: int) -> None:
            for i in range(runs):
                result = session.run(fetches[(number + i) % 4])
                if fetches[(number + i) % 4] is values:
                    assert result.tolist() == [2.0, 4.0]

        in_threads(work)
        moved = session.run_step_fn(lambda step_context: step_context.session.run(step))
    assert moved == THREADS * runs // 4 * 3
    assert seen == ([[2.0, 4.0]] * (THREADS * runs) if python_hook else [])


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
@pytest.mark.timeout(170)
def test_each_gets_what_it_fetches_from_the_first_run_on(impl: Any) -> None:
    """While threads make plans at once, and executors are chosen: each thread begins with another run."""

    def wrong_results() -> list[Any]:
        step = v1.train.get_or_create_global_step()
        one = v1.assign_add(step, 1, use_locking=True).op
        values = [tf.constant([float(i), 2.0]) * 2 for i in range(THREADS)]
        hooks = [impl.train.StopAtStepHook(last_step=10**9), impl.train.NanTensorHook(values[0][1])]
        wrong = []
        with impl.train.MonitoredSession(hooks=hooks) as session:

            def work(number: int) -> None:
                for i in range(24):
                    which = (number + i) % THREADS
                    if i % 3 == 0:
                        session.run(one)
                    result = session.run(values[which])
                    if np.shape(result) != (2,) or result.tolist() != [2.0 * which, 4.0]:
                        wrong.append((which, result))

            in_threads(work)
            moved = session.run_step_fn(lambda step_context: step_context.session.run(step))
        assert moved == THREADS * 8
        return wrong

    for _ in range(40):
        with tf.Graph().as_default():
            assert wrong_results() == []


def test_a_profile_of_them(graph: Any, tmp_path: Path) -> None:
    """Each hook is known once, and is left as it was."""

    class Hook(v1.train.SessionRunHook):  # type: ignore[misc]
        def before_run(self, run_context: Any) -> None:
            pass

    step = v1.assign_add(v1.train.get_or_create_global_step(), 1, use_locking=True)
    profiler = fastsup.HookProfiler()
    saver = fastsup.train.CheckpointSaverHook(str(tmp_path), save_steps=10**6)
    with fastsup.train.MonitoredSession(hooks=[Hook(), saver], profiler=profiler) as session:
        in_threads(lambda number: [session.run(step) for _ in range(100)] and None)
    calls = {row.owner: row.times.calls for row in profiler.report().rows if row.phase == "before_run"}
    assert calls.pop("Hook") == THREADS * 100
    assert set(calls) <= {"CheckpointSaverHook"}
    assert "_save" not in vars(saver)


@pytest.fixture
def slow() -> SimpleNamespace:
    """`.op(value)`: an op that gives the value once `.go_on` is set, fails on a negative one, and sets `.begun`."""
    begun, go_on = threading.Event(), threading.Event()

    def wait(value: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        if value < 0:
            raise ValueError("negative")
        return value

    return SimpleNamespace(op=lambda value: v1.py_func(wait, [value], tf.int64), begun=begun, go_on=go_on)


def test_hooks_that_come_while_a_run_is_under_way(graph: Any, slow: Any) -> None:
    """They watch a value, which that run hasn't fetched for them."""
    loss = tf.constant(1.0)
    op = slow.op(tf.constant(3, tf.int64))
    inner = fastsup.train.HookedSession(fastsup.Session(), [fastsup.train.NanTensorHook(loss)])
    results = []
    thread = threading.Thread(target=lambda: results.append(inner.run(op)))
    thread.start()
    try:
        assert slow.begun.wait(60)
        inner._hooks.extend(fastsup.train.NanTensorHook(loss) for _ in range(200))
        assert inner.run(loss) == 1.0
    finally:
        slow.go_on.set()
        thread.join()
    assert results == [3]
    inner.close()


def test_an_error_is_told_with_its_own_runs_context(graph: Any, slow: Any) -> None:
    told = []

    class Hook(v1.train.SessionRunHook):  # type: ignore[misc]
        def before_run(self, run_context: Any) -> None:
            pass

        def on_error(self, run_context: Any, exception: BaseException) -> None:
            told.append(run_context.original_args.feed_dict)

    value = v1.placeholder(tf.int64, [])
    op = slow.op(value)
    one = tf.constant(1)
    v1.train.get_or_create_global_step()
    with fastsup.train.MonitoredSession(hooks=[Hook()]) as session:

        def fail() -> None:
            with pytest.raises(tf.errors.OpError, match="negative"):
                session.run(op, {value: -1})

        thread = threading.Thread(target=fail)
        thread.start()
        try:
            assert slow.begun.wait(60)
            session.run(one)
        finally:
            slow.go_on.set()
            thread.join()
    assert told == [{value: -1}]


@pytest.mark.slow
@pytest.mark.parametrize("python_hook", [True, False])
def test_one_that_another_thread_closes(python_hook: bool, hasty: None) -> None:
    """The thread that runs steps gets the error of a closed session, or that of a cancelled step."""

    class Asks(v1.train.SessionRunHook):  # type: ignore[misc]
        def before_run(self, run_context: Any) -> None:
            pass

    ends = []
    for _ in range(25):
        with tf.Graph().as_default():
            op = v1.assign_add(v1.train.get_or_create_global_step(), 1, use_locking=True).op
            hooks = [fastsup.train.StopAtStepHook(last_step=10**9)] + ([Asks()] if python_hook else [])
            session = fastsup.train.MonitoredSession(hooks=hooks)
            has_begun = threading.Event()

            def work(session: Any = session, op: Any = op, has_begun: Any = has_begun) -> None:
                try:
                    while True:
                        session.run(op)
                        has_begun.set()
                except Exception as error:
                    ends.append(error)

            thread = threading.Thread(target=work)
            thread.start()
            assert has_begun.wait(60)
            session.close()
            thread.join(60)
    assert len(ends) == 25
    assert all(isinstance(end, (RuntimeError, tf.errors.CancelledError)) for end in ends), ends


@pytest.mark.parametrize("name", ["run", "run_without_hooks", "run_loop"])
def test_a_run_after_the_close(graph: Any, name: str) -> None:
    op = v1.assign_add(v1.train.get_or_create_global_step(), 1, use_locking=True).op
    session = fastsup.train.MonitoredSession()
    session.close()
    with pytest.raises(RuntimeError, match=r"^Attempted to use a closed Session\.$") as raised:
        getattr(session, name)(op)
    assert isinstance(raised.value, AttributeError), "TensorFlow's error"
