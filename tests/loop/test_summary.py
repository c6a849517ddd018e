"""Summaries by a function, by PyTorch's kind of writer, and by TensorFlow's."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastsup
from fastsup.loop import Checkpoints, CsvWriter, Epochs, JsonLinesWriter, MeansHook, StepLoop, SummaryHook

Stepping = Callable[..., Callable[[], Any]]


def test_a_function_writes() -> None:
    written: list[Any] = []
    hook = SummaryHook(lambda name, value, step: written.append((name, value, step)), every_steps=2)
    StepLoop(iter(np.arange(5.0)).__next__, [hook]).run()
    assert written == [("loss", 1.0, 2), ("loss", 3.0, 4)]
    assert {type(value) for _, value, _ in written} == {float}


def test_every_100_steps_if_nothing_is_said() -> None:
    steps: list[int] = []
    StepLoop(int, [SummaryHook(lambda name, value, step: steps.append(step))], max_steps=350).run()
    assert steps == [100, 200, 300]


def test_writes_by_time(stepping: Stepping) -> None:
    steps: list[int] = []
    hook = SummaryHook(lambda name, value, step: steps.append(step), every_secs=2.5, values=lambda result: 1)
    StepLoop(stepping(), [hook], max_steps=9).run()
    assert steps == [3, 6, 9]


class Writer:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.calls.append((name, value, step))

    def flush(self) -> None:
        self.calls.append("flush")


def test_a_mapping_has_names() -> None:
    writer = Writer()
    StepLoop(lambda: {"loss": 1, "accuracy": 0.5}, [SummaryHook(writer, every_steps=3)], max_steps=4).run()
    assert writer.calls == [("loss", 1.0, 3), ("accuracy", 0.5, 3), "flush"]


def test_values_take_what_is_to_be_written() -> None:
    writer = Writer()
    hook = SummaryHook(writer, every_steps=1, values=lambda result: {"first": result[0]})
    StepLoop(lambda: (7, "rest"), [hook], max_steps=1).run()
    assert writer.calls == [("first", 7.0, 1), "flush"]


def test_is_flushed_after_an_error_too() -> None:
    writer = Writer()
    numbers = iter([1.0])

    def step() -> float:
        value = next(numbers, None)
        if value is None:
            raise ArithmeticError
        return value

    with pytest.raises(ArithmeticError):
        StepLoop(step, [SummaryHook(writer, every_steps=1)]).run()
    assert writer.calls == [("loss", 1.0, 1), "flush"]


def test_tensorflows_writer(tmp_path: Path) -> None:
    import tensorflow as tf

    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    writer = tf.summary.create_file_writer(str(tmp_path))
    StepLoop(iter([4.0, 2.0, 1.0, 0.5]).__next__, [SummaryHook(writer, every_steps=2)]).run()
    events = accumulators.EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    events.Reload()
    read = [(event.step, float(tf.make_ndarray(event.tensor_proto))) for event in events.Tensors("loss")]
    assert read == [(2, 2.0), (4, 0.5)]


def test_a_writer_of_tensorflow_needs_tensorboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Said before the first step: TensorFlow says so when the first summary is written."""
    import tensorflow as tf

    writer = tf.summary.create_file_writer(str(tmp_path))
    monkeypatch.setattr("fastsup.loop.metrics.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="TensorBoard, which isn't installed: pip install tensorboard"):
        SummaryHook(writer)
    SummaryHook(lambda name, value, step: None)


# Means.


def test_means_over_all_steps_and_the_rest_at_the_end(stepping: Stepping) -> None:
    written: list[tuple[str, float, int]] = []
    hook = MeansHook(lambda *number: written.append(number), every_steps=4)
    step = stepping(secs=0.5, results=[{"loss": i} if i % 2 else {"loss": i, "even": 1} for i in range(3, 10)])
    StepLoop(step, [hook], initial_step=2, steps=7).run()
    means = [number for number in written if number[0] != "steps_per_sec"]
    assert means == [
        ("mean/loss", 3.5, 4), ("mean/even", 1, 4), ("mean/loss", 6.5, 8), ("mean/even", 1, 8), ("mean/loss", 9, 9)
    ]  # fmt: skip
    assert [number for number in written if number[0] == "steps_per_sec"] == [
        ("steps_per_sec", 2, step) for step in (4, 8, 9)
    ]
    assert (hook.means, hook.steps_per_sec) == ({"loss": 9}, 2)


def test_a_resumed_loop_writes_the_same_means(tmp_path: Path) -> None:
    def run(folder: Path, last: int, max_steps: int = 30) -> list[tuple[str, float, int]]:
        written: list[tuple[str, float, int]] = []
        state = {"step": 0}

        def step() -> float:
            state["step"] += 1
            if state["step"] > last:
                raise KeyError
            return state["step"] ** 0.5

        saver = Checkpoints(folder, {"state": state}, every_steps=4)
        hooks = [MeansHook(lambda *number: written.append(number), every_steps=10), saver]
        with contextlib.suppress(KeyError):
            StepLoop(step, hooks, max_steps=max_steps, resume_from=saver).run()
        return [number for number in written if number[0] == "mean/loss"]

    whole = run(tmp_path / "whole", 30)
    run(tmp_path / "stopped", 30, max_steps=13)
    again = run(tmp_path / "stopped", 30)
    assert [step for *_, step in again] == [20, 30]
    assert [mean for _, mean, _ in again] == pytest.approx([mean for _, mean, _ in whole[1:]], rel=1e-12)
    assert [step for *_, step in whole] == [10, 20, 30]
    assert run(tmp_path / "killed", 15) == whole[:1]
    assert run(tmp_path / "killed", 30) == whole[1:]


def test_several_writers(tmp_path: Path) -> None:
    writers = [CsvWriter(tmp_path / "a.csv"), JsonLinesWriter(tmp_path / "a.jsonl")]
    StepLoop(lambda: 0.5, [SummaryHook(writers, 1), MeansHook(writers, 2)], steps=4).run()
    for writer in writers:
        writer.close()
    lines = [path.read_text().splitlines() for path in (tmp_path / "a.csv", tmp_path / "a.jsonl")]
    assert [len(each) for each in lines] == [1 + 8, 8]
    with pytest.raises(TypeError, match="or a list of writers; got 3"):
        SummaryHook([writers[0], 3])


def test_means_of_plain_numbers() -> None:
    hook = MeansHook(print, every_steps=2)
    StepLoop(iter([1.0, 2.0, 3.0, 5.0]).__next__, [hook]).run()
    assert hook.means == {"loss": 4}


def test_means_of_steps_in_one_compiled_call() -> None:
    import tensorflow as tf

    import fastsup

    counter = tf.Variable(0.0)

    @fastsup.function(jit_compile=True)
    def step() -> Any:
        return {"loss": counter.assign_add(1.0) + 0.0}

    written: list[tuple[str, float, int]] = []
    hook = MeansHook(lambda *number: written.append(number), every_steps=10)
    loop = StepLoop(fastsup.bind(step), [hook], steps=100, fuse="always")
    loop.run()
    assert loop.fused
    means = [(mean, step) for name, mean, step in written if name == "mean/loss"]
    firsts = [0, *(step for _, step in means)]
    assert firsts[-1] == 100
    assert means == [((first + 1 + last) / 2, last) for first, last in itertools.pairwise(firsts)]


def test_means_and_summaries_of_epochs() -> None:
    written: list[tuple[str, float, int]] = []

    def write(name: str, value: float, step: int) -> None:
        if name != "steps_per_sec":
            written.append((name, value, step))

    hooks = [MeansHook(write, every_epochs=1), SummaryHook(write, every_epochs=2)]
    StepLoop(fastsup.bind_batches(float, Epochs([1, 3, 5], 4)), hooks).run()
    assert written == [
        ("mean/loss", 3, 3), ("mean/loss", 3, 6), ("loss", 5, 6), ("mean/loss", 3, 9), ("mean/loss", 3, 12),
        ("loss", 5, 12),
    ]  # fmt: skip
    del written[:]
    StepLoop(fastsup.bind_batches(float, Epochs([1, 3, 5], 2)), [MeansHook(write, 2, every_epochs=1)]).run()
    assert [step for _, _, step in written] == [2, 3, 4, 6]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"writer": 3}, TypeError, "writer must be a writer of fastsup.loop or tf.summary"),
        ({"every_steps": 0}, ValueError, "every_steps must be positive"),
        ({"every_steps": "9"}, TypeError, "every_steps must be a number"),
        ({"every_epochs": 0}, ValueError, "every_epochs must be positive"),
        ({"values": 3}, TypeError, "values must be a function"),
    ],
)
def test_wrong_arguments_of_means(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        MeansHook(**{"writer": print, **arguments})
    assert message in str(raised.value)
