"""The recorder: which span the time goes to, by a clock that moves only when the test says so."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
import warnings
import weakref
from itertools import pairwise
from statistics import median_low
from typing import Any

import pytest

from fastsup import HookProfiler
from fastsup import loop as loop_hooks
from fastsup.core import Hook, StepLoop
from fastsup.core.probe import callback_part_here, session_part_here
from fastsup.profile.recording.recorder import ManualClock, Recorder


class Named:
    """Stands for a hook."""


class Other:
    """Another one."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def recorder(clock: ManualClock) -> Recorder:
    return Recorder(clock=clock)


def span_times(recorder: Recorder) -> dict[tuple[str, str], dict[str, Any]]:
    return {(span["owner"], span["phase"]): span for span in recorder.snapshot()["spans"]}


def sum_of_parts(recorder: Recorder) -> int:
    recorded = recorder.snapshot()
    parts = sum(span["total_ns"] for span in recorded["spans"]) + recorded["between_steps"]["total_ns"]
    return int(parts + recorded["profiler_ns"] + recorded["unaccounted_ns"])


def test_time_goes_to_what_the_thread_is_in(recorder: Recorder, clock: ManualClock) -> None:
    hook = Named()
    for _ in range(2):
        with recorder.step():
            clock.advance(3)
            with recorder.span(hook, "after_run"):
                clock.advance(10)
                with recorder.span(hook, "save"):
                    clock.advance(200)
                    with recorder.span(Other, "listener"):
                        clock.advance(4000)
                clock.advance(20)
        clock.advance(50_000)
    recorded = span_times(recorder)
    assert recorded["Named", "after_run"]["total_ns"] == 60
    assert recorded["Named", "save"]["total_ns"] == 400
    assert recorded["type", "listener"]["total_ns"] == 8000
    snapshot = recorder.snapshot()
    assert (snapshot["steps"], snapshot["wall_ns"]) == (2, 2 * 4233 + 50_000)
    assert snapshot["unaccounted_ns"] == 6
    assert snapshot["between_steps"]["total_ns"] == 50_000
    assert snapshot["step_time"]["max_ns"] == 4233
    assert sum_of_parts(recorder) == snapshot["wall_ns"]


def test_parts_add_up_whatever_is_nested_in_what(clock: ManualClock, recorder: Recorder) -> None:
    random_ = random.Random(7)
    hooks = [Named() for _ in range(3)]

    def work(depth: int) -> None:
        clock.advance(random_.randrange(1000))
        for _ in range(random_.randrange(4)):
            # Deeper than the recorder keeps apart.
            if depth < 24:
                with recorder.span(random_.choice(hooks), random_.choice(["before_run", "after_run"])):
                    work(depth + random_.randrange(1, 12))
            clock.advance(random_.randrange(1000))

    for _ in range(200):
        with recorder.step():
            work(0)
        clock.advance(random_.randrange(1000))
    assert recorder.snapshot()["wall_ns"] > 200 * 1000
    assert sum_of_parts(recorder) == recorder.snapshot()["wall_ns"]


@pytest.mark.parametrize("ns", [0, 1, 63, 64, 65, 127, 128, 1000, 12_345, 999_999, 123_456_789, 10**11, 10**13])
def test_quantiles_are_within_one_percent(recorder: Recorder, clock: ManualClock, ns: int) -> None:
    hook = Named()
    for number in range(100):
        with recorder.step(), recorder.span(hook, "after_run"):
            clock.advance(ns if number < 97 else 3 * ns)
    times = span_times(recorder)["Named", "after_run"]
    assert times["calls"] == 100
    assert times["total_ns"] == 106 * ns
    assert times["max_ns"] == 3 * ns
    if ns < 2**40:  # beyond that there is one bucket for all
        assert times["p50_ns"] == pytest.approx(ns, rel=0.01)
        assert times["p95_ns"] == pytest.approx(ns, rel=0.01)
        assert times["p99_ns"] == pytest.approx(3 * ns, rel=0.01)


