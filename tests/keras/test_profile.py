"""The profile of a Keras program: callbacks by method, validation, input; and Keras is as it was when it ends."""

from __future__ import annotations

import copy
import dataclasses
import gc
import importlib.util
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from processes import Processes

import fastsup
import fastsup.keras
from fastsup.profile import profiler as profiler_module
from fastsup.profile.advice import passes
from fastsup.profile.compare import compare
from fastsup.profile.export import as_dict
from fastsup.profile.numbers import duration, percent
from fastsup.profile.report import Report

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.one_device("the parts of a pass are the same on any device"),
    pytest.mark.filterwarnings("ignore::UserWarning:keras.*"),
]

X = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
Y = X.sum(axis=1, keepdims=True)
BATCHES = 8


def small_model(**compiled: Any) -> Any:
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2), keras.layers.Dense(1)])
    model.compile(**{"optimizer": "sgd", "loss": "mse", "jit_compile": False, **compiled})
    return model


class Costly(keras.callbacks.Callback):
    """Takes its time in some methods, and measures it itself."""

    def __init__(self, **seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.spent: dict[str, float] = {}
        self.threads: set[int] = set()

    def _spend(self, name: str, sleeps: bool = False) -> None:
        started = time.perf_counter()
        self.threads.add(threading.get_ident())
        if sleeps:
            time.sleep(self.seconds.get(name, 0.0))
        while time.perf_counter() - started < self.seconds.get(name, 0.0):
            pass
        self.spent[name] = self.spent.get(name, 0.0) + time.perf_counter() - started

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._spend("on_train_batch_begin")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._spend("on_train_batch_end")

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._spend("on_test_batch_end", sleeps=True)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._spend("on_epoch_end")


class CostlyInAThread(Costly):
    async_safe = True


def row_of(report: Report, name: str, phase: str, session: str = "") -> Any:
    """The one row with this name of its owner and phase, in a session whose name contains a text."""
    (row,) = [row for row in report.rows if (row.name, row.phase) == (name, phase) and session in row.session]
    return row


def assert_adds_up(report: Report) -> None:
    rows = sum(row.times.total_ns for row in report.rows if row.thread == "loop")
    assert rows + report.profiler_ns + report.unaccounted_ns == report.wall_ns
    assert report.unaccounted_ns <= 0.01 * report.wall_ns


def assert_is_found(report: Report, owner: str, callback: Costly, names: list[str]) -> None:
    for name in names:
        measured = row_of(report, owner, name).times.total_ns / 1e9
        # Where the callback is interrupted between its clock and ours, a part of a millisecond.
        assert measured == pytest.approx(callback.spent[name], rel=0.05, abs=2e-3)


def test_callbacks_by_method() -> None:
    model, costly = small_model(), Costly(on_train_batch_begin=2e-3, on_train_batch_end=5e-3, on_epoch_end=0.02)
    with fastsup.HookProfiler() as profiler:
        model.fit(X, Y, batch_size=8, epochs=2, verbose=0, callbacks=[costly])
    report = profiler.report()
    assert report.steps == 2 * BATCHES
    assert row_of(report, "Costly", "on_train_batch_end").times.calls == 2 * BATCHES
    assert_is_found(report, "Costly", costly, ["on_train_batch_begin", "on_train_batch_end", "on_epoch_end"])
    (part,) = report.sessions
    assert (part.kind, part.runs, part.is_pass) == ("Sequential.fit", 2 * BATCHES, True)
    assert part.place.startswith("test_profile.py:")
    assert {"train_function", "tracing", "open input", "Keras's loop", "wait for input"} <= {
        row.phase for row in report.session
    }
    assert_adds_up(report)
    assert "Look first at" in report.advice()


def test_validation_and_what_a_callback_evaluates_have_rows_of_their_own() -> None:
    class Evaluates(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.evaluate(X[:16], Y[:16], verbose=0)

    costly = Costly(on_test_batch_end=4e-3)
    with fastsup.HookProfiler() as profiler:
        small_model().fit(
            X, Y, batch_size=8, epochs=2, verbose=0, validation_data=(X, Y), callbacks=[costly, Evaluates()]
        )
    report = profiler.report()
    runs = {(part.kind, part.role): part.runs for part in report.sessions}
    assert runs == {
        ("Sequential.fit", "fit"): 2 * BATCHES,
        ("Sequential.evaluate", "validation"): 2 * BATCHES,
        ("Sequential.evaluate", "evaluate"): 2,
    }
    assert report.steps == 2 * BATCHES
    assert row_of(report, "Costly", "on_test_batch_end", "validation").times.calls == 2 * BATCHES
    assert_is_found(report, "Costly", costly, ["on_test_batch_end"])
    within = next(part.within for part in report.sessions if part.role == "evaluate")
    assert within is not None
    assert within[1:3] == ("Evaluates", "on_epoch_end")
    assert_adds_up(report)


def test_callbacks_in_a_thread_of_keras_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    # As Keras says of some of its backends.
    monkeypatch.setattr("keras.src.backend.IS_THREAD_SAFE", True)
    costly = CostlyInAThread(on_train_batch_end=4e-3)
    with fastsup.HookProfiler() as profiler:
        small_model().fit(X, Y, batch_size=8, verbose=0, callbacks=[costly])
    report = profiler.report()
    assert threading.get_ident() in costly.threads
    assert len(costly.threads) > 1
    assert_is_found(report, "CostlyInAThread, in a thread", costly, ["on_train_batch_end"])
    assert row_of(report, "CostlyInAThread", "on_epoch_end").times.calls == 1
    assert row_of(report, "session", "wait for callbacks").times.total_ns > 0
    assert_adds_up(report)


def test_the_wait_for_input() -> None:
    pauses = []

    def slow() -> Iterator[tuple[Any, Any]]:
        for _ in range(BATCHES):
            started = time.perf_counter()
            time.sleep(0.01)
            pauses.append(time.perf_counter() - started)
            yield X[:8], Y[:8]

    spec = (tf.TensorSpec([8, 4]), tf.TensorSpec([8, 1]))
    dataset = tf.data.Dataset.from_generator(slow, output_signature=spec)
    with fastsup.HookProfiler() as profiler:
        small_model().fit(dataset, verbose=0)
    report = profiler.report()
    wait = row_of(report, "session", "wait for input")
    # The end of the input isn't a batch: neither of the loop, nor waited for.
    assert report.steps == wait.times.calls == BATCHES
    assert wait.times.total_ns / 1e9 >= 0.95 * sum(pauses)
    assert row_of(report, "session", "train_function").times.total_ns >= 0
    assert_adds_up(report)


def test_two_passes_wait_for_their_own_input() -> None:
    model = small_model()
    with fastsup.HookProfiler() as profiler:
        model.fit(X, Y, batch_size=8, verbose=0, validation_data=(X[:16], Y[:16]), validation_batch_size=8)
        model.predict(X, batch_size=8, verbose=0)
    report = profiler.report()
    calls = {row.session.split(",")[0]: row.times.calls for row in report.rows if row.phase == "wait for input"}
    assert calls == {
        "Sequential.fit": BATCHES, "Sequential.evaluate (validation)": 2, "Sequential.predict": BATCHES
    }  # fmt: skip


OTHER_BACKEND = """
import time
import keras, numpy as np
import fastsup

class Slow(keras.callbacks.Callback):
    async_safe = True
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.002)

def batches():
    for _ in range(10):
        time.sleep(0.005)
        yield np.zeros((8, 4), np.float32), np.zeros((8, 1), np.float32)

model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
model.compile("sgd", "mse")
with fastsup.HookProfiler() as profiler:
    model.fit(batches(), steps_per_epoch=10, verbose=0, callbacks=[Slow()])
report = profiler.report()
rows = {(row.owner, row.phase, row.thread): row.times for row in report.rows}
assert report.steps == 10, report.steps
assert rows["Slow", "on_train_batch_end", "callbacks"].total_ns >= 20e6, rows
# Keras has taken two batches before.
assert rows["session", "wait for input", "loop"].total_ns >= 38e6, rows
assert report.unaccounted_ns <= 0.01 * report.wall_ns
assert report.sessions[0].executor_of("train_function") in ("JAX", "PyTorch")
"""


KERAS_2 = """
import tf_keras, numpy as np
import fastsup

class Counts(tf_keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        pass

model = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=[4])])
model.compile("sgd", "mse")
x = np.zeros((80, 4), np.float32)
with fastsup.HookProfiler() as profiler:
    model.fit(x, x[:, :1], batch_size=8, verbose=0, callbacks=[Counts()], validation_data=(x, x[:, :1]))
report = profiler.report()
assert report.steps == 10, report.steps
(row,) = [row for row in report.rows if (row.owner, row.phase) == ("Counts", "on_train_batch_end")]
assert row.times.calls == 10
assert {part.role: part.runs for part in report.sessions} == {"fit": 10, "validation": 10}, report.sessions
assert report.sessions[0].executor_of("train_function") == "TensorFlow (Keras 2)"
"""


@pytest.mark.parametrize("module", ["jax", "torch", "tf_keras"])
def test_other_backends_and_keras_2(module: str, processes: Processes, tmp_path: Path) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} isn't installed")
    path = tmp_path / "other.py"
    path.write_text(KERAS_2 if module == "tf_keras" else OTHER_BACKEND)
    environment = {} if module == "tf_keras" else {"KERAS_BACKEND": module}
    result = processes.python(path, env={**os.environ, **environment}, fresh=True)
    assert result.returncode == 0, result.stderr


class Failure(Exception):
    pass


def test_a_callback_that_raises_ends_the_pass_and_keras_is_as_it_was(tmp_path: Path) -> None:
    class Raises(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 3:
                raise Failure

    fit, on_batch_end = keras.Model.fit, keras.callbacks.CallbackList.on_train_batch_end
    raises, model = Raises(), small_model()
    replaced = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: None)
    own = replaced.on_epoch_begin
    with fastsup.HookProfiler() as profiler:
        assert keras.Model.fit is not fit
        with pytest.raises(Failure):
            model.fit(X, Y, batch_size=8, verbose=0, callbacks=[raises, replaced])
        assert "on_train_batch_end" not in vars(raises)
        assert replaced.on_epoch_begin is own
        model.evaluate(X, Y, batch_size=8, verbose=0)
    assert keras.Model.fit is fit
    assert keras.callbacks.CallbackList.on_train_batch_end is on_batch_end
    report = profiler.report()
    assert row_of(report, "Raises", "on_train_batch_end").times.calls == 4
    assert row_of(report, "session", "test_function").times.calls == BATCHES
    assert_adds_up(report)
    profiler.write_json(tmp_path / "profile.json")
    written = json.loads((tmp_path / "profile.json").read_text())
    assert [part["is_pass"] for part in written["sessions"]] == [True, True]


def test_stop_training_and_two_threads() -> None:
    both = threading.Barrier(2, timeout=60)

    class Stops(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            both.wait()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = batch == 4

    models = [small_model(), small_model()]

    def train(model: Any) -> None:
        model.fit(X, Y, batch_size=8, epochs=3, verbose=0, callbacks=[Stops()])

    with fastsup.HookProfiler() as profiler:
        threads = [threading.Thread(target=train, args=[model]) for model in models]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    report = profiler.report()
    assert report.threads == 2
    # Two callbacks of a class, at the same time, in calls of one line.
    for name in ("Stops", "Stops #2"):
        assert row_of(report, name, "on_train_batch_end").times.calls == 5
    assert row_of(report, "session", "train_function").times.calls == 10
    assert_adds_up(report)


def test_skipped_steps_are_left_out() -> None:
    with fastsup.HookProfiler(skip_steps=3) as profiler:
        small_model().fit(X, Y, batch_size=8, verbose=0, callbacks=[Costly(on_train_batch_end=1e-4)])
    report = profiler.report()
    assert (report.steps, report.skipped_steps) == (BATCHES - 3, 3)
    assert row_of(report, "Costly", "on_train_batch_end").times.calls == BATCHES - 3


def test_the_saves_of_a_callback(tmp_path: Path) -> None:
    with fastsup.HookProfiler() as profiler:
        small_model().fit(
            X, Y, batch_size=8, epochs=2, verbose=0, callbacks=[keras.callbacks.ModelCheckpoint(tmp_path / "m.keras")]
        )
    assert row_of(profiler.report(), "ModelCheckpoint", "save").times.calls == 2


def test_an_accelerated_model() -> None:
    model, costly = fastsup.keras.accelerate(small_model()), Costly(on_train_batch_end=2e-3)
    with fastsup.HookProfiler() as profiler:
        history = model.fit(X, Y, batch_size=8, epochs=2, verbose=0, shuffle=False, callbacks=[costly])
    report = profiler.report()
    assert report.steps == 2 * BATCHES
    assert_is_found(report, "Costly", costly, ["on_train_batch_end"])
    assert row_of(report, "session", "wait for input").times.calls == 2 * BATCHES
    assert_adds_up(report)
    assert len(history.history["loss"]) == 2


def test_skipped_steps_leave_out_their_waits() -> None:
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8).map(lambda x, y: (x, y))
    with fastsup.HookProfiler(skip_steps=BATCHES + 2) as profiler:
        small_model().fit(dataset, epochs=2, verbose=0)
    wait = row_of(profiler.report(), "session", "wait for input").times.calls
    # The first one may have been taken before its step begins; by Keras 3.16, which looks ahead, the first two.
    assert BATCHES - 4 <= wait <= BATCHES - 2


def without_inner_passes(report: Report) -> Report:
    sessions = [part for part in report.sessions if part.within is None]
    names = {part.name for part in sessions}
    return dataclasses.replace(
        report, sessions=tuple(sessions), rows=tuple(row for row in report.rows if row.session in names)
    )


def test_advice_on_what_a_callback_evaluates() -> None:
    class Evaluates(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            time.sleep(2e-3)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            for _ in range(5):
                self.model.evaluate(X, Y, batch_size=8, verbose=0)

    model = small_model()
    model.fit(X, Y, batch_size=8, verbose=0)
    with fastsup.HookProfiler() as profiler:
        model.fit(X, Y, batch_size=8, epochs=3, verbose=0, callbacks=[Evaluates()])
    report = profiler.report()
    advice = report.advice()
    # On a busy machine, what accelerate saves may be more.
    assert " at Evaluates: " in advice
    assert "most of it in Sequential.evaluate, test_profile.py:" in advice
    assert "in Evaluates, on_epoch_end" in profiler.table()
    with_evaluations = next(line for line in profiler.table().splitlines() if "with its evaluations" in line)
    (outer, inner) = report.sessions
    own = sum(row.times.total_ns for row in report.rows if row.owner == "Evaluates")
    assert with_evaluations.split()[-2:] == [
        duration(own + inner.total_ns),
        percent(report.share(own + inner.total_ns)),
    ]
    assert outer.within is None
    # The outer pass comes first, although its own rows may take less time.
    assert [part.role for part in report.sessions] == ["fit", "evaluate"]
    # An accelerated model has cheaper calls in both.
    (calls,) = (cost for cost in passes.costs_of_passes(report) if "accelerate" in cost.name)
    (alone,) = (cost for cost in passes.costs_of_passes(without_inner_passes(report)) if "accelerate" in cost.name)
    assert inner.runs == 5 * outer.runs
    assert f" of each of {outer.runs}, " in alone.text
    assert f" of each of {outer.runs + inner.runs}, " in calls.text
    assert calls.total_ns > alone.total_ns
    inside = duration(calls.total_ns - alone.total_ns)
    assert f"{inside} of it is in the callbacks' evaluations, and is also counted there" in calls.text
    compared = [line.strip() for line, _ in compare(as_dict(report), {**as_dict(report), "wall_ns": 10**9})]
    assert not any("with its evaluations" in line for line in compared)
    half = {**as_dict(report), "steps": report.steps * 2, "wall_ns": report.wall_ns * 2}
    evaluated = next(line for line, _ in compare(as_dict(report), half) if "Evaluates: with its evaluations" in line)
    assert evaluated.split()[-2:] == ["0.50", "x"]


def test_a_model_that_is_compiled_for_another_runner() -> None:
    model = small_model()
    with fastsup.HookProfiler() as profiler:
        for eagerly in (False, True):
            model.compile("sgd", "mse", run_eagerly=eagerly, jit_compile=False)
            model.fit(X, Y, batch_size=8, verbose=0)
    (part,) = profiler.report().sessions
    assert part.executor_of("train_function") == "TensorFlow or run eagerly"


def test_calls_for_single_batches() -> None:
    model = small_model()
    with fastsup.HookProfiler() as profiler:
        for rows in (8, 8, 5, 8):
            model.train_on_batch(X[:rows], Y[:rows])
        model.predict_on_batch(X[:8])
        model.fit(X, Y, batch_size=8, verbose=0)
    report = profiler.report()
    assert {part.kind: part.runs for part in report.sessions} == {
        "Sequential.train_on_batch": 4, "Sequential.predict_on_batch": 1, "Sequential.fit": BATCHES
    }  # fmt: skip
    assert report.steps == 5 + BATCHES
    assert row_of(report, "session", "train_on_batch").times.calls == 4
    assert report.executor_of(row_of(report, "session", "train_on_batch")) == "TensorFlow"
    costs = [cost for cost in passes.costs_of_passes(report) if "accelerate" in cost.name]
    assert len(costs) == 1
    traces = [row.detail for row in report.rows if row.phase == "tracing" and "train_on_batch" in row.detail]
    assert sorted(traces) == ["train_on_batch", "train_on_batch: data[0] is float32[?,4], was float32[8,4]"]
    assert "batches" in profiler.table()
    assert_adds_up(report)


def test_why_a_step_is_traced_again() -> None:
    with fastsup.HookProfiler() as profiler:
        for _ in range(2):
            small_model().fit(X, Y, batch_size=8, verbose=0, validation_data=(X, Y))
    report = profiler.report()
    traces = {row.detail: row.times.calls for row in report.rows if row.phase == "tracing"}
    assert traces.pop("of tf.data's functions") > 0
    assert traces == {
        "train_function": 1, "test_function": 1, "train_function: made again": 1, "test_function: made again": 1
    }  # fmt: skip


def test_a_callback_that_reads_weights() -> None:
    class Reads(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            for _ in range(20):
                self.model.get_weights()

    model = small_model()
    model.fit(X, Y, batch_size=8, verbose=0)
    with fastsup.HookProfiler(skip_steps=1) as profiler:
        model.fit(X, Y, batch_size=1, verbose=0, callbacks=[Reads()])
    report = profiler.report()
    assert row_of(report, "Reads", "weights to Python").times.calls == 20 * 63
    assert "Reads: " in report.advice()
    assert "It reads the weights 1260 times" in report.advice()


def test_what_runs_a_step_and_what_acceleration_would_spare() -> None:
    model = small_model()
    model.fit(X, Y, batch_size=8, verbose=0)
    with fastsup.HookProfiler(skip_steps=10) as profiler:
        model.fit(X, Y, batch_size=1, verbose=0, epochs=3)
    report = profiler.report()
    assert [part.executor_of("train_function") for part in report.sessions] == ["TensorFlow"]
    assert "train_function: TensorFlow" in profiler.table()
    if report.call_ns > 0.1 * report.step_time.mean_ns:
        assert "fastsup.keras.accelerate(model)" in report.advice()
    with fastsup.HookProfiler() as profiler:
        model.fit(X, Y, batch_size=1, verbose=0, epochs=3)
    report = profiler.report()
    costs = {cost.name: cost for cost in passes.costs_of_passes(report)}
    assert "jit_compile" not in costs["Keras's own loop"].text
    (calls,) = (cost for cost in costs.values() if "accelerate" in cost.name)
    # Of arrays, the iterators go too.
    assert "in which Keras creates datasets and iterators from arrays" in calls.text
    assert "of TensorFlow's calls of the step function" in calls.text
    assert "in the callbacks' evaluations" not in calls.text
    opened = sum(row.times.total_ns for row in report.rows if row.phase == "open input")
    assert calls.total_ns > opened
    assert "opening and ending the input" not in costs
    fastsup.keras.accelerate(model)

    class Evaluates(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.evaluate(X[:8], Y[:8], verbose=0)

    with fastsup.HookProfiler() as profiler:
        fastsup.keras.accelerate(small_model()).fit(X, Y, batch_size=8, verbose=0, callbacks=[Evaluates()])
    # An accelerated model makes it before the pass begins: no method of the callback has this name.
    assert {row.owner for row in profiler.report().rows if row.phase == "make_test_function"} == {"session"}
    with fastsup.HookProfiler() as profiler:
        model.fit(X, Y, batch_size=1, verbose=0)
    report = profiler.report()
    assert [part.executor_of("train_function") for part in report.sessions] in (["single_threaded"], ["inline"])
    assert report.call_ns == 0
    assert "fastsup.keras.accelerate(model)" not in report.advice()
    (loop,) = [cost for cost in passes.costs_of_passes(report) if cost.name == "Keras's own loop"]
    assert re.search(r"With compile\(jit_compile=True\), .* saves nearly all of these [\d.]+[mµ]?s", loop.text)
    model.compile("sgd", "mse", run_eagerly=True)
    with fastsup.HookProfiler() as profiler:
        model.fit(X, Y, batch_size=8, verbose=0)
    assert "run_eagerly=True" in profiler.report().advice()


def test_what_acceleration_spares_in_predictions_of_one_batch_is_not_advised_on_again() -> None:
    model = small_model()
    model.predict(X[:1], verbose=0)
    with fastsup.HookProfiler() as profiler:
        for _ in range(20):
            model.predict(X[:1], verbose=0)
    (cost,) = passes.costs_of_passes(profiler.report())
    assert "of Keras's own work in calls of predict with one batch each" in cost.text


def test_advice_for_pytorch_names_nothing_that_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    with fastsup.HookProfiler() as profiler:
        small_model().fit(X, Y, batch_size=1, verbose=0)
    report = profiler.report()
    monkeypatch.setattr(type(report), "executor_of", lambda self, row: "PyTorch")
    texts = [cost.text for cost in passes.costs_of_passes(report)]
    assert any("Keras has no steps_per_execution for PyTorch" in text for text in texts)
    assert not any(word in text for text in texts for word in ("compile(", "accelerate"))


def test_history_and_weights_are_those_without_a_profiler() -> None:
    def trained(profiled: bool) -> tuple[Any, list[Any]]:
        keras.backend.clear_session()
        keras.utils.set_random_seed(7)
        model = small_model()
        profiler = fastsup.HookProfiler()
        if profiled:
            profiler.start()
        try:
            history = model.fit(X, Y, batch_size=8, epochs=2, verbose=0, validation_split=0.25)
        finally:
            profiler.stop()
        return history.history, model.get_weights()

    (plain, weights), (profiled, its_weights) = trained(False), trained(True)
    assert plain == profiled
    assert all(np.array_equal(one, other) for one, other in zip(weights, its_weights, strict=True))


def test_a_profile_of_one_fit(capsys: pytest.CaptureFixture[str]) -> None:
    fit = keras.Model.fit
    profile = fastsup.keras.ProfilerCallback()
    model = small_model()
    model.evaluate(X, Y, batch_size=8, verbose=0)
    history = model.fit(X, Y, batch_size=8, verbose=0, validation_data=(X, Y), callbacks=[profile])
    assert set(history.history) == {"loss", "val_loss"}
    report = profile.profiler.report()
    assert {(part.role, part.runs) for part in report.sessions} == {("fit", BATCHES), ("validation", BATCHES)}
    assert_adds_up(report)
    printed = capsys.readouterr().out
    assert printed.count("Sequential.fit, test_profile.py:") == 1
    assert "train_function" in printed
    # A second call is added; a single callback, and one by position, are found too.
    model.predict(X, 8, 0, None, profile)
    assert profile.profiler.report().steps == 2 * BATCHES
    assert "Sequential.predict" in capsys.readouterr().out
    quiet = copy.deepcopy(fastsup.keras.ProfilerCallback(profile.profiler, verbose=0))
    del profile
    gc.collect()
    model.fit(X, Y, batch_size=8, verbose=0, callbacks=quiet)
    assert quiet.profiler.report().steps == 3 * BATCHES
    assert quiet._repr_html_().startswith('<div class="fastsup">')
    assert capsys.readouterr().out == ""
    del quiet
    gc.collect()
    assert keras.Model.fit is fit


def test_a_profile_of_a_fit_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    class Raises(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            raise Failure

    profile = fastsup.keras.ProfilerCallback()
    with fastsup.HookProfiler() as program, pytest.raises(Failure):
        small_model().fit(X, Y, batch_size=8, verbose=0, callbacks=[Raises(), profile])
    assert "Raises" in capsys.readouterr().out
    # The program's profiler records what has no other one.
    assert program.report().steps == 0
    assert program.report().other_profilers_used


def test_arguments_of_a_profile() -> None:
    with pytest.raises(TypeError, match=r"profiler must be a fastsup[.]HookProfiler or None, got 3"):
        fastsup.keras.ProfilerCallback(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="verbose must be 0 or 1, got 2"):
        fastsup.keras.ProfilerCallback(verbose=2)


def test_a_profile_of_one_fit_within_that_of_the_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the one measures for its advice isn't in the other."""
    monkeypatch.setattr(profiler_module, "_measured", [])
    with fastsup.HookProfiler() as of_program:
        small_model().fit(X, Y, batch_size=8, verbose=0, callbacks=[fastsup.keras.ProfilerCallback()])
    assert "accelerate(model) saves" in capsys.readouterr().out
    assert profiler_module._measured != []
    report = of_program.report()
    assert (report.steps, report.rows, report.other_profilers_used) == (0, (), True)
    assert "or a fit with a ProfilerCallback" in report.advice()


def test_advice_on_a_callback_that_works_now_and_then() -> None:
    class Sometimes(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch % 40 == 0:
                time.sleep(0.1)

    model = small_model()
    model.fit(X, Y, batch_size=1, verbose=0)
    with fastsup.HookProfiler() as profiler:
        model.fit(X, Y, batch_size=1, verbose=0, callbacks=[Sometimes()])
    times = row_of(profiler.report(), "Sometimes", "on_train_batch_end").times
    # At least as long as it sleeps. How much longer depends on the machine.
    assert times.max_ns >= 100_000_000
    text = f"A few of its {times.calls} calls take nearly all of it, up to {duration(times.max_ns)} each"
    assert text in profiler.report().advice()
