"""Profiles of programs with several sessions and several sets of fetches: each has its own rows."""

from __future__ import annotations

import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import attrs
import pytest
import tensorflow as tf

import fastsup
from fastsup import HookProfiler
from fastsup.core import StepLoop
from fastsup.profile.recording.statistics import describe
from fastsup.profile.report import Report

v1 = tf.compat.v1

PlanExecutor = namedtuple("PlanExecutor", "fetches feeds executor on_trial seconds")


class Own(v1.train.SessionRunHook):  # type: ignore[misc]
    """Is called in every run."""

    def after_run(self, run_context: Any, run_values: Any) -> None:
        pass


def runtime(report: Report) -> dict[tuple[str, str], int]:
    return {(row.session, row.detail): row.times.calls for row in report.rows if row.phase == "runtime"}


def assert_adds_up(report: Report) -> None:
    parts = sum(row.times.total_ns for row in report.rows) + report.profiler_ns + report.unaccounted_ns
    assert parts == pytest.approx(report.wall_ns, abs=10)


def test_each_set_of_fetches_has_its_row(program: Any) -> None:
    model = program()
    profiler = HookProfiler()
    with fastsup.train.SingularMonitoredSession(hooks=[Own()], profiler=profiler) as session:
        for _ in range(6):
            session.run(model.loss)
            session.run([model.step, model.loss])
        session.run({"loss": model.loss})
        inside = runtime(profiler.report())
    report = profiler.report()
    (name,) = [part.name for part in report.sessions]
    assert runtime(report) == inside
    assert inside == {(name, "Sum"): 6, (name, "[GradientDescent, Sum]"): 6, (name, "{loss: Sum}"): 1}
    assert report.sessions[0].runs == 13
    assert_adds_up(report)
    text = profiler.table()
    assert "runtime Sum" in text
    assert "runtime [GradientDescent, Sum]" in text
    assert max(map(len, text.splitlines())) <= 80


def test_sessions_are_told_apart_by_the_lines_that_open_them(program: Any) -> None:
    """And hooks of one class by their sessions, without numbers; sessions of one line are one."""

    def train(steps: int) -> None:
        with tf.Graph().as_default():
            model = program()
            with fastsup.train.MonitoredTrainingSession(hooks=[Own()]) as session:
                for _ in range(steps):
                    session.run(model.step)

    with HookProfiler() as profiler:
        for _ in range(3):
            train(4)
        with tf.Graph().as_default():
            model = program()
            with fastsup.train.SingularMonitoredSession(hooks=[Own()]) as session:
                session.run(model.loss)
        StepLoop(int, max_steps=5).run()
    report = profiler.report()
    parts = {part.kind: part for part in report.sessions}
    assert {kind: (part.sessions, part.runs, part.role) for kind, part in parts.items()} == {
        "MonitoredTrainingSession": (3, 12, "train"),
        "SingularMonitoredSession": (1, 1, "run"),
        "StepLoop": (1, 5, "train"),
    }
    training = parts["MonitoredTrainingSession"]
    assert training.name.startswith("MonitoredTrainingSession (train), test_by_session.py:")
    own = [(row.session, row.owner, row.times.calls) for row in report.rows if row.phase == "after_run"]
    assert sorted(own) == sorted([
        (training.name, "Own", 12), (parts["SingularMonitoredSession"].name, "Own", 1),
    ])  # fmt: skip
    assert_adds_up(report)
    assert f"{training.name}, 3 times: 12 runs" in profiler.table()


def test_two_callers_of_one_function_open_two_sessions(program: Any) -> None:
    def use(steps: int) -> None:
        with tf.Graph().as_default():
            model = program()
            with fastsup.train.SingularMonitoredSession() as session:
                for _ in range(steps):
                    session.run(model.step)

    with HookProfiler() as profiler:
        use(2)
        use(3)
    names = [part.name for part in profiler.report().sessions]
    assert len(names) == 2
    assert {part.runs for part in profiler.report().sessions} == {2, 3}
    assert sorted(names)[1] == f"{sorted(names)[0]} #2"


