"""The step loop and its hooks, without TensorFlow."""

from __future__ import annotations

import _thread
import functools
import inspect
import logging
import threading
import time
import types
from typing import Any
from unittest import mock

import numpy as np
import pytest

import fastsup.loop
from fastsup import core
from fastsup.core import Hook, StepLoop


class Every(Hook):
    """Due every few steps; notes the steps at which it was called, and the values."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.calls: list[Any] = []

    def begin(self, loop: StepLoop) -> None:
        self.calls.append("begin")
        self.due_at_step(loop.global_step + self.steps)

    def after_step(self, loop: StepLoop, value: Any) -> None:
        self.calls.append((loop.global_step, value))
        self.due_at_step(loop.global_step + self.steps)

    def end(self, loop: StepLoop) -> None:
        self.calls.append("end")


def counter() -> Any:
    numbers = iter(range(1000))
    return lambda: next(numbers)


def test_calls_each_hook_when_it_is_due() -> None:
    two, three = Every(2), Every(3)
    loop = StepLoop(counter(), [two, three], max_steps=7)
    assert loop.run() == 6
    assert two.calls == ["begin", (2, 1), (4, 3), (6, 5), "end"]
    assert three.calls == ["begin", (3, 2), (6, 5), "end"]
    assert (loop.steps, loop.global_step, loop.hooks) == (7, 7, (two, three))


def test_global_step_starts_where_it_is_told_to() -> None:
    hook = Every(10)
    loop = StepLoop(counter(), [hook], max_steps=107, initial_step=95)
    loop.run()
    assert hook.calls == ["begin", (105, 9), "end"]


def test_warns_of_a_hook_that_two_loops_use_at_a_time(caplog: pytest.LogCaptureFixture) -> None:
    hook = Every(2)
    inner = StepLoop(counter(), [hook], max_steps=4)
    StepLoop(inner.run, [hook], max_steps=1).run()
    (message,) = caplog.messages
    assert message.startswith(f"The hook {hook!r} is used twice at the same time, but has only one due position")
    # One after the other is right.
    caplog.clear()
    for _ in range(2):
        StepLoop(counter(), [hook], max_steps=4).run()
    assert not caplog.messages


def test_warns_of_a_hook_that_stands_in_a_list_twice(caplog: pytest.LogCaptureFixture) -> None:
    hook = Every(2)
    StepLoop(counter(), [hook, hook], max_steps=4).run()
    assert [text.split(" is used")[1][:23] for text in caplog.messages] == [" twice at the same time"]


def test_a_hook_that_is_due_after_every_step_may_be_used_twice(caplog: pytest.LogCaptureFixture) -> None:
    class Counts(Hook):
        calls = 0

        def begin(self, loop: StepLoop) -> None:
            self.due_every_run()

        def after_step(self, loop: StepLoop, value: Any) -> None:
            self.calls += 1

    hook = Counts()
    StepLoop(counter(), [hook, hook], max_steps=4).run()
    assert hook.calls == 8
    assert not caplog.messages


def test_a_failing_begin_leaves_a_hook_to_the_next_loop(caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Hook):
        def begin(self, loop: StepLoop) -> None:
            raise ArithmeticError

    hook = Every(2)
    with pytest.raises(ArithmeticError):
        StepLoop(counter(), [hook, Fails()], max_steps=4).run()
    StepLoop(counter(), [hook], max_steps=4).run()
    assert not caplog.messages


def test_a_hook_stays_due_until_it_says_otherwise() -> None:
    class Stays(Hook):
        calls = 0

        def after_step(self, loop: StepLoop, value: Any) -> None:
            self.calls += 1

    at_run, always, never = Stays(), Stays(), Stays()
    at_run.due_at_run(3)
    always.due_every_run()
    always.never_due()
    always.due_every_run()
    StepLoop(int, [at_run, always, never], max_steps=5).run()
    assert (at_run.calls, always.calls, never.calls) == (2, 5, 0)


def test_a_hook_can_make_another_due() -> None:
    class Wakes(Hook):
        def after_step(self, loop: StepLoop, value: Any) -> None:
            other.due_at_run(4)

    class Sleeps(Hook):
        woken: int | None = None

        def after_step(self, loop: StepLoop, value: Any) -> None:
            self.woken = loop.steps
            self.never_due()

    first, other = Wakes(), Sleeps()
    first.due_at_run(0)
    StepLoop(int, [first, other], max_steps=6).run()
    assert other.woken is not None
    assert other.woken >= 5


def test_due_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "time", lambda: now)

    def step() -> None:
        nonlocal now
        now += 1.0

    class EveryFourSeconds(Hook):
        def begin(self, loop: StepLoop) -> None:
            self.times: list[float] = []
            self.due_at_time(now + 4)

        def after_step(self, loop: StepLoop, value: Any) -> None:
            self.times.append(now)
            self.due_at_time(now + 4)

    hook = EveryFourSeconds()
    StepLoop(step, [hook], max_steps=10).run()
    assert hook.times == [1004.0, 1008.0]
    assert hook.next_time == 1012.0


def test_the_clock_is_read_only_for_hooks_that_wait_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0

    def read() -> float:
        nonlocal reads
        reads += 1
        return 1000.0

    monkeypatch.setattr(time, "time", read)
    StepLoop(int, [Every(2)], max_steps=10).run()
    assert reads == 0


def test_stop_requested_by_a_hook() -> None:
    class Stop(Hook):
        def after_step(self, loop: StepLoop, value: Any) -> None:
            loop.request_stop()

    stop = Stop()
    stop.due_at_run(2)
    loop = StepLoop(counter(), [stop], max_steps=100)
    assert loop.run() == 2
    assert loop.should_stop()
    assert loop.steps == 3


def test_stop_iteration_ends_the_loop_normally() -> None:
    numbers = iter([1, 2, 3])
    hook = Every(2)
    loop = StepLoop(numbers.__next__, [hook])
    assert loop.run() == 3
    assert hook.calls == ["begin", (2, 2), "end"]


@pytest.mark.parametrize("where", ["step", "begin", "after_step", "end"])
def test_errors_surface_and_end_is_not_called_after_them(where: str) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError(where)

    hook = Every(1)
    if where != "step":
        setattr(hook, where, fail)
    with pytest.raises(RuntimeError, match=f"(?m)^{where}$"):
        StepLoop(fail if where == "step" else int, [hook], max_steps=2).run()
    assert "end" not in hook.calls


def test_a_signal_gets_through() -> None:
    """Also to a step function in C, which never lets Python's interpreter look for signals."""
    timer = threading.Timer(0.2, _thread.interrupt_main)
    with pytest.raises(KeyboardInterrupt):
        timer.start()  # Within the block: on a busy machine the signal may come before the loop runs.
        StepLoop(int).run()
    timer.join()


