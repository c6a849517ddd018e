"""The advice names the largest cost that the program can change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import fastsup
from fastsup import HookProfiler
from fastsup.core import StepLoop
from fastsup.core.sessions import SessionOrigin
from fastsup.eager.function_notes import FunctionNote
from fastsup.profile.recording.recorder import ManualClock
from fastsup.profile.report import Report, report_of

v1 = tf.compat.v1


class Quick:
    """Stands for a hook."""


class Slow:
    """Stands for another one."""


Parts = dict[tuple[Any, str], int]


def profile(steps: int, parts: Parts, between: int = 0, facts: Callable[[], dict[str, Any]] = dict) -> Report:
    """A profile of steps with spans of so many nanoseconds each; None stands for the session."""
    clock = ManualClock()
    profiler = HookProfiler(clock=clock)
    caller = profiler.new_caller(SessionOrigin("Session", "train", "a.py:1"), facts)
    for owner, _ in parts:
        if owner is not None:
            profiler.register(owner, caller)
    for _ in range(steps):
        with profiler.step():
            for (owner, phase), ns in parts.items():
                with profiler.session_span(phase) if owner is None else profiler.span(owner, phase):
                    clock.advance(ns)
        clock.advance(between)
    return profiler.report()


def test_a_small_hook_beside_a_large_runtime_is_nothing_to_look_at() -> None:
    report = profile(100, {(Quick(), "after_run"): 35, (None, "runtime"): 900, (None, "fetch conversion"): 20})
    assert report.advice() == "The runtime is 94.2%: hooks cost 3.7%; nothing to gain here."


@pytest.mark.parametrize(
    ("phase", "text"),
    [
        ("feed conversion", "Look first at feed conversion: 40.0% of the time, 400ns a step. Feed NumPy arrays"),
        ("hook dispatch", "Look first at hook dispatch: 40.0% of the time, 400ns a step. The session calls Quick in"),
        ("fetch conversion", "Look first at fetch conversion: 40.0% of the time, 400ns a step. Fetch fewer values"),
    ],
)
def test_conversions(phase: str, text: str) -> None:
    report = profile(100, {(Quick(), "after_run"): 100, (None, "runtime"): 500, (None, phase): 400})
    assert report.advice().startswith(text)


def test_the_largest_comes_first_whatever_it_is() -> None:
    quick, slow = Quick(), Slow()
    parts: Parts = {
        (None, "runtime"): 500,
        (quick, "after_run"): 100,
        (slow, "save"): 150,
        (None, "feed conversion"): 90,
    }
    assert profile(100, parts).advice().startswith("Look first at the saves of Slow: ")
    parts[quick, "before_run"] = 200
    assert profile(100, parts).advice().startswith("Look first at Quick: ")
    assert profile(100, parts, between=2000).advice().startswith(
        "Look first at the program's own code between the steps: "
    )  # fmt: skip


@pytest.mark.parametrize("kind", [StepLoop, fastsup.loop.StepLoop])
def test_a_loop_has_no_code_of_the_program_between_its_steps(kind: Any) -> None:
    profiler = HookProfiler()
    kind(int, max_steps=1000, profiler=profiler).run()
    assert "between the steps" not in profiler.report().advice()


def test_many_small_hooks_together() -> None:
    parts: Parts = {(Quick(), "after_run"): 40 for _ in range(4)}
    parts[None, "runtime"] = 800
    advice = profile(100, parts).advice()
    assert advice.startswith("Hooks cost 16.7% together, but no single hook costs much: the most expensive, Quick")


def test_plans_that_are_made_all_the_time() -> None:
    """Each run has other fetches: the advice tells the number of plans, and the remedy."""
    profiler = HookProfiler()
    with tf.Graph().as_default():
        numbers = [tf.constant(float(i)) for i in range(30)]
        with fastsup.train.SingularMonitoredSession(profiler=profiler) as session:
            for i in range(30):
                session.run([numbers[i], numbers[i - 1]])
    advice = profiler.report().advice()
    assert advice.startswith("Look first at plan making: ")
    assert " times in 30 steps, for each new combination of fetches and feeds. Fetch the same elements" in advice


def test_plans_of_a_graph_that_grows() -> None:
    sizes = iter([10, 500])
    facts = lambda: {"asked": "auto", "plans": [], "operations": next(sizes, 500)}  # noqa: E731
    report = profile(100, {(Quick(), "after_run"): 9, (None, "runtime"): 500, (None, "plan making"): 400}, facts=facts)
    assert "the graph has grown by 490 operations since the session was opened" in report.advice()


def test_plans_that_were_made_once() -> None:
    clock = ManualClock()
    profiler = HookProfiler(clock=clock)
    for step in range(100):
        with profiler.step():
            if step < 2:
                with profiler.session_span("plan making"):
                    clock.advance(20_000)
            with profiler.session_span("runtime"):
                clock.advance(1000)
    assert profiler.report().advice() == (
        "The runtime is 71.4%: no hook was called; nothing to gain here. Plan making is 28.6%: it happens once for "
        "each combination of fetches and feeds, including the hooks'. Its share shrinks in longer runs."
    )


def test_a_light_step_in_the_thread_pool_by_request() -> None:
    profiler = HookProfiler(skip_steps=100)
    with tf.Graph().as_default():
        x = tf.constant(1.0)
        with fastsup.train.SingularMonitoredSession(profiler=profiler, executor="thread_pool") as session:
            session.run_loop(x, steps=1100)
    assert 'in which such a short run mostly waits for threads: try executor="auto".' in profiler.report().advice()


def test_a_hook_of_tensorflows_own_that_fastsup_has_too() -> None:
    with tf.Graph().as_default():
        step = v1.assign_add(v1.train.get_or_create_global_step(), 1)
        profiler = HookProfiler()

        class Waits(v1.train.StopAtStepHook):  # type: ignore[misc]
            """A subclass in the program: its name isn't TensorFlow's."""

        hooks = [v1.train.StopAtStepHook(last_step=50), Waits(last_step=50)]
        with fastsup.train.SingularMonitoredSession(hooks=hooks, profiler=profiler) as session:
            while not session.should_stop():
                session.run(step)
    assert [part.tensorflow_hooks for part in profiler.report().sessions] == [("StopAtStepHook",)]


def test_a_program_that_only_has_tensorflows_sessions() -> None:
    sessions = [SessionOrigin("Session", place="a.py:3", library="tensorflow"),
                SessionOrigin("MonitoredTrainingSession", place="a.py:9", library="tensorflow")]  # fmt: skip
    assert report_of(HookProfiler(), unrecorded_sessions=sessions).advice() == (
        "No step was recorded: of a fastsup session or loop, of a fastsup.function or tf.function, or of Keras's fit "
        "or predict. "
        "The program opens a MonitoredTrainingSession of "
        "TensorFlow's, in a.py:9. One line changes it: `import fastsup.train as train`, and `with "
        "train.MonitoredTrainingSession(...)` instead of tf.compat.v1.train.MonitoredTrainingSession. "
        "Without an edit: `python -m fastsup profile -m fastsup run SCRIPT`."
    )
    assert report_of(HookProfiler(), unrecorded_sessions=sessions[:1]).advice() == (
        "No step was recorded: of a fastsup session or loop, of a fastsup.function or tf.function, or of Keras's fit "
        "or predict. "
        "The program opens a plain Session of TensorFlow's, in "
        "a.py:3. One line changes it: `with fastsup.Session() as session:` in its place."
    )
    plain = [SessionOrigin("Session", place="a.py:3", library="fastsup")]
    assert "with fastsup.train.SingularMonitoredSession() as session:" in (
        report_of(HookProfiler(), unrecorded_sessions=plain).advice()
    )


def test_a_program_whose_steps_are_a_small_part_of_it() -> None:
    clock = ManualClock()
    profiler = HookProfiler(clock=clock)
    with profiler.step(), profiler.session_span("runtime"):
        clock.advance(1000)
    report = report_of(profiler, timeline=[("import", 7000, 3), ("train", 2000, 1), ("end", 1000, 0)])
    assert report.advice().endswith("The steps are 10.0% of the whole program: import takes 7.00µs, 70.0%.")


def test_light_functions_that_xla_may_compile() -> None:
    notes = [
        FunctionNote("light", "inline", 5e-6),
        FunctionNote("light", "inline", 6e-6),
        FunctionNote("heavy", "inline", 5e-3),
        FunctionNote("compiled", "inline", 5e-6, is_compiled=True),
        FunctionNote("unknown", "auto"),
    ]
    advice = report_of(HookProfiler(), functions=notes).advice()
    assert "Try jit_compile=True: of steps as light as light, XLA compiles a loop" in advice
    assert "Try" not in report_of(HookProfiler(), functions=notes[2:]).advice()


def test_steps_that_are_too_short_for_a_profile() -> None:
    clock = ManualClock()
    profiler = HookProfiler(clock=clock)
    for _ in range(100):
        with profiler.step():
            with profiler.session_span("runtime"):
                clock.advance(20)
            clock.advance(130)
    assert profiler.report().advice() == (
        "Steps of 150ns, with their recording, are too short for a profile, which only shows the hooks that are "
        "called. To find the cost of one, compare a run with it and a run without it."
    )
