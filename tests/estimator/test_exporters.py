"""The exporters: when they export, what they delete, and what BestExporter knows after a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from fastsup import estimator

v1 = tf.compat.v1
ASSETS = {"from/path": "to/path"}


def receiver() -> None:
    """A serving_input_receiver_fn."""


@pytest.fixture
def est(tmp_path: Path) -> Any:
    """What looks like an Estimator, and exports nothing."""
    made = mock.Mock(spec=estimator.Estimator, model_dir=str(tmp_path))
    made.export_saved_model.return_value = "export_result_path"
    return made


@pytest.fixture
def exports(tmp_path: Path) -> Path:
    """The directory of the exports."""
    path = tmp_path / "export" / "exporter"
    path.mkdir(parents=True)
    return path


def make_exports(folder: Path, *names: Any) -> None:
    for name in names:
        (folder / str(name) / "variables").mkdir(parents=True)
        (folder / str(name) / "saved_model.pb").write_text("")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_events(folder: Path, *steps_and_losses: Any) -> None:
    with tf.Graph().as_default():
        writer = v1.summary.FileWriter(str(folder))
        for step, loss in steps_and_losses:
            values = [v1.Summary.Value(tag="loss", simple_value=loss)] if loss is not None else []
            writer.add_summary(v1.Summary(value=values), step)
        writer.close()


@pytest.mark.parametrize("kind", [estimator.LatestExporter, estimator.FinalExporter, estimator.BestExporter])
def test_what_an_export_is_made_with(est: Any, exports: Path, kind: Any) -> None:
    exporter = kind(name="exporter", serving_input_receiver_fn=receiver, assets_extra=ASSETS, as_text=True)
    assert exporter.name == "exporter"
    assert exporter.export(est, str(exports), "checkpoint_path", {}, True) == "export_result_path"
    est.export_saved_model.assert_called_once_with(
        str(exports), receiver, assets_extra=ASSETS, as_text=True, checkpoint_path="checkpoint_path"
    )


def test_only_the_final_export(est: Any, exports: Path, tf_log: Any) -> None:
    exporter = estimator.FinalExporter("exporter", receiver)
    assert exporter.export(est, str(exports), "path", {}, False) is None
    est.export_saved_model.assert_not_called()
    assert exporter.export(est, str(exports), "path", {}, True) == "export_result_path"
    assert "Performing the final export in the end of training." in tf_log.messages


@pytest.mark.parametrize("kind", [estimator.LatestExporter, estimator.BestExporter])
def test_old_exports_are_deleted(est: Any, exports: Path, kind: Any) -> None:
    make_exports(exports, 1000000003, 1000000001, 1000000002, 1000000004, "temp-1000000001", 12, "0123456789ab")
    exporter = kind(name="exporter", serving_input_receiver_fn=receiver, exports_to_keep=2)
    exporter.export(est, str(exports).encode(), None, None, False)
    assert names_in(exports) == ["0123456789ab", "1000000003", "1000000004", "12", "temp-1000000001"]


@pytest.mark.parametrize("kind", [estimator.LatestExporter, estimator.BestExporter])
def test_all_exports_are_kept(est: Any, exports: Path, kind: Any) -> None:
    make_exports(exports, *range(1000000000, 1000000009))
    kind(name="exporter", serving_input_receiver_fn=receiver, exports_to_keep=None).export(
        est, str(exports), None, None, False
    )
    assert len(names_in(exports)) == 9


def test_an_export_that_somebody_else_deletes_is_no_error(est: Any, exports: Path, tf_log: Any) -> None:
    make_exports(exports, 1000000001, 1000000002)
    gone = tf.errors.NotFoundError(None, None, "gone")
    with mock.patch("fastsup.estimator.export.export_folders.delete_tree", side_effect=gone):
        estimator.LatestExporter("exporter", receiver, exports_to_keep=1).export(est, str(exports), None, None, False)
    assert any(message.startswith(f"Can not delete {exports}/1000000001 recursively") for message in tf_log.messages)


@pytest.mark.parametrize(
    ("kind", "arguments", "error", "message"),
    [
        (
            estimator.LatestExporter,
            {"exports_to_keep": 0},
            ValueError,
            "`exports_to_keep`, if provided, must be positive number",
        ),
        (
            estimator.BestExporter,
            {"exports_to_keep": 0},
            ValueError,
            "`exports_to_keep`, if provided, must be a positive number. Got 0",
        ),
        (
            estimator.LatestExporter,
            {"exports_to_keep": "many"},
            TypeError,
            "`exports_to_keep` must be a number or None, got 'many'",
        ),
        (
            estimator.BestExporter,
            {"exports_to_keep": 1.5},
            TypeError,
            "`exports_to_keep` must be an integer or None, got 1.5",
        ),
        (estimator.FinalExporter, {"serving_input_receiver_fn": 1}, TypeError, "must be callable, given: 1"),
        (
            estimator.FinalExporter,
            {"assets_extra": ["a"]},
            TypeError,
            "`assets_extra` must be a dictionary from destinations to files, given: ['a']",
        ),
        (
            estimator.BestExporter,
            {"event_file_pattern": 5},
            TypeError,
            "`event_file_pattern` must be a string or None, given: 5",
        ),
        (estimator.BestExporter, {"compare_fn": None}, ValueError, "`compare_fn` must not be None."),
        (
            estimator.BestExporter,
            {"compare_fn": lambda current_eval_result: True},
            ValueError,
            "must include best_eval_result argument.",
        ),
        (
            estimator.BestExporter,
            {"compare_fn": lambda best_eval_result: True},
            ValueError,
            "must include current_eval_result argument.",
        ),
        (
            estimator.BestExporter,
            {"compare_fn": lambda best_eval_result, current_eval_result, other: True},
            ValueError,
            "has following not expected args: ['other']",
        ),
    ],
)
def test_what_exporters_refuse(kind: Any, arguments: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error) as raised:
        kind(**{"name": "exporter", "serving_input_receiver_fn": receiver, **arguments})
    assert message in str(raised.value)


def best(**arguments: Any) -> Any:
    return estimator.BestExporter("exporter", receiver, **arguments)


def export(exporter: Any, est: Any, exports: Path, loss: Any, step: int = 1) -> Any:
    return exporter.export(est, str(exports), "checkpoint", {"loss": loss, "global_step": np.int64(step)}, False)


def test_only_the_best_are_exported(est: Any, exports: Path, tf_log: Any) -> None:
    exporter = best()
    done = [export(exporter, est, exports, np.float32(loss)) is not None for loss in (0.5, 0.6, 0.4, 0.4, 0.3)]
    assert done == [True, False, True, False, True]
    assert tf_log.messages.count("Performing best model export.") == 3


def test_a_comparison_of_one_s_own(est: Any, exports: Path) -> None:
    exporter = best(compare_fn=lambda best_eval_result, current_eval_result: (
        best_eval_result["acc"] < current_eval_result["acc"]
    ))  # fmt: skip
    results = [exporter.export(est, str(exports), "path", {"acc": acc}, False) for acc in (0.5, 0.4, 0.6)]
    assert results == ["export_result_path", None, "export_result_path"]


@pytest.mark.parametrize("loss", [0.25, np.float32(0.3), np.float64("nan"), float("inf")])
def test_the_best_survives_a_restart(est: Any, exports: Path, tmp_path: Path, loss: Any) -> None:
    assert export(best(), est, exports, loss)
    state = json.loads((tmp_path / "best_export.exporter.json").read_text())
    assert state["checkpoint_path"] == "checkpoint"
    assert state["export"] == "export_result_path"
    assert list(tmp_path.glob("*.tmp")) == []
    after = best()
    assert export(after, est, exports, loss) is None
    assert (export(after, est, exports, np.float32(0.1)) is None) == bool(np.isnan(loss))


def test_what_can_t_be_written_down_is_left_out(est: Any, exports: Path, tmp_path: Path) -> None:
    metrics = {"loss": 0.5, "picture": b"\xff", "counts": np.arange(3), "global_step": np.int64(3)}
    best().export(est, str(exports), "checkpoint", metrics, False)
    state = json.loads((tmp_path / "best_export.exporter.json").read_text())
    assert state["best_eval_result"] == {"loss": 0.5, "counts": [0, 1, 2], "global_step": 3}


def test_two_exporters_have_two_bests(est: Any, exports: Path) -> None:
    for name in ("a", "b/c"):
        assert estimator.BestExporter(name, receiver).export(est, str(exports), "path", {"loss": 1.0}, False)


def test_another_model_dir_has_another_best(est: Any, exports: Path, tmp_path: Path) -> None:
    exporter = best()
    assert export(exporter, est, exports, 0.5)
    est.model_dir = str(tmp_path / "other")
    assert export(exporter, est, exports, 0.7)


def test_event_files_tell_the_best_of_the_exports_of_another_program(
    est: Any, exports: Path, tmp_path: Path, tf_log: Any
) -> None:
    write_events(tmp_path / "eval", (1, 50.0), (2, 60.0), (3, None), (4, 70.0))
    make_exports(exports, 1000000001)
    exporter = best()
    assert export(exporter, est, exports, 55.0, step=5) is None
    assert "Loading best metric from event files." in tf_log.messages
    assert export(exporter, est, exports, 10.0, step=6)
    assert export(exporter, est, exports, 20.0, step=7) is None


def test_the_evaluation_at_hand_isn_t_taken_for_an_older_one(est: Any, exports: Path, tmp_path: Path) -> None:
    write_events(tmp_path / "eval", (1, 50.0), (5, 45.0))
    make_exports(exports, 1000000001)
    assert export(best(), est, exports, 45.0, step=5)


def test_event_files_of_a_model_that_was_never_exported(est: Any, exports: Path, tmp_path: Path) -> None:
    # As TensorFlow's: the first export is always made.
    write_events(tmp_path / "eval_continuous", (1, 50.0), (2, 60.0))
    exporter = best(event_file_pattern="eval_continuous/*.tfevents.*")
    results = [export(exporter, est, exports, loss, step=9) for loss in (100.0, 10.0, 20.0)]
    assert results == ["export_result_path", "export_result_path", None]


def test_a_damaged_event_file_is_read_up_to_there(est: Any, exports: Path, tmp_path: Path, tf_log: Any) -> None:
    write_events(tmp_path / "eval", (1, 50.0), (2, 40.0))
    (file,) = (tmp_path / "eval").iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    make_exports(exports, 1000000001)
    assert export(best(), est, exports, 45.0, step=5)
    assert any("is damaged; only the events before that are used" in message for message in tf_log.messages)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"best_eval_result": 1}', "\x00"])
def test_a_damaged_state_file_is_reported(est: Any, exports: Path, tmp_path: Path, tf_log: Any, content: str) -> None:
    (tmp_path / "best_export.exporter.json").write_text(content)
    assert export(best(), est, exports, 45.0)
    assert any("best_export.exporter.json" in record.message for record in tf_log.records if record.levelno >= 30)
    assert export(best(), est, exports, 46.0) is None


def test_an_event_file_pattern_of_none(est: Any, exports: Path, tmp_path: Path) -> None:
    write_events(tmp_path / "eval", (1, 5.0))
    make_exports(exports, 1000000001)
    assert export(best(event_file_pattern=None), est, exports, 45.0, step=5)


def test_a_loss_that_is_missing(est: Any, exports: Path) -> None:
    exporter = best()
    export(exporter, est, exports, 1.0)
    with pytest.raises(ValueError, match="current_eval_result cannot be empty or no loss is found in it"):
        exporter.export(est, str(exports), "path", {"accuracy": 1.0}, False)


def test_specs_in_place_of_tensors() -> None:
    features = {"x": tf.TensorSpec([None, 3], tf.float32), "y": tf.zeros([7, 2], tf.int64)}
    with tf.Graph().as_default():
        made = estimator.export.build_raw_serving_input_receiver_fn(features, default_batch_size=4)()
        found = {name: (each.shape.as_list(), each.dtype) for name, each in made.receiver_tensors.items()}
    assert found == {"x": ([4, 3], tf.float32), "y": ([4, 2], tf.int64)}
