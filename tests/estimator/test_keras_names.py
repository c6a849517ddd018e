"""Keras layers without names in a model_fn: each graph counts them from the start, whatever the process has made."""

from __future__ import annotations

import os
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fastsup import estimator as est
from fastsup import experiment
from fastsup.checkpoint.restore import renumbered_layer_hint

v1 = tf.compat.v1


def data() -> Any:
    return tf.data.Dataset.from_tensor_slices(({"x": np.ones([8, 3], np.float32)}, np.ones([8, 1], np.float32))).batch(
        4
    )


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    """Two layers without names, in a graph."""
    predicted = tf.keras.layers.Dense(1)(tf.keras.layers.Dense(2)(features["x"]))
    if mode == est.ModeKeys.PREDICT:
        return est.EstimatorSpec(mode, predictions={"p": predicted})
    loss = tf.reduce_mean(tf.square(predicted - labels))
    step = v1.train.GradientDescentOptimizer(0.01).minimize(loss, v1.train.get_global_step())
    metrics = {"mae": v1.metrics.mean_absolute_error(labels, predicted)}
    return est.EstimatorSpec(mode, loss=loss, train_op=step, eval_metric_ops=metrics)


LAYERS = ["dense/bias", "dense/kernel", "dense_1/bias", "dense_1/kernel", "global_step"]


def receiver_fn() -> Any:
    x = v1.placeholder(tf.float32, [None, 3], name="x")
    return est.export.ServingInputReceiver({"x": x}, {"x": x})


def test_train_evaluate_predict_export_train_again(tmp_path: Path) -> None:
    estimator = est.Estimator(model_fn, str(tmp_path))
    estimator.train(data, max_steps=1)
    assert estimator.get_variable_names() == LAYERS
    assert "mae" in estimator.evaluate(data)
    assert len(list(estimator.predict(data))) == 8
    estimator.export_saved_model(str(tmp_path / "export"), receiver_fn)
    estimator.train(data, max_steps=2)
    assert estimator.evaluate(data)["global_step"] == 2
    assert estimator.get_variable_names() == LAYERS


def test_train_and_evaluate(tmp_path: Path) -> None:
    config = est.RunConfig(str(tmp_path), save_checkpoints_steps=1)
    estimator = est.Estimator(model_fn, config=config)
    metrics, _ = est.train_and_evaluate(
        estimator, est.TrainSpec(data, max_steps=2), est.EvalSpec(data, throttle_secs=1, start_delay_secs=0)
    )
    assert metrics["global_step"] == 2
    assert estimator.get_variable_names() == LAYERS


def test_experiment(tmp_path: Path) -> None:
    estimator = est.Estimator(model_fn, str(tmp_path))
    metrics, _ = experiment.Experiment(estimator, data, data, train_steps=2, eval_steps=1).train_and_evaluate()
    assert metrics["global_step"] == 2
    assert estimator.get_variable_names() == LAYERS