def test_no_steps() -> None:
    hook = Every(1)
    assert StepLoop(int, [hook], max_steps=0).run() is None
    assert hook.calls == ["begin", "end"]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("step",), TypeError, "step must be callable, got 'step'"),
        (
            (int, [print]),
            TypeError,
            "hooks must be fastsup.core.Hook objects, or capsules of hooks in C, got <built-in function print> as "
            r"hooks\[0\]\. For a function of the loop, pass fastsup\.loop\.every",
        ),
        ((int, [], -1), ValueError, "max_steps must not be negative, got -1"),
        ((int, [], "5"), TypeError, "max_steps must be an integer, got '5'"),
        ((int, [], 2.5), TypeError, r"max_steps must be an integer, got 2\.5"),
        ((int, [], True), TypeError, "max_steps must be an integer, got True"),
        ((int, [], 10**30), ValueError, "max_steps must fit into 64 bits, got 1000"),
        ((int, [], 1, "x"), TypeError, "initial_step must be an integer, got 'x'"),
        ((int, [], 1, -1), ValueError, "initial_step must lie between 0 and .*, got -1"),
        ((int, [], 1, 2**62 + 1), ValueError, "initial_step must lie between 0 and .*, got 4611686018427387905"),
        (
            (int, [type("Callback", (), {})()]),
            TypeError,
            r"as hooks\[0\]\. Callback is a callback of another library's loop; fastsup\.loop has ready-made hooks\.$",
        ),
        (
            (int, [Hook(), 5]),
            TypeError,
            r"hooks must be fastsup\.core\.Hook objects, or capsules of hooks in C, got 5 as hooks\[1\]$",
        ),
        (
            (lambda batch: batch,),
            TypeError,
            r"step must be callable without arguments, got <function .*>: missing a required argument: 'batch'\. "
            r"A loop .*fastsup\.bind\(step, \.\.\.\).*fastsup\.bind_batches\(step, batches\)",
        ),
        ((Every.end,), TypeError, "missing a required argument: 'self'"),
        ((Every(1).end,), TypeError, "missing a required argument: 'loop'"),
        ((int, None), TypeError, r"hooks must be an iterable of fastsup\.core\.Hook objects, got None\. Pass \[\]"),
    ],
)
def test_bad_arguments(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        StepLoop(*arguments)


@pytest.mark.parametrize("kind", [StepLoop, fastsup.loop.StepLoop])
@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"steps": -1}, ValueError, r"steps must not be negative, got -1\. Pass None for a loop without limit\."),
        ({"steps": "5"}, TypeError, "steps must be an integer, got '5'"),
        ({"steps": 10**30}, ValueError, "steps must fit into 64 bits, got 1000"),
        (
            {"steps": 5, "max_steps": 7},
            ValueError,
            r"^Can not provide both steps and max_steps\. Got steps=5, max_steps=7",
        ),
        (
            {"max_step": 5},
            TypeError,
            r"^StepLoop\.__init__\(\) got an unexpected .* 'max_step'\. Did you mean 'max_steps'\?$",
        ),
        ({"initialstep": 5}, TypeError, r"'initialstep'\. Did you mean 'initial_step'\?$"),
        ({"hook": []}, TypeError, r"'hook'\. Did you mean 'hooks'\?$"),
        ({"zzz": 5}, TypeError, r"unexpected keyword argument '?zzz'?$"),
    ],
)
def test_bad_keyword_arguments(kind: Any, arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        kind(int, **arguments)


def test_keyword_arguments_of_subclasses() -> None:
    class Mine(Hook):
        def __init__(self, interval: int) -> None: ...

    class Any_(Hook):
        def __init__(self, **options: Any) -> None: ...

    class Changes(Mine):
        def __new__(cls, *, intervals: int) -> Any:
            made = super().__new__(cls, intervals=intervals)
            Mine.__init__(made, intervals)
            return made

        def __init__(self, *, intervals: int) -> None: ...

    with pytest.raises(TypeError, match=r"Mine\.__init__\(\) got .* 'intervals'\. Did you mean 'interval'\?$"):
        Mine(intervals=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"NativeHook\.__init__\(\) got .* 'every_sec'\. Did you mean 'every_secs'\?$"):
        core.NativeHook(print, every_sec=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'interval'$"):
        Mine()  # type: ignore[call-arg]
    Any_(intervals=3)
    Changes(intervals=3)


@pytest.mark.parametrize(("initial_step", "steps"), [(0, 10), (6, 4), (10, 0), (12, 0)])
@pytest.mark.parametrize("profiled", [False, True])
def test_max_steps_is_a_global_step(initial_step: int, steps: int, profiled: bool, caplog: Any) -> None:
    hook = Every(100)
    profiler = fastsup.HookProfiler() if profiled else None
    loop = StepLoop(int, [hook], max_steps=10, initial_step=initial_step, profiler=profiler)
    with caplog.at_level(logging.INFO, "fastsup"):
        loop.run()
    assert (loop.steps, loop.global_step, loop.max_steps) == (steps, initial_step + steps, 10)
    assert hook.calls == ["begin", "end"]
    skipped = f"Skipping training: the global step is already {initial_step}, and the loop ends at 10."
    assert (skipped in caplog.messages) == (steps == 0)


def test_steps_are_those_of_this_loop() -> None:
    loop = StepLoop(int, steps=10, initial_step=6)
    assert (loop.max_steps, loop.run(), loop.steps, loop.global_step) == (16, 0, 10, 16)
    loop.run()
    assert loop.steps == 10
    loop = StepLoop(int, steps=0, initial_step=6)
    assert (loop.run(), loop.steps) == (None, 0)
    assert StepLoop(int, steps=2**63 - 1, initial_step=2**62).max_steps is None


def test_an_error_between_two_runs_of_a_number_of_steps() -> None:
    results: Any = iter([1, 2, None, 3, 4, 5, 6])

    def step() -> int:
        return int(next(results) + 0)

    loop = StepLoop(step, steps=5)
    with pytest.raises(TypeError):
        loop.run()
    assert (loop.run(), loop.steps) == (5, 5)


class Unchangeable(Exception):
    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(name)


def test_an_error_of_a_step_says_where_it_was_raised() -> None:
    def fail() -> None:
        if loop.steps == 3:
            raise error

    for error in (ValueError("text"), Unchangeable("text")):
        loop = StepLoop(fail, initial_step=38)
        for _ in range(2):  # The same object gets the same note once.
            with pytest.raises(type(error)) as raised:
                loop.run()
            assert raised.value is error
            assert str(error) == "text"
        notes = getattr(error, "__notes__", [])
        assert notes == ([] if type(error) is Unchangeable else ["Raised by the step function at global step 41."])
    for other in (KeyboardInterrupt(), SystemExit(3), GeneratorExit()):
        error = other  # type: ignore[assignment]
        with pytest.raises(type(other)) as raised_other:
            StepLoop(fail, initial_step=38).run() if loop.steps != 3 else loop.run()
        assert not hasattr(raised_other.value, "__notes__")


def test_python_3_10_has_the_note_in_the_log(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr("fastsup.core.errors.sys", types.SimpleNamespace(version_info=(3, 10, 14)))

    def fail() -> None:
        raise ValueError("text")

    with pytest.raises(ValueError, match="text") as raised:
        StepLoop(fail, initial_step=41).run()
    assert raised.value.__notes__ == ["Raised by the step function at global step 41."]
    assert caplog.messages == ["Raised by the step function at global step 41. ValueError: text"]


def test_an_error_of_a_hook_says_where_it_was_raised() -> None:
    class Fails(Hook):
        def __repr__(self) -> str:
            return "<Fails>"

        def begin(self, loop: Any) -> None:
            self.due_at_step(45)

        def after_step(self, loop: Any, value: Any) -> None:
            raise error

    error: Exception = ValueError("text")
    for profiler in (None, fastsup.HookProfiler()):
        with pytest.raises(ValueError, match="text"):
            StepLoop(int, [Fails()], initial_step=41, profiler=profiler).run()
        assert error.__notes__ == ["Raised by the hook <Fails> at global step 45."]

    class Halfway(Fails):
        def __repr__(self) -> str:
            raise AttributeError

    error = ValueError("text")
    with pytest.raises(ValueError, match="text"):
        StepLoop(int, [Halfway()], initial_step=41).run()
    assert "Halfway object at 0x" in error.__notes__[0]
    error = StopIteration()
    with pytest.raises(StopIteration):
        StepLoop(int, [Fails()], initial_step=41).run()
    assert not hasattr(error, "__notes__")


def test_the_hook_of_an_error_is_forgotten_in_the_next_run() -> None:
    class Fails(Hook):
        runs = 0

        def begin(self, loop: Any) -> None:
            self.due_every_run()
            self.runs += 1
            if self.runs == 2:
                raise ValueError("begin")

        def after_step(self, loop: Any, value: Any) -> None:
            raise ValueError("after_step")

    loop = StepLoop(int, [Fails()])
    with pytest.raises(ValueError, match="after_step") as raised:
        loop.run()
    assert len(raised.value.__notes__) == 1
    with pytest.raises(ValueError, match="begin") as raised:
        loop.run()
    assert raised.value.__notes__ == [f"Raised by begin of the hook {loop.hooks[0]!r}."]


def test_the_hook_whose_end_fails_is_named() -> None:
    class Fails(Hook):
        def __repr__(self) -> str:
            return "<Fails>"

        def end(self, loop: Any) -> None:
            raise ValueError("end")

    with pytest.raises(ValueError, match="end") as raised:
        StepLoop(int, [Fails()], max_steps=1).run()
    assert raised.value.__notes__ == ["Raised by end of the hook <Fails>."]


def test_a_wrong_due_position_is_named_with_its_hook() -> None:
    class Wrong(Hook):
        def __repr__(self) -> str:
            return "<Wrong>"

        def begin(self, loop: Any) -> None:
            self.due_at_step("a")  # type: ignore[arg-type]

        def after_step(self, loop: Any, value: Any) -> None: ...

    with pytest.raises(TypeError, match=r"^global_step must be an integer, got 'a'\.") as raised:
        StepLoop(int, [Wrong()]).run()
    assert raised.value.__notes__ == ["Raised by begin of the hook <Wrong>."]


def test_an_error_of_a_step_that_makes_several_says_where_it_was_raised() -> None:
    class Several:
        made = 0

        def __call__(self) -> None: ...

        def run_steps(self, limit: int, seconds: float, with_results: bool) -> Any:
            self.made += 1
            if self.made == 3:
                raise ValueError("text")
            return min(limit, 5), None, None

    with pytest.raises(ValueError, match="text") as raised:
        StepLoop(Several(), max_steps=100, initial_step=30).run()
    assert raised.value.__notes__ == ["Raised by the step function at global step 40."]


@pytest.mark.parametrize("others", [[], [Every(1)]])
def test_an_error_of_a_replaced_clock_says_where_it_was_raised(
    monkeypatch: pytest.MonkeyPatch, others: list[Hook]
) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0 if loop.steps < 3 else 1 / 0)

    class ByTime(Hook):
        def begin(self, loop: Any) -> None:
            self.due_at_time(100.0)

        def after_step(self, loop: Any, value: Any) -> None: ...

    loop = StepLoop(int, [*others, ByTime()])
    with pytest.raises(ZeroDivisionError) as raised:
        loop.run()
    assert raised.value.__notes__ == ["Raised by the clock that replaces time.time at global step 3."]


def test_a_step_whose_call_needs_arguments() -> None:
    """What isn't a plain function may have the signature of something else: it is refused when its call has failed."""

    class Step:
        def __call__(self, batch: Any) -> None: ...

    class Wrapper:
        def __init__(self) -> None:
            self.__signature__ = inspect.signature(lambda batch: None)

        def __call__(self) -> int:
            return 7

    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'batch'") as raised:
        StepLoop(Step()).run()
    assert raised.value.__notes__[1].startswith(
        "The step needs arguments: missing a required argument: 'batch'. A loop"
    )
    assert StepLoop(Wrapper(), max_steps=1).run() == 7

    @functools.wraps(Step.__call__)
    def wrapped() -> int:
        return 8

    assert StepLoop(wrapped, max_steps=1).run() == 8
    assert StepLoop(lambda *batches, size=3: size, max_steps=1).run() == 3


def test_positions_can_be_read() -> None:
    hook = Hook()
    assert (hook.next_run, hook.next_step, hook.next_time) == (None, None, None)
    hook.due_at_run(3)
    hook.due_at_step(-5)
    hook.due_at_time(1.5)
    assert (hook.next_run, hook.next_step, hook.next_time) == (3, -5, 1.5)
    hook.never_due()
    assert (hook.next_run, hook.next_step, hook.next_time) == (None, None, None)


@pytest.mark.parametrize("how", ["due_at_run", "due_at_step", "due_at_time"])
def test_the_step_function_makes_a_hook_due(how: str) -> None:
    """The loop notices it, though it has called no hook since it read the positions."""
    called: list[int] = []

    class Waiting(Hook):
        def after_step(self, loop: StepLoop, value: Any) -> None:
            called.append(loop.global_step)
            self.never_due()

    hook = Waiting()

    def step() -> int:
        if loop.global_step == 3:
            getattr(hook, how)(2 if how != "due_at_time" else 0.0)
        return 0

    loop = StepLoop(step, [hook], max_steps=8)
    loop.run()
    assert called == [4]


def test_positions_beyond_64_bits() -> None:
    """A larger one is never reached, a smaller one always is."""
    hook = Hook()
    hook.due_at_run(10**30)
    hook.due_at_step(10**30)
    assert (hook.next_run, hook.next_step) == (None, None)
    hook.due_at_step(-(10**30))
    assert hook.next_step == -(2**63)


def test_result_and_limits_can_be_read() -> None:
    loop = StepLoop(counter(), max_steps=14, initial_step=10)
    assert (loop.result, loop.max_steps) == (None, 14)
    loop.run()
    assert (loop.result, loop.steps, loop.global_step) == (3, 4, 14)
    assert StepLoop(int).max_steps is None


def test_hooks_are_told_of_an_error() -> None:
    told: list[Any] = []

    class Told(Hook):
        def on_error(self, loop: StepLoop, error: BaseException) -> None:
            told.append((loop.global_step, str(error)))

    class Fails(Told):
        def begin(self, loop: StepLoop) -> None:
            self.due_at_step(3)

        def after_step(self, loop: StepLoop, value: Any) -> None:
            raise RuntimeError("three")

    with pytest.raises(RuntimeError, match="three"):
        StepLoop(int, [Told(), Fails(), Told()]).run()
    assert told == [(3, "three")] * 3


def test_hooks_that_have_not_begun_are_told_nothing() -> None:
    told: list[str] = []

    class Told(Hook):
        def __init__(self, name: str) -> None:
            self.name = name

        def begin(self, loop: StepLoop) -> None:
            if self.name == "second":
                raise RuntimeError

        def on_error(self, loop: StepLoop, error: BaseException) -> None:
            told.append(self.name)

    with pytest.raises(RuntimeError):
        StepLoop(int, [Told("first"), Told("second"), Told("third")]).run()
    assert told == ["first", "second"]


def test_an_interrupt_of_on_error_comes_after_all_are_told() -> None:
    class Interrupts(Hook):
        def on_error(self, loop: StepLoop, error: BaseException) -> None:
            raise SystemExit(3)

    def step() -> None:
        raise RuntimeError("first")

    later = Every(1)
    later.on_error = lambda loop, error: later.calls.append("told")  # type: ignore[method-assign]
    with pytest.raises(SystemExit) as raised:
        StepLoop(step, [Interrupts(), later]).run()
    assert later.calls == ["begin", "told"]
    assert str(raised.value.__context__) == "first"


def test_an_error_of_on_error_hides_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Hook):
        def on_error(self, loop: StepLoop, error: BaseException) -> None:
            raise ValueError("another")

    def step() -> None:
        raise RuntimeError("first")

    later = Every(1)
    later.on_error = lambda loop, error: later.calls.append("told")  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="first"):
        StepLoop(step, [Fails(), later]).run()
    assert later.calls == ["begin", "told"]
    (record,) = caplog.records
    assert "on_error of the hook" in record.getMessage()
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "another"


