"""Programs in the style of those years run under `python -m fastsup run` as they are, in fastsup's classes alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.timeout(300)
def test_custom_estimator(children: Any, tmp_path: Path) -> None:
    printed, made = children.outcome(tmp_path, "custom_estimator", arguments=("--model_dir={}",))
    assert made == {}
    accuracy = printed.pop("accuracy")
    assert accuracy > 0.6
    assert printed == {"global_step": 60, "predictions": 300, "saved_models": 1, "exports": 1}


def test_supervisor(children: Any, tmp_path: Path) -> None:
    printed, made = children.outcome(tmp_path, "supervisor_loop")
    assert made == {}
    assert printed["first"] == [0, 20]
    assert printed["second"] == [20, 50]
    assert printed["weight"] == pytest.approx(3.0, abs=1e-3)


def test_queue_runners(children: Any, tmp_path: Path) -> None:
    # A real start: the script imports TensorFlow, and fastsup is installed then.
    printed, made = children.outcome(tmp_path, "queue_runners", fresh=True)
    assert made == {}
    assert printed == {"steps": 20, "ended": True, "saved": "20"}


def test_without_installation_tensorflows_own_classes_are_counted(children: Any, tmp_path: Path) -> None:
    command = (children.COUNT, tmp_path / "made.json", "plain", children.PROGRAMS / "queue_runners.py", tmp_path)
    assert children.result(children.run(*command)) == {"steps": 20, "ended": True, "saved": "20"}
    made = json.loads((tmp_path / "made.json").read_text())
    wanted = {"CheckpointSaverHook", "MonitoredSession", "NanTensorHook", "Session", "SessionManager", "StopAtStepHook"}
    assert wanted <= set(made)


def test_compat_v1_without_v2_behaviour(children: Any, tmp_path: Path) -> None:
    printed, made = children.outcome(tmp_path, "compat_v1")
    assert made == {}
    assert printed == {"steps": 30, "falls": True, "product": 42, "value": 5.0}


def test_tf1_program(children: Any, tmp_path: Path) -> None:
    printed, made = children.outcome(tmp_path, "tf1_program", "--tf1", arguments=("--folder={}",))
    assert made == {}
    assert printed.pop("argv")[0].startswith("--folder=")
    assert printed == {
        "falls": True,
        "path": "model-25",
        "seq2seq": None,
        "cells": [[2, 5, 4], "cells/rnn/gru_cell/gates/kernel"],
        "dir": True,
        "eager": False,
        "name": "__main__",
    }


@pytest.mark.timeout(300)
def test_experiment_of_contrib(children: Any, tmp_path: Path) -> None:
    pytest.importorskip("tf_slim", reason="the program uses contrib.layers")
    printed, made = children.outcome(tmp_path, "contrib_experiment", "--tf1", arguments=("--model_dir={}",))
    assert made == {}
    assert printed.pop("accuracy") > 0.8
    assert printed == {
        "step": 60,
        "exports": [1, True],
        "seen": [1, 11, 21, 31, 41, 51],
        "hparams": {"hidden": [16, 8], "optimizer": "Adam", "rate": 0.05, "steps": 60},
    }


def test_predictors_and_tables(children: Any, tmp_path: Path) -> None:
    printed, made = children.outcome(tmp_path, "contrib_predictor", "--tf1")
    assert made == {}
    errors = printed.pop("errors")
    assert printed == {
        "found": [[[6.0]], [[8.0], [10.0]], [[-6.0]], [[6.0]], [[6.0]], [[-6.0]], True],
        "contrib": [[6.0]],
        "tables": [["1", "2"], ["0", "-7"], ["1"], ["b", "?"], ["a", "UNK"]],
        "numpy": True,
    }
    assert [kind for kind, _ in errors] == ["ValueError"] * 4 + ["KeyError", "TypeError"]
    texts = [
        "Got unexpected keys in input_dict: ['y']",
        "Available signatures are ['negative', 'serving_default']",
        "must both be specified or both be unspecified",
        "at most one of signature_def_key OR signature_def",
        "output_key must be one of ['negative', 'serving_default']; got nothing",
        "from_estimator",
    ]
    for (_, message), text in zip(errors, texts, strict=True):
        assert text in message


def test_loops_of_contrib_training(children: Any, tmp_path: Path) -> None:
    printed, made = children.outcome(tmp_path, "contrib_training", "--tf1")
    assert made == {}
    assert printed["same"] is True
    assert printed["loss"] < 1e-6
    assert printed["once"] == printed["again"] < 1e-2


@pytest.mark.timeout(300)
def test_slim_with_supervisor(children: Any, tmp_path: Path) -> None:
    pytest.importorskip("tf_slim", reason="contrib.slim is the package tf_slim")
    printed, made = children.outcome(tmp_path, "slim_loop", "--tf1")
    assert made == {}
    assert printed.pop("accuracy") > 0.5
    assert printed == {"falls": True, "path": "model.ckpt-60", "scope": True, "net": True}


def test_imports_past_the_public_interface(children: Any, tmp_path: Path) -> None:
    printed, made = children.outcome(tmp_path, "past_public_api")
    assert made == {}
    assert (printed["step"], printed["loss"], printed["saves"]) == (10, 2.5, 3)
    assert printed["kinds"] == ["RecoverableSession", "CoordinatedSession", "HookedSession"]
    assert printed["modules"] == ["fastsup"]
    assert all([*printed["classes"], printed["spec"], printed["ready"], printed["input_fn"]])
    assert printed["canned"] == "DNNClassifier" or "pip install 'fastsup[canned]'" in printed["canned"]


@pytest.mark.timeout(300)
def test_tpu_estimator_on_cpu(children: Any, tmp_path: Path) -> None:
    printed, made = children.outcome(tmp_path, "tpu_estimator")
    assert made == {}
    assert printed["seen"] == [
        ["train", 4, False, 0.05],
        "host_call",
        ["eval", 2, False, 0.05],
        ["infer", 3, False, 0.05],
        ["infer", None, False, 0.05],
    ]
    assert printed["predictions"] == pytest.approx([2.0, 4.0, 6.0], abs=1e-2)
    assert printed["mae"] == pytest.approx(0.0, abs=1e-2)
    assert (printed["step"], printed["loop"], printed["exported"]) == (40, 5, True)
    assert "use_tpu=False" in printed["refused"]


def test_two_graphs_of_a_tf1_program(children: Any, tmp_path: Path) -> None:
    printed, made = children.outcome(tmp_path, "two_graphs", "--tf1")
    assert made == {}
    assert printed["values"] == [42, 3.14]
    assert len(printed["errors"]) == 2
    assert all("the tensor's graph is different from the session's graph" in error for error in printed["errors"])


def test_an_input_pipeline_that_is_continued(children: Any, tmp_path: Path) -> None:
    """The numbers are those of TensorFlow 2.15.1."""
    printed, made = children.outcome(tmp_path, "input_pipeline")
    assert made == {}
    assert printed["seen"] == [[0, 1, 2, 3, 4, 5], [6, 7, 8], [9, 10, 11, 12, 13]]
    assert [Path(path).name for path in printed["kept"]] == ["input.ckpt-14", "input.ckpt-10", "input.ckpt-14"]
