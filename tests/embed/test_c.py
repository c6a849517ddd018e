"""Steps, hooks and whole loops in C, by way of fastsup.h. Each program runs in its own process."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

import pytest

Run = Callable[[str], str]


def test_a_loop_in_c_without_the_gil(in_fresh_process: Run) -> None:
    in_fresh_process("""
import sys
import embed_c
steps, hook = embed_c.counter(), embed_c.counter()
loop = embed_c.loop(steps, [embed_c.hook(hook), embed_c.hook(hook, 10)], 1500, 500)
assert embed_c.run(loop) == (1500, 1000, 0.5 * 1499)
assert embed_c.read_counter(steps) == (1000, 0)
assert embed_c.read_counter(hook) == (1100, 0)
assert loop.result == 0.5 * 1499
assert "tensorflow" not in sys.modules
""")


def test_hooks_see_the_step_and_the_clock(in_fresh_process: Run) -> None:
    in_fresh_process("""
import time
import embed_c
hook, notes = embed_c.noting_hook(3)
began = time.time()
embed_c.run(embed_c.loop(embed_c.counter(), [hook], 110, 100))
rows, clock = embed_c.read_notes(notes)
assert rows == [(102, 2, 50.5), (105, 5, 52.0), (108, 8, 53.5)], rows
assert began - 1e-3 <= clock <= time.time() + 1e-3
""")


def test_hooks_by_time(in_fresh_process: Run) -> None:
    """Beside one that is due after every step, and one in Python."""
    in_fresh_process("""
import time
import embed_c
from fastsup.loop import TimeLimitHook
always, sometimes = embed_c.counter(), embed_c.counter()
hooks = [embed_c.hook(always, 1), embed_c.hook(sometimes, 0, 0.05), TimeLimitHook(0.5)]
loop = embed_c.loop(embed_c.counter(), hooks)
began = time.monotonic()
loop.run()
took = time.monotonic() - began
assert took > 0.4
assert embed_c.read_counter(always)[0] == loop.steps
# Once at least, and never before its time has passed.
assert 1 <= embed_c.read_counter(sometimes)[0] <= took / 0.05 + 1
""")


def test_a_replaced_clock_is_obeyed(in_fresh_process: Run) -> None:
    in_fresh_process("""
import time
import embed_c
from fastsup.core import Hook
now = 1000.0
time.time = lambda: now
class Moves(Hook):
    def begin(self, loop):
        self.due_every_run()
    def after_step(self, loop, value):
        global now
        now += 1
counter = embed_c.counter()
embed_c.run(embed_c.loop(embed_c.counter(), [embed_c.hook(counter, 0, 10.0), Moves()], 100))
# It hears of the time a step later: the hook that moves the clock comes after it.
assert embed_c.read_counter(counter)[0] == 9, embed_c.read_counter(counter)
""")


def test_all_hooks_are_called_in_order(in_fresh_process: Run) -> None:
    """The one in Python between those in C sees what the first has done and the last has not."""
    in_fresh_process("""
import embed_c
from fastsup.core import Hook
first, last = embed_c.counter(), embed_c.counter()
class Between(Hook):
    def begin(self, loop):
        self.seen = []
        self.due_at_step(4)
    def after_step(self, loop, value):
        self.seen.append((loop.global_step, value, embed_c.read_counter(first)[0], embed_c.read_counter(last)[0]))
        self.due_at_step(loop.global_step + 4)
between = Between()
embed_c.run(embed_c.loop(embed_c.counter(), [embed_c.hook(first), between, embed_c.hook(last)], 8))
assert between.seen == [(4, 1.5, 4, 3), (8, 3.5, 8, 7)], between.seen
""")


def test_a_hook_in_c_around_a_step_in_python(in_fresh_process: Run) -> None:
    in_fresh_process("""
import embed_c
from fastsup.core import StepLoop
hook, notes = embed_c.noting_hook(2)
results = iter([1.0, 2.5, None, "text", 7.0, 8.5])
StepLoop(results.__next__, [hook]).run()
rows, _ = embed_c.read_notes(notes)
assert rows[0] == (2, 2, 2.5) and rows[2] == (6, 6, 8.5), rows
assert rows[1][2] != rows[1][2]  # NaN: no number
""")


def test_capsules_alone_will_do(in_fresh_process: Run) -> None:
    in_fresh_process("""