def test_sessions_alive_at_once_keep_their_rows_apart(program: Any) -> None:
    with HookProfiler() as profiler:
        first_model = program()
        first = fastsup.train.SingularMonitoredSession(hooks=[Own()])
        with tf.Graph().as_default():
            second_model = program()
            second = fastsup.train.SingularMonitoredSession(hooks=[Own()])
        for _ in range(5):
            first.run([first_model.step, first_model.loss])
            second.run([second_model.loss, second_model.step])
            second.run_loop(second_model.step, steps=3)
        second.close()
        first.close()
    report = profiler.report()
    by_session: dict[str, dict[str, int]] = {}
    for row in report.rows:
        if row.session:
            phases = by_session.setdefault(row.session, {})
            phases[row.phase] = phases.get(row.phase, 0) + row.times.calls
    one, other = sorted(by_session.values(), key=lambda phases: phases["runtime"])
    assert (one["runtime"], one["after_run"], one["fetch conversion"]) == (5, 5, 5)
    assert (other["runtime"], other["after_run"], other["fetch conversion"]) == (20, 20, 20)
    assert one["plan making"] >= 1
    assert other["plan making"] >= 2
    assert_adds_up(report)


def test_supervisor(program: Any, tmp_path: Path) -> None:
    model = program()
    profiler = HookProfiler()
    supervisor = fastsup.train.Supervisor(logdir=str(tmp_path), profiler=profiler)
    with supervisor.managed_session() as session:
        for _ in range(4):
            session.run([model.step, model.loss])
    (part,) = profiler.report().sessions
    assert part.name.startswith("Supervisor.managed_session (train), test_by_session.py:")
    assert part.runs == 4


class Evaluating(v1.train.CheckpointSaverListener):  # type: ignore[misc]
    """Opens its own session after each save."""

    def after_save(self, session: Any, global_step_value: Any) -> None:
        with tf.Graph().as_default():
            sum_of_many = tf.reduce_sum(tf.sort(tf.random.stateless_uniform([50_000], [1, 2])))
            with fastsup.train.SingularMonitoredSession() as session:
                for _ in range(10):
                    session.run(sum_of_many)
                    # The listener takes most of the program's time, also on a busy machine.
                    time.sleep(0.01)


def test_a_listener_that_evaluates_is_named(program: Any, tmp_path: Path) -> None:
    """Not the hook that it is of; with the time of the session that it opens, which has its own rows."""
    model = program()
    with HookProfiler() as profiler:
        saver = fastsup.train.CheckpointSaverHook(str(tmp_path), save_steps=50, listeners=[Evaluating()])
        with fastsup.train.SingularMonitoredSession(hooks=[saver]) as session:
            session.run_loop(model.step, steps=100)
    report = profiler.report()
    listeners = [row for row in report.rows if row.phase == "listener"]
    assert [(row.owner, row.detail) for row in listeners] == [("CheckpointSaverHook", "Evaluating")]
    inner = [part for part in report.sessions if part.within is not None]
    assert [part.within[1:] for part in inner if part.within] == [("CheckpointSaverHook", "listener", "Evaluating")]
    assert report.advice().startswith("Look first at the listener Evaluating of CheckpointSaverHook: ")
    assert_adds_up(report)


