"""The profile of `fastsup.function`s that a program calls itself: a row for each trace, and why each was made."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import fastsup
from fastsup.core.probe import RECORDS_METHOD
from fastsup.loop import StepLoop
from fastsup.profile.program import Program
from fastsup.profile.report import Report

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("tf2")]


@pytest.fixture
def tf2() -> None:
    if not tf.executing_eagerly():
        pytest.skip("functions are lifted where TensorFlow executes eagerly")


def rows_of(report: Report, phase: str) -> dict[str, int]:
    """By detail: the calls of the rows of a phase."""
    return {row.detail: row.times.calls for row in report.rows if row.phase == phase}


def assert_adds_up(report: Report) -> None:
    rows = sum(row.times.total_ns for row in report.rows)
    assert rows + report.profiler_ns + report.unaccounted_ns == report.wall_ns
    assert report.unaccounted_ns <= 0.01 * report.wall_ns


def callables_of_fastsup() -> dict[tuple[str, ...], int]:
    """The functions and classes of all modules of fastsup, and the methods of the classes, each with its id."""
    found: dict[tuple[str, ...], int] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "fastsup":
            continue
        for attribute, value in list(vars(module).items()):
            if not callable(value):
                continue
            found[name, attribute] = id(value)
            if isinstance(value, type) and value.__module__ == name:
                found.update({(name, attribute, member): id(own) for member, own in vars(value).items()})
    return found


def test_nothing_of_fastsup_is_replaced() -> None:
    import fastsup.keras

    profiler = fastsup.HookProfiler()
    with profiler:
        fastsup.function(lambda x: x + 1)(tf.ones([3]))
    before = callables_of_fastsup()
    with profiler:
        assert callables_of_fastsup() == before


def test_calls_of_a_function_of_tensorflows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a step, and the advice says what a lifted one would save, if that is more than lifting takes."""
    monkeypatch.setattr("fastsup.profile.advice.steps.LIFTING_NS", 10_000_000)  # On any machine, the calls take longer.
    step = tf.function(lambda x: x + 1)
    seldom = tf.function(lambda x: seldom_inner(x) + 1)
    seldom_inner = tf.function(lambda x: x + 1)
    inputs = tf.ones([3])
    with fastsup.HookProfiler() as profiler:
        seldom(inputs)
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.function(lambda x: tf.debugging.check_numerics(x / 0.0, "none"))(inputs)
        for _ in range(4000):
            step(inputs)
    report = profiler.report()
    assert sorted(part.runs for part in report.sessions) == [1, 1, 4000]
    assert {part.asked_executors for part in report.sessions} == {("TensorFlow",)}
    assert all(part.is_function and part.kind == "tf.function <lambda>" for part in report.sessions)
    assert_adds_up(report)
    advice = replace(report, call_ns=50_000.0).advice()
    assert "the time that fastsup.function saves in tf.function <lambda>, test_functions.py:" in advice
    assert "about 50.0µs of each of 4000 calls" in advice
    assert "`python -m fastsup run --functions SCRIPT`" in advice
    assert "the time that fastsup.function saves" not in replace(report, call_ns=2_000.0).advice()
    assert not hasattr(type(step).__call__, RECORDS_METHOD)


def test_another_profiler_passes_notes_of_functions_on() -> None:
    """`python -m fastsup profile` lists the functions of a program that has a profiler itself."""
    profiler = fastsup.HookProfiler()
    program = profiler.program = Program()
    profiler.start(replaceable=True)
    try:
        with fastsup.HookProfiler():
            fastsup.function(lambda x: x + 1)(tf.ones([3]))
        fastsup.function(lambda x: x + 2)(tf.ones([3]))
    finally:
        profiler.stop()
    fastsup.function(lambda x: x + 3)(tf.ones([3]))
    assert [note.why_not_lifted for note in program.functions] == ["", ""]


def test_a_row_for_each_trace(tmp_path: Path) -> None:
    @fastsup.function
    def scaled(x: Any, k: int = 1) -> Any:
        return x * k

    own_call = vars(type(scaled)).get("__call__")
    with fastsup.HookProfiler() as profiler:
        for i in range(40):
            assert scaled(tf.ones([3])).shape == [3]
            if i % 4 == 0:
                scaled(tf.ones([2]), k=5)
    assert vars(type(scaled)).get("__call__") is own_call
    scaled(tf.ones([3]))
    report = profiler.report()
    assert rows_of(report, "runtime") == {"float32[3], 1": 40, "float32[2], 5": 10}
    assert rows_of(report, "tracing") == {"scaled": 1, "scaled: x is float32[2], was float32[3]": 1}
    assert rows_of(report, "lifting") == {"": 2}
    assert report.steps == 50
    (part,) = report.sessions
    assert (part.name.split(",")[0], part.runs, part.is_function) == ("function scaled", 50, True)
    assert part.place.startswith("test_functions.py:")
    assert {part.executor_of(detail) for detail in rows_of(report, "runtime")} == {"single_threaded"}
    assert_adds_up(report)
    profiler.write_json(tmp_path / "profile.json")
    rows = json.loads((tmp_path / "profile.json").read_text())["rows"]
    assert {row["executor"] for row in rows if row["phase"] == "runtime"} == {"single_threaded"}
    assert "calls" in profiler.table().split("function scaled", 1)[1].splitlines()[0]


