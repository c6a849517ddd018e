"""Subclasses that override, and assign, what TensorFlow's Estimator keeps private."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from fastsup import estimator as est
from fastsup.common.parts import Delegated
from fastsup.estimator.model.estimator import EstimatorForwards

PRIVATE = [name for name, value in vars(EstimatorForwards).items() if callable(value) and not name.startswith("__")]
LOCAL = {"_train_model_default", "_call_model_fn_eval", "_get_features_and_labels_from_input_fn"}
WITH_STRATEGY = {"_train_model_distributed", "_actual_train_model_distributed", "_call_model_fn_eval_distributed"}


def serving_input_receiver() -> Any:
    features = {"x": tf.compat.v1.placeholder(tf.float32, [None, 2])}
    return est.export.ServingInputReceiver(features, features)


@pytest.mark.filterwarnings("ignore:To make it possible to preserve tf.data options")
@pytest.mark.parametrize("strategy", [False, True])
def test_each_is_called(model_fn: Any, input_fn: Any, tmp_path: Path, strategy: bool) -> None:
    called = []

    def overriding(name: str) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            called.append(name)
            return getattr(super(Overriding, self), name)(*args, **kwargs)

        return method

    class Overriding(est.Estimator):
        def _assert_members_are_not_overridden(self) -> None:
            pass

    for name in PRIVATE:
        setattr(Overriding, name, overriding(name))
    devices = tf.distribute.MirroredStrategy(["/cpu:0"]) if strategy else None
    config = est.RunConfig(train_distribute=devices, eval_distribute=devices)
    model = Overriding(model_fn, str(tmp_path / "model"), config, params={})
    model.train(input_fn, steps=1)
    model.evaluate(input_fn, steps=1)
    assert len(list(model.predict(input_fn, ["p"]))) == 20
    model.export_saved_model(str(tmp_path / "export"), serving_input_receiver)
    assert set(called) == set(PRIVATE) - (LOCAL if strategy else WITH_STRATEGY)


def test_settings(model_fn: Any, input_fn: Any, tmp_path: Path) -> None:
    """A subclass assigns them before the constructor of its base, which replaces them, or later."""

    class Assigning(est.Estimator):
        _device_fn = None  # A setting isn't a member that a subclass may not override.

        def __init__(self, **arguments: Any) -> None:
            self._params = "mine"
            assert self._params == "mine"
            assert not hasattr(self, "_config")
            super().__init__(**arguments)

    model = Assigning(model_fn=model_fn, model_dir=str(tmp_path / "old"), params={"lr": 0.5})
    assert model._params == model.params == {"lr": 0.5}
    copied = copy.deepcopy(model)
    copied._model_dir = str(tmp_path / "new")
    copied.train(input_fn, steps=1)
    assert copied.latest_checkpoint() == str(tmp_path / "new" / "model.ckpt-1")
    assert model.latest_checkpoint() is None
    settings = [name for name, value in vars(EstimatorForwards).items() if isinstance(value, Delegated)]
    assert all(hasattr(model, name) for name in settings)
