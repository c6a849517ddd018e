"""contrib.learn: export strategies, inference, and what estimators of the older kind are known by."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fastsup import estimator, train
from fastsup.contrib import learn
from fastsup.contrib.learn import exports

v1 = tf.compat.v1


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    weight = v1.get_variable("w", [], initializer=v1.ones_initializer(), use_resource=True)
    predictions = weight * features["x"]
    if mode == learn.ModeKeys.INFER:
        return estimator.EstimatorSpec(mode, predictions={"y": predictions})
    loss = tf.reduce_mean(tf.square(predictions - labels))
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
    return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def data() -> Any:
    values = np.arange(4, dtype=np.float32)
    return tf.data.Dataset.from_tensors(({"x": values}, 2 * values))


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    made = estimator.Estimator(model_fn, model_dir=str(tmp_path / "model"))
    return made.train(data, max_steps=1)


def serving() -> Any:
    features = {"x": v1.placeholder(tf.float32, [None])}
    return learn.InputFnOps(features, None, features)


def exported_value(path: Any, feeds: Any) -> Any:
    with tf.Graph().as_default(), v1.Session() as session:
        loaded = v1.saved_model.load(session, ["serve"], os.fsdecode(path))
        signature = loaded.signature_def["serving_default"]
        (output,) = signature.outputs.values()
        return session.run(output.name, {signature.inputs[name].name: value for name, value in feeds.items()})


def test_export_of_each_checkpoint(trained: Any, tmp_path: Path) -> None:
    base = tmp_path / "exports"
    for name in ("1000000001", "1000000002", "other", "20"):
        (base / name).mkdir(parents=True)
    strategy = learn.make_export_strategy(serving, exports_to_keep=2)
    assert strategy.name == "Servo"
    path = strategy.export(trained, str(base))
    weight = trained.get_variable_value("w")
    np.testing.assert_allclose(exported_value(path, {"x": [2.0, 3.0]}), weight * np.array([2.0, 3.0]), rtol=1e-6)
    assert sorted(os.listdir(base)) == sorted(["1000000002", "other", "20", os.path.basename(os.fsdecode(path))])
    newest = exports.get_most_recent_export(base)
    assert newest is not None
    assert (newest.path, newest.export_version) == (os.fsdecode(path), int(os.path.basename(os.fsdecode(path))))
    assert exports.get_most_recent_export(tmp_path / "model") is None
    exports.garbage_collect_exports(base, None)
    assert len(os.listdir(base)) == 4
    exports.garbage_collect_exports(base, 0)
    assert sorted(os.listdir(base)) == ["20", "other"]
    with pytest.raises(ValueError, match="default_output_alternative_key is not supported in core"):
        learn.make_export_strategy(serving, default_output_alternative_key="a").export(trained, str(base))


def test_export_for_examples(trained: Any, tmp_path: Path) -> None:
    columns = [tf.feature_column.numeric_column("x", shape=())]
    example = tf.train.Example(features=tf.train.Features(feature={"x": tf.train.Feature(float_list={"value": [3.0]})}))
    weight = trained.get_variable_value("w")
    for target_core in (True, False):
        strategy = exports.make_parsing_export_strategy(columns, target_core=target_core)
        path = strategy.export(trained, str(tmp_path / f"parsing_{target_core}"))
        examples = [example.SerializeToString()]
        np.testing.assert_allclose(exported_value(path, {"examples": examples}), [3 * weight], rtol=1e-6)


def test_an_older_estimator_is_exported(tmp_path: Path) -> None:
    given: dict[str, Any] = {}

    class Older:
        def export_savedmodel(self, folder: Any, serving_input_fn: Any, **arguments: Any) -> str:
            given.update(arguments, serving_input_fn=serving_input_fn)
            return "path"

    (tmp_path / "out").mkdir()
    strategy = learn.make_export_strategy(serving, "head", strip_default_attrs=True)
    assert strategy.export(Older(), str(tmp_path / "out"), "checkpoint") == "path"
    assert given.pop("serving_input_fn") is serving
    assert given == {
        "default_output_alternative_key": "head",
        "assets_extra": None,
        "as_text": False,
        "checkpoint_path": "checkpoint",
        "strip_default_attrs": True,
    }


def test_export_of_the_best(trained: Any, tmp_path: Path) -> None:
    strategy = exports.make_best_model_export_strategy(serving)
    base = str(tmp_path / "best")
    path = trained.latest_checkpoint()
    first = strategy.export(trained, base, path, {"loss": 3.0})
    assert os.path.basename(path) in os.fsdecode(first)
    assert strategy.export(trained, base, path, {"loss": 4.0}) == ""
    with pytest.raises(ValueError, match="no loss is found in it"):
        strategy.export(trained, base, path, {"accuracy": 4.0})
    with tf.Graph().as_default():
        writer = v1.summary.FileWriter(str(tmp_path / "model" / "eval"))
        for step, loss in enumerate((0.5, 0.2, 0.7)):
            writer.add_summary(v1.Summary(value=[v1.Summary.Value(tag="loss", simple_value=loss)]), step)
        writer.close()
    selector = exports.BestModelSelector(str(tmp_path / "model" / "eval" / "*tfevents*"))
    assert selector.update("path", {"loss": 0.3}) == ("", None)
    assert selector.update("path", {"loss": 0.1}) == ("path", {"loss": 0.1})
    with pytest.raises(ValueError, match="Checkpoint path is empty"):
        selector.update("", {"loss": 0.1})
    with pytest.raises(ValueError, match="path has empty evaluation results"):
        selector.update("path", None)


def test_an_export_with_a_second_step(trained: Any, tmp_path: Path) -> None:
    base = tmp_path / "extended"

    def post(exported: Any, folder: str) -> str:
        made = Path(folder, "final")
        made.mkdir()
        (made / "from").write_text(os.path.basename(os.fsdecode(exported)))
        return str(made)

    strategy = exports.extend_export_strategy(learn.make_export_strategy(serving), post, "Extended")
    assert strategy.name == "Extended"
    assert strategy.export(trained, str(base)) == str(base / "final")
    assert os.listdir(base) == ["final"]
    wrong = exports.extend_export_strategy(learn.make_export_strategy(serving), lambda path, folder: path)
    with pytest.raises(ValueError, match="post_export_fn must return a sub-directory of"):
        wrong.export(trained, str(tmp_path / "wrong"))


def test_inference(trained: Any) -> None:
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [])
        weight = v1.get_variable("w", [], initializer=v1.ones_initializer(), use_resource=True)
        outputs = {"y": weight * x}
        value = trained.get_variable_value("w")
        path = trained.latest_checkpoint()
        assert learn.infer(path, outputs, {x: 2.0})["y"] == pytest.approx(2 * value)
        assert learn.infer(None, outputs, {x: 2.0}) == {"y": 2.0}
        assert learn.run_feeds(outputs, [{x: 1.0}, {x: 3.0}]) == [{"y": 1.0}, {"y": 3.0}]
        assert learn.run_n(outputs, {x: 4.0}, n=3) == [{"y": 4.0}] * 3
        with pytest.raises(ValueError, match="output_dict is invalid"):
            learn.infer(None, {})
        with pytest.raises(ValueError, match="feed_dicts is invalid"):
            learn.run_feeds(outputs, [])
    with tf.Graph().as_default():
        # Nothing to restore.
        assert learn.infer(path, {"a": tf.constant(5)}) == {"a": 5}


def test_serving_functions() -> None:
    with tf.Graph().as_default():
        features = {"a": tf.zeros([8, 3], tf.int64, name="a")}
        made = exports.build_default_serving_input_fn(features, 2)()
        assert made.features is made.default_inputs
        assert made.features["a"].shape.as_list() == [2, 3]
        assert made.features["a"].dtype == tf.int64
        parsed = learn.build_parsing_serving_input_fn({"b": tf.io.FixedLenFeature([2], tf.float32)})()
        assert parsed.features["b"].shape.as_list() == [None, 2]
        assert parsed.default_inputs["examples"].dtype == tf.string
        assert parsed.labels is None


def test_what_an_older_estimator_is() -> None:
    class Complete(learn.Evaluable, learn.Trainable):
        model_dir = "place"
        config = SimpleNamespace(cluster_spec=None)

        def evaluate(self, *arguments: Any, **named: Any) -> Any:
            return {"loss": 1.0, "global_step": 1}

        def fit(self, *arguments: Any, **named: Any) -> Any:
            return self

    assert learn.Experiment(Complete(), data, data, eval_delay_secs=0).evaluate() == {"loss": 1.0, "global_step": 1}
    for kind in (learn.Evaluable, learn.Trainable):
        with pytest.raises(TypeError, match="abstract"):
            kind()


def test_modes() -> None:
    learn.ModeKeys.validate(learn.ModeKeys.INFER)
    with pytest.raises(ValueError, match=r"Invalid mode other."):
        learn.ModeKeys.validate("other")
    assert learn.ModeKeys.TRAIN == estimator.ModeKeys.TRAIN
    assert learn.ModeKeys.INFER == estimator.ModeKeys.PREDICT
    assert learn.NanLossDuringTrainingError is train.NanLossDuringTrainingError