def test_a_loop_does_not_run_itself() -> None:
    loop = StepLoop(lambda: loop.run())
    with pytest.raises(RuntimeError, match="already running"):
        loop.run()
    loop = StepLoop(lambda: loop.__init__(int))  # type: ignore[misc]
    with pytest.raises(RuntimeError, match="can't be initialized again"):
        loop.run()


def test_a_loop_can_run_after_an_error() -> None:
    results: Any = iter([1, None, 2])

    def step() -> int:
        result = next(results)
        if result is None:
            raise RuntimeError
        return int(result)

    loop = StepLoop(step)
    with pytest.raises(RuntimeError):
        loop.run()
    assert loop.run() == 2
    assert loop.steps == 2


def test_subclasses_have_arguments_of_their_own() -> None:
    class Counting(StepLoop):
        def __init__(self, last: int) -> None:
            super().__init__(counter(), max_steps=last + 1)

    assert Counting(5).run() == 5


def test_a_loop_that_was_not_initialised_does_nothing() -> None:
    assert StepLoop.__new__(StepLoop).steps == 0
    with pytest.raises(TypeError):
        StepLoop.__new__(StepLoop).run()


def test_a_thousand_idle_hooks_are_not_called() -> None:
    class Idle(Hook):
        def after_step(self, loop: StepLoop, value: Any) -> None:
            raise AssertionError

    two = Every(2)
    StepLoop(int, [*(Idle() for _ in range(1024)), two], max_steps=4).run()
    assert two.calls == ["begin", (2, 0), (4, 0), "end"]


