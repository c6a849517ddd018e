"""`run_loop` of a monitored function in compiled calls of many steps: the same as one step after the other."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import fastsup
from fastsup import train
from fastsup.core import Hook
from fastsup.train import monitored_function
from fastsup.train.session.graph_loop import StepsAtOnce

ROWS = 24


class Model:
    """A regression whose step XLA compiles, and counts itself."""

    def __init__(self) -> None:
        self.weights = tf.Variable(tf.zeros([3]))
        self.momentum = tf.Variable(tf.zeros([3]))
        self.rate = tf.Variable(0.1)
        self.count = tf.Variable(0, dtype=tf.int64)
        self.nan_at = tf.Variable(-1, dtype=tf.int64)
        self.train = fastsup.function(self.step, jit_compile=True)
        self.train_constant = fastsup.function(self.step_of_constant, jit_compile=True)

    def step(self, x: Any, y: Any) -> Any:
        error = tf.linalg.matvec(x, self.weights) - y
        gradient = tf.linalg.matvec(x, error, transpose_a=True) / 4.0
        self.momentum.assign(0.9 * self.momentum + gradient)
        self.weights.assign_sub(self.rate * self.momentum)
        self.count.assign_add(1)
        loss = tf.where(self.count == self.nan_at, float("nan"), tf.reduce_mean(error**2))
        return {"loss": loss, "count": self.count.read_value(), "nothing": None}

    def step_of_constant(self) -> Any:
        x = tf.reshape(tf.range(12.0) / 12.0, [4, 3])
        return self.step(x, tf.ones([4]))

    def state(self) -> list[Any]:
        return [value.numpy().tolist() for value in (self.weights, self.momentum, self.count)]


class Recorder(Hook):
    """Notes what it sees at its steps; may fetch the loss, and may change the learning rate there."""

    def __init__(
        self, every: int, model: Model, log: list[Any], fetches: Any = None, halves_rate: bool = False
    ) -> None:
        self.every, self.model, self.log, self.halves_rate = every, model, log, halves_rate
        self.fetches = fetches

    def begin(self, loop: Any) -> None:
        self.due_at_step((loop.global_step // self.every + 1) * self.every)

    def after_step(self, loop: Any, value: Any) -> None:
        self.log.append((self.every, loop.global_step, loop.steps, value, self.model.state()))
        if self.halves_rate:
            self.model.rate.assign(self.model.rate * 0.5)
        self.begin(loop)

    def end(self, loop: Any) -> None:
        self.log.append(("end", loop.global_step, loop.steps))


class EveryRun(train.SessionRunHook):  # type: ignore[misc]
    """Is called in each run, as a hook of TensorFlow's protocol."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def before_run(self, run_context: Any) -> Any:
        return train.SessionRunArgs("count:0")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.counts.append(int(run_values.results))


def source_of(kind: str, model: Model, size: int, epochs: int) -> Any:
    if kind == "constant":
        return model.train_constant
    random = np.random.default_rng(0)
    arrays = random.normal(size=(ROWS, 3)).astype(np.float32), random.normal(size=ROWS).astype(np.float32)
    if kind == "arrays":
        batches: Any = fastsup.ArrayBatches(arrays, size, shuffle=True, seed=5, epochs=epochs)
    else:
        batches = tf.data.Dataset.from_tensor_slices(arrays).batch(size).repeat(epochs)
    return fastsup.bind_batches(model.train, batches)


def as_numbers(result: Any) -> Any:
    if result is None:
        return None
    return {name: None if value is None else (type(value), float(value)) for name, value in result.items()}


