"""Resetting and reading the metrics of an accelerated model in one call: the same values, whatever a metric does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

import fastsup.keras
from fastsup.keras import metrics

pytestmark = [pytest.mark.skipif(not tf.executing_eagerly(), reason="Keras 3 needs eager execution")]

X = np.random.default_rng(1).normal(size=(48, 4)).astype(np.float32)
Y = (X[:, :1] > 0).astype(np.float32)


@pytest.fixture(autouse=True)
def _from_the_first_call(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without this, Keras's methods run until they have taken as long as lifting them takes."""
    monkeypatch.setattr(metrics, "_WORTH_SECS", 0.0)
    yield
    keras.backend.clear_session()


class Counting(keras.metrics.Metric):
    """A metric with Python code in its methods, which must run in each call."""

    def __init__(self) -> None:
        super().__init__(name="counting")
        self.resets, self.results = 0, 0
        self.rows = self.add_weight(name="rows", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.rows.assign_add(tf.cast(tf.shape(y_true)[0], tf.float32))

    def result(self) -> Any:
        self.results += not tf.inside_function()
        return self.rows

    def reset_state(self) -> None:
        self.resets += not tf.inside_function()
        super().reset_state()


class OwnTracker(keras.Model):
    """A model with its own train_step and metrics, as in Keras's guide."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.tracker = keras.metrics.Mean(name="own")

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> Any:
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        self.tracker.update_state(loss)
        return {"own": self.tracker.result()}

    @property
    def metrics(self) -> Any:
        return [self.tracker]


def model_with(*compiled_metrics: Any, outputs: int = 1) -> Any:
    keras.utils.set_random_seed(3)
    x = keras.Input((4,))
    heads = [keras.layers.Dense(1, activation="sigmoid", name=f"head{i}")(x) for i in range(outputs)]
    model = keras.Model(x, heads if outputs > 1 else heads[0])
    loss = ["binary_crossentropy"] * outputs if outputs > 1 else "binary_crossentropy"
    model.compile(optimizer="adam", loss=loss, metrics=[*compiled_metrics])
    return model


def own_tracker() -> Any:
    keras.utils.set_random_seed(3)
    model = OwnTracker()
    model.compile("adam")
    return model


MODELS = {
    "the loss": model_with,
    "means and others": lambda: model_with(
        "accuracy", "mae", keras.metrics.AUC(name="auc"), keras.metrics.Precision(name="precision")
    ),
    "python code": lambda: model_with("mae", Counting()),
    "two outputs": lambda: model_with(["mae"], ["mse", "accuracy"], outputs=2),
    "its own": own_tracker,
}


def trained(model: Any) -> list[Any]:
    target = [Y, 1 - Y] if len(model.outputs if hasattr(model, "outputs") else [0]) > 1 else Y
    numbers: list[Any] = [
        model.train_on_batch(X[:rows], tf.nest.map_structure(lambda y, rows=rows: y[:rows], target))
        for rows in (16, 16, 12)
    ]
    history = model.fit(X, target, epochs=3, batch_size=16, verbose=0, shuffle=False).history
    numbers += [history, model.get_metrics_result()]
    if not isinstance(model, OwnTracker):
        numbers += [model.evaluate(X, target, verbose=0), model.test_on_batch(X, target), model.get_metrics_result()]
    model.reset_metrics()
    state = [variable.numpy().tobytes() for metric in model.metrics for variable in metric.variables]
    return [*numbers, state, [(m.resets, m.results) for m in counting(model)]]


def counting(model: Any) -> list[Counting]:
    inner = [m for metric in model.metrics for m in getattr(metric, "metrics", [metric])]
    return [metric for metric in inner if isinstance(metric, Counting)]


@pytest.mark.parametrize("name", MODELS)
def test_the_same(name: str) -> None:
    expected = trained(MODELS[name]())
    model = fastsup.keras.accelerate(MODELS[name](), fallback="raise")
    assert str(trained(model)) == str(expected)
    assert name == "python code" or model.reset_metrics._lifted[-1].lifted
    assert name in ("python code", "means and others") or model.get_metrics_result._lifted[-1].lifted


def test_other_metrics_are_reset() -> None:
    """A model may be compiled again, or get a metric, after its metrics were reset in one call."""
    model = fastsup.keras.accelerate(model_with("mae"), fallback="raise")
    model.train_on_batch(X, Y)
    model.compile(optimizer="adam", loss="mse", metrics=["mae", "mse"])
    first, second = model.train_on_batch(X, Y), model.train_on_batch(X, Y)
    assert len(first) == len(second) == 3
    model.reset_metrics()
    assert [float(value) for value in model.get_metrics_result().values()] == [0.0, 0.0, 0.0]


def test_a_replaced_method_is_called() -> None:
    model = fastsup.keras.accelerate(model_with(), fallback="raise")
    model.train_on_batch(X, Y)
    (tracker,) = model.metrics[:1]
    with mock.patch.object(tracker, "reset_state") as reset, mock.patch.object(tracker, "result", return_value=7.0):
        model.reset_metrics()
        assert model.get_metrics_result()["loss"] == 7.0
    reset.assert_called_once_with()


class OwnReset(OwnTracker):
    resets = 0

    def reset_metrics(self) -> None:
        self.resets += 1
        super().reset_metrics()


def test_a_method_of_the_program_stays() -> None:
    model = OwnReset()
    model.compile("adam")
    fastsup.keras.accelerate(model, fallback="raise")
    for _ in range(3):
        model.train_on_batch(X, Y)
    assert model.resets == 3


def test_a_stateless_scope_keeps_the_state() -> None:
    model = fastsup.keras.accelerate(model_with(), fallback="raise")
    model.train_on_batch(X, Y)
    before = [variable.numpy() for variable in model.metrics_variables]
    with keras.StatelessScope():
        model.reset_metrics()
    assert [variable.numpy() for variable in model.metrics_variables] == before


def test_short_programs_lift_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_WORTH_SECS", 1000.0)
    model = fastsup.keras.accelerate(model_with(), fallback="raise")
    for _ in range(3):
        model.train_on_batch(X, Y)
    assert model.reset_metrics._lifted[-1] is None
