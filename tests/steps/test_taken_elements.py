"""Compiled loops over tf.data: each element that a call takes is used by a step of that call."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import fastsup
from fastsup.core import Hook
from fastsup.loop import StepLoop
from fastsup.steps import batches as blocks
from fastsup.steps.fused_function import FusedFunction


class Steps:
    """A step that XLA compiles, and that remembers the number in its last batch."""

    def __init__(self) -> None:
        self.last = tf.Variable(-1.0)
        self.count = tf.Variable(0, dtype=tf.int64)
        self.largest = fastsup.function(self._largest, jit_compile=True)
        self.all_rows = fastsup.function(self._all_rows, jit_compile=True)
        self.positive = fastsup.function(self._positive, jit_compile=True)

    def _note(self, batch: Any) -> None:
        self.last.assign(tf.reduce_max(batch))
        self.count.assign_add(1)

    def _largest(self, batch: Any) -> Any:
        self._note(batch)
        return {"largest": tf.reduce_max(batch)}

    def _all_rows(self, batch: Any) -> Any:
        """A step whose result has the rows of the batch."""
        self._note(batch)
        return {"rows": 2.0 * batch}

    def _positive(self, batch: Any) -> Any:
        """A step that can't be put into a loop: nobody knows how many rows it returns."""
        self._note(batch)
        return tf.boolean_mask(batch, batch > 0)


def elements(count: int, sizes: list[int], fails_at: int = -1) -> Any:
    """Elements with their number in all rows, of several sizes in turns."""

    def element(number: Any) -> Any:
        rows = tf.gather(sizes, number % len(sizes))
        value = tf.cast(number, tf.float32)
        if fails_at >= 0:
            value = tf.debugging.check_numerics(value / tf.cast(number != fails_at, tf.float32), "a bad element")
        return tf.fill([rows], value)

    return tf.data.Dataset.range(count).map(element)


class AfterCalls(Hook):
    """Calls a function after each call, with the results of its steps."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def begin(self, loop: Any) -> None:
        self.due_every_run()

    def after_step(self, loop: Any, value: Any) -> None:
        self.function(loop, [value])

    def after_steps(self, loop: Any, values: Any) -> None:
        (name,) = values
        self.function(loop, [{name: value} for value in values[name]])


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of steps of each compiled call."""
    counts: list[int] = []
    call = FusedFunction.__call__

    def counting(self: Any, first: int, steps: int, *rest: Any) -> Any:
        if steps:
            counts.append(steps)
        return call(self, first, steps, *rest)

    monkeypatch.setattr(FusedFunction, "__call__", counting)
    return counts


def test_each_loop_over_a_function_is_compiled(at_once: list[int]) -> None:
    steps = Steps()
    for batch, fused in ((4, 20), (4, 20), (5, 15), (4, 19)):
        at_once.clear()
        data = tf.data.Dataset.range(80).map(lambda number: tf.cast(number, tf.float32)).batch(batch)
        loop = StepLoop(fastsup.bind_batches(steps.largest, data), fuse="always")
        loop.run()
        assert loop.steps == 80 // batch
        # The first batch of another size is made alone.
        assert sum(at_once) == fused
        assert (loop.fused, loop.why_not_fused) == (True, "")
        assert float(steps.last) == 79
    (fusion,) = vars(steps.largest.original)["_fastsup_fusions"].values()
    assert len(fusion.functions) == 2


def test_a_loop_says_before_and_after_its_input_whether_steps_are_made_at_once(at_once: list[int]) -> None:
    steps = Steps()
    data = tf.data.Dataset.range(80).map(lambda number: tf.cast(number, tf.float32))
    StepLoop(fastsup.bind_batches(steps.largest, data.batch(4)), fuse="always").run()
    (fusion,) = vars(steps.largest.original)["_fastsup_fusions"].values()
    fusion.trial.choice, fusion.trial._secs_until_look = "fused", 1000.0
    at_once.clear()
    loop = StepLoop(fastsup.bind_batches(steps.largest, data.batch(4)))
    assert loop.fused
    loop.run()
    assert at_once
    loop._step.begin_input(None)
    assert (loop.fused, loop.why_not_fused) == (True, "")
    # For batches of another size, the loop would have to be compiled first.
    at_once.clear()
    loop = StepLoop(fastsup.bind_batches(steps.largest, data.batch(5)))
    loop.run()
    assert not at_once
    assert not loop.fused
    assert loop.why_not_fused.startswith("not tried yet: single steps come first")


@pytest.mark.parametrize("step", ["largest", "all_rows"])
@pytest.mark.parametrize("sizes", [[4], [4, 4, 4, 2], [4, 4, 4, 4, 4, 2, 2, 2, 2]])
def test_a_saved_iterator_is_where_the_steps_are(step: str, sizes: list[int], tmp_path: Path, at_once: Any) -> None:
    steps = Steps()
    iterator = iter(elements(60, sizes))
    checkpoint = tf.train.Checkpoint(last=steps.last, iterator=iterator)
    saved: list[Any] = []
    results: list[Any] = []

    def save(loop: Any, values: Any) -> None:
        results.extend(tf.nest.map_structure(lambda value: value.tolist(), [np.asarray(*v.values()) for v in values]))
        saved.append((checkpoint.write(str(tmp_path / str(len(saved)))), float(steps.last)))

    loop = StepLoop(fastsup.bind_batches(getattr(steps, step), iterator), [AfterCalls(save)], 57, fuse="always")
    loop.run()
    assert max(at_once) > 1
    assert len(results) == 57
    for number, result in enumerate(results):
        rows = sizes[number % len(sizes)]
        assert result == (number if step == "largest" else [2.0 * number] * rows)
    assert float(next(iterator)[0]) == 57
    again = iter(elements(60, sizes))
    for path, last in saved:
        tf.train.Checkpoint(iterator=again).read(path).expect_partial()
        assert float(next(again)[0]) == last + 1


