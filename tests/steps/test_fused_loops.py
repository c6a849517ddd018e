"""Many steps in one compiled call: the same as one step after the other, at each step that a hook sees."""

from __future__ import annotations

import math
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import fastsup
from fastsup.core import Hook
from fastsup.loop import CheckpointHook, NanGuardHook, NanResultError, StepLoop, StopAtStepHook
from fastsup.steps.fused import FusedStep, fused_step

ROWS = 24


class Model:
    """A regression whose step XLA compiles, with a momentum, a count and random numbers from a seed that is its
    state."""

    def __init__(self) -> None:
        self.weights = tf.Variable(tf.zeros([3]))
        self.momentum = tf.Variable(tf.zeros([3]))
        self.seed = tf.Variable([7, 0], dtype=tf.int32)
        self.rate = tf.Variable(0.1)
        self.count = tf.Variable(0, dtype=tf.int64)
        self.train = fastsup.function(self.step, jit_compile=True)
        self.train_constant = fastsup.function(self.step_of_constant, jit_compile=True)

    def step(self, x: Any, y: Any) -> Any:
        noise = tf.random.stateless_normal([3], self.seed)
        self.seed.assign_add([0, 1])
        error = tf.linalg.matvec(x, self.weights) - y
        gradient = tf.linalg.matvec(x, error, transpose_a=True) / 4.0 + 0.01 * noise
        self.momentum.assign(0.9 * self.momentum + gradient)
        self.weights.assign_sub(self.rate * self.momentum)
        self.count.assign_add(1)
        return {"loss": tf.reduce_mean(error**2), "step": self.count.read_value()}

    def step_of_constant(self) -> Any:
        x = tf.reshape(tf.range(12.0) / 12.0, [4, 3])
        return self.step(x, tf.ones([4]))

    def state(self) -> list[Any]:
        return [value.numpy().tolist() for value in (self.weights, self.momentum, self.seed, self.count)]


def data() -> Any:
    random = np.random.default_rng(0)
    return random.normal(size=(ROWS, 3)).astype(np.float32), random.normal(size=ROWS).astype(np.float32)


