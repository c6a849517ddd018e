"""Which executor a trial chooses, how long it takes, when it is repeated, and what a session says about it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import fastsup
from fastsup.core.sessions import PlanExecutor
from fastsup.runtime import trial as trials
from fastsup.runtime.trial import Trial

tf1 = tf.compat.v1

V1 = os.environ.get("FASTSUP_TEST_WORLD") == "v1"


class Runs:
    """A trial fed with made-up durations.

    Args:
      pool_secs: function of the run's number that gives the seconds of a run on the pool.
      inline_secs: the same of the calling thread.
      remote: whether the engine is remote.
      compile_secs: how long compiling takes.
    """

    def __init__(
        self,
        pool_secs: Callable[[int], float],
        inline_secs: Callable[[int], float],
        remote: bool = False,
        compile_secs: float = 0.0,
    ) -> None:
        self.pool, self.inline = object(), object()
        self.secs = {id(self.pool): pool_secs, id(self.inline): inline_secs}
        self.chosen: list[str] = []
        self.compiled = 0
        self.has_room = True
        self.order: list[str] = []
        self.trial = Trial(
            self.pool,  # type: ignore[arg-type]
            self.compile_inline,  # type: ignore[arg-type]
            remote,
            lambda trial: self.chosen.append(trial.executor),
            compile_secs,
        )

    def compile_inline(self) -> object | None:
        self.compiled += self.has_room
        return self.inline if self.has_room else None

    def until_settled(self) -> str:
        """The mode that is chosen."""
        for i in range(2000):
            candidate = self.trial.next()
            self.order.append("pool" if candidate is self.pool else "inline")
            chosen = self.trial.record(candidate, self.secs[id(candidate)](i))
            if chosen is not None:
                assert chosen is (self.inline if self.trial.executor == "inline" else self.pool)
                assert not self.trial.on_trial
                if not self.trial.is_open:
                    return self.trial.executor
                self.order += ["pool"] * self.trial.runs_until_look  # The plan runs what was returned, unwatched.
                self.trial.recheck()
        pytest.fail("2,000 runs have settled nothing")


def always(seconds: float) -> Callable[[int], float]:
    return lambda i: seconds


@pytest.mark.parametrize(
    ("pool_micros", "inline_micros", "expected"),
    [
        (60, 20, "inline"),
        (60, 50, "inline"),  # Clearly faster, if by less than a quarter.
        (60, 56, "inline"),
        (60, 60, "thread_pool"),
        (60, 90, "thread_pool"),
        (400, 300, "inline"),
        (400, 390, "thread_pool"),  # Close, and a wrong choice would cost more than TensorFlow's session does.
        (400, 800, "thread_pool"),
    ],
)
def test_choice(pool_micros: float, inline_micros: float, expected: str) -> None:
    runs = Runs(always(pool_micros * 1e-6), always(inline_micros * 1e-6))
    assert runs.until_settled() == expected
    assert runs.chosen == [expected]
    assert runs.trial.seconds == pytest.approx((inline_micros if expected == "inline" else pool_micros) * 1e-6)


@pytest.mark.parametrize(("inline_micros", "expected"), [(1000, "thread_pool"), (990, "thread_pool"), (900, "inline")])
def test_choice_on_a_remote_engine(inline_micros: float, expected: str) -> None:
    """The call itself takes most of the time: a smaller part decides."""
    runs = Runs(always(500e-6), always(inline_micros / 2 * 1e-6), remote=True)
    assert runs.until_settled() == expected


def test_a_clear_case_is_settled_soon_and_a_close_one_later() -> None:
    clear, close = Runs(always(60e-6), always(20e-6)), Runs(always(60e-6), always(56e-6))
    clear.until_settled()
    close.until_settled()
    assert len(clear.order) < 120
    assert 2 * len(clear.order) < len(close.order) < 600


def test_a_busy_machine_decides_nothing() -> None:
    """A quarter of the time slowed down fourfold seldom decides, whichever executor it hits; a look mends that."""
    outcomes = []
    for seed in range(100):
        dice = random.Random(seed)
        factors = [dice.choice([1.0, 1.0, 1.0, 4.0]) for _ in range(2000 // 16 + 1)]
        runs = Runs(
            lambda i, factors=factors: 50e-6 * factors[i // 16],  # type: ignore[misc]
            lambda i, factors=factors: 30e-6 * factors[i // 16],  # type: ignore[misc]
        )
        outcomes.append(runs.until_settled())
    assert outcomes.count("inline") >= 98


def test_single_slow_runs_do_not_count() -> None:
    runs = Runs(lambda i: 50e-6, lambda i: 5e-3 if i % 8 == 7 else 30e-6)
    assert runs.until_settled() == "inline"


@pytest.mark.parametrize(("micros", "at_least", "at_most"), [(5000, 4, 4), (900, 5, 20)])
def test_a_heavy_step_is_not_tried_elsewhere(micros: float, at_least: int, at_most: int) -> None:
    runs = Runs(always(micros * 1e-6), always(1e-6))
    assert runs.until_settled() == "thread_pool"
    assert runs.compiled == 0
    assert at_least <= len(runs.order) <= at_most


def test_first_runs_that_a_busy_machine_slows_down() -> None:
    """A light step isn't taken for a heavy one by its first runs."""
    runs = Runs(lambda i: 1e-3 if i < 6 else 60e-6, always(20e-6))
    assert runs.until_settled() == "inline"


