"""Summaries by a function, by PyTorch's kind of writer, and by TensorFlow's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastsup.loop import StepLoop, SummaryHook

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