class Recorder(Hook):
    """Notes what it sees at its steps, and may change the learning rate there."""

    def __init__(self, every: int, model: Model, log: list[Any], halves_rate: bool = False) -> None:
        self.every, self.model, self.log, self.halves_rate = every, model, log, halves_rate

    def begin(self, loop: Any) -> None:
        self.due_at_step((loop.global_step // self.every + 1) * self.every)

    def after_step(self, loop: Any, value: Any) -> None:
        seen = {name: float(number) for name, number in value.items()}
        self.log.append((self.every, loop.global_step, loop.steps, seen, self.model.state()))
        if self.halves_rate:
            self.model.rate.assign(self.model.rate * 0.5)
        self.begin(loop)

    def end(self, loop: Any) -> None:
        self.log.append(("end", loop.global_step))


class Watcher(Hook):
    """Takes the result of each step, of several at once where the loop makes them so."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.most = 0

    def begin(self, loop: Any) -> None:
        self.due_every_run()

    def after_step(self, loop: Any, value: Any) -> None:
        self.losses.append(float(value["loss"]))

    def after_steps(self, loop: Any, values: Any) -> None:
        assert values["step"].tolist() == list(range(loop.global_step - len(values["step"]) + 1, loop.global_step + 1))
        self.most = max(self.most, len(values["step"]))
        self.losses += values["loss"].tolist()


def source_of(kind: str, model: Model, size: int, epochs: int) -> Any:
    arrays = data()
    if kind == "constant":
        return fastsup.bind(model.train_constant)
    if kind == "arrays":
        batches: Any = fastsup.ArrayBatches(arrays, size, shuffle=True, seed=5, epochs=epochs)
    else:
        batches = tf.data.Dataset.from_tensor_slices(arrays).batch(size).repeat(epochs)
    return fastsup.bind_batches(model.train, batches)


def run(fuse: str, kind: str, size: int, epochs: int, intervals: list[int], most: int, watches: bool) -> Any:
    model, log = Model(), []
    hooks: list[Any] = [Recorder(every, model, log, place == 1) for place, every in enumerate(intervals)]
    watcher = Watcher()
    hooks += [watcher] if watches else []
    loop = StepLoop(source_of(kind, model, size, epochs), hooks, max_steps=most, fuse=fuse)
    last = loop.run()
    last = None if last is None else {name: float(value) for name, value in last.items()}
    return (log, last, loop.steps, loop.global_step, model.state(), watcher.losses), watcher.most


@given(
    kind=st.sampled_from(["constant", "arrays", "dataset"]),
    # XLA compiles a product of one row together with the operations around it, and rounds otherwise in a loop.
    size=st.integers(2, 9),
    epochs=st.integers(1, 4),
    intervals=st.lists(st.integers(1, 40), max_size=3),
    most=st.integers(1, 100),
    watches=st.booleans(),
)
@settings(deadline=None, max_examples=8)
def test_random_programs(kind: str, size: int, epochs: int, intervals: list[int], most: int, watches: bool) -> None:
    one_by_one, _ = run("never", kind, size, epochs, intervals, most, watches)
    at_once, _ = run("always", kind, size, epochs, intervals, most, watches)
    assert at_once == one_by_one


def test_makes_several_steps_at_once() -> None:
    for kind in ("constant", "arrays", "dataset"):
        (_, _, steps, _, _, losses), most = run("always", kind, 4, 20, [50], 120, True)
        assert steps == 120 == len(losses)
        assert most >= 4  # On a busy machine, a call makes fewer steps in its time.


def test_hooks_by_time_are_not_late() -> None:
    """A call is as long as the time until the hook is due, and 50 ms at most."""
    model = Model()
    called: list[float] = []

    class Timed(Hook):
        def begin(self, loop: Any) -> None:
            self.due_at_time(time.time() + 0.02)

        def after_step(self, loop: Any, value: Any) -> None:
            called.append(time.time())
            self.begin(loop)
            if len(called) == 20:
                loop.request_stop()

    StepLoop(fastsup.bind(model.train_constant), [Timed()], fuse="always").run()
    gaps = np.diff(called[5:])
    # As much again for a busy machine.
    assert 0.019 < np.median(gaps) < 0.06


def test_a_stop_request_is_served_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    loop = StepLoop(fastsup.bind(model.train_constant), fuse="always")
    paces: list[float] = []
    steps_when_asked: list[int] = []
    run_steps = FusedStep.run_steps

    def noting(self: Any, *arguments: Any) -> Any:
        started = time.perf_counter()
        made = run_steps(self, *arguments)
        paces.append((time.perf_counter() - started) / made[0])
        return made

    def stop() -> None:
        while loop.steps < 10_000:
            time.sleep(0.01)
        loop.request_stop()
        steps_when_asked.append(loop.steps)

    monkeypatch.setattr(FusedStep, "run_steps", noting)
    thread = threading.Thread(target=stop)
    thread.start()
    loop.run()
    thread.join()
    # By the steps that came after it, at the pace that the machine has when nothing else runs.
    assert (loop.steps - steps_when_asked[0]) * min(paces) < 1.0
    assert int(model.count) == loop.steps


def test_a_signal_ends_the_loop_with_a_checkpoint(tmp_path: Path) -> None:
    model = Model()
    batches = fastsup.ArrayBatches(data(), 4, shuffle=True, seed=1, epochs=None)
    checkpoint = tf.train.Checkpoint(weights=model.weights, count=model.count, batches=batches)
    saver = CheckpointHook(checkpoint, every_steps=100_000_000, directory=str(tmp_path))
    timer = threading.Timer(1.0, signal.raise_signal, [signal.SIGINT])

    class Starts(Hook):
        """Has the signal come when the loop runs, which alone handles it, whatever the machine is busy with."""

        def begin(self, loop: Any) -> None:
            self.due_at_step(100)

        def after_step(self, loop: Any, value: Any) -> None:
            self.never_due()
            timer.start()

    loop = StepLoop(fastsup.bind_batches(model.train, batches), [saver, Starts()], fuse="always")
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    timer.join()
    assert loop.steps > 100
    assert batches.position == loop.steps == int(model.count)
    again = Model()
    resumed = fastsup.ArrayBatches(data(), 4, shuffle=True, seed=2, epochs=None)
    checkpoint = tf.train.Checkpoint(weights=again.weights, count=again.count, batches=resumed)
    saver = CheckpointHook(checkpoint, every_steps=100_000_000, directory=str(tmp_path))
    further = StepLoop(fastsup.bind_batches(again.train, resumed), [saver], steps=30, resume_from=saver, fuse="always")
    further.run()
    assert further.restored_step == loop.steps
    assert int(again.count) == loop.steps + 30 == resumed.position


def test_batches_of_another_shape_run_alone() -> None:
    """24 rows in batches of 7: the fourth of each epoch has 3."""
    (_, _, steps, _, _, losses), most = run("always", "arrays", 7, 5, [], 100, True)
    assert (steps, len(losses)) == (20, 20)
    assert 1 < most <= 3


@pytest.mark.parametrize("fails", [True, False])
def test_nan_guard_names_the_step(fails: bool, caplog: Any) -> None:
    count = tf.Variable(0)

    @fastsup.function(jit_compile=True)
    def step() -> Any:
        count.assign_add(1)
        return {"loss": tf.where(count.read_value() == 37, math.nan, 1.0), "other": 2.0}

    guard = NanGuardHook(fail_on_nan=fails)
    loop = StepLoop(fastsup.bind(step), [guard], max_steps=100, fuse="always")
    if fails:
        with pytest.raises(NanResultError, match=r"(?m)NaN in the result of step 37: loss$"):
            loop.run()
    else:
        loop.run()
        assert "NaN in the result of step 37: loss" in caplog.text
    assert loop.fused


def test_nan_guard_with_values_of_its_own() -> None:
    count = tf.Variable(0)

    @fastsup.function(jit_compile=True)
    def step() -> Any:
        count.assign_add(1)
        return count.read_value(), tf.cast(count.read_value(), tf.float32)

    seen: list[int] = []

    def values(result: Any) -> Any:
        seen.append(int(result[0]))
        return math.nan if int(result[0]) == 21 else float(result[1])

    with pytest.raises(NanResultError, match="step 21"):
        StepLoop(fastsup.bind(step), [NanGuardHook(values=values)], max_steps=100, fuse="always").run()
    assert seen == list(range(1, 22))


def test_a_subclass_that_looks_at_each_step_gets_each_step() -> None:
    count = tf.Variable(0)

    @fastsup.function(jit_compile=True)
    def step() -> Any:
        return tf.cast(count.assign_add(1), tf.float32)

    seen: list[float] = []

    class Guard(NanGuardHook):
        def act(self, loop: Any) -> None:
            seen.append(float(loop.result))
            super().act(loop)

    StepLoop(fastsup.bind(step), [Guard()], max_steps=20, fuse="always").run()
    assert seen == list(range(1, 21))


def test_results_of_any_structure() -> None:
    count = tf.Variable(0)

    @fastsup.function(jit_compile=True)
    def step() -> Any:
        now = tf.cast(count.assign_add(1), tf.float32)
        return {"a": (now, None), "b": [tf.fill([2], now), 3], "c": tf.constant(True)}

    def results(fuse: str) -> Any:
        count.assign(0)
        return tf.nest.map_structure(
            lambda leaf: leaf if leaf is None else leaf.numpy().tolist(),
            StepLoop(fastsup.bind(step), max_steps=30, fuse=fuse).run(),
        )

    assert results("always") == results("never")


def test_arguments_are_read_again_in_each_call() -> None:
    total = tf.Variable(0.0)
    number = np.array(1.0, np.float32)

    @fastsup.function(jit_compile=True)
    def step(x: Any, factor: Any, *, scale: float) -> Any:
        return total.assign_add(x * factor * scale)

    class Change(Hook):
        def begin(self, loop: Any) -> None:
            self.due_at_step(50)

        def after_step(self, loop: Any, value: Any) -> None:
            number[...] = 10.0
            self.never_due()

    bound = fastsup.bind(step, number, tf.constant(2.0), scale=0.5)
    StepLoop(bound, [Change()], max_steps=100, fuse="always").run()
    assert float(total) == 50 + 500


def test_methods_and_functions_of_tensorflow() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = tf.Variable(0)

        @fastsup.function(jit_compile=True)
        def step(self, by: Any) -> Any:
            return self.count.assign_add(by)

    counter = Counter()
    loop = StepLoop(fastsup.bind(counter.step, 2), max_steps=50, fuse="always")
    assert int(loop.run()) == 100
    theirs = tf.function(lambda: counter.count.assign_add(1), jit_compile=True)
    assert int(StepLoop(fastsup.bind(theirs), max_steps=50, fuse="always").run()) == 150
    assert loop.fused
    assert loop.why_not_fused == ""


def test_says_why_steps_are_not_made_at_once_now() -> None:
    count = tf.Variable(0)

    @fastsup.function(jit_compile=True)
    def add(by: Any) -> Any:
        return count.assign_add(by)

    loop = StepLoop(fastsup.bind(add, 2), max_steps=50)
    loop.run()
    assert not loop.fused
    said = r"not tried yet: single steps come first, until they have taken \d+\.\d s \(now 0\.\d s\)"
    assert re.match(said, loop.why_not_fused)
    step = fastsup.bind(add, 2)
    fused = fused_step(step, "auto")
    assert isinstance(fused, FusedStep)
    trial = fused.trial
    fused.fusion.function = lambda *args: (None, None)
    trial.choice, trial.seconds = None, {}
    assert fused.why_not_fused == "the trial hasn't finished"
    trial.choice, trial.seconds = "single", {"single": 5e-6, "fused": 7e-6}
    assert fused.why_not_fused == "single steps are faster: 5.0 µs a step in place of 7.0, by a trial"


def test_an_error_of_the_input_comes_after_the_batches_before_it() -> None:
    seen = tf.Variable(0.0)

    @fastsup.function(jit_compile=True)
    def step(x: Any) -> Any:
        return seen.assign_add(x)

    numbers = tf.data.Dataset.range(20).map(
        lambda i: tf.debugging.check_numerics(1.0 / tf.cast(13 - i, tf.float32), "bad")
    )
    loop = StepLoop(fastsup.bind_batches(step, numbers), fuse="always")
    with pytest.raises(tf.errors.InvalidArgumentError, match="bad"):
        loop.run()
    assert loop.steps == 13
    assert float(seen) == pytest.approx(sum(1 / (13 - i) for i in range(13)))


def test_an_iterator_is_not_read_ahead(tmp_path: Path) -> None:
    seen = tf.Variable(0, dtype=tf.int64)

    @fastsup.function(jit_compile=True)
    def step(x: Any) -> Any:
        return seen.assign_add(x)

    iterator = iter(tf.data.Dataset.range(1000))
    StepLoop(fastsup.bind_batches(step, iterator), max_steps=77, fuse="always").run()
    assert next(iterator) == 77


def test_auto_tries_both_ways_and_says_which() -> None:
    model = Model()
    step = fastsup.bind(model.train_constant)
    loop = StepLoop(step, max_steps=None, fuse="auto")

    class EndAfterTrial(Hook):
        def begin(self, loop: Any) -> None:
            self.due_at_time(time.time() + 0.05)

        def after_step(self, loop: Any, value: Any) -> None:
            self.begin(loop)
            if inner.trial.choice is not None:
                loop.request_stop()

    loop = StepLoop(step, [EndAfterTrial()], fuse="auto")
    inner = loop._step
    assert isinstance(inner, FusedStep)
    assert not loop.fused
    loop.run()
    assert set(inner.trial.seconds) == {"single", "fused"}
    assert loop.fused == (inner.trial.choice == "fused")
    assert int(model.count) == loop.steps


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: fastsup.bind(fastsup.function(lambda: tf.constant(1.0))), "jit_compile isn't True"),
        (lambda: fastsup.bind(lambda: 1.0), "jit_compile isn't True"),
        (
            lambda: fastsup.bind(
                fastsup.function(lambda it: next(it), jit_compile=True), iter(tf.data.Dataset.range(3))
            ),
            "takes a tf.data iterator: use fastsup.bind_batches to pass batches",
        ),
        (
            lambda: fastsup.bind_batches(fastsup.function(lambda x: x, jit_compile=True), [np.zeros(3)]),
            "batches come from Python code",
        ),
        (
            lambda: fastsup.bind_batches(
                fastsup.function(lambda x: x, jit_compile=True), tf.data.Dataset.from_tensors("a")
            ),
            "batches have an element that isn't a tensor of numbers: TensorSpec",
        ),
    ],
)
def test_why_not_fused(make: Any, reason: str) -> None:
    loop = StepLoop(make(), max_steps=1)
    assert not loop.fused
    assert re.search(reason, loop.why_not_fused)
    with pytest.raises(RuntimeError, match=reason):
        StepLoop(make(), max_steps=1, fuse="always")
    assert StepLoop(make(), max_steps=1, fuse="never").why_not_fused == 'fuse="never"'


def test_what_xla_cannot_put_into_a_loop() -> None:
    count = tf.Variable(0.0)

    @fastsup.function(jit_compile=True)
    def step() -> Any:
        count.assign_add(1.0)
        return tf.where(tf.range(4.0) < count.read_value())  # As many rows as the step has made.

    with pytest.raises(RuntimeError, match=r"the shape of the result .* isn't known"):
        StepLoop(fastsup.bind(step), max_steps=50, fuse="always").run()
    assert float(count) == 0.0


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="fuse must be one of 'auto', 'always', 'never'; got 'yes'"):
        StepLoop(lambda: 1, fuse="yes")
    with pytest.raises(
        RuntimeError, match=r"isn't fastsup.bind or fastsup.bind_batches of a function with jit_compile=True"
    ):
        StepLoop(lambda: 1, fuse="always")
    with pytest.raises(TypeError, match="step must be callable, got 1"):
        fastsup.bind_batches(1, [])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"batches must be a fastsup.ArrayBatches, .* got 5"):
        fastsup.bind_batches(print, 5)  # type: ignore[arg-type]
    for batches in ("abc", {"x": 1}):
        with pytest.raises(TypeError, match=r"batches must be a fastsup.ArrayBatches, .* got "):
            fastsup.bind_batches(print, batches)


def test_a_profile_has_each_step() -> None:
    model = Model()
    profiler = fastsup.HookProfiler()
    watcher = Watcher()
    step = fastsup.bind(model.train_constant)
    StepLoop(step, [watcher], max_steps=20, profiler=profiler, fuse="always").run()
    assert len(watcher.losses) == 20
    assert watcher.most == 0
    assert int(model.count) == 20


def test_any_object_may_be_a_step_that_makes_several() -> None:
    class Scan:
        asked: ClassVar[list[int]] = []

        def __init__(self) -> None:
            self.made = 0

        def __call__(self) -> float:
            self.made += 1
            return float(self.made)

        def run_steps(self, limit: int, seconds: float, with_results: bool) -> Any:
            assert 0 <= seconds <= 0.05
            self.asked.append(limit)
            count = min(limit, 7)
            results = np.arange(self.made + 1, self.made + count + 1, dtype=float)
            self.made += count
            return count, float(self.made), results if with_results else None

    log: list[Any] = []

    class Note(Hook):
        def begin(self, loop: Any) -> None:
            self.due_at_step(loop.global_step + 10)

        def after_step(self, loop: Any, value: Any) -> None:
            log.append((loop.global_step, value))
            self.begin(loop)

    scan = Scan()
    loop = StepLoop(scan, [Note(), NanGuardHook()], max_steps=25, fuse="always")
    assert (loop.fused, loop.why_not_fused) == (True, "")
    assert StepLoop(int).why_not_fused == "the step runs one step per call"
    assert loop.run() == 25.0
    assert log == [(10, 10.0), (20, 20.0)]
    assert Scan.asked == [10, 3, 10, 3, 5]


def test_loops_over_one_function_share_what_is_compiled() -> None:
    model = Model()
    for start in (0, 40, 80):
        batches = fastsup.ArrayBatches(data(), 4, shuffle=True, seed=start, epochs=None)
        loop = StepLoop(fastsup.bind_batches(model.train, batches), max_steps=40, fuse="always")
        loop.run()
    (fusion,) = vars(model.train.original)["_fastsup_fusions"].values()
    assert fusion.function._functions[False].original.experimental_get_tracing_count() == 1
    assert int(model.count) == 120

    # Other arguments: their own. Only the last kinds are kept.
    add = fastsup.function(lambda by, name: model.rate.assign_add(by * 0.0), jit_compile=True)
    for number in range(10):
        StepLoop(fastsup.bind(add, tf.constant(1.0), f"name {number}"), max_steps=4, fuse="always").run()
        StepLoop(fastsup.bind(add, tf.constant(2.0), f"name {number}"), max_steps=4, fuse="always").run()
    fusions = vars(add.original)["_fastsup_fusions"]
    assert len(fusions) == 8
    assert {
        fusion.function._functions[False].original.experimental_get_tracing_count() for fusion in fusions.values()
    } == {1}


def test_a_short_loop_compiles_nothing_more() -> None:
    model = Model()
    for _ in range(5):
        StepLoop(fastsup.bind(model.train_constant), max_steps=20).run()
    (fusion,) = vars(model.train_constant.original)["_fastsup_fusions"].values()
    assert fusion.function is None
    assert int(model.count) == 100


@pytest.mark.parametrize("made", [0, 11])
def test_a_wrong_number_of_steps(made: int) -> None:
    class Wrong:
        def __call__(self) -> None: ...

        def run_steps(self, limit: int, seconds: float, with_results: bool) -> Any:
            return made, None, None

    with pytest.raises(RuntimeError, match=f"must run 1 to 10 steps, but ran {made}"):
        StepLoop(Wrong(), max_steps=10).run()


def test_a_mock_is_a_step() -> None:
    step = Mock(return_value=1.0)
    StepLoop(step, max_steps=5).run()
    assert step.call_count == 5


def test_a_hook_that_stops_the_loop() -> None:
    model = Model()
    loop = StepLoop(fastsup.bind(model.train_constant), [StopAtStepHook(last_step=33)], fuse="always")
    loop.run()
    assert loop.steps == 33 == int(model.count)


class Counts(Hook):
    """Takes the results of each step, and keeps how many came at once."""

    def begin(self, loop: Any) -> None:
        self.counts: list[int] = []
        self.due_every_run()

    def after_step(self, loop: Any, value: Any) -> None:
        self.counts.append(1)

    def after_steps(self, loop: Any, values: Any) -> None:
        self.counts.append(len(values))


@pytest.mark.parametrize(("numbers", "most"), [(1 << 20, 4), (16, 256), (3 << 20, 1)])
def test_results_of_all_steps_take_little_memory(numbers: int, most: int) -> None:
    """At most 16 MB: where the results of two steps don't fit, each is made on its own."""
    weights = tf.Variable(tf.zeros([numbers]))
    hook = Counts()
    step = fastsup.bind(fastsup.function(lambda: weights.assign_add(tf.ones_like(weights)) + 0.0, jit_compile=True))
    StepLoop(step, [hook], max_steps=300, fuse="always").run()
    assert sum(hook.counts) == 300
    assert max(hook.counts) == most or 4 < max(hook.counts) <= most
    assert float(weights[-1]) == 300.0