class SaysNothing(Hook):
    def after_step(self, loop: Any, value: Any) -> None:
        raise AssertionError


class NeverDue(SaysNothing):
    def begin(self, loop: Any) -> None:
        self.never_due()


class Begins(Hook):
    def begin(self, loop: Any) -> None:
        pass


@pytest.mark.parametrize(("hook", "warnings"), [(SaysNothing, 1), (NeverDue, 0), (Begins, 0), (Hook, 0)])
def test_a_hook_that_will_not_be_called_is_told_of(hook: type[Hook], warnings: int, caplog: Any) -> None:
    StepLoop(int, [hook()], max_steps=3).run()
    assert len(caplog.messages) == warnings
    assert all("after_step of the hook" in text and "due_every_run()" in text for text in caplog.messages)


def hook_with(name: str, base: type[Hook] = Hook, **more: Any) -> Hook:
    """A hook that is due after every step, with a method of this name."""
    methods: dict[str, Any] = {"begin": lambda self, loop: self.due_every_run(), name: lambda self, *_: None, **more}
    return type("Mine", (base,), {name: methods[name] for name in methods if methods[name] is not None})()


def nothing(*_: Any) -> None: ...


def test_a_callback_of_epochs_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    StepLoop(int, [hook_with("on_train_epoch_end", after_step=nothing)])
    assert "For the end of an epoch, use a PeriodicHook with every_epochs" in caplog.text