def test_sizes_that_always_change(at_once: Any) -> None:
    steps = Steps()
    loop = StepLoop(fastsup.bind_batches(steps.largest, elements(40, [1, 2, 3])), fuse="always")
    loop.run()
    assert (loop.steps, float(steps.last)) == (40, 39)
    assert not at_once
    assert not loop.fused
    assert loop.why_not_fused == "the shapes of batches change from one step to the next"


def test_a_loop_that_is_refused_takes_nothing() -> None:
    steps = Steps()
    numbers = [np.full(3, number, np.float32) for number in range(5)]
    iterator = iter(tf.data.Dataset.from_tensor_slices(numbers))
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"the shape of the result .* isn't known"):
            StepLoop(fastsup.bind_batches(steps.positive, iterator), fuse="always").run()
    assert int(steps.count) == 0
    assert float(next(iterator)[0]) == 0


def test_a_loop_that_is_refused_after_a_look_at_the_shape_has_used_it() -> None:
    steps = Steps()
    iterator = iter(elements(5, [3]))
    loop = StepLoop(fastsup.bind_batches(steps.positive, iterator), fuse="always")
    with pytest.raises(RuntimeError, match=r"the shape of the result .* isn't known"):
        loop.run()
    assert loop.steps == int(steps.count) == 1
    assert float(next(iterator)[0]) == 1


def test_an_error_of_the_input_is_raised_before_anything_else() -> None:
    """A hook by time and a stop would otherwise come between the steps and the error of the element after them."""
    steps = Steps()
    seen: list[int] = []
    timed: list[int] = []

    class Timed(Hook):
        def begin(self, loop: Any) -> None:
            self.due_at_time(time.time() + 1000.0)

        def after_step(self, loop: Any, value: Any) -> None:
            timed.append(loop.steps)

    hook = Timed()

    def stop(loop: Any, values: Any) -> None:
        seen.append(loop.steps)
        if loop.steps == 13:
            hook.due_at_time(0.0)
            loop.request_stop()

    iterator = iter(elements(30, [3], fails_at=13))
    loop = StepLoop(fastsup.bind_batches(steps.largest, iterator), [AfterCalls(stop), hook], fuse="always")
    with pytest.raises(tf.errors.InvalidArgumentError, match="a bad element"):
        loop.run()
    assert loop.steps == 13 == seen[-1]
    assert timed == []
    assert float(next(iterator)[0]) == 14


def test_ctrl_c_while_the_input_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps()
    iterator = iter(elements(60, [3]))
    next_element = blocks.next_element
    taken: list[Any] = []

    def interrupted(iterator: Any) -> Any:
        if len(taken) == 11:
            taken.append(None)
            raise KeyboardInterrupt
        taken.append(None)
        return next_element(iterator)

    monkeypatch.setattr(blocks, "next_element", interrupted)
    loop = StepLoop(fastsup.bind_batches(steps.largest, iterator), fuse="always")
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    assert loop.steps == int(steps.count) == 11
    assert float(next(iterator)[0]) == 11


def test_ctrl_c_during_a_call_leaves_arrays_where_the_steps_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python raises it when the call has ended, whose steps are made."""
    steps = Steps()
    batches = fastsup.ArrayBatches(np.arange(100, dtype=np.float32), 2, epochs=None)
    call = FusedFunction.__call__

    def interrupted(self: Any, *arguments: Any) -> Any:
        result = call(self, *arguments)
        if int(steps.count) > 10:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(FusedFunction, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        StepLoop(fastsup.bind_batches(steps.largest, batches), fuse="always").run()
    assert batches.position == int(steps.count) > 10


def test_a_hook_may_set_the_iterator_back(tmp_path: Path) -> None:
    """Also where the end of the elements was met already."""
    steps = Steps()
    iterator = iter(elements(10, [3]))
    checkpoint = tf.train.Checkpoint(iterator=iterator)
    path = checkpoint.write(str(tmp_path / "start"))

    def rewind(loop: Any, values: Any) -> None:
        if loop.steps == 10:
            checkpoint.read(path)

    loop = StepLoop(fastsup.bind_batches(steps.largest, iterator), [AfterCalls(rewind)], fuse="always")
    loop.run()
    assert loop.steps == 20 == int(steps.count)


def test_a_step_of_your_own_that_has_more_to_return() -> None:
    """As long as it says so, only hooks that take the results come before the next call."""

    class Two:
        """Makes two steps in a call, and returns one of them in the next call."""

        def __init__(self) -> None:
            self.has_more = False

        def __call__(self) -> None: ...

        def run_steps(self, limit: int, seconds: float, with_results: bool) -> Any:
            self.has_more = not self.has_more
            return 1, 1.0, None

    seen: list[int] = []

    class Timed(Hook):
        def begin(self, loop: Any) -> None:
            self.due_at_time(0.0)

        def after_step(self, loop: Any, value: Any) -> None:
            seen.append(loop.steps)
            loop.request_stop()

    loop = StepLoop(Two(), [Timed()])
    loop.run()
    assert seen == [2]
    assert loop.steps == 2
