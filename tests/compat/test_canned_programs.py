"""Programs with canned models run under `python -m fastsup run` as they are, and find what they found in 2.15.

The same programs printed these numbers under TensorFlow 2.15.1, with tensorflow-estimator 2.15.0. canned_2_15.json and
the checkpoints in canned_2_15.tar.gz are from there too:

    python programs/canned_models.py FOLDER --make   # and keep of each model: checkpoint, model.ckpt-10.*
    python programs/canned_models.py FOLDER          # prints canned_2_15.json
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tf_keras", reason="tf_keras, which is Keras 2, is not installed")

REFERENCE = json.loads(Path(__file__).with_name("canned_2_15.json").read_text())
CHECKPOINTS = Path(__file__).with_name("canned_2_15.tar.gz")
# Releases of TensorFlow add up in other orders.
TOLERANCE = 2e-5
MODELS = sorted(REFERENCE)
GROUPS = [MODELS[index::6] for index in range(6)]
takes_long = pytest.mark.skipif(
    os.environ.get("FASTSUP_CANNED") != "long", reason="takes long: FASTSUP_CANNED=long runs it"
)


def assert_close(found: Any, wanted: Any, path: str) -> None:
    """The same structure, the same texts, and numbers within the tolerance."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), path
        for key in wanted:
            assert_close(found[key], wanted[key], f"{path}/{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), path
        for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert_close(one, other, f"{path}/{index}")
    elif isinstance(wanted, str):
        assert found == wanted, path
    else:
        assert found == pytest.approx(wanted, rel=TOLERANCE, abs=TOLERANCE), path


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "models",
    [*GROUPS[:2], *(pytest.param(group, marks=takes_long) for group in GROUPS[2:])],
    ids=[group[0] for group in GROUPS],
)
def test_every_model_continues_from_a_checkpoint_of_2_15(children: Any, tmp_path: Path, models: list[str]) -> None:
    place = tmp_path / "place"
    with tarfile.open(CHECKPOINTS) as archive:
        # Python 3.11.4 and later.
        archive.extractall(place, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    printed, made = children.outcome(tmp_path, "canned_models", arguments=("{}", f"--only={','.join(models)}"))
    assert made == {}
    assert sorted(printed) == sorted(models)
    for model in models:
        assert printed[model]["old"]["global_step"] == [10.0]
        assert printed[model]["trained"]["global_step"] == [30.0]
        assert_close(printed[model], REFERENCE[model], model)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_wide_and_deep(children: Any, tmp_path: Path) -> None:
    printed, made = children.outcome(tmp_path, "wide_and_deep", arguments=("--model_dir={}",))
    assert made == {}
    wanted = {
        "accuracy": 0.8601398468017578,
        "auc": 0.9438016414642334,
        "average_loss": 0.45148319005966187,
        "positives": 0.7132866978645325,
        "global_step": 200,
        "agrees": 0.8601398601398601,
        "served": 0,
        "first": 0,
        "best": 2,
        "exports": 1,
    }
    assert_close(printed, wanted, "wide_and_deep")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_sdca_and_clusters(children: Any, tmp_path: Path) -> None:
    printed, made = children.outcome(tmp_path, "linear_sdca")
    assert made == {}
    wanted = {
        "accuracy": 0.996666669845581,
        "average_loss": 0.00836122129112482,
        "step": 150,
        "centres": [
            [-4.149809837341309, -3.995609998703003],
            [-0.11847999691963196, 3.9887900352478027],
            [3.8722000122070312, 0.00019999999494757503],
        ],
        "score": 606.5680541992188,
        "sizes": [104, 95, 101],
    }
    assert_close(printed, wanted, "linear_sdca")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_example_of_the_documentation(children: Any, tmp_path: Path) -> None:
    printed, made = children.outcome(tmp_path, "documented_example")
    assert made == {}
    wanted = {"accuracy": 0.875, "average_loss": 0.6654407978057861, "global_step": 300}
    assert_close(printed, wanted, "documented_example")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_model_of_keras_2(children: Any, tmp_path: Path) -> None:
    printed, made = children.outcome(tmp_path, "keras_model", TF_USE_LEGACY_KERAS="1")
    assert made == {}
    wanted = {
        "first": 0.14322717487812042,
        "loss": 0.09287265688180923,
        "accuracy": 0.98828125,
        "step": 150,
        "probabilities": [0.9860731959342957, 0.9806663393974304, 0.9716588258743286],
        "exported": True,
    }
    assert_close(printed, wanted, "keras_model")
