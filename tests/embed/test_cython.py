"""Hooks, steps and loops in Cython, by way of the .pxd files. Each program runs in its own process."""

from __future__ import annotations

from collections.abc import Callable

Run = Callable[[str], str]


def test_a_cdef_hook_is_called_without_a_python_call(in_fresh_process: Run) -> None:
    in_fresh_process("""
import sys
from embed_cython import Counter
from fastsup.core import StepLoop
calls = []
sys.setprofile(lambda frame, event, what: calls.append((event, what)))
counter = Counter(3)
loop = StepLoop(int, [counter], max_steps=20)
calls.clear()
loop.run()
sys.setprofile(None)
assert (counter.calls, counter.last_step) == (6, 18)
names = {getattr(what, "__name__", what) for event, what in calls}
assert "after_step" not in names and "on_due" not in names and "due_at_step" not in names, names
assert "tensorflow" not in sys.modules
""")


def test_a_cdef_hook_around_a_step_in_c(in_fresh_process: Run) -> None:
    in_fresh_process("""
from embed_cython import Counter, Quiet, __pyx_capi__
from fastsup.core import StepLoop
counter, quiet = Counter(4), Quiet()
loop = StepLoop(__pyx_capi__["halve"], [counter, quiet, __pyx_capi__["stop_at_10"]], max_steps=100)
assert loop.run() == 0.1
assert (counter.calls, counter.last_step, quiet.calls, loop.steps) == (2, 8, 10, 10)
""")


def test_a_cdef_hook_sees_the_result_of_a_step_in_python(in_fresh_process: Run) -> None:
    in_fresh_process("""
import itertools
import math
from embed_cython import Counter, Quiet
from fastsup.core import StepLoop
for others in ([], [Quiet()]):
    counter = Counter(3)
    StepLoop(itertools.count(0.5).__next__, [counter, *others], max_steps=7).run()
    assert (counter.last_step, counter.last_result) == (6, 5.5), counter.last_result
    counter = Counter(3)
    StepLoop(lambda: "no float", [counter, *others], max_steps=3).run()
    assert math.isnan(counter.last_result)
""")


def test_an_exception_in_a_cdef_hook_surfaces(in_fresh_process: Run) -> None:
    in_fresh_process("""
from embed_cython import Fails, __pyx_capi__
from fastsup.core import StepLoop
for step in (int, __pyx_capi__["halve"]):
    loop = StepLoop(step, [Fails(3)], max_steps=100)
    try:
        loop.run()
    except ArithmeticError as error:
        assert str(error) == "at step 3" and loop.steps == 3
    else:
        raise AssertionError
""")


def test_a_subclass_in_python_of_a_cdef_hook(in_fresh_process: Run) -> None:
    in_fresh_process("""
from embed_cython import Counter
from fastsup.core import StepLoop
class Noted(Counter):
    def begin(self, loop):
        self.note = "begun"
        super().begin(loop)
noted = Noted(2)
StepLoop(int, [noted], max_steps=5).run()
assert (noted.note, noted.calls) == ("begun", 2)
""")


def test_a_loop_keeps_the_owner_of_its_context(in_fresh_process: Run) -> None:
    in_fresh_process("""
import gc
from embed_cython import Sum
from fastsup.core import StepLoop
loop = Sum().loop([], 101)
gc.collect()
assert isinstance(loop, StepLoop)
assert loop.run() == 5050.0
""")


def test_hooks_made_by_the_c_interface(in_fresh_process: Run) -> None:
    in_fresh_process("""
from embed_cython import every_three_steps
from fastsup.core import NativeHook, StepLoop
hook = every_three_steps()
assert isinstance(hook, NativeHook)
loop = StepLoop(int, [hook], max_steps=100)
loop.run()
assert loop.steps == 12  # the first multiple of three beyond 10
""")


def test_the_clock_the_timer_and_the_schedule(in_fresh_process: Run) -> None:
    in_fresh_process("""
import time
import embed_cython
from fastsup.core import Hook, SecondOrStepTimer
before, now, after = time.time(), embed_cython.now(), time.time()
assert before - 1e-3 <= now <= after + 1e-3
timer = SecondOrStepTimer(every_steps=5)
timer.update_last_triggered_step(20)
assert embed_cython.timer_says(timer) == 25
hook = Hook()
assert embed_cython.is_idle(hook)
hook.due_at_step(3)
assert not embed_cython.is_idle(hook)
""")


def test_a_cdef_hook_that_never_says_when_it_is_due(in_fresh_process: Run) -> None:
    in_fresh_process("""
import logging
from embed_cython import Counter, Forgetful, Quiet
from fastsup.core import StepLoop
class Known(Quiet):
    def begin(self, loop):
        self.never_due()
class Unknown(Quiet):
    def begin(self, loop):
        pass
said = []
logging.getLogger("fastsup").addFilter(lambda record: said.append(record.getMessage()))
forgetful, unknown = Forgetful(), Unknown()
StepLoop(int, [Counter(3), forgetful, Quiet(), Known(), unknown], max_steps=5).run()
assert [text.split(" won't be called: ")[0] for text in said] == [
    f"on_due of the hook {forgetful!r}", f"The function in C of the hook {unknown!r}"
], said
""")


def test_a_step_that_fails_by_the_c_interface(in_fresh_process: Run) -> None:
    printed = in_fresh_process("""
import embed_cython
from fastsup.core import StepLoop
loop = StepLoop(embed_cython.__pyx_capi__["fail_at_3"], max_steps=10)
try:
    loop.run()
except RuntimeError as error:
    print(error, loop.steps)
""")
    assert printed == "The step function in C failed at global step 3: at three 3\n"


def test_the_code_that_a_cdef_hook_returns(in_fresh_process: Run) -> None:
    printed = in_fresh_process("""
import embed_cython
from fastsup.core import StepLoop
for code, text in ((0, b""), (1, b""), (7, b""), (-1, b""), (-1, b"too large")):
    loop = StepLoop(int, [embed_cython.Returns(5, code, text)], max_steps=9)
    try:
        loop.run()
        print(loop.steps)
    except RuntimeError as error:
        print(error)
        assert not hasattr(error, "__notes__")  # The message has it all.
""")
    nine, five, *errors = printed.splitlines()
    assert (nine, five) == ("9", "5")
    told = [error.partition(">, failed at global step 5: ") for error in errors]
    assert {culprit.partition(" object at ")[0] for culprit, _, _ in told} == {"loop.hooks[0], <embed_cython.Returns"}
    assert [reason for _, _, reason in told] == [
        "it returned 7, which is neither FS_GO_ON (0) nor FS_STOP (1)",
        "it returned -1, which is neither FS_GO_ON (0) nor FS_STOP (1)",
        "too large",
    ]