@pytest.mark.parametrize(
    ("hook", "found"),
    [
        (hook_with("afterstep"), {"afterstep": "after_step"}),
        (hook_with("afterStep"), {"afterStep": "after_step"}),
        (hook_with("after_stpe"), {"after_stpe": "after_step"}),
        (hook_with("on_due"), {"on_due": "after_step"}),
        (hook_with("after_run"), {"after_run": "after_step"}),
        (hook_with("on_train_batch_end"), {"on_train_batch_end": "after_step"}),
        (hook_with("on_step_end"), {"on_step_end": "after_step"}),
        (hook_with("on_validation_end", after_step=nothing), {"on_validation_end": "on_evaluation"}),
        (hook_with("on_evaluate", after_step=nothing), {"on_evaluate": "on_evaluation"}),
        (hook_with("begins", begin=None), {"begins": "begin"}),
        (hook_with("onerror", after_step=nothing), {"onerror": "on_error"}),
        (hook_with("End", after_step=nothing), {"End": "end"}),
        (hook_with("on_evalution", after_step=nothing), {"on_evalution": "on_evaluation"}),
        (hook_with("stateDict", after_step=nothing, load_state_dict=nothing), {"stateDict": "state_dict"}),
        # Methods that are for something else.
        (hook_with("after_step"), {}),
        (hook_with("after_steps", after_step=nothing), {}),
        (hook_with("log_error", after_step=nothing), {}),
        (hook_with("send", after_step=nothing), {}),
        (hook_with("append", after_step=nothing), {}),
        (hook_with("after_step_2", after_step=nothing), {}),
        (hook_with("_after_step", after_step=nothing), {}),
        (hook_with("act", after_step=nothing), {}),
        (hook_with("Act", fastsup.loop.PeriodicHook, __init__=nothing, begin=nothing), {"Act": "act"}),
    ],
)
def test_a_misspelt_callback_is_told_of(hook: Hook, found: dict[str, str], caplog: Any) -> None:
    StepLoop(int, [hook, hook])
    assert caplog.messages == [
        f"No loop calls Mine.{name} of the hook {hook!r}. Rename it to {callback} if that is what you mean."
        for name, callback in found.items()
    ]


