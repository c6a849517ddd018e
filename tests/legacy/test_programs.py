"""Programs in the style of those years run under `python -m fastsup run` as they are, in fastsup's classes alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

COUNT = Path(__file__).with_name("count_classes.py")


def outcome(children: Any, folder: Path, name: str, *options: str, argument: str = "{}") -> tuple[Any, Any]:
    """What a program prints, and which of TensorFlow's own classes were made in it."""
    made = folder / "made.json"
    place = folder / "place"
    place.mkdir()
    command = (COUNT, made, "run", *options, children.PROGRAMS / f"{name}.py", argument.format(place))
    return children.result(children.run(*command)), json.loads(made.read_text())


@pytest.mark.timeout(300)
def test_custom_estimator(children: Any, tmp_path: Path) -> None:
    printed, made = outcome(children, tmp_path, "custom_estimator", argument="--model_dir={}")
    assert made == {}
    accuracy = printed.pop("accuracy")
    assert accuracy > 0.6
    assert printed == {"global_step": 60, "predictions": 300, "saved_models": 1, "exports": 1}


def test_supervisor(children: Any, tmp_path: Path) -> None:
    printed, made = outcome(children, tmp_path, "supervisor_loop")
    assert made == {}
    assert printed["first"] == [0, 20]
    assert printed["second"] == [20, 50]
    assert printed["weight"] == pytest.approx(3.0, abs=1e-3)


def test_queue_runners(children: Any, tmp_path: Path) -> None:
    printed, made = outcome(children, tmp_path, "queue_runners")
    assert made == {}
    assert printed == {"steps": 20, "ended": True, "saved": "20"}


def test_without_installation_tensorflows_own_classes_are_counted(children: Any, tmp_path: Path) -> None:
    command = (COUNT, tmp_path / "made.json", "plain", children.PROGRAMS / "queue_runners.py", tmp_path)
    assert children.result(children.run(*command)) == {"steps": 20, "ended": True, "saved": "20"}
    made = json.loads((tmp_path / "made.json").read_text())
    wanted = {"CheckpointSaverHook", "MonitoredSession", "NanTensorHook", "Session", "SessionManager", "StopAtStepHook"}
    assert wanted <= set(made)


def test_compat_v1_without_v2_behaviour(children: Any, tmp_path: Path) -> None:
    printed, made = outcome(children, tmp_path, "compat_v1")
    assert made == {}
    assert printed == {"steps": 30, "falls": True, "product": 42, "value": 5.0}


def test_tf1_program(children: Any, tmp_path: Path) -> None:
    printed, made = outcome(children, tmp_path, "tf1_program", "--tf1", argument="--folder={}")
    assert made == {}
    assert printed.pop("argv")[0].startswith("--folder=")
    assert printed == {
        "falls": True,
        "path": "model-25",
        "slim": None,
        "dir": True,
        "eager": False,
        "name": "__main__",
    }


def test_imports_past_the_public_interface(children: Any, tmp_path: Path) -> None:
    printed, made = outcome(children, tmp_path, "past_public_api")
    assert made == {}
    assert (printed["step"], printed["loss"], printed["saves"]) == (10, 2.5, 3)
    assert printed["kinds"] == ["RecoverableSession", "CoordinatedSession", "HookedSession"]
    assert printed["modules"] == ["fastsup"]
    assert all([*printed["classes"], printed["spec"], printed["ready"], printed["input_fn"]])
    assert "canned models aren't in fastsup yet" in printed["canned"]


@pytest.mark.timeout(300)
def test_tpu_estimator_on_cpu(children: Any, tmp_path: Path) -> None:
    printed, made = outcome(children, tmp_path, "tpu_estimator")
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