def test_traces_are_told_apart() -> None:
    @fastsup.function
    def total(pair: Any, *, scale: Any = 1) -> Any:
        return pair["a"] * scale + pair["b"]

    one = tf.ones([])
    with fastsup.HookProfiler() as profiler:
        total({"a": one, "b": one})
        total({"a": one, "b": tf.ones([2])})
        total({"a": one, "b": one}, scale=2)
        total({"a": one, "b": one}, scale=3)
    assert rows_of(profiler.report(), "tracing") == {
        "total": 1,
        "total: pair['b'] is float32[2], was float32[]": 1,
        "total: scale is 2, was 1": 1,
        "total: scale is 3, was 2": 1,
    }


def test_functions_that_are_made_anew() -> None:
    with fastsup.HookProfiler() as profiler:
        for _ in range(4):
            fastsup.function(lambda x: x + 1)(1)
    report = profiler.report()
    (name,) = [detail for detail in rows_of(report, "tracing") if ": " not in detail]
    assert rows_of(report, "tracing") == {name: 1, f"{name}: made again": 3}
    advice = report.advice()
    assert "tracing functions that are created again: " in advice
    assert f"3 of 4 traces, 3 of them of {name}: each new model, " in advice
    # Their arguments have nothing to do with it.
    assert "one shape and dtype" not in advice


def test_calls_that_tensorflow_runs() -> None:
    @fastsup.function
    def square(x: Any) -> Any:
        return x * x

    @fastsup.function(fallback="silent")
    def anew(x: Any) -> Any:
        table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, -1, -2, -3)
        return x + tf.cast(table.size(), tf.float32)

    square(tf.ones([3]))
    with fastsup.HookProfiler() as profiler:
        for _ in range(3):
            square(tf.ones([3]))
        with tf.GradientTape():
            square(tf.ones([3]))
    assert rows_of(profiler.report(), "runtime") == {
        "float32[3]": 3, "by TensorFlow: a gradient tape or a forward accumulator records": 1
    }  # fmt: skip


def test_a_call_within_a_function_or_a_step_is_no_step() -> None:
    @fastsup.function
    def inner(x: Any) -> Any:
        return x + 1

    outer = tf.function(lambda x: inner(x))
    with fastsup.HookProfiler() as profiler:
        outer.get_concrete_function(tf.ones([]))
        outer(tf.ones([]))
        StepLoop(lambda: inner(1.0), [], max_steps=5).run()
    report = profiler.report()
    assert report.steps == 6
    runs = {"tf.function <lambda>": 1, "function inner": 0, "StepLoop.run": 5}
    assert {part.kind: part.runs for part in report.sessions} == runs
    assert_adds_up(report)


def test_a_failing_call_is_recorded_and_raises() -> None:
    @fastsup.function
    def divided(x: Any) -> Any:
        return tf.debugging.check_numerics(1.0 / x, "not finite")

    divided(tf.ones([]))
    with fastsup.HookProfiler() as profiler:
        with pytest.raises(tf.errors.InvalidArgumentError, match="not finite"):
            divided(tf.zeros([]))
        divided(tf.ones([]))
    assert profiler.report().steps == 2
    assert_adds_up(profiler.report())


def test_rows_have_a_limit() -> None:
    @fastsup.function(fallback="raise")
    def many(x: Any) -> Any:
        return x + 1

    with fastsup.HookProfiler() as profiler:
        for size in range(70):
            many(tf.zeros([size]))
    report = profiler.report()
    runtime = rows_of(report, "runtime")
    assert len(runtime) == 33
    assert runtime["other traces"] == 70 - 32
    assert len(rows_of(report, "tracing")) <= 33
    assert sum(rows_of(report, "tracing").values()) == 70


def test_a_function_that_is_gone_leaves_its_rows() -> None:
    def call() -> None:
        fastsup.function(lambda x: x - 1)(1)

    with fastsup.HookProfiler() as profiler:
        call()
    assert sum(rows_of(profiler.report(), "runtime").values()) == 1