def test_a_hook_that_is_due_and_does_nothing_is_told_of(caplog: Any) -> None:
    StepLoop(int, [hook_with("other")], max_steps=1).run()
    assert ["is due after steps, but has no after_step, so it does nothing." in text for text in caplog.messages] == [
        True
    ]
    caplog.clear()
    StepLoop(int, [hook_with("after_steps")], max_steps=1).run()
    assert ["has after_steps without after_step" in text for text in caplog.messages] == [True]
    caplog.clear()
    with_attribute = hook_with("other")
    with_attribute.after_step = nothing  # type: ignore[method-assign]
    StepLoop(int, [hook_with("after_step"), with_attribute, Hook()], max_steps=1).run()
    assert caplog.messages == []


def test_a_time_that_the_step_sets_is_one_of_the_replaced_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1000.0)
    calls = []

    class Never(core.Hook):
        def begin(self, loop: Any) -> None:
            self.never_due()

        def after_step(self, loop: Any, value: Any) -> None:
            calls.append(loop.global_step)

    hook = Never()
    steps = iter(range(10))

    def step() -> None:
        if next(steps) == 3:
            hook.reschedule(at_time=1000.0 + 1e6)

    core.StepLoop(step, [hook], max_steps=10).run()
    assert calls == []


@pytest.mark.parametrize(
    ("method", "value", "text"),
    [
        ("due_at_step", "a", "global_step must be an integer, got 'a'."),
        ("due_at_step", 2.5, "global_step must be an integer, got 2.5."),
        ("due_at_run", None, "run must be an integer, got None."),
        ("due_at_time", "a", "time must be a number of seconds since the epoch, got 'a'."),
        ("due_at_time", None, "time must be a number of seconds since the epoch, got None."),
    ],
)
def test_positions_of_a_wrong_type(method: str, value: Any, text: str) -> None:
    hook = core.Hook()
    with pytest.raises(TypeError) as raised:
        getattr(hook, method)(value)
    assert str(raised.value) == text
    assert (hook.next_run, hook.next_step, hook.next_time) == (None, None, None)


