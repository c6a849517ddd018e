"""RunConfig(progress=True): the progress of an Estimator's training and evaluation."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from fastsup import estimator as est
from fastsup import train
from fastsup.experiment import Experiment

v1 = tf.compat.v1


def model_fn(features: Any, labels: Any, mode: Any) -> Any:
    weight = v1.get_variable("weight", [], initializer=v1.zeros_initializer())
    loss = tf.square(weight - tf.reduce_mean(labels))
    train_op = v1.train.GradientDescentOptimizer(0.5).minimize(loss, v1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn() -> Any:
    return tf.data.Dataset.from_tensors(({"x": [1.0]}, [2.0])).repeat(30)


def estimator(folder: Path, **settings: Any) -> Any:
    return est.Estimator(model_fn, str(folder), est.RunConfig(log_step_count_steps=None, **settings))


def shown(captured: str) -> list[str]:
    """The lines of progress, up to the rate, which isn't known beforehand."""
    return [line.split(",")[0] for line in captured.splitlines() if line.startswith(("step ", "evaluating "))]


def test_training_and_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subject = estimator(tmp_path, progress=True)
    subject.train(input_fn, steps=6)
    assert shown(capsys.readouterr().err) == ["step 6 of 6 (100%)"]
    subject.train(input_fn, max_steps=10)
    assert shown(capsys.readouterr().err) == ["step 10 of 10 (100%)"]
    subject.evaluate(input_fn, steps=5)
    assert shown(capsys.readouterr().err) == ["evaluating batch 5 of 5 (100%)"]
    subject.evaluate(input_fn)
    assert shown(capsys.readouterr().err) == ["evaluating batch 30"]


def test_train_and_evaluate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train_spec, eval_spec = est.TrainSpec(input_fn, max_steps=6), est.EvalSpec(input_fn, steps=5)
    est.train_and_evaluate(estimator(tmp_path, progress=True), train_spec, eval_spec)
    assert shown(capsys.readouterr().err) == ["evaluating batch 5 of 5 (100%)", "step 6 of 6 (100%)"]


def test_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Experiment(estimator(tmp_path, progress=True), input_fn, input_fn, train_steps=6).train(0)
    assert shown(capsys.readouterr().err) == ["step 6 of 6 (100%)"]


def test_it_is_off_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subject = estimator(tmp_path)
    subject.train(input_fn, steps=6)
    subject.evaluate(input_fn, steps=5)
    assert not shown(capsys.readouterr().err)


def test_a_hook_of_the_callers_is_the_only_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = io.StringIO()
    subject = estimator(tmp_path, progress=True)
    subject.train(input_fn, hooks=[train.ProgressHook(file=file)], steps=6)
    subject.evaluate(input_fn, hooks=[train.ProgressHook(file=file)], steps=5)
    assert shown(file.getvalue()) == ["step 6 of 6 (100%)", "evaluating batch 5 of 5 (100%)"]
    assert not shown(capsys.readouterr().err)


def test_the_loss_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastsup.common.progress_display._Lines.every_secs", 1e-6)
    estimator(tmp_path, progress=True).train(input_fn, steps=3)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("step ")]
    assert len(lines) == 3
    assert all(", loss " in line for line in lines)