@pytest.mark.parametrize("compile_secs", [0.001, 0.017, 0.2])
def test_a_trial_waits_until_the_runs_have_saved_what_compiling_costs(compile_secs: float) -> None:
    """Against TensorFlow's own session, which takes at least 50 microseconds longer for a run."""
    runs = Runs(always(60e-6), always(20e-6), compile_secs=compile_secs)
    for _ in range(4):
        assert runs.trial.is_open
        settled = runs.trial.record(runs.trial.next(), 60e-6)
    assert settled is runs.pool
    assert (runs.trial.is_open, runs.trial.on_trial, runs.trial.executor) == (True, False, "thread_pool")
    assert runs.trial.runs_until_look == pytest.approx(compile_secs / 50e-6, abs=1)
    assert runs.compiled == 0
    runs.trial.recheck()
    assert runs.compiled == 1
    assert runs.until_settled() == "inline"
    assert not runs.trial.is_open
    assert runs.chosen == ["inline"]
    runs.trial.recheck()
    assert (runs.until_settled(), runs.compiled) == ("inline", 1)


def test_a_trial_without_room_waits_on() -> None:
    runs = Runs(always(60e-6), always(20e-6), compile_secs=0.01)
    runs.has_room = False
    for _ in range(4):
        runs.trial.record(runs.trial.next(), 60e-6)
    for _ in range(3):
        assert runs.trial.runs_until_look == 200
        runs.trial.recheck()
        assert not runs.trial.on_trial
        assert runs.trial.next() is runs.pool
    runs.has_room = True
    runs.trial.recheck()
    assert runs.until_settled() == "inline"


def test_a_step_that_becomes_another_one_while_its_trial_waits() -> None:
    runs = Runs(always(60e-6), always(20e-6), compile_secs=0.01)
    for _ in range(4):
        runs.trial.record(runs.trial.next(), 60e-6)
    runs.secs = {id(runs.pool): always(5e-3), id(runs.inline): always(8e-3)}
    runs.trial.restart()
    assert runs.trial.on_trial
    assert runs.until_settled() == "thread_pool"
    assert (runs.compiled, runs.chosen) == (0, ["thread_pool"])


def test_a_look_mends_a_wrong_choice() -> None:
    runs = Runs(always(60e-6), always(90e-6))
    assert runs.until_settled() == "thread_pool"
    runs.secs[id(runs.inline)] = always(20e-6)
    runs.trial.recheck()
    assert runs.trial.on_trial
    assert runs.until_settled() == "inline"
    assert runs.chosen == ["thread_pool", "inline"]
    assert runs.compiled == 1


def test_a_look_that_confirms_the_choice_is_short() -> None:
    runs = Runs(always(60e-6), always(20e-6))
    runs.until_settled()
    for _ in range(3):
        runs.order.clear()
        runs.trial.recheck()
        assert runs.until_settled() == "inline"
        assert runs.order.count("pool") <= 16
    assert runs.chosen == ["inline"]  # Said once.


