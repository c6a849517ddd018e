"""Objects that only look like an estimator, as tests of programs make them: nothing but their attributes is used."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import tensorflow as tf

from fastsup import estimator

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def _nothing_is_written_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A directory named after a mock would land in the working directory."""
    place = tmp_path / "working"
    place.mkdir()
    monkeypatch.chdir(place)
    yield
    assert os.listdir(place) == []


def no_data() -> Any:
    raise AssertionError("nothing is to be read")


def lookalike(**more: Any) -> Any:
    """Without its own model_dir: that is another mock."""
    est = mock.Mock(spec=estimator.Estimator, **more)
    est.config = mock.Mock(cluster_spec={}, task_type="worker", task_id=0, experimental_max_worker_delay_secs=None)
    est.latest_checkpoint.return_value = "latest_it_is"
    est.evaluate.return_value = {"global_step": 200, "loss": 0.5}
    est.export_saved_model.return_value = "path_to_export"
    return est


def exporters() -> list[Any]:
    return [
        estimator.LatestExporter("latest", no_data, exports_to_keep=1),
        estimator.BestExporter("best", no_data, exports_to_keep=1),
        estimator.FinalExporter("final", no_data),
    ]


def test_an_evaluator_and_exporters() -> None:
    est = lookalike()
    own = mock.Mock(spec=estimator.Exporter)
    own.name = "own"
    own.export.return_value = "path_to_own"
    spec = estimator.EvalSpec(no_data, exporters=[*exporters(), own])
    result, exported = estimator.TrainingExecutor._Evaluator(est, spec, 200).evaluate_and_export()
    assert result.status == estimator.EvalStatus.EVALUATED
    assert exported == ["path_to_export"] * 3 + ["path_to_own"]
    paths = [call[0][0] for call in est.export_saved_model.call_args_list] + [own.export.call_args[1]["export_path"]]
    assert paths == [os.path.join(str(est.model_dir), "export", name) for name in ("latest", "best", "final", "own")]


@pytest.mark.parametrize("model_dir", [b"model", "model", Path("model")])
def test_model_dirs_that_are_paths(model_dir: Any, tmp_path: Path) -> None:
    own = mock.Mock(spec=estimator.Exporter)
    own.name = "own"
    spec = estimator.EvalSpec(no_data, exporters=own)
    estimator.TrainingExecutor._Evaluator(lookalike(model_dir=model_dir), spec, 200).evaluate_and_export()
    assert own.export.call_args[1]["export_path"] == "model/export/own"


def test_exporters_with_mocks_for_paths() -> None:
    est = lookalike()
    for exporter in exporters():
        path = mock.Mock()
        assert exporter.export(est, path, mock.Mock(), {"loss": 0.5}, True) == "path_to_export"
        assert est.export_saved_model.call_args[0][0] is path


def test_the_best_is_known_without_a_directory() -> None:
    est, best = lookalike(), estimator.BestExporter("best", no_data)
    results = [best.export(est, "", "c", {"loss": loss}, False) for loss in (0.5, 0.6, 0.4)]
    assert results == ["path_to_export", None, "path_to_export"]


@pytest.mark.parametrize("name", ["run_local", "run_chief", "run_worker", "run_master", "run_evaluator"])
def test_what_each_task_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", mock.Mock())
    est = lookalike()
    executor = estimator.TrainingExecutor(
        est,
        estimator.TrainSpec(no_data, max_steps=200),
        estimator.EvalSpec(no_data, start_delay_secs=0, throttle_secs=0, exporters=exporters()),
    )
    with mock.patch.object(executor, "_start_std_server"):
        getattr(executor, name)()
    assert est.train.called == (name != "run_evaluator")


def test_an_evaluator_without_a_throttle_warns_as_the_reference_does(
    tf_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it has found nothing to evaluate, each time; and nowhere else."""
    monkeypatch.setattr(time, "sleep", mock.Mock())
    est = lookalike()
    est.latest_checkpoint.side_effect = [None, "", "a", "a", "b", "c"]
    est.evaluate.side_effect = [{"global_step": step} for step in (100, 150, 200)]
    spec = estimator.EvalSpec(no_data, start_delay_secs=0, throttle_secs=0)
    estimator.TrainingExecutor(est, estimator.TrainSpec(no_data, max_steps=200), spec).run_evaluator()
    warning = (
        "EvalSpec.throttle_secs is set as 0. This might overload the job before finding (next) new checkpoint. Please "
        "consider to increase it."
    )
    assert [record.message for record in tf_log.records if record.levelname == "WARNING"].count(warning) == 3


def test_an_evaluator_with_a_throttle_does_not(tf_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", mock.Mock())
    est = lookalike()
    est.latest_checkpoint.side_effect = [None, "a"]
    spec = estimator.EvalSpec(no_data, start_delay_secs=0, throttle_secs=1e-9)
    estimator.TrainingExecutor(est, estimator.TrainSpec(no_data, max_steps=200), spec).run_evaluator()
    assert "EvalSpec.throttle_secs is set as 0" not in tf_log.text
