"""Canned models by fastsup's own names, and what they make of an absent extra and of objects of Keras 3."""

from __future__ import annotations

import json
import os
import textwrap
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from processes import Processes

from fastsup import estimator
from fastsup.estimator.canned import archive
from fastsup.estimator.model.estimator import EstimatorV1

archived = pytest.mark.skipif(not archive.is_installed(), reason="the extra fastsup[canned] is not installed")
X = np.random.RandomState(0).normal(size=(64, 3)).astype(np.float32)
Y = (X.sum(1) > 0).astype(np.int32)


def data(epochs: int = 1) -> Any:
    return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).repeat(epochs).batch(16)


def classifier(folder: Path, optimizer: Any) -> Any:
    config = estimator.RunConfig(str(folder), tf_random_seed=1)
    return estimator.DNNClassifier(
        [4], [tf.feature_column.numeric_column("x", [3])], optimizer=optimizer, config=config
    )


def model_module(name: str) -> Any:
    from fastsup.estimator.canned.archive import model_module

    return model_module(name)


@archived
def test_nothing_of_tensorflow_is_changed(processes: Processes) -> None:
    program = """
        import json, sys
        import tensorflow as tf
        from tensorflow.python.util import tf_export
        from fastsup import estimator
        light = sorted(name for name in sys.modules if name.startswith(("tf_keras", "tensorflow_estimator")))
        import tf_keras  # Its own import makes copies of TensorFlow's interface.
        def names():
            exports = [tf_export.API_ATTRS, tf_export.API_ATTRS_V1]
            modules = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "tensorflow"}
            return {
                **{f"{name}.{short}": id(value) for name, module in modules.items()
                   for short, value in list(vars(module).items())
                   if not short.startswith("_") and "LazyLoader" not in type(value).__name__},
                "exports": str(exports),
            }
        keras = tf.keras.layers.Dense.__module__
        before, finders = names(), list(sys.meta_path)
        kinds = [estimator.DNNClassifier, estimator.MultiHead, estimator.experimental.RNNClassifier]
        after = names()
        changed = [name for name in before if after.get(name) != before[name]]
        print(json.dumps({
            "light": light, "changed": changed, "finders": finders == sys.meta_path,
            "keras": [keras, tf.keras.layers.Dense.__module__], "estimator": hasattr(tf, "estimator"),
            "imported": [name for name in sys.modules if name.startswith("tensorflow_estimator")],
            "others": [name for name in sys.modules if name.endswith((".tpu_estimator", "archived.estimator"))],
            "subclass": [issubclass(kinds[0], estimator.Estimator), kinds[0].__name__],
        }))
        """
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    done = processes.python("-c", textwrap.dedent(program), env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["light"] == []
    assert found["changed"] == []
    assert found["finders"]
    assert found["keras"][0] == found["keras"][1]
    assert found["keras"][0].startswith("keras.")
    assert not found["estimator"]
    assert found["imported"] == found["others"] == []
    assert found["subclass"] == [True, "DNNClassifierV2"]


@archived
def test_only_modules_of_models_are_loaded() -> None:
    for name in ("training", "tpu.tpu_estimator", "export.export", "canned.nothing", ""):
        with pytest.raises(ModuleNotFoundError, match="No module named 'tensorflow_estimator"):
            model_module(name)
    assert model_module("canned.dnn") is model_module("canned.dnn")
    assert issubclass(model_module("canned.timeseries.estimators").LSTMAutoRegressor, EstimatorV1)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (None, "tensorflow-estimator 2.15.0, which isn't installed: pip install 'fastsup[canned]'; where "),
        ("2.14.0", "tensorflow-estimator 2.15.0, and 2.14.0 is installed: pip install 'fastsup[canned]'; where "),
    ],
)
def test_the_error_without_the_archive(version: str | None, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def version_of(name: str) -> str:
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", version_of)
    for module, name in (
        (estimator, "LinearClassifier"),
        (estimator, "MultiHead"),
        (estimator, "model_to_estimator"),
        (estimator.experimental, "KMeans"),
    ):
        with pytest.raises(AttributeError, match=rf"{module.__name__} has no {name}: ") as caught:
            getattr(module, name)
        assert text in str(caught.value)
        assert caught.value.name == name
        assert not hasattr(module, name)


def test_the_error_without_keras_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "2.15.0")
    monkeypatch.setattr(archive.importlib.util, "find_spec", lambda name: None)
    release = ".".join(tf.__version__.split(".")[:2])
    with pytest.raises(AttributeError, match=rf"Keras 2, the package tf_keras.*'tf_keras=={release}\.\*'"):
        _ = estimator.DNNClassifier