@pytest.mark.skipif(not tf.executing_eagerly(), reason="a strategy over two devices needs TF 2 behaviour")
def test_replicas_have_the_same_names(tmp_path: Path, processes: Any) -> None:
    code = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import tensorflow as tf
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
        from test_keras_names import *
        strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])

        def mirrored(features, labels, mode):
            spec = model_fn(features, labels, mode)
            return spec._replace(eval_metric_ops={{}})

        estimator = est.Estimator(mirrored, {str(tmp_path)!r}, est.RunConfig(train_distribute=strategy))
        for steps in (1, 2):
            estimator.train(data, max_steps=steps)
            names = estimator.get_variable_names()
            assert [name for name in names if "replica" not in name] == LAYERS, names
            assert {{name.removesuffix("/replica_1") for name in names}} == set(LAYERS), names
            estimator.evaluate(data)
    """
    _run(processes, code)


def test_layers_of_the_input_come_first_in_every_mode(tmp_path: Path) -> None:
    def input_fn() -> Any:
        features, labels = v1.data.make_one_shot_iterator(data()).get_next()
        return {"x": tf.keras.layers.Dense(3)(features["x"])}, labels

    estimator = est.Estimator(model_fn, str(tmp_path))
    estimator.train(input_fn, max_steps=1)
    estimator.evaluate(input_fn)
    assert len({name.split("/")[0] for name in estimator.get_variable_names()}) == 4


def test_a_model_within_a_model_goes_on_counting(tmp_path: Path) -> None:
    inner = est.Estimator(model_fn, str(tmp_path / "inner"))

    def outer_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        spec = inner.model_fn(features, labels, mode, config)
        names.append(tf.keras.layers.Dense(1).name)
        tf.keras.layers.Dense(1)(features["x"])
        return spec

    names: list[str] = []

    outer = est.Estimator(outer_fn, str(tmp_path / "outer"))
    outer.train(data, max_steps=1)
    outer.evaluate(data)
    assert names == ["dense_2", "dense_2"]
    assert len({name.split("/")[0] for name in outer.get_variable_names()}) == 4


def test_the_callers_own_layers_go_on_counting(tmp_path: Path) -> None:
    before = tf.keras.layers.Dense(1).name
    est.Estimator(model_fn, str(tmp_path)).train(data, max_steps=1)
    after = tf.keras.layers.Dense(1).name
    number = int(before.partition("_")[2] or 0)
    assert after == f"dense_{number + 1}"


def test_counters_come_back_after_an_error(tmp_path: Path) -> None:
    def failing(features: Any, labels: Any, mode: str) -> Any:
        tf.keras.layers.Dense(1)
        raise ZeroDivisionError

    before = tf.keras.layers.Dense(1).name
    with pytest.raises(ZeroDivisionError):
        est.Estimator(failing, str(tmp_path)).train(data, max_steps=1)
    assert int(tf.keras.layers.Dense(1).name.partition("_")[2]) == int(before.partition("_")[2] or 0) + 1


def test_random_numbers_without_a_seed_in_every_graph(tmp_path: Path) -> None:
    def noisy(features: Any, labels: Any, mode: str) -> Any:
        noise = tf.keras.random.normal([3])
        return model_fn({"x": features["x"] + noise}, labels, mode)

    estimator = est.Estimator(noisy, str(tmp_path))
    estimator.train(data, max_steps=1)
    estimator.evaluate(data)


def test_estimators_in_threads(tmp_path: Path) -> None:
    names: dict[int, Any] = {}

    def train(number: int) -> None:
        estimator = est.Estimator(model_fn, str(tmp_path / str(number)))
        estimator.train(data, max_steps=1)
        estimator.evaluate(data)
        names[number] = estimator.get_variable_names()

    threads = [threading.Thread(target=train, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert names == dict.fromkeys(range(3), LAYERS)


def test_a_graph_is_not_kept_alive(tmp_path: Path) -> None:
    import gc
    import weakref

    graphs: list[Any] = []

    def remembering(features: Any, labels: Any, mode: str) -> Any:
        graphs.append(weakref.ref(v1.get_default_graph()))
        tf.keras.random.normal([3])
        return model_fn(features, labels, mode)

    est.Estimator(remembering, str(tmp_path)).train(data, max_steps=1)
    gc.collect()
    assert [reference() for reference in graphs] == [None]


@pytest.mark.parametrize("way", ["evaluate", "train", "export", "predict"])
def test_an_old_checkpoint_with_other_numbers_says_what_to_do(tmp_path: Path, way: str) -> None:
    def named(features: Any, labels: Any, mode: str, first: str = "dense_4", second: str = "dense_5") -> Any:
        hidden = tf.keras.layers.Dense(2, name=first)(features["x"])
        predicted = tf.keras.layers.Dense(1, name=second)(hidden)
        loss = tf.reduce_mean(tf.square(predicted - labels))
        step = v1.train.get_global_step()
        return est.EstimatorSpec(mode, loss=loss, train_op=v1.assign_add(step, 1))

    def old_model_fn(features: Any, labels: Any, mode: str) -> Any:
        return named(features, labels, mode)

    est.Estimator(old_model_fn, str(tmp_path)).train(data, max_steps=1)
    estimator = est.Estimator(model_fn, str(tmp_path))
    calls = {
        "evaluate": lambda: estimator.evaluate(data),
        "train": lambda: estimator.train(data, max_steps=2),
        "export": lambda: estimator.export_saved_model(str(tmp_path / "export"), receiver_fn),
        "predict": lambda: next(iter(estimator.predict(data))),
    }
    with pytest.raises((tf.errors.NotFoundError, ValueError)) as caught:
        calls[way]()
    text = str(caught.value)
    assert "dense_4/" in text
    assert "differs from dense" in text
    assert 'tf.keras.layers.Dense(8, name="hidden")' in text


@pytest.mark.parametrize("name", ["dense", "Conv2D"])
def test_layers_of_keras_2_under_keras_3_say_what_to_install(tmp_path: Path, name: str) -> None:
    if os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True"):
        pytest.skip("this process has Keras 2")

    def of_keras_2(features: Any, labels: Any, mode: str) -> Any:
        return getattr(v1.layers, name)

    with pytest.raises(
        AttributeError, match=r"is not available with Keras 3\. .*pip install --no-deps 'tf_keras="
    ) as caught:
        est.Estimator(of_keras_2, str(tmp_path)).train(data, max_steps=1)
    assert "TF_USE_LEGACY_KERAS=1" in str(caught.value)
    assert caught.value.name == name


def test_keras_is_not_imported_for_it(tmp_path: Path, processes: Any) -> None:
    _run(
        processes,
        f"""
        import sys
        import tensorflow as tf
        from fastsup import estimator as est
        v1 = tf.compat.v1

        def model_fn(features, labels, mode):
            step = v1.train.get_global_step()
            return est.EstimatorSpec(mode, loss=tf.constant(1.0), train_op=v1.assign_add(step, 1))

        had = "keras" in sys.modules
        est.Estimator(model_fn, {str(tmp_path)!r}).train(lambda: {{"x": tf.constant([1.0])}}, max_steps=1)
        assert ("keras" in sys.modules) == had
        """,
    )


def test_keras_2(tmp_path: Path, processes: Any) -> None:
    pytest.importorskip("tf_keras", reason="tf_keras, which is Keras 2, is not installed")
    _run(
        processes,
        f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import tensorflow as tf
        from test_keras_names import *
        assert tf.keras.layers.Dense.__module__.startswith("tf_keras."), tf.keras.layers.Dense.__module__

        def with_old_layers(features, labels, mode):
            spec = model_fn({{"x": v1.layers.dense(features["x"], 3)}}, labels, mode)
            return spec._replace(eval_metric_ops={{}})

        for function, names in ((model_fn, LAYERS), (with_old_layers, None)):
            directory = {str(tmp_path)!r} + "/" + function.__name__
            estimator = est.Estimator(function, directory)
            estimator.train(data, max_steps=1)
            before = estimator.get_variable_names()
            assert names is None or before == names, before
            estimator.evaluate(data)
            list(estimator.predict(data))
            estimator.export_saved_model(directory + "/export", receiver_fn)
            estimator.train(data, max_steps=2)
            assert estimator.get_variable_names() == before
        """,
        TF_USE_LEGACY_KERAS="1",
    )


def _run(processes: Any, code: str, **environment: str) -> None:
    """Runs a program that must end well."""
    done = processes.python("-c", textwrap.dedent(code), env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_second_layer_of_keras_2_is_found_under_its_other_number() -> None:
    names = ["dense/bias", "dense_1/bias", "other/bias"]
    hint = renumbered_layer_hint(["dense_1_1/bias"], names)
    assert hint.startswith("The checkpoint has dense/bias, dense_1/bias, which differs from dense_1_1/bias only in ")