@pytest.mark.parametrize("inline_micros", [3, 40, 120])
def test_looks_take_a_small_part_of_the_time(inline_micros: float) -> None:
    """One hundredth of the runs before them, at the most, and less each time."""
    runs = Runs(always(60e-6), always(inline_micros * 1e-6))
    runs.until_settled()
    best = min(60e-6, inline_micros * 1e-6)
    distances = []
    for _ in range(4):
        distances.append(runs.trial.runs_until_look)
        runs.order.clear()
        runs.trial.recheck()
        runs.until_settled()
        spent = runs.order.count("pool") * 60e-6 + runs.order.count("inline") * inline_micros * 1e-6
        if inline_micros != 40:
            assert spent - len(runs.order) * best <= 0.011 * best * distances[-1]
    assert distances == [distances[0] * 2**i for i in range(4)]
    assert distances[0] >= 1000


def test_a_step_that_becomes_heavy() -> None:
    runs = Runs(always(60e-6), always(20e-6))
    runs.until_settled()
    runs.secs = {id(runs.pool): always(5e-3), id(runs.inline): always(8e-3)}
    runs.trial.restart()
    assert runs.until_settled() == "thread_pool"
    assert runs.chosen == ["inline", "thread_pool"]


def test_a_run_of_another_thread_that_ends_late() -> None:
    """It belongs to no block of the executor that is tried now."""
    runs = Runs(always(60e-6), always(20e-6))
    assert runs.trial.record(runs.inline, 1.0) is None  # type: ignore[arg-type]
    assert runs.until_settled() == "inline"
    assert runs.trial.record(runs.pool, 1.0) is None  # type: ignore[arg-type]
    assert runs.trial.executor == "inline"


# In sessions.