def test_executors_of_plans_are_in_the_profile(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the session tells of them when it ends, before it lets its plans go; and while it is open."""

    def executor_info(session: Any) -> list[Any]:
        return [
            PlanExecutor(("Sum:0",), (), "inline", False, 2e-6),
            PlanExecutor(("GradientDescent", "Sum:0"), ("x:0",), "thread_pool", True, None),
        ] if session.plan_cache_info().currsize else []  # fmt: skip

    monkeypatch.setattr(fastsup.Session, "executor_info", executor_info, raising=False)
    model = program()
    profiler = HookProfiler()
    with fastsup.train.SingularMonitoredSession(profiler=profiler) as session:
        session.run(model.loss)
        session.run([model.step, model.loss])
        assert [plan.executor for plan in profiler.report().sessions[0].executors] == ["inline", "thread_pool"]
    (part,) = profiler.report().sessions
    assert [(plan.fetches, plan.feeds, plan.on_trial, plan.seconds) for plan in part.executors] == [
        (("Sum:0",), (), False, 2e-6),
        (("GradientDescent", "Sum:0"), ("x:0",), True, None),
    ]
    assert part.executor_of("[GradientDescent, Sum]") == "thread_pool, on trial"
    assert part.executor_of("Sum") == "inline or thread_pool, on trial"
    assert "runtime [GradientDescent, Sum]: thread_pool, on trial" in profiler.table()


def test_a_supervisors_session_tells_its_executors_when_it_is_closed(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def executor_info(session: Any) -> list[Any]:
        return [PlanExecutor(("Sum:0",), (), "inline", False, None)] * session.plan_cache_info().currsize

    monkeypatch.setattr(fastsup.Session, "executor_info", executor_info, raising=False)
    model = program()
    profiler = HookProfiler()
    with fastsup.train.Supervisor(profiler=profiler).managed_session() as session:
        session.run(model.loss)
    assert [plan.executor for plan in profiler.report().sessions[0].executors] == ["inline"]


def test_a_session_of_somebody_elses_making_has_no_executors(program: Any) -> None:
    model = program()
    profiler = HookProfiler()
    with v1.Session() as inner:
        inner.run(v1.global_variables_initializer())
        session = fastsup.train.HookedSession(inner, [])
        session._engine.record(profiler, None)
        session.run(model.loss)
        session.close()
    assert profiler.report().sessions == ()
    assert [row.detail for row in profiler.report().rows if row.phase == "runtime"] == ["Sum"]


def test_the_executor_that_a_session_was_made_with(program: Any) -> None:
    model = program()
    profiler = HookProfiler()
    with fastsup.train.SingularMonitoredSession(profiler=profiler, executor="thread_pool") as session:
        session.run(model.loss)
    assert profiler.report().sessions[0].executor_of("Sum") == "thread_pool"


def test_estimators_sessions_are_named_by_what_they_are_for(tmp_path: Path) -> None:
    def model_fn(features: Any, mode: Any) -> Any:
        weight = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean(tf.square(features * weight - 1.0))
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        return fastsup.estimator.EstimatorSpec(mode, loss=loss, train_op=train, predictions=features * weight)

    def numbers() -> Any:
        return tf.data.Dataset.from_tensors(tf.ones([4])).repeat(5)

    estimator = fastsup.estimator.Estimator(model_fn, model_dir=str(tmp_path))
    with HookProfiler() as profiler:
        specs = (fastsup.estimator.TrainSpec(numbers, max_steps=5), fastsup.estimator.EvalSpec(numbers, steps=2))
        fastsup.estimator.train_and_evaluate(estimator, *specs)
        estimator.evaluate(numbers, steps=3)
        next(iter(estimator.predict(numbers)))
    named = {part.name.partition(",")[0]: part.runs for part in profiler.report().sessions}
    assert named == {
        "train_and_evaluate (train)": 5,
        "train_and_evaluate (evaluate)": 2,
        "Estimator.evaluate": 3,
        "Estimator.predict": 1,
    }


def test_many_places_that_open_sessions_take_bounded_room() -> None:
    source = "StepLoop(int, max_steps=1).run()\n" * 60
    with HookProfiler() as profiler:
        exec(compile(source, "many.py", "exec"), {"StepLoop": StepLoop, "__name__": "many"})
    report = profiler.report()
    assert len(report.sessions) < 40
    assert sum(part.sessions for part in report.sessions) == 60
    assert sum(part.runs for part in report.sessions) == 60
    assert any(part.name == "other sessions" for part in report.sessions)


@attrs.frozen
class Named:
    name: Any
    more: Any


def test_fetches_that_contain_themselves_are_an_error_and_no_crash() -> None:
    fetches: list[Any] = []
    fetches.append(fetches)
    with tf.Graph().as_default(), HookProfiler():
        tf.constant(1.0)
        with fastsup.train.MonitoredSession() as session, pytest.raises(RecursionError):
            session.run(fetches)


@pytest.mark.parametrize(
    ("fetches", "text"),
    [
        ("loss:0", "loss"),
        (["a:0", ("b:0", "c:1")], "[a, (b, c:1)]"),
        ({"x": "a:0", "y": ["b"]}, "{x: a, y: [b]}"),
        ([f"tensor_{i}" for i in range(40)], "[tensor_0, tensor_1, tensor_2, tensor_3, tensor_4, tensor_5, … 34 more]"),
        (Named("a:0", ["b:0"]), "Named(a, [b])"),
        (None, ""),
        (3, "int"),
    ],
)
def test_fetches_are_described_as_a_program_writes_them(fetches: Any, text: str) -> None:
    assert describe(fetches) == text