import embed_c
from fastsup.core import NativeHook, StepLoop
steps, hook = embed_c.counter(), embed_c.counter(4, "stop")
hooks = [NativeHook(embed_c.hook_capsule(), context=hook)]
assert StepLoop(embed_c.step_capsule(steps), hooks, max_steps=100).run() == 2.0
assert embed_c.read_counter(steps) == (5, 0)
""")


def test_a_step_that_sets_no_result(in_fresh_process: Run) -> None:
    in_fresh_process("""
import embed_c
from fastsup.core import StepLoop
from fastsup.loop import NanGuardHook, NanResultError
steps = embed_c.counter(0, "no result")
loop = StepLoop(embed_c.step_capsule(steps), [NanGuardHook()], max_steps=100)
assert loop.step_is_native and not StepLoop(int).step_is_native
try:
    loop.run()
except NanResultError as error:
    said = str(error)
assert said == "NaN in the result of step 1: loss. It is also NaN if a step in C doesn't set loop->result.", said
""")


HOOK = "loop.hooks[0], <fastsup.core.NativeHook object>,"


def without_address(text: str) -> str:
    return re.sub(" at 0x[0-9a-f]+", "", text)


WRONG_CODE = "it returned 7, which is neither FS_GO_ON (0) nor FS_STOP (1)"


@pytest.mark.parametrize(
    ("what", "where", "steps"),
    [
        ("stop", "step", 5),  # the sixth call says that there is no step to do
        ("stop", "hook", 6),
        ("request_stop", "step", 6),
        ("request_stop", "hook", 6),
    ],
)
def test_ends(in_fresh_process: Run, what: str, where: str, steps: int) -> None:
    in_fresh_process(f"""
import embed_c
told, plain = embed_c.counter(5, {what!r}), embed_c.counter()
step, hook = (told, plain) if {where!r} == "step" else (plain, told)
loop = embed_c.loop(step, [embed_c.hook(hook)], 100)
embed_c.run(loop)
assert loop.steps == {steps}, loop.steps
""")


@pytest.mark.parametrize("where", ["step", "hook", "hook around a step in Python"])
@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("fail", "RuntimeError: {} failed at global step {}: out of luck"),
        ("code", f"RuntimeError: {{}} failed at global step {{}}: {WRONG_CODE}"),
        ("raise", "LookupError: raised in C"),
        ("raise and go on", "LookupError: raised in C"),
    ],
)
def test_failures_surface(in_fresh_process: Run, where: str, what: str, error: str) -> None:
    printed = in_fresh_process(f"""
import embed_c
from fastsup.core import Hook, StepLoop
class Told(Hook):
    def on_error(self, loop, error):
        print(type(error).__name__, end=": ")
    def end(self, loop):
        print("ended")
told = embed_c.counter(5, {what!r})
if {where!r} == "step":
    loop = embed_c.loop(told, [Told()], 100)
elif {where!r} == "hook":
    loop = embed_c.loop(embed_c.counter(), [embed_c.hook(told), Told()], 100)
else:
    loop = StepLoop(int, [embed_c.hook(told), Told()], 100)
try:
    loop.run()
except Exception as error:
    print(error)
    print(getattr(error, "__notes__", []))
    # What goes on with an exception set is found out at the next look at Python.
    assert loop.steps in (5, 6) or {what!r} == "raise and go on"
""")
    expected = error.format("The step function in C" if where == "step" else HOOK, 5 if where == "step" else 6)
    notes: list[str] = []
    if what.startswith("raise"):
        source = "the step function in C" if where == "step" else HOOK
        # Of one that goes on, the loop only learns that it was a function in C, and at which step.
        notes = [f"Raised by {source if what == 'raise' else 'a function in C'} at global step "]
    message, _, printed_notes = without_address(printed).partition("\n")
    found = ast.literal_eval(printed_notes)
    assert message == expected
    assert [note.rstrip("0123456789.") for note in found] == notes
    if what == "raise":
        assert found == [f"{notes[0]}{5 if where == 'step' else 6}."]


def test_an_exception_of_a_python_hook_ends_a_loop_in_c(in_fresh_process: Run) -> None:
    in_fresh_process("""
import embed_c
from fastsup.core import Hook
class Raises(Hook):
    def begin(self, loop):
        self.due_at_step(7)
    def after_step(self, loop, value):
        raise ArithmeticError("seven")