def test_a_time_that_is_no_number_is_refused() -> None:
    hook = core.Hook()
    for sets in (lambda: hook.due_at_time(float("nan")), lambda: hook.reschedule(at_time=float("nan"))):
        with pytest.raises(ValueError, match=r"^time must be a number of seconds since the epoch, got nan\."):
            sets()


def test_reschedule_replaces_all_positions() -> None:
    hook = core.Hook()
    hook.due_every_run()
    hook.due_at_time(5.0)
    hook.reschedule(at_step=7)
    assert (hook.next_run, hook.next_step, hook.next_time) == (None, 7, None)
    hook.reschedule(at_run=3, every_run=False)
    assert (hook.next_run, hook.next_step, hook.next_time) == (3, None, None)
    hook.reschedule(every_run=True, at_time=2.0)
    assert (hook.next_run, hook.next_time) == (0, 2.0)
    hook.reschedule()
    assert (hook.next_run, hook.next_step, hook.next_time) == (None, None, None)


def test_an_interrupt_before_the_first_step_leaves_a_loop_that_runs() -> None:
    """A signal handler may raise where the loop logs that it is at its end already."""
    loop = StepLoop(lambda: None, max_steps=0)
    with mock.patch.object(logging.getLogger("fastsup"), "info", side_effect=KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            loop.run()
    assert loop.run() is None


class Returning:
    """A step whose `run_steps` returns what it is told."""

    def __init__(self, returned: Any) -> None:
        self.returned = returned

    def __call__(self) -> float:
        return 1.0

    def run_steps(self, limit: int, seconds: float, with_results: bool) -> Any:
        return self.returned(limit)


class TakingAll(Hook):
    def begin(self, loop: Any) -> None:
        self.due_every_run()

    def after_step(self, loop: Any, value: Any) -> None:
        pass

    def after_steps(self, loop: Any, values: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda n: None, r"must return the number of steps, the last step's result, .* It returned None\."),
        (lambda n: (n, 1.0), r"must return the number of steps, .* It returned \(9, 1\.0\)\."),
        (lambda n: (n + 1, 1.0, None), "must run 1 to 9 steps, but ran 10"),
        (lambda n: (n, 1.0, None), r"must return the results of its 9 steps, as arrays .* It returned None\."),
        (lambda n: (n, 1.0, np.ones(n + 7)), "must return the results of its 9 steps, as arrays"),
        (lambda n: (n, 1.0, np.ones([])), "must return the results of its 9 steps, as arrays"),
    ],
)
def test_what_run_steps_must_return(returned: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        StepLoop(Returning(returned), [TakingAll()], max_steps=9).run()


def test_what_run_steps_may_return() -> None:
    loop = StepLoop(Returning(lambda n: [min(n, 4), 2.0, np.ones(min(n, 4))]), [TakingAll()], max_steps=9)
    assert (loop.run(), loop.global_step) == (2.0, 9)
