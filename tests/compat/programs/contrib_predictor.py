"""Predictors, lookup tables and NumPy's old names, as programs of TensorFlow 1.15 use them."""

import json
import os
import sys

import numpy as np
import tensorflow as tf
from tensorflow.contrib import predictor
from tensorflow.contrib.lookup import index_table_from_tensor

folder = sys.argv[1]


def input_fn():
    return {"x": tf.constant([[1.0], [2.0]])}, tf.constant([[2.0], [4.0]])


def model_fn(features, labels, mode):
    slope = tf.get_variable("slope", [1, 1], initializer=tf.constant_initializer(2.0))
    doubled = tf.matmul(features["x"], slope)
    outputs = {
        "serving_default": tf.estimator.export.PredictOutput({"doubled": doubled}),
        "negative": tf.estimator.export.PredictOutput({"negative": -doubled}),
    }
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, {"doubled": doubled}, export_outputs=outputs)
    loss = tf.losses.mean_squared_error(labels, doubled)
    step = tf.train.GradientDescentOptimizer(0.0).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)


def receiver_fn():
    x = tf.placeholder(tf.float32, [None, 1], name="x")
    return tf.estimator.export.ServingInputReceiver({"x": x}, {"x": x})


def of_estimators():
    estimator = tf.estimator.Estimator(model_fn, os.path.join(folder, "core"))
    estimator.train(input_fn, steps=1)
    exported = estimator.export_savedmodel(os.path.join(folder, "exports"), receiver_fn)
    loaded = predictor.from_saved_model(exported)
    of_name = predictor.from_saved_model(exported, signature_def_key="negative", tags="serve")
    of_tensors = predictor.from_saved_model(exported, input_names={"in": "x:0"}, output_names={"out": "MatMul:0"})
    direct = predictor.from_estimator(estimator, receiver_fn)
    negative = predictor.from_estimator(estimator, receiver_fn, output_key="negative")
    session = loaded.session
    found = [
        loaded({"x": [[3.0]]})["doubled"].tolist(),
        loaded({"x": [[4.0], [5.0]]})["doubled"].tolist(),
        of_name({"x": [[3.0]]})["negative"].tolist(),
        of_tensors({"in": [[3.0]]})["out"].tolist(),
        direct({"x": [[3.0]]})["doubled"].tolist(),
        negative({"x": [[3.0]]})["negative"].tolist(),
        loaded.session is session and loaded.graph is session.graph,
    ]
    errors = []
    for wrong in (
        lambda: loaded({"y": 1}),
        lambda: predictor.from_saved_model(exported, signature_def_key="nothing"),
        lambda: predictor.from_saved_model(exported, input_names={"in": "x:0"}),
        lambda: predictor.from_saved_model(exported, "a", input_names={"in": "x:0"}, output_names={"out": "MatMul:0"}),
        lambda: predictor.from_estimator(estimator, receiver_fn, output_key="nothing"),
        lambda: predictor.from_contrib_estimator(estimator, receiver_fn),
    ):
        try:
            wrong()
        except Exception as error:
            errors.append([type(error).__name__, str(error)])
    return found, errors


def of_contrib_estimator():
    def contrib_model_fn(features, labels, mode):
        slope = tf.get_variable("slope", [1, 1], initializer=tf.constant_initializer(3.0))
        tripled = tf.matmul(features["x"], slope)
        loss = None if labels is None else tf.losses.mean_squared_error(labels, tripled)
        step = (
            None
            if labels is None
            else tf.train.GradientDescentOptimizer(0.0).minimize(loss, tf.train.get_global_step())
        )
        return tf.contrib.learn.ModelFnOps(mode, {"tripled": tripled}, loss, step)

    def serving_fn():
        x = tf.placeholder(tf.float32, [None, 1])
        return tf.contrib.learn.InputFnOps({"x": x}, None, {"x": x})

    estimator = tf.contrib.learn.Estimator(contrib_model_fn, os.path.join(folder, "contrib"))
    estimator.fit(input_fn=input_fn, steps=1)
    return predictor.from_contrib_estimator(estimator, serving_fn)({"x": [[2.0]]})["tripled"].tolist()


def of_tables():
    lookup = tf.contrib.lookup
    with tf.Graph().as_default(), tf.Session() as session:
        words = tf.constant(["a", "b"])
        ids = [
            index_table_from_tensor(mapping=words, num_oov_buckets=1).lookup(tf.constant(["b", "?"])),
            lookup.string_to_index_table_from_tensor(words, default_value=-7).lookup(tf.constant(["a", "?"])),
            lookup.string_to_index(tf.constant(["b"]), mapping=words),
            lookup.index_to_string(tf.constant([1, 5], tf.int64), mapping=words, default_value="?"),
            lookup.index_to_string_table_from_tensor(mapping=words).lookup(tf.constant([0, 9], tf.int64)),
        ]
        session.run(tf.tables_initializer())
        return [np.asarray(value).astype(str).tolist() for value in session.run(ids)]


found, errors = of_estimators()
print(
    json.dumps(
        {
            "found": found,
            "errors": errors,
            "contrib": of_contrib_estimator(),
            "tables": of_tables(),
            "numpy": np.float32 in np.sctypes["float"],
        }
    )
)