loop = embed_c.loop(embed_c.counter(), [Raises()], 100)
try:
    embed_c.run(loop)
except ArithmeticError as error:
    assert str(error) == "seven" and loop.steps == 7
else:
    raise AssertionError
""")


def test_other_threads_run_and_stop_it(in_fresh_process: Run) -> None:
    in_fresh_process("""
import threading, time
import embed_c
loop = embed_c.loop(embed_c.counter())
thread = threading.Thread(target=embed_c.run, args=(loop,))
thread.start()
while loop.steps == 0:
    time.sleep(0.001)
try:
    loop.run()
except RuntimeError as error:
    assert "already running" in str(error)
else:
    raise AssertionError
loop.request_stop()
thread.join(60)
assert not thread.is_alive()
""")


def test_a_hook_can_be_made_due_from_another_thread(in_fresh_process: Run) -> None:
    in_fresh_process("""
import threading, time
import embed_c
from fastsup.core import Hook
class Stops(Hook):
    def begin(self, loop):
        self.never_due()
    def after_step(self, loop, value):
        loop.request_stop()
stops = Stops()
loop = embed_c.loop(embed_c.counter(), [stops])
thread = threading.Thread(target=embed_c.run, args=(loop,))
thread.start()
while loop.steps == 0:
    time.sleep(0.001)
assert thread.is_alive()
stops.due_every_run()
thread.join(60)
assert not thread.is_alive()
""")


def test_a_signal_gets_through(in_fresh_process: Run) -> None:
    in_fresh_process("""
import _thread, threading
import embed_c
from fastsup.core import Hook
class Starts(Hook):
    def begin(self, loop):
        self.due_at_step(2000)
    def after_step(self, loop, value):
        self.never_due()
        timer.start()  # Not before the loop runs, whatever the machine is busy with.
timer = threading.Timer(0.2, _thread.interrupt_main)
loop = embed_c.loop(embed_c.counter(), [Starts()])
try:
    embed_c.run(loop)
except KeyboardInterrupt:
    assert loop.steps > 2000
else:
    raise AssertionError
timer.join()
""")


def test_nothing_is_left_over(in_fresh_process: Run) -> None:
    in_fresh_process("""
import gc, sys
import embed_c
counter = embed_c.counter()
before = sys.getrefcount(counter)
for _ in range(1000):
    loop = embed_c.loop(counter, [embed_c.hook(counter), embed_c.hook(counter, 5)], 10)
    loop.run()
loop = None
gc.collect()
assert sys.getrefcount(counter) == before
""")


def test_functions_of_null_and_wrong_objects_are_refused(in_fresh_process: Run) -> None:
    printed = in_fresh_process("""
import embed_c
from fastsup.core import NativeHook, StepLoop
def refused(call):
    try:
        call()
    except (TypeError, ValueError) as error:
        print(type(error).__name__, error)
counter = embed_c.counter()
step, hook = embed_c.step_capsule(counter), embed_c.hook_capsule()
refused(lambda: embed_c.without_function(True))
refused(lambda: embed_c.without_function(False))
refused(lambda: embed_c.run("loop"))
refused(lambda: StepLoop(hook))
refused(lambda: StepLoop(step, [step]))
refused(lambda: StepLoop(step, [hook], -1))
refused(lambda: NativeHook(print))
refused(lambda: NativeHook(hook, context=print))
refused(lambda: NativeHook(hook, every_steps=0))
refused(lambda: embed_c.hook(counter, 0, -1.0))
refused(lambda: embed_c.loop(counter, [print]))
""")
    step, hook = "int (fs_loop *, void *)", "int (fs_loop const *, void *)"
    lines = printed.splitlines()
    assert lines[0] == f"TypeError a step function in C must be a function '{step}', got NULL"
    assert lines[1] == f"TypeError a hook in C must be a function '{hook}', got NULL"
    assert lines[2] == "TypeError loop must be a fastsup.core.StepLoop, got 'loop'"
    assert lines[3].startswith(
        f"TypeError a step function in C must have the signature '{step}', but the capsule is named '{hook}'."
    )
    assert lines[4].startswith(
        f"TypeError a hook in C must have the signature '{hook}', but the capsule is named '{step}'."
    )
    assert lines[5].startswith("ValueError max_steps must not be negative, got -1")
    assert lines[6].startswith(f"TypeError a hook in C must be a capsule named '{hook}', got <built-in function print>")
    assert lines[7] == "TypeError context must be a capsule or None, got <built-in function print>"
    assert lines[8].startswith("ValueError every_steps must be positive, got 0")
    assert lines[9].startswith(
        "ValueError every_secs of an fs_schedule must be positive, or 0 to leave it out; got -1.0"
    )
    assert lines[10].startswith(
        "TypeError hooks must be fastsup.core.Hook objects, or capsules of hooks in C, got <built"
    )
    assert len(lines) == 11


def test_a_profile_of_a_loop_in_c(in_fresh_process: Run) -> None:
    """The same calls as without one, and each step and hook in it."""
    in_fresh_process("""