@archived
def test_the_error_for_a_keras_2_of_another_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastsup.estimator.canned import keras_versions

    def fail(name: str) -> Any:
        raise AttributeError("module 'tensorflow' has no attribute 'something'")

    monkeypatch.setattr(keras_versions.importlib, "import_module", fail)
    with pytest.raises(
        ImportError, match=rf"TensorFlow {tf.__version__}.*no attribute 'something'.*--no-deps"
    ) as caught:
        keras_versions.tensorflow_with_keras_2.__wrapped__()
    assert caught.value.name == "tf_keras"


def of_keras_2(opt: Any) -> Any:
    return model_module("canned.optimizers").get_optimizer_instance_v2(opt)


keras_3 = pytest.mark.skipif(
    os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True"), reason="tf.keras is Keras 2"
)


@archived
@keras_3
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("SGD", {"learning_rate": 0.2, "momentum": 0.9, "nesterov": True}),
        ("Adam", {"learning_rate": 0.02, "beta_1": 0.8, "amsgrad": True, "clipnorm": 1.0}),
        ("Adagrad", {"learning_rate": 0.1, "initial_accumulator_value": 0.3}),
        ("RMSprop", {"rho": 0.8, "centered": True}),
        (
            "Ftrl",
            {"learning_rate": 0.3, "l1_regularization_strength": 0.1, "l2_shrinkage_regularization_strength": 0.2},
        ),
        ("Adadelta", {"rho": 0.9}),
        ("Adamax", {"epsilon": 1e-5}),
        ("Nadam", {"beta_2": 0.9}),
        ("Adam", {"name": "mine"}),
    ],
)
def test_optimizers_of_keras_3(name: str, arguments: dict[str, Any]) -> None:
    made = of_keras_2(getattr(tf.keras.optimizers, name)(**arguments))
    assert type(made).__module__.startswith("tf_keras.src.optimizers.legacy")
    assert type(made).__name__ == name
    config = made.get_config()
    assert {key: config[key] for key in arguments} == pytest.approx(arguments)
    assert config["name"] == arguments.get("name", name)


@archived
@keras_3
def test_an_optimizer_of_keras_3_trains_as_that_of_keras_2(tmp_path: Path) -> None:
    import tf_keras

    schedule = {"initial_learning_rate": 0.1, "decay_steps": 4, "decay_rate": 0.5}
    found = []
    for name, keras, kind in (
        ("three", tf.keras, tf.keras.optimizers.Adam),
        ("two", tf_keras, tf_keras.optimizers.legacy.Adam),
    ):
        model = classifier(tmp_path / name, kind(keras.optimizers.schedules.ExponentialDecay(**schedule)))
        model.train(lambda: data(4))
        found.append((model.evaluate(data), model.get_variable_names()))
    assert found[0] == found[1]
    assert found[0][0]["global_step"] == 16


@archived
@keras_3
def test_optimizers_of_keras_3_that_keras_2_lacks() -> None:
    class Halved(tf.keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step: Any) -> Any:
            return 0.5

        def get_config(self) -> dict[str, Any]:
            return {}

    optimizers = tf.keras.optimizers
    for made, text in (
        (optimizers.Lion(), "don't know the optimizer Lion"),
        (optimizers.Adam(weight_decay=0.1), r"don't know weight_decay=0\.1 of the optimizer Adam"),
        (optimizers.SGD(use_ema=True), "don't know use_ema=True"),
        (optimizers.SGD(Halved()), "don't know the learning rate schedule Halved"),
    ):
        with pytest.raises(ValueError, match=rf"{text}.*Pass .*tf_keras\.optimizers\.legacy"):
            of_keras_2(made)
    with pytest.raises(ValueError, match=r"Pass one of Keras 2, of those in tf_keras\.optimizers\.legacy: Adadelta, "):
        of_keras_2(optimizers.Lion())
    with tf.Graph().as_default(), pytest.raises(ValueError, match=r"made inside a graph.*pass the optimizer itself"):
        of_keras_2(lambda: optimizers.Adam(0.1))
    with pytest.raises(ValueError, match="Given: 5"):
        of_keras_2(5)


@archived
@keras_3
def test_a_model_of_keras_3_is_refused() -> None:
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    with pytest.raises(TypeError, match=r"keras_model is a model of Keras 3.*TF_USE_LEGACY_KERAS=1.*docs estimator"):
        estimator.model_to_estimator(model)
    with pytest.raises(ValueError, match="Either `keras_model` or `keras_model_path`"):
        estimator.model_to_estimator()