def test_quantiles_of_many_durations(recorder: Recorder, clock: ManualClock) -> None:
    hook = Named()
    random_ = random.Random(1)
    durations = [int(random_.lognormvariate(9, 2)) for _ in range(4001)]
    for ns in durations:
        with recorder.step(), recorder.span(hook, "after_run"):
            clock.advance(ns)
    durations.sort()
    times = span_times(recorder)["Named", "after_run"]
    for name, share in (("p50_ns", 0.5), ("p95_ns", 0.95), ("p99_ns", 0.99)):
        exact = durations[int(-(-share * 4001 // 1)) - 1]
        assert times[name] == pytest.approx(exact, rel=0.01, abs=1)


def test_the_longest_call_is_named_by_its_step(recorder: Recorder, clock: ManualClock) -> None:
    hook = Named()
    for ns in (5, 9, 7, 9):
        with recorder.step(), recorder.span(hook, "after_run"):
            clock.advance(ns)
    times = span_times(recorder)["Named", "after_run"]
    assert (times["max_ns"], times["max_step"]) == (9, 2)


def test_an_error_leaves_every_span_that_it_passes(recorder: Recorder, clock: ManualClock) -> None:
    hook = Named()
    with pytest.raises(ValueError, match="this one"), recorder.step(), recorder.span(hook, "after_run"):
        clock.advance(5)
        raise ValueError("this one")
    with recorder.step():
        clock.advance(7)
        # No callback is left open that this would be a part of.
        with callback_part_here("save"):
            clock.advance(20)
    assert span_times(recorder)["Named", "after_run"]["total_ns"] == 5
    assert ("Named", "save") not in span_times(recorder)
    assert recorder.snapshot()["unaccounted_ns"] == 27


def test_a_step_within_a_step_is_a_part_of_it(recorder: Recorder, clock: ManualClock) -> None:
    with recorder.step():
        clock.advance(1)
        with recorder.step():
            clock.advance(2)
            with recorder.span(Named(), "after_run"):
                clock.advance(4)
        clock.advance(8)
    snapshot = recorder.snapshot()
    assert (snapshot["steps"], snapshot["wall_ns"], snapshot["unaccounted_ns"]) == (1, 15, 11)


def test_work_beside_the_steps_is_a_part_of_the_wall_time_and_no_step(recorder: Recorder, clock: ManualClock) -> None:
    with recorder.step():
        clock.advance(5)
    clock.advance(1)
    with recorder.span(Named(), "end"):
        clock.advance(30)
    snapshot = recorder.snapshot()
    assert (snapshot["steps"], snapshot["wall_ns"]) == (1, 36)
    assert span_times(recorder)["Named", "end"]["total_ns"] == 30
    assert snapshot["step_time"]["max_ns"] == 5


def test_steps_at_the_start_can_be_left_out(clock: ManualClock) -> None:
    recorder = Recorder(skip_steps=3, clock=clock)
    for number in range(5):
        with recorder.step(), recorder.span(Named, "after_run"):
            clock.advance(10**number)
        clock.advance(100_000)
    snapshot = recorder.snapshot()
    assert (snapshot["steps"], snapshot["skipped_steps"]) == (2, 3)
    assert snapshot["wall_ns"] == 1000 + 100_000 + 10_000
    assert span_times(recorder)["type", "after_run"]["max_step"] == 5


def test_what_interrupts_the_steps_is_no_time_between_them(recorder: Recorder, clock: ManualClock) -> None:
    for _ in range(2):
        with recorder.step():
            clock.advance(5)
        clock.advance(1_000_000)
        recorder.interrupt()
    assert recorder.snapshot()["wall_ns"] == 10


def test_what_begins_within_a_step_or_in_another_thread_interrupts_nothing(
    recorder: Recorder, clock: ManualClock
) -> None:
    for n in range(10):
        with recorder.step():
            clock.advance(100)
            StepLoop(lambda: clock.advance(7), max_steps=2, profiler=recorder).run()
        if n == 4:
            elsewhere = threading.Thread(target=StepLoop(int, max_steps=3, profiler=recorder).run)
            elsewhere.start()
            elsewhere.join()
        clock.advance(1000)
    seen = recorder.snapshot()
    assert (seen["wall_ns"], seen["between_steps"]["total_ns"]) == (10 * 114 + 9 * 1000, 9 * 1000)


def test_a_look_in_the_middle_of_a_step_finds_what_was_so_far(recorder: Recorder, clock: ManualClock) -> None:
    looks: list[dict[str, Any]] = []
    hook = Named()
    for _ in range(2):
        with recorder.step():
            clock.advance(3)
            with recorder.span(hook, "after_run"):
                clock.advance(50)
            clock.advance(4)
            with recorder.span(hook, "save"):
                looks.append(recorder.snapshot())
        clock.advance(1)
    assert [(look["steps"], look["wall_ns"], look["unaccounted_ns"]) for look in looks] == [(0, 57, 7), (1, 115, 14)]


def test_the_wait_for_devices_is_a_part_of_a_loops_step(clock: ManualClock) -> None:
    class OnDevice(HookProfiler):
        def _wait_of_loops(self) -> Any:
            return lambda: clock.advance(40)

    class Reader(Hook):
        def begin(self, loop: Any) -> None:
            self.due_every_run()

        def after_step(self, loop: Any, value: Any) -> None:
            clock.advance(2)

    profiler = OnDevice(clock=clock)
    StepLoop(lambda: clock.advance(7), [Reader()], max_steps=3, profiler=profiler).run()
    found = {row.phase: row.times.total_ns for row in profiler.report().rows}
    assert (found["runtime"], found["device"], found["after_step"]) == (21, 120, 6)


def test_the_end_of_what_a_loop_iterates_over_is_no_step() -> None:
    recorder = HookProfiler(skip_steps=5)
    for _ in range(2):
        StepLoop(iter(range(4)).__next__, profiler=recorder).run()
    seen = recorder.snapshot()
    assert (seen["steps"], seen["skipped_steps"], recorder.steps_begun) == (3, 5, 8)


def test_a_recorder_that_was_replaced_and_stopped_stays_off() -> None:
    first, second, third = HookProfiler(), HookProfiler(), HookProfiler()
    first.start(replaceable=True)
    second.start(replaceable=True)
    third.start()
    second.stop()
    third.stop()
    StepLoop(int, max_steps=2).run()
    first.stop()
    StepLoop(int, max_steps=2).run()
    assert [profiler.snapshot()["steps"] for profiler in (first, second, third)] == [2, 0, 0]


def test_a_hook_that_is_there_twice_has_one_name() -> None:
    recorder, hook = HookProfiler(), Busy(0)
    for hooks in ([hook, hook], [Busy(0)]):
        StepLoop(int, hooks, max_steps=3, profiler=recorder).run()
    rows = [row for row in recorder.report().rows if row.phase == "after_step"]
    assert [(row.owner, row.times.calls) for row in rows] == [("Busy", 9)]


def test_hooks_of_one_class_are_told_apart(recorder: Recorder) -> None:
    first, second, other = Named(), Named(), Other()
    assert [recorder.register(hook).name for hook in (first, second, other)] == ["Named", "Named #2", "Other"]
    recorder.forget([first, second, other])
    # A later session's hooks go on under the names of those before.
    assert recorder.register(Named()).name == "Named"


def test_a_forgotten_hook_is_let_go(recorder: Recorder) -> None:
    hook = Named()
    gone = weakref.ref(hook)
    recorder.register(hook)
    recorder.forget([hook])
    del hook
    gc.collect()
    assert gone() is None


def test_memory_does_not_grow_with_steps(recorder: Recorder, clock: ManualClock) -> None:
    hook = Named()

    def steps(count: int) -> None:
        for _ in range(count):
            with recorder.step():
                for _ in range(3):
                    with recorder.span(hook, "after_run"):
                        clock.advance(7)

    steps(10)
    size = recorder.__sizeof__()
    steps(40_000)
    assert recorder.__sizeof__() == size
    trace = recorder.trace()
    assert len(trace) <= recorder.trace_capacity
    # The steps in the trace are spread evenly over the whole run.
    sampled = [span["step"] for span in trace if span["phase"] == "step"]
    assert recorder.sampled_every > 1
    assert {after - before for before, after in pairwise(sampled)} == {recorder.sampled_every}
    assert sampled[-1] > 40_010 - 2 * recorder.sampled_every
    assert len(trace) == 4 * len(sampled)


def test_the_slowest_steps_are_kept_with_their_spans(recorder: Recorder, clock: ManualClock) -> None:
    hook = Named()
    for number in range(1000):
        with recorder.step(), recorder.span(hook, "after_run"):
            clock.advance(1_000_000 if number == 700 else (number * 37) % 1000)
    slow = recorder.slow_steps()
    assert (slow[0]["step"], slow[0]["duration_ns"]) == (701, 1_000_000)
    expected = sorted(((number * 37) % 1000 for number in range(1000) if number != 700), reverse=True)
    assert [step["duration_ns"] for step in slow[1:]] == expected[: len(slow) - 1]
    assert [span["phase"] for span in slow[0]["spans"]] == ["step", "after_run"]


def test_a_part_of_a_hook_is_found_from_within_it(recorder: Recorder, clock: ManualClock) -> None:
    with recorder.step():
        with session_part_here("plan making"):
            clock.advance(2)
        with recorder.span(Named(), "after_run"), callback_part_here("summary"):
            clock.advance(9)
    with callback_part_here("summary"), session_part_here("plan making"):
        clock.advance(1000)
    assert span_times(recorder)["Named", "summary"]["total_ns"] == 9
    assert span_times(recorder)["session", "plan making"]["total_ns"] == 2


def test_each_thread_has_a_trace_of_its_own(recorder: Recorder) -> None:
    barrier = threading.Barrier(2)

    def run() -> None:
        for _ in range(100):
            with recorder.step(), recorder.span(Named, "after_run"):
                barrier.wait(10)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recorder.snapshot()["threads"] == 2
    assert span_times(recorder)["type", "after_run"]["calls"] == 200


def test_recorders_within_each_other_do_not_mix(clock: ManualClock) -> None:
    outer, inner = Recorder(clock=clock), Recorder(clock=clock)
    with outer.step(), outer.span(Named(), "after_run"):
        clock.advance(1)
        with inner.step(), inner.span(Other(), "after_run"):
            clock.advance(2)
        with callback_part_here("save"):
            clock.advance(4)
    assert set(span_times(inner)) == {("Other", "after_run")}
    assert span_times(outer)["Named", "save"]["total_ns"] == 4
    assert span_times(outer)["Named", "after_run"]["total_ns"] == 3


def test_one_recorder_for_the_program() -> None:
    first, second = Recorder(), Recorder()
    first.start()
    try:
        with pytest.raises(RuntimeError, match="Another profiler is already on"):
            second.start()
        with pytest.raises(RuntimeError, match="This profiler is already on"):
            first.start()
        second.stop()
        StepLoop(int, max_steps=3).run()
    finally:
        first.stop()
    StepLoop(int, max_steps=3).run()
    assert first.snapshot()["steps"] == 3
    assert second.snapshot()["steps"] == 0


class Busy(Hook):
    """Takes so many nanoseconds after every step, by the real clock, and notes when it was called and returned."""

    def __init__(self, ns: int) -> None:
        self.ns = ns
        self.called: list[int] = []
        self.returned: list[int] = []
        self.due_every_run()

    def after_step(self, loop: StepLoop, value: Any) -> None:
        self.called.append(time.perf_counter_ns())
        while time.perf_counter_ns() < self.called[-1] + self.ns:
            pass
        self.returned.append(time.perf_counter_ns())


def test_a_busy_hook_is_found() -> None:
    """Under any load: a call takes no less than from its first line to its last one, and no more than from the hook
    before it to the hook after it."""
    profiler = HookProfiler()
    hooks = [Busy(0), Busy(5_000), Busy(50_000), Busy(0), Hook()]
    StepLoop(int, hooks, max_steps=300, profiler=profiler).run()
    report = profiler.report()
    rows = {row.owner: row for row in report.rows if row.phase != "end"}
    assert set(rows) == {"Busy", "Busy #2", "Busy #3", "Busy #4", "session"}
    assert {row.owner for row in report.rows if row.phase == "end"} == {*rows, "Hook"} - {"session"}
    # At most this much is subtracted from each call.
    cost = report.profiler_ns / sum(row.times.calls for row in report.rows)
    for name, before, hook, after in (("Busy #2", *hooks[:3]), ("Busy #3", *hooks[1:4])):
        inside = [end - begin for begin, end in zip(hook.called, hook.returned, strict=True)]
        outside = [end - begin for begin, end in zip(before.returned, after.called, strict=True)]
        times = rows[name].times
        assert times.calls == 300
        assert sum(inside) - 300 * cost <= times.total_ns <= sum(outside)
        # The middle of a bucket is off by 1% at most.
        assert 0.99 * (median_low(inside) - cost) <= (times.p50_ns or 0) <= 1.01 * median_low(outside)


def test_parts_of_a_loop_add_up_to_the_wall_clock() -> None:
    recorder = Recorder()
    hook = Busy(2_000)
    steps: list[int] = []
    loop = StepLoop(lambda: steps.append(time.perf_counter_ns()), [hook], max_steps=3_000, profiler=recorder)
    started = time.perf_counter_ns()
    loop.run()
    outside = time.perf_counter_ns() - started
    wall = recorder.snapshot()["wall_ns"]
    assert sum_of_parts(recorder) == pytest.approx(wall, rel=1e-6)
    assert hook.returned[-1] - steps[0] <= wall <= outside


def test_a_loop_that_fails_or_ends_early_is_recorded_as_far_as_it_came() -> None:
    recorder = Recorder()
    numbers = iter(range(4))
    StepLoop(numbers.__next__, profiler=recorder).run()
    assert recorder.snapshot()["steps"] == 4

    class Fails(Hook):
        def after_step(self, loop: StepLoop, value: Any) -> None:
            raise RuntimeError("here it is")

    fails = Fails()
    fails.due_at_step(3)
    with pytest.raises(RuntimeError, match="here it is"):
        StepLoop(int, [fails], profiler=recorder).run()
    assert recorder.snapshot()["steps"] == 7
    assert span_times(recorder)["Fails", "after_step"]["calls"] == 1
    # The next loop's hook takes the name again.
    fails.never_due()
    assert recorder.register(Fails()).name == "Fails"


def test_results_are_the_same_with_a_profiler() -> None:
    def steps(profiler: Recorder | None) -> Any:
        numbers = iter(range(50))
        loop = StepLoop(numbers.__next__, max_steps=45, initial_step=5, profiler=profiler)
        return loop.run(), loop.steps, loop.global_step

    assert steps(Recorder()) == steps(None) == (39, 40, 45)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"skip_steps": -1}, ValueError, "skip_steps must not be negative, got -1"),
        ({"skip_steps": 2**63}, ValueError, "skip_steps must fit into 64 bits, got 9223372036854775808"),
        ({"skip_steps": True}, TypeError, "skip_steps must be an integer, got True"),
        ({"skip_steps": 1.5}, TypeError, "skip_steps must be an integer, got 1.5"),
        ({"clock": time.time}, TypeError, "clock must be a ManualClock or None"),
    ],
)
def test_bad_arguments(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        HookProfiler(**arguments)


def test_no_profiler() -> None:
    with pytest.raises(TypeError, match=r"profiler must be a fastsup\.HookProfiler or None, got 'on' of type str"):
        StepLoop(int, profiler="on")  # type: ignore[arg-type]


def test_what_recording_costs_is_known_and_taken_off() -> None:
    recorder = Recorder()
    hook = Named()
    with recorder.step():
        for _ in range(1000):
            with recorder.span(hook, "nothing"):
                pass
    recorded = recorder.snapshot()
    assert 1000 * 10 <= recorded["profiler_ns"] <= recorded["wall_ns"]
    assert sum_of_parts(recorder) == pytest.approx(recorded["wall_ns"], abs=10)


def test_a_scope_is_entered_once_at_a_time(recorder: Recorder, clock: ManualClock) -> None:
    scope = recorder.step()
    with scope:
        with pytest.raises(RuntimeError, match="already started"):
            scope.__enter__()
        clock.advance(5)
    with scope:
        clock.advance(7)
    assert recorder.snapshot()["steps"] == 2


def test_a_scope_that_is_never_left_ends_with_its_object(recorder: Recorder, clock: ManualClock) -> None:
    scope = recorder.step()
    scope.__enter__()
    clock.advance(5)
    del scope
    assert recorder.snapshot()["step_time"]["total_ns"] == 5
    with recorder.step():
        clock.advance(7)
    assert recorder.snapshot()["steps"] == 2


@pytest.mark.usefixtures("processes")
def test_a_loop_is_recorded_in_the_child_of_a_fork() -> None:
    """The other threads, and their steps, are gone there."""
    recorder = Recorder()
    begun, ended = threading.Event(), threading.Event()

    def stay() -> None:
        with recorder.step():
            begun.set()
            ended.wait(60)

    thread = threading.Thread(target=stay)
    thread.start()
    begun.wait(60)
    try:
        with recorder.step(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's, of forks in a program with threads.
            child = os.fork()
        if child == 0:
            try:
                # One of them gets the place of the thread that was in a step.
                loops = [StepLoop(int, max_steps=5, profiler=recorder) for _ in range(3)]
                threads = [threading.Thread(target=loop.run) for loop in loops]
                for other in threads:
                    other.start()
                    other.join()
                StepLoop(int, [Busy(0)], max_steps=10, profiler=recorder).run()
                os._exit(0 if recorder.snapshot()["steps"] == 1 + 3 * 5 + 10 else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        ended.set()
        thread.join()


def test_the_loops_own_hooks() -> None:
    """The hooks of fastsup.loop have rows for their callback and their end."""
    saved: list[int] = []
    hooks = [
        loop_hooks.CheckpointHook(saved.append, every_steps=4),
        loop_hooks.NanGuardHook(),
        loop_hooks.StopAtStepHook(10),
        loop_hooks.SummaryHook(lambda *args: None, every_steps=5),
    ]
    profiler = HookProfiler()
    StepLoop(float, hooks, profiler=profiler).run()
    calls = {(row.owner, row.phase): row.times.calls for row in profiler.report().rows}
    assert saved == [4, 8, 10]
    assert calls["CheckpointHook", "after_step"] == 2
    assert calls["NanGuardHook", "after_step"] == 10
    assert calls["SummaryHook", "after_step"] == 2
    assert calls["StopAtStepHook", "after_step"] == 1
    assert calls["CheckpointHook", "end"] == 1
    assert sum_of_parts(profiler) == pytest.approx(profiler.report().wall_ns, rel=1e-6)


def test_a_hook_whose_class_is_named_as_the_session_is(recorder: Recorder) -> None:
    kind = type("session", (Hook,), {})
    assert recorder.register(kind()).name == "session #2"
