"""The profile of programs as Keras's own examples are: all of their time has a row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import fastsup

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.one_device("the parts of a pass are the same on any device"),
    pytest.mark.filterwarnings("ignore::UserWarning:keras.*"),
]

_random = np.random.default_rng(0)
layers = keras.layers


def convnet(folder: Path) -> None:
    """As vision/mnist_convnet."""
    x, y = _random.random((256, 14, 14, 1), np.float32), keras.utils.to_categorical(_random.integers(0, 10, 256), 10)
    model = keras.Sequential(
        [
            keras.Input([14, 14, 1]),
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        x,
        y,
        batch_size=32,
        epochs=2,
        validation_split=0.1,
        callbacks=[keras.callbacks.ModelCheckpoint(folder / "m.keras")],
    )
    model.evaluate(x, y, verbose=0)


def text(folder: Path) -> None:
    """As nlp/bidirectional_lstm_imdb."""
    x, y = _random.integers(0, 200, (128, 12)), _random.integers(0, 2, 128)
    inputs = keras.Input([None], dtype="int32")
    hidden = layers.Bidirectional(layers.LSTM(8))(layers.Embedding(200, 8)(inputs))
    model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(hidden))
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    model.fit(x, y, batch_size=32, epochs=1, validation_data=(x[:32], y[:32]))


def table(folder: Path) -> None:
    """As structured_data/structured_data_classification_from_scratch: features by name, from tf.data."""
    rows = {"age": _random.random(256).astype("f"), "kind": _random.choice(["a", "b", "c"], 256)}
    data = tf.data.Dataset.from_tensor_slices((rows, _random.integers(0, 2, 256))).shuffle(256).batch(32)
    lookup = layers.StringLookup(vocabulary=["a", "b", "c"], output_mode="one_hot")
    data = data.map(lambda x, y: ({"age": x["age"][:, None], "kind": lookup(x["kind"])}, y)).prefetch(2)
    inputs = {"age": keras.Input([1], name="age"), "kind": keras.Input([4], name="kind")}
    joined = layers.Dense(8, activation="relu")(layers.concatenate([inputs["age"], inputs["kind"]]))
    model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(joined))
    model.compile("rmsprop", "binary_crossentropy", metrics=["accuracy"])
    model.fit(data, epochs=2, validation_data=data, verbose=2)
    model.predict(data, verbose=0)


class Autoencoder(keras.Model):
    """As generative/vae: its own `train_step`, with a gradient tape and metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = layers.Dense(2), layers.Dense(8)
        self.tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker]

    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(data - self.decode(self.encode(data))))
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_weights), self.trainable_weights, strict=True)
        )
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


def generative(folder: Path) -> None:
    """As generative/vae."""
    model = Autoencoder()
    model.compile(optimizer=keras.optimizers.Adam())
    model.fit(_random.random((256, 8), np.float32), epochs=2, batch_size=32)


def series(folder: Path) -> None:
    """As timeseries/timeseries_classification_transformer: with the callbacks that such programs have."""
    x, y = _random.random((128, 20, 1), np.float32), _random.integers(0, 2, 128)
    inputs = keras.Input([20, 1])
    hidden = layers.LayerNormalization()(inputs + layers.MultiHeadAttention(2, 8)(inputs, inputs))
    model = keras.Model(inputs, layers.Dense(2, activation="softmax")(layers.GlobalAveragePooling1D()(hidden)))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["sparse_categorical_accuracy"])
    callbacks = [
        keras.callbacks.ModelCheckpoint(folder / "best.keras", save_best_only=True, monitor="val_loss"),
        keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1),
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=2),
        keras.callbacks.CSVLogger(folder / "log.csv"),
    ]
    model.fit(x, y, batch_size=32, epochs=3, validation_split=0.2, callbacks=callbacks)


@pytest.mark.parametrize("example", [convnet, text, table, generative, series], ids=lambda example: example.__name__)
def test_all_time_has_a_row(example: Callable[[Path], None], tmp_path: Path) -> None:
    with fastsup.HookProfiler() as profiler:
        example(tmp_path)
    report = profiler.report()
    assert (
        sum(row.times.total_ns for row in report.rows if row.thread == "loop")
        + report.profiler_ns
        + (report.unaccounted_ns)
        == report.wall_ns
    )
    assert report.steps > 0
    assert abs(report.unaccounted_ns) <= 0.01 * report.wall_ns
    # Nothing that has no name is large.
    own = {row.phase: row.share for row in report.session if row.session}
    assert own["Keras's loop"] < 0.1
