"""What the tests of fastsup.estimator share: a small model, its data, and an environment without TF_CONFIG."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fastsup import estimator as est

v1 = tf.compat.v1

X = np.arange(40, dtype=np.float32).reshape(20, 2) / 40
Y = X @ np.array([[1.0], [2.0]], np.float32) + 0.1


@pytest.fixture(autouse=True)
def _no_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)


@pytest.fixture(autouse=True)
def _calls_leave_no_thread(no_thread_left: None) -> None:
    """An Estimator's call leaves no thread behind."""


@pytest.fixture
def set_tf_config(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets TF_CONFIG: to a string as it is, to anything else as JSON."""

    def set_(value: Any) -> None:
        monkeypatch.setenv("TF_CONFIG", value if isinstance(value, str) else json.dumps(value))

    return set_


def dataset() -> Any:
    """Five batches of four rows."""
    return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).batch(4)


def linear_model(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """A linear model, trained with momentum from a fixed start."""
    with v1.variable_scope("lin"):
        weights = v1.get_variable("w", [2, 1], initializer=v1.constant_initializer([[0.5], [-0.5]]))
        bias = v1.get_variable("b", [1], initializer=v1.zeros_initializer())
    predicted = tf.matmul(features["x"], weights) + bias
    if mode == est.ModeKeys.PREDICT:
        return est.EstimatorSpec(mode, predictions={"p": predicted, "double": 2 * predicted})
    loss = tf.reduce_mean(tf.square(predicted - labels))
    optimizer = v1.train.MomentumOptimizer((params or {}).get("lr", 0.1), 0.9)
    return est.EstimatorSpec(
        mode,
        loss=loss,
        train_op=optimizer.minimize(loss, v1.train.get_global_step()),
        predictions={"p": predicted},
        eval_metric_ops={"mae": v1.metrics.mean_absolute_error(labels, predicted)},
    )


@pytest.fixture
def input_fn() -> Callable[[], Any]:
    return dataset


@pytest.fixture
def model_fn() -> Callable[..., Any]:
    return linear_model


@pytest.fixture
def make(tmp_path: Any) -> Callable[..., Any]:
    """Makes an Estimator of the linear model: make(config arguments)."""

    def make_(model_fn: Any = linear_model, params: Any = None, warm_start_from: Any = None, **config: Any) -> Any:
        config.setdefault("model_dir", str(tmp_path / "model"))
        return est.Estimator(
            model_fn,
            config=est.RunConfig(tf_random_seed=1, **config),
            params={"lr": 0.1} if params is None and model_fn is linear_model else params,
            warm_start_from=warm_start_from,
        )

    return make_


@pytest.fixture
def make_untrained(make: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes an Estimator that predicts as it is initialised: one with a temporary model directory."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return partial(make, model_dir=None)
