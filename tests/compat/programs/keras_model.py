"""A Keras 2 model that is made an Estimator, trained, evaluated, exported, and trained on from its checkpoint."""

import json
import os
import sys

import numpy as np
import tensorflow as tf

folder = sys.argv[1]
random = np.random.RandomState(0)
X = random.normal(size=(256, 6)).astype(np.float32)
Y = (X[:, 0] * 2.0 - X[:, 3] + 0.5 * X[:, 1] * X[:, 2] > 0).astype(np.float32)


def make_model():
    inputs = tf.keras.Input((6,), name="x")
    hidden = tf.keras.layers.Dense(16, activation="relu", kernel_initializer=tf.keras.initializers.GlorotUniform(1))(
        inputs
    )
    hidden = tf.keras.layers.BatchNormalization()(hidden)
    outputs = tf.keras.layers.Dense(
        1, activation="sigmoid", kernel_initializer=tf.keras.initializers.GlorotUniform(2), name="y"
    )(hidden)
    model = tf.keras.Model(inputs, outputs)
    model.compile(tf.keras.optimizers.legacy.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
    return model


def input_fn(epochs=1):
    return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).repeat(epochs).batch(32)


model = make_model()
config = tf.estimator.RunConfig(folder, tf_random_seed=1, save_checkpoints_steps=50)
estimator = tf.keras.estimator.model_to_estimator(model, config=config)
estimator.train(lambda: input_fn(None), steps=100)
first = estimator.evaluate(input_fn)
again = tf.keras.estimator.model_to_estimator(make_model(), config=config)
spec = tf.estimator.TrainSpec(lambda: input_fn(None), max_steps=150)
metrics, _ = tf.estimator.train_and_evaluate(again, spec, tf.estimator.EvalSpec(input_fn, throttle_secs=0))
probabilities = [float(row["y"][0]) for row in again.predict(input_fn)]
receiver = tf.estimator.export.build_raw_serving_input_receiver_fn({"x": tf.zeros([1, 6])})
exported = again.export_saved_model(os.path.join(folder, "saved"), receiver)
print(
    json.dumps(
        {
            "first": float(first["loss"]),
            "loss": float(metrics["loss"]),
            "accuracy": float(metrics["accuracy"]),
            "step": int(metrics["global_step"]),
            "probabilities": probabilities[:3],
            "exported": os.path.isdir(exported),
        }
    )
)