@pytest.fixture
def quick_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials that every step passes as a light one, at once, and in which the calling thread wins."""
    monkeypatch.setattr(trials, "_SAVED_SECS", 1e9)
    monkeypatch.setattr(trials, "_HEAVY_STEP_SECS", 60.0)
    monkeypatch.setattr(trials, "_MOST_PAIRS", 1)
    monkeypatch.setattr(trials, "_VOTES", 0)
    monkeypatch.setattr(Trial, "_limit", lambda self: 1e9)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(trials.logging, "info", lambda text, *args: lines.append(text % args))
    return lines


def network() -> tuple[Any, Any, Any]:
    x = tf1.placeholder(tf.float32, [None, 3], name="x")
    loss = tf.reduce_sum(tf.abs(x), name="loss")
    return x, loss, tf.group(loss, name="train")


def test_executor_info(graph: tf.Graph, quick_trials: None, logged: list[str]) -> None:
    x, loss, train = network()
    with fastsup.Session() as session:
        assert session.executor_info() == []
        session.run({"a": [loss, train]}, {x: np.ones((1, 3))})
        before = PlanExecutor(("loss:0", "train"), ("x:0",), "thread_pool", True, None)
        assert session.executor_info() == [before]
        assert logged == []
        for _ in range(60):
            session.run({"a": [loss, train]}, {x: np.ones((1, 3))})
        session.run("train", {"x:0": np.ones((1, 3))})
        settled, other = session.executor_info()
        assert settled[:4] == (("loss:0", "train"), ("x:0",), "inline", False)
        assert 0 < settled.seconds < 10
        assert other == PlanExecutor(("train",), ("x:0",), "thread_pool", True, None)
    assert session.executor_info() == []
    (line,) = logged
    assert line.startswith("Executor of run([loss, train]) with 1 feed: inline (")
    assert "a run; thread_pool" in line
    assert line.endswith(" µs).")


@pytest.mark.parametrize("executor", ["thread_pool", "inline", "single_threaded"])
def test_executor_info_of_a_forced_executor(graph: tf.Graph, executor: str, logged: list[str]) -> None:
    _, loss, _ = network()
    with fastsup.Session(executor=executor) as session:
        for _ in range(200):
            session.run(loss, {"x:0": np.ones((1, 3))})
        assert session.executor_info() == [PlanExecutor(("loss:0",), ("x:0",), executor, False, None)]
    assert logged == []


def test_executor_info_where_auto_has_chosen_for_the_session(graph: tf.Graph) -> None:
    total = tf.constant(1.0) + 2.0
    graph.finalize()
    with fastsup.Session() as session:
        session.run(total)
        assert [each.executor for each in session.executor_info()] == ["single_threaded"]


def test_executor_info_of_what_may_not_run_inline(graph: tf.Graph) -> None:
    doubled = tf1.py_func(lambda x: 2.0 * x, [tf.constant(1.0, tf.float64)], tf.float64)
    with fastsup.Session() as session:
        session.run(doubled)
        assert session.executor_info() == [PlanExecutor((doubled.name,), (), "thread_pool", False, None)]


def test_no_trial_of_what_writes_a_checkpoint(graph: tf.Graph, tmp_path: Any) -> None:
    variable = tf1.get_variable("v", initializer=1.0, use_resource=True)
    saver = tf1.train.Saver()
    with fastsup.Session() as session:
        session.run(variable.initializer)
        saver.save(session, str(tmp_path / "model"))
        of_save = session.executor_info()[-1]
    assert "save" in of_save.fetches[0]
    assert of_save[2:] == ("thread_pool", False, None)


@pytest.mark.parametrize("kind", ["MonitoredSession", "SingularMonitoredSession"])
def test_executor_info_of_monitored_sessions(graph: tf.Graph, kind: str) -> None:
    tf1.train.get_or_create_global_step()
    train = tf.no_op(name="train")
    with getattr(fastsup.train, kind)() as session:
        session.run(train)
        (of_train,) = (each for each in session.executor_info() if each.fetches == ("train",))
        # Under TF 1 behaviour the global step is a reference variable, which the single-threaded executor refuses.
        assert of_train == PlanExecutor(("train",), (), "thread_pool" if V1 else "single_threaded", V1, None)
        assert session.executor_info() == session.raw_session().executor_info()
    assert session.executor_info() == []


def test_nothing_is_compiled_twice_for_a_few_runs(graph: tf.Graph, compiled: list[bytes], monkeypatch: Any) -> None:
    """Variables that are read in turns, say."""
    monkeypatch.setattr(trials, "_HEAVY_STEP_SECS", 60.0)
    monkeypatch.setattr(
        trials, "_SAVED_SECS", 1e-6
    )  # So that compiling, in less than a millisecond, is worth 100 runs.
    reads = [tf.constant(float(i)) + 1.0 for i in range(20)]
    with fastsup.Session() as session:
        for _ in range(12):
            for i, read in enumerate(reads):
                assert session.run(read) == i + 1
        assert len(compiled) == 20
        assert {(each.executor, each.on_trial) for each in session.executor_info()} == {("thread_pool", True)}
        monkeypatch.undo()
        # How many runs are worth it depends on how long compiling takes here, now.
        for run in range(400_000):
            session.run(reads[0])
            if run % 10_000 == 9_999 and not all(each.on_trial for each in session.executor_info()):
                break
        assert [each.on_trial for each in session.executor_info()].count(False) == 1


def test_a_session_looks_again(graph: tf.Graph, quick_trials: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_FEWEST_RUNS", 10)
    monkeypatch.setattr(trials, "_LOOK_SHARE", 1e9)
    ended: list[int] = []
    looks: list[int] = []

    def recheck(self: Trial, begin: Any = Trial.recheck) -> None:
        looks.append(len(ended))
        begin(self)

    monkeypatch.setattr(Trial, "recheck", recheck)
    _, loss, _ = network()
    with fastsup.Session() as session:
        for i in range(200):
            session.run(loss, {"x:0": np.ones((1, 3))})
            ended.append(i)
    # The trial has four runs on the pool and two blocks of 16; a look has two blocks.
    assert looks == [36 + 10, 36 + 10 + 32 + 20, 36 + 10 + 32 + 20 + 32 + 40]


@pytest.mark.parametrize("shape", [[None, 3], None])
def test_more_rows_make_another_step(graph: tf.Graph, quick_trials: None, shape: Any) -> None:
    x = tf1.placeholder(tf.float32, shape)
    loss = tf.reduce_sum(x)
    with fastsup.Session() as session:

        def on_trial(rows: int, runs: int = 1) -> bool:
            for _ in range(runs):
                assert session.run(loss, {x: np.ones((rows, 3), np.float32)}) == rows * 3
            (info,) = session.executor_info()
            return bool(info.on_trial)

        assert not on_trial(rows=1, runs=60)
        assert not on_trial(rows=4)
        assert on_trial(rows=1000)
        assert not on_trial(rows=1000, runs=60)
        assert not on_trial(rows=1)
        assert not on_trial(rows=4000)
        assert on_trial(rows=5000)