def run(
    fuse: str,
    kind: str,
    size: int = 4,
    epochs: int = 3,
    intervals: Any = (),
    most: int | None = None,
    counts_itself: bool = False,
    stop_at: int | None = None,
    rate_every: int = 1000,
) -> Any:
    model, log = Model(), []

    def hooks(outputs: Any) -> list[Any]:
        made: list[Any] = [
            Recorder(every, model, log, outputs["loss"] if place == 2 else None, place == 1)
            for place, every in enumerate(intervals)
        ]
        made.append(train.NanTensorHook("loss:0"))
        made.append(train.StepCounterHook(every_n_steps=rate_every, output_dir=None, summary_writer=Writer(log)))
        return [*made, train.StopAtStepHook(num_steps=stop_at)] if stop_at else made

    step = source_of(kind, model, size, epochs)
    counter = model.count if counts_itself else None
    last: Any = "none"
    with monitored_function(step, hooks=hooks, global_step=counter, fuse=fuse) as training:
        last = training.run_loop(most)
    return log, as_numbers(last) if last != "none" else None, training.global_step, model.state()


class Writer:
    """Takes the place of a writer of summaries: keeps at which steps the rate of steps is written."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def add_summary(self, summary: Any, step: Any) -> None:
        self.log.append(("rate", int(step)))

    def flush(self) -> None:
        """Nothing is kept back."""


@given(
    kind=st.sampled_from(["constant", "arrays", "dataset"]),
    size=st.integers(2, 9),
    epochs=st.integers(1, 4),
    intervals=st.lists(st.integers(1, 40), max_size=3),
    most=st.integers(0, 90),
    counts_itself=st.booleans(),
    stop_at=st.one_of(st.none(), st.integers(1, 60)),
    rate_every=st.integers(1, 50),
)
@settings(deadline=None, max_examples=12)
def test_random_programs(**program: Any) -> None:
    assert run("always", **program) == run("never", **program)


@pytest.mark.parametrize("kind", ["constant", "arrays", "dataset"])
@pytest.mark.parametrize("counts_itself", [False, True])
def test_makes_several_steps_at_once(kind: str, counts_itself: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def noting(self: Any, limit: int, seconds: float, watched: Any) -> Any:
        made = run_steps(self, limit, seconds, watched)
        calls.append(0 if made is None else made[0])
        return made

    run_steps = StepsAtOnce.run_steps
    monkeypatch.setattr(StepsAtOnce, "run_steps", noting)
    log, last, step, _ = run("always", kind, epochs=40, intervals=[50], most=200, counts_itself=counts_itself)
    assert step == 200
    assert last["count"] == (np.int64, 200.0)
    assert [entry[1] for entry in log if entry[0] == 50] == [50, 100, 150, 200]
    assert max(calls) > 10, calls
    assert sum(calls) > 150


def test_tells_what_it_does() -> None:
    model = Model()
    with monitored_function(model.train_constant, fuse="always") as training:
        training.run_loop(20)
        assert training.fused
        assert training.why_not_fused == ""
    with monitored_function(model.train_constant, fuse="never") as training:
        training.run_loop(20)
        assert not training.fused
        assert training.why_not_fused == 'fuse="never"'


def test_refuses_what_cannot_be_fused() -> None:
    with pytest.raises(RuntimeError, match="can't make several steps in one call: XLA doesn't compile the step"):
        monitored_function(fastsup.function(lambda: tf.constant(1.0)), fuse="always")
    with pytest.raises(ValueError, match="fuse must be"):
        monitored_function(fastsup.function(lambda: tf.constant(1.0)), fuse="sometimes")


def test_a_hook_of_every_run_is_called_in_every_run() -> None:
    model, hook = Model(), EveryRun()
    with monitored_function(model.train_constant, hooks=[hook], fuse="always") as training:
        training.run_loop(40)
    assert hook.counts == list(range(1, 41))


def test_names_a_watched_tensor_that_is_no_result() -> None:
    model = Model()

    def hooks(outputs: Any) -> list[Any]:
        return [train.NanTensorHook(tf.multiply(outputs["loss"], 2.0, name="double"))]

    with monitored_function(model.train_constant, hooks=hooks, fuse="always") as training:
        training.run_loop(20)
        assert training.why_not_fused == "a hook watches double:0, which isn't a result of the step"
        assert training.global_step == 20


@pytest.mark.parametrize("fails", [True, False])
def test_nan_ends_training(fails: bool) -> None:
    """In the call of which a step has NaN, all steps are made."""
    model = Model()
    model.nan_at.assign(30)
    with monitored_function(
        model.train_constant,
        hooks=lambda out: [train.NanTensorHook(out["loss"], fail_on_nan_loss=fails)],
        fuse="always",
    ) as training:
        if fails:
            with pytest.raises(train.NanLossDuringTrainingError):
                training.run_loop()
        else:
            training.run_loop()
            assert training.should_stop()
        step = int(model.count)
        assert 30 <= step < 30 + 256
        assert training.global_step == step


def test_continues_from_a_checkpoint(tmp_path: Path) -> None:
    """Each session saves at its end and at its steps, and the next one goes on from there."""
    states = {}
    for fuse in ("always", "never"):
        for stop in (13, 50, 120):
            model = Model()
            batches = fastsup.ArrayBatches(
                (np.eye(3, dtype=np.float32), np.ones(3, np.float32)), 3, shuffle=True, seed=1, epochs=None
            )
            checkpoint = tf.train.Checkpoint(
                weights=model.weights, momentum=model.momentum, count=model.count, batches=batches
            )
            with monitored_function(
                fastsup.bind_batches(model.train, batches),
                checkpoint,
                tmp_path / fuse,
                hooks=[train.StopAtStepHook(last_step=stop)],
                global_step=model.count,
                save_checkpoint_steps=20,
                fuse=fuse,
            ) as training:
                training.run_loop()
            assert training.global_step == stop
        manager = tf.train.CheckpointManager(checkpoint, tmp_path / fuse, None)
        names = [Path(name).name for name in manager.checkpoints]
        states[fuse] = model.state(), names, batches.position
    assert states["always"] == states["never"]
    assert states["always"][2] == 120


def test_a_preemption_is_recovered_from(tmp_path: Path) -> None:
    """A hook fails in the middle: the next session goes on from the checkpoint, with steps at once again."""
    model, failures = Model(), iter([True, True])

    class Fails(Hook):
        def begin(self, loop: Any) -> None:
            self.due_at_step((loop.global_step // 30 + 1) * 30)

        def after_step(self, loop: Any, value: Any) -> None:
            if next(failures, False):
                raise tf.errors.UnavailableError(None, None, "preempted")
            self.begin(loop)

    checkpoint = tf.train.Checkpoint(weights=model.weights, momentum=model.momentum, count=model.count)
    with monitored_function(
        model.train_constant,
        checkpoint,
        tmp_path,
        hooks=[Fails(), train.StopAtStepHook(last_step=100)],
        save_checkpoint_steps=10,
        fuse="always",
    ) as training:
        training.run_loop()
    assert training.global_step == 100 == int(model.count)


def test_sigterm_is_served_and_saves(tmp_path: Path) -> None:
    model = Model()

    class Kills(Hook):
        def begin(self, loop: Any) -> None:
            self.due_at_step(500)

        def after_step(self, loop: Any, value: Any) -> None:
            signal.raise_signal(signal.SIGTERM)

    checkpoint = tf.train.Checkpoint(weights=model.weights, count=model.count)
    with (
        pytest.raises(SystemExit),
        monitored_function(model.train_constant, checkpoint, tmp_path, hooks=[Kills()], fuse="always") as training,
    ):
        training.run_loop()
    manager = tf.train.CheckpointManager(checkpoint, tmp_path, None)
    assert Path(manager.latest_checkpoint).name == f"ckpt-{int(model.count)}"


def test_auto_decides_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastsup.steps.fused_calls._FEWEST_SECS", 0.0)
    model = Model()
    with monitored_function(model.train_constant) as training:
        at_once = training._step_graph.steps_at_once
        assert isinstance(at_once, StepsAtOnce)
        made = 0
        while at_once._calls.trial.choice is None:
            training.run_loop(200)
            made += 200
        assert set(at_once._calls.trial.seconds) == {"single", "fused"}
        assert training.fused == (at_once._calls.trial.choice == "fused")
        assert training.global_step == made == int(model.count)


def test_is_off_while_a_profiler_records() -> None:
    model, profiler = Model(), fastsup.HookProfiler()
    with monitored_function(model.train_constant, profiler=profiler, fuse="always") as training:
        training.run_loop(25)
    assert profiler.report().steps == 25
