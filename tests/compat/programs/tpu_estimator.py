"""A TPUEstimator with use_tpu=False: eval_metrics, host_call, params["batch_size"], an export."""

import json
import os
import sys

import tensorflow.compat.v1 as tf

folder = sys.argv[1]
seen = []


def metric_fn(labels, predictions):
    return {"mae": tf.metrics.mean_absolute_error(labels, predictions)}


def host_call(step, loss):
    seen.append("host_call")
    return [tf.reduce_max(step), tf.reduce_mean(loss)]


def model_fn(features, labels, mode, config, params):
    seen.append((mode, params.get("batch_size"), params["use_tpu"], params["rate"]))
    weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer(), use_resource=True)
    predictions = features["x"] * weight
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode,
            predictions={"y": predictions},
            export_outputs={"serving_default": tf.estimator.export.PredictOutput({"y": predictions})},
        )
    loss = tf.reduce_mean(tf.square(predictions - labels))
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, [labels, predictions]))
    optimizer = tf.train.GradientDescentOptimizer(params["rate"])
    if params["use_tpu"]:
        optimizer = tf.tpu.CrossShardOptimizer(optimizer)
    step = tf.train.get_global_step()
    return tf.estimator.tpu.TPUEstimatorSpec(
        mode,
        loss=loss,
        train_op=optimizer.minimize(loss, global_step=step),
        host_call=(host_call, [tf.reshape(step, [1]), tf.reshape(loss, [1])]),
    )


def input_fn(params):
    x = tf.constant([1.0, 2.0, 3.0, 4.0])
    return (
        tf.data.Dataset.from_tensor_slices(({"x": x}, 2.0 * x))
        .repeat()
        .batch(params["batch_size"], drop_remainder=True)
    )


def predict_input_fn(params):
    return tf.data.Dataset.from_tensor_slices({"x": tf.constant([1.0, 2.0, 3.0])}).batch(params["batch_size"])


run_config = tf.estimator.tpu.RunConfig(
    model_dir=folder,
    save_checkpoints_steps=20,
    log_step_count_steps=10,
    tpu_config=tf.estimator.tpu.TPUConfig(iterations_per_loop=5, num_shards=8),
)
estimator = tf.estimator.tpu.TPUEstimator(
    model_fn=model_fn,
    config=run_config,
    params={"rate": 0.05},
    use_tpu=False,
    train_batch_size=4,
    eval_batch_size=2,
    predict_batch_size=3,
)
tf.logging.set_verbosity(tf.logging.INFO)
estimator.train(input_fn, max_steps=40)
metrics = estimator.evaluate(input_fn, steps=2)
predictions = [float(row["y"]) for row in estimator.predict(predict_input_fn)]
receiver = tf.estimator.export.build_raw_serving_input_receiver_fn({"x": tf.zeros([1])})
exported = estimator.export_saved_model(folder + "/export", receiver)
try:
    tf.estimator.tpu.TPUEstimator(model_fn=model_fn, config=run_config, train_batch_size=4)
    refused = None
except NotImplementedError as error:
    refused = str(error)
print(
    json.dumps(
        {
            "seen": seen,
            "mae": float(metrics["mae"]),
            "step": int(metrics["global_step"]),
            "predictions": predictions,
            "exported": os.path.isdir(exported),
            "refused": refused,
            "loop": estimator.config.tpu_config.iterations_per_loop,
        }
    )
)
