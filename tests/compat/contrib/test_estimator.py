"""The Estimator of contrib.learn: models in its three forms, data in its two, metrics, heads, and in an Experiment."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fastsup import estimator as core
from fastsup.contrib import learn

v1 = tf.compat.v1

X = np.arange(8, dtype=np.float64).reshape(8, 1) / 8
Y = (2 * X[:, 0] > 1).astype(np.int32)


@pytest.fixture(autouse=True)
def _no_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)


def parts(features: Any, labels: Any, mode: str, params: Any) -> tuple[Any, Any, Any]:
    """Predictions, loss and training operation of a logistic model."""
    x = features["x"] if isinstance(features, dict) else features
    weight = v1.get_variable("w", [1, 1], initializer=v1.zeros_initializer(), use_resource=True)
    bias = v1.get_variable("b", [], initializer=v1.zeros_initializer(), use_resource=True)
    logits = tf.squeeze(tf.matmul(x, weight), 1) + bias
    predictions = {"classes": tf.cast(logits > 0, tf.int64), "logits": logits, "scores": tf.sigmoid(logits)}
    if mode == learn.ModeKeys.INFER:
        return predictions, None, None
    loss = v1.losses.sigmoid_cross_entropy(labels, logits)
    train_op = v1.train.GradientDescentOptimizer(params["rate"]).minimize(loss, v1.train.get_global_step())
    return predictions, loss, train_op


def as_tuple(features: Any, labels: Any, mode: str, params: Any) -> Any:
    return parts(features, labels, mode, params)


def as_ops(features: Any, labels: Any, mode: str, params: Any, model_dir: Any) -> Any:
    assert os.path.isdir(os.path.dirname(model_dir))
    predictions, loss, train_op = parts(features, labels, mode, params)
    heads = {"one": (learn.ProblemType.LOGISTIC_REGRESSION, predictions), "two": (0, {"y": predictions["logits"]})}
    return learn.ModelFnOps(mode, predictions, loss, train_op, output_alternatives=heads)


def as_spec(features: Any, labels: Any, mode: str, params: Any, config: Any) -> Any:
    predictions, loss, train_op = parts(features, labels, mode, params)
    return core.EstimatorSpec(mode, predictions=predictions, loss=loss, train_op=train_op)


def accuracy(predictions: Any, labels: Any, weights: Any = None) -> Any:
    return v1.metrics.accuracy(labels, predictions, weights)


def data(batch: int = 4, epochs: int | None = 1) -> Any:
    return tf.data.Dataset.from_tensor_slices(({"x": X.astype(np.float32)}, Y)).repeat(epochs).batch(batch)


@pytest.mark.parametrize("model_fn", [as_tuple, as_ops, as_spec])
def test_a_life(model_fn: Any, tmp_path: Path) -> None:
    made = learn.Estimator(model_fn, str(tmp_path / "model"), params={"rate": 1.0})
    with pytest.raises(learn.NotFittedError, match="Couldn't find trained model at"):
        made.evaluate(input_fn=data)
    with pytest.raises(ValueError, match="Couldn't find trained model at"):
        made.predict(input_fn=data)
    assert made.fit(input_fn=lambda: data(epochs=None), steps=300) is made
    made.partial_fit(input_fn=data)
    made.fit(input_fn=data, max_steps=200)
    assert made.get_variable_value("global_step") == 301
    assert "w" in made.get_variable_names()
    spec = learn.MetricSpec(accuracy, prediction_key="classes")
    found = made.evaluate(input_fn=data, metrics={"right": spec}, name="named") if model_fn is not as_spec else None
    if found is not None:
        assert found["right"] > 0.8
        assert found["global_step"] == 301
        assert os.listdir(tmp_path / "model" / "eval_named")
    assert made.evaluate(input_fn=data, steps=1)["loss"] < 0.5
    predicted = list(made.predict(input_fn=data, outputs=["classes"]))
    assert [set(row) for row in predicted] == [{"classes"}] * 8
    assert len(list(made.predict(input_fn=data, iterate_batches=True))) == 2
    assert made.predict(input_fn=data, as_iterable=False)["classes"].shape == (4,)


def test_arrays(tmp_path: Path) -> None:
    made = learn.Estimator(as_tuple, str(tmp_path / "model"), params={"rate": 1.0})
    made.fit(X, Y, steps=300, batch_size=4)
    metrics = {("right", "classes"): lambda predictions, labels: v1.metrics.accuracy(labels, predictions)}
    assert made.evaluate(X, Y, metrics=metrics)["right"] > 0.8
    rows = list(made.predict(x=X, batch_size=3))
    assert [int(row["classes"]) for row in rows][:3] == [0, 0, 0]
    assert len(rows) == 8
    assert len(made.predict(x={"x": X}, as_iterable=False)["logits"]) == 8


def test_a_constant_input_is_predicted_once(tmp_path: Path) -> None:
    made = learn.Estimator(as_tuple, str(tmp_path / "model"), params={"rate": 1.0}).fit(X, Y, steps=1)
    assert len(list(made.predict(input_fn=lambda: {"x": tf.zeros([5, 1])}))) == 5


def test_heads_are_exported(tmp_path: Path) -> None:
    made = learn.Estimator(as_ops, str(tmp_path / "model"), params={"rate": 1.0}).fit(X, Y, steps=1)

    def serving() -> Any:
        features = {"x": v1.placeholder(tf.float32, [None, 1])}
        return learn.InputFnOps(features, None, features)

    strategy = learn.make_export_strategy(serving, default_output_alternative_key="two")
    path = strategy.export(made, str(tmp_path / "exports"))
    with tf.Graph().as_default(), v1.Session() as session:
        signatures = v1.saved_model.load(session, ["serve"], os.fsdecode(path)).signature_def
    # A signature of scores takes examples, which this input has none of.
    assert set(signatures) == {"two", "serving_default"}
    assert set(signatures["serving_default"].outputs) == {"y"}
    with pytest.raises(ValueError, match=r"Available keys are: \['one', 'two'\]. Got None."):
        made.export_savedmodel(str(tmp_path / "exports"), serving)
    with pytest.raises(ValueError, match="serving_input_fn must be defined"):
        made.export_savedmodel("there", None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"graph_rewrite_specs=\[1\] isn't supported"):
        made.export_savedmodel("there", serving, graph_rewrite_specs=[1])


def test_in_an_experiment(tmp_path: Path) -> None:
    seen: list[int] = []

    class See(learn.monitors.EveryN):
        def every_n_step_end(self, step: Any, outputs: Any) -> None:
            assert isinstance(self._estimator, learn.Estimator)
            seen.append(int(step))

    def experiment_fn(run_config: Any, hparams: Any) -> Any:
        made = learn.Estimator(as_tuple, config=run_config, params=hparams)
        return learn.Experiment(
            made,
            lambda: data(epochs=None),
            data,
            eval_metrics={"right": learn.MetricSpec(accuracy, "classes")},
            train_steps=30,
            eval_steps=None,
            train_monitors=[See(10)],
        )

    config = learn.RunConfig(model_dir=str(tmp_path / "model"), save_checkpoints_steps=10)
    metrics, _ = learn.learn_runner.run(experiment_fn, run_config=config, hparams={"rate": 1.0})
    assert metrics["global_step"] == 30
    assert 0 <= metrics["right"] <= 1
    assert seen == [1, 11, 21]


def test_feature_engineering(tmp_path: Path) -> None:
    made = learn.Estimator(
        as_tuple, str(tmp_path), params={"rate": 1.0}, feature_engineering_fn=lambda x, y: ({"x": 0.0 * x["x"]}, y)
    )
    made.fit(input_fn=data, steps=2)
    assert made.get_variable_value("w") == 0.0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"steps": 1, "max_steps": 1}, "Can not provide both steps and max_steps"),
        ({}, "Either x or input_fn must be provided"),
        ({"input_fn": data, "x": X}, "Can not provide both input_fn and x or y"),
        ({"input_fn": data, "batch_size": 3}, "Can not provide both input_fn and batch_size"),
    ],
)
def test_arguments_that_dont_go_together(tmp_path: Path, arguments: Any, text: str) -> None:
    made = learn.Estimator(as_tuple, str(tmp_path), params={"rate": 1.0})
    with pytest.raises(ValueError, match=text):
        made.fit(**arguments)


def test_arguments_of_the_constructor(tmp_path: Path, tf_log: Any) -> None:
    with pytest.raises(ValueError, match="model_fn must be provided"):
        learn.Estimator()
    with pytest.raises(ValueError, match="does not have a params argument"):
        learn.Estimator(lambda features, labels: None, str(tmp_path), params={"a": 1})
    learn.Estimator(as_tuple, str(tmp_path))
    assert any("includes params argument" in message for message in tf_log.messages)
    made = learn.Estimator(lambda features, labels: 5, str(tmp_path))
    with pytest.raises(ValueError, match="please return ModelFnOps"):
        made.fit(input_fn=data)


def test_model_fn_ops(graph: Any) -> None:
    loss, operation = tf.constant([2.0]), tf.no_op()
    made = learn.ModelFnOps("train", loss=loss, train_op=tf.constant(1))
    assert made.loss.shape.rank == 0
    assert isinstance(made.train_op, tf.Operation)
    for arguments, text in (
        ({"mode": "other"}, "Invalid mode other"),
        ({"mode": "train", "loss": loss}, "Missing train_op"),
        ({"mode": "eval", "predictions": loss}, "Missing loss"),
        ({"mode": "infer"}, "Missing predictions"),
        ({"mode": "train", "loss": tf.zeros([2]), "train_op": operation}, "Loss must be scalar"),
        ({"mode": "infer", "predictions": loss, "eval_metric_ops": [1]}, "eval_metric_ops must be a dict"),
    ):
        with pytest.raises(ValueError, match=text):
            learn.ModelFnOps(**arguments)
    with pytest.raises(TypeError, match="All hooks returned from model_fn must be SessionRunHook instances"):
        learn.ModelFnOps("train", loss=loss, train_op=operation, training_hooks=["hook"])


def test_metric_specs(graph: Any, tf_log: Any) -> None:
    def named(predictions: Any, labels: Any, weights: Any = None) -> Any:
        return predictions, labels, weights

    def targets_first(target: Any, values: Any) -> Any:
        return values, target

    def alone(values: Any) -> Any:
        return values

    features, labels, predictions = {"w": 5}, {"a": 1, "b": 2}, {"p": 3, "q": 4}
    assert learn.MetricSpec(named, "p", "a", "w").create_metric_ops(features, labels, predictions) == (3, 1, 5)
    assert learn.MetricSpec(named).create_metric_ops(features, {"a": 1}, 3) == (3, 1, None)
    assert learn.MetricSpec(targets_first, "q", "b").create_metric_ops(features, labels, predictions) == (4, 2)
    assert learn.MetricSpec(alone, "q").create_metric_ops(features, 1, predictions) == 4
    partial = functools.partial(named, weights=7)
    assert learn.MetricSpec(partial, "p", "a").create_metric_ops(features, labels, predictions) == (3, 1, 7)
    assert str(learn.MetricSpec(named, "p")) == (
        "MetricSpec(metric_fn=named, prediction_key=p, label_key=None, weight_key=None)"
    )
    assert any(message.startswith("Canonical arg labels missing from targets_first") for message in tf_log.messages)
    with pytest.raises(ValueError, match="missing from alone"):
        learn.MetricSpec(alone, label_key="a")
    with pytest.raises(ValueError, match="Ambiguous arguments"):
        learn.MetricSpec(lambda label, labels: None)
    with pytest.raises(ValueError, match="requires predictions tensor or single element dict"):
        learn.MetricSpec(named, label_key="a").create_metric_ops(features, labels, predictions)
    with pytest.raises(ValueError, match="requires labels dict"):
        learn.MetricSpec(named, "p", "a").create_metric_ops(features, 1, predictions)
    with pytest.raises(KeyError, match="Key 'z' missing from"):
        learn.MetricSpec(named, "z", "a").create_metric_ops(features, labels, predictions)