import sys
import embed_c
import fastsup
from fastsup.core import NativeHook, StepLoop
steps, hook = embed_c.counter(), embed_c.counter()
hooks = [
    NativeHook(embed_c.hook_capsule(), context=hook),
    NativeHook(embed_c.hook_capsule(), every_steps=10, context=hook),
    NativeHook(embed_c.hook_capsule(), every_secs=3600, context=hook),
]
profiler = fastsup.HookProfiler()
loop = StepLoop(embed_c.step_capsule(steps), hooks, max_steps=1500, initial_step=500, profiler=profiler)
assert loop.run() == 0.5 * 1499
assert (loop.steps, loop.global_step) == (1000, 1500)
assert embed_c.read_counter(steps)[0] == 1000
assert embed_c.read_counter(hook)[0] == 1100
report = profiler.report()
calls = {(row.owner, row.phase): row.times.calls for row in report.rows}
assert report.steps == calls["session", "runtime"] == calls["NativeHook", "after_step"] == 1000, calls
assert calls["NativeHook #2", "after_step"] == 100
assert ("NativeHook #3", "after_step") not in calls
assert "tensorflow" not in sys.modules
""")


@pytest.mark.parametrize("where", ["step", "hook"])
@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("stop", "none"),
        ("fail", "RuntimeError: {} failed at global step {}: out of luck"),
        ("code", f"RuntimeError: {{}} failed at global step {{}}: {WRONG_CODE}"),
        ("raise", "LookupError: raised in C"),
        ("raise and go on", "LookupError: raised in C"),
    ],
)
def test_a_profile_changes_no_end_of_a_loop_in_c(in_fresh_process: Run, where: str, what: str, error: str) -> None:
    printed = in_fresh_process(f"""
import embed_c
import fastsup
from fastsup.core import NativeHook, StepLoop
told, plain = embed_c.counter(5, {what!r}), embed_c.counter()
step, hook = (told, plain) if {where!r} == "step" else (plain, told)
hooks = [NativeHook(embed_c.hook_capsule(), context=hook)]
profiler = fastsup.HookProfiler()
loop = StepLoop(embed_c.step_capsule(step), hooks, max_steps=100, profiler=profiler)
try:
    loop.run()
    print("none")
except Exception as error:
    print(f"{{type(error).__name__}}: {{error}}")
print(loop.steps)
report = profiler.report()
parts = sum(row.times.total_ns for row in report.rows) + report.profiler_ns + report.unaccounted_ns
assert abs(parts - report.wall_ns) < 10
""")
    steps = 5 if where == "step" else 6
    said = error.format(*(("The step function in C", 5) if where == "step" else (HOOK, 6)))
    assert without_address(printed) == f"{said}\n{steps}\n"


def test_the_text_of_another_failure_is_not_told(in_fresh_process: Run) -> None:
    """A step that sets a text and goes on; a hook that returns a wrong code later; another run of the loop."""
    printed = in_fresh_process("""
import embed_c
hooks = [embed_c.hook(embed_c.counter(8, "code"))]
loop = embed_c.loop(embed_c.counter(3, "fail and go on"), hooks, 100)
for _ in range(2):
    try:
        embed_c.run(loop)
    except RuntimeError as error:
        print(error, loop.steps)
loop = embed_c.loop(embed_c.counter(3, "fail"), [], 100)
for _ in range(2):
    try:
        embed_c.run(loop)
        print(loop.steps)
    except RuntimeError as error:
        print(error)
""")
    assert without_address(printed).splitlines() == [
        f"{HOOK} failed at global step 9: {WRONG_CODE} 9",
        "The step function in C failed at global step 3: out of luck",
        "100",
    ]
