"""The step loop and its hooks, without TensorFlow."""

from __future__ import annotations

import _thread
import threading
import time
from typing import Any

import pytest

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
    assert message.startswith(f"The hook {hook!r} is used twice at a time, and has one due position")
    # One after the other is right.
    caplog.clear()
    for _ in range(2):
        StepLoop(counter(), [hook], max_steps=4).run()
    assert not caplog.messages


def test_warns_of_a_hook_that_stands_in_a_list_twice(caplog: pytest.LogCaptureFixture) -> None:
    hook = Every(2)
    StepLoop(counter(), [hook, hook], max_steps=4).run()
    assert [text.split(" is used")[1][:16] for text in caplog.messages] == [" twice at a time"]


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
        ((int, None), TypeError, r"hooks must be an iterable of fastsup\.core\.Hook objects, got None\. Pass \[\]"),
    ],
)
def test_bad_arguments(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        StepLoop(*arguments)


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
    with pytest.raises(RuntimeError, match="running already"):
        loop.run()
    loop = StepLoop(lambda: loop.__init__(int))  # type: ignore[misc]
    with pytest.raises(RuntimeError, match="can't be initialised again"):
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
