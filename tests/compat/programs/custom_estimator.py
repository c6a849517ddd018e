"""Its own model_fn, trained and evaluated by tf.estimator.train_and_evaluate, then exported and used."""

import argparse
import json
import os

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", required=True)
parser.add_argument("--max_steps", type=int, default=60)


def my_model(features, labels, mode, params):
    with tf.compat.v1.variable_scope("net", use_resource=True):
        hidden = features["x"]
        for index, units in enumerate(params["hidden_units"]):
            weights = tf.compat.v1.get_variable("w%d" % index, [hidden.shape[-1], units], dtype=tf.float32)
            hidden = tf.nn.relu(tf.matmul(hidden, weights))
        logits = tf.matmul(hidden, tf.compat.v1.get_variable("out", [hidden.shape[-1], 3], dtype=tf.float32))
    predicted = tf.argmax(logits, 1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {"class_ids": predicted[:, tf.newaxis], "probabilities": tf.nn.softmax(logits)}
        return tf.estimator.EstimatorSpec(
            mode,
            predictions=predictions,
            export_outputs={"serving_default": tf.estimator.export.PredictOutput(predictions)},
        )
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    accuracy = tf.compat.v1.metrics.accuracy(labels=labels, predictions=predicted, name="acc_op")
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    optimizer = tf.compat.v1.train.AdagradOptimizer(learning_rate=0.1)
    train_op = optimizer.minimize(loss, global_step=tf.compat.v1.train.get_global_step())
    logging_hook = tf.estimator.LoggingTensorHook({"loss": loss}, every_n_iter=20)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=[logging_hook])


def data():
    random = np.random.RandomState(0)
    labels = random.randint(0, 3, 300)
    x = random.normal(size=(300, 4)).astype(np.float32) + labels[:, np.newaxis]
    return {"x": x.astype(np.float32)}, labels.astype(np.int32)


def train_input_fn():
    return tf.data.Dataset.from_tensor_slices(data()).shuffle(300, seed=1).repeat().batch(32)


def eval_input_fn():
    return tf.data.Dataset.from_tensor_slices(data()).batch(100)


def main():
    args = parser.parse_args()
    config = tf.estimator.RunConfig(model_dir=args.model_dir, save_checkpoints_steps=20, tf_random_seed=1)
    classifier = tf.estimator.Estimator(my_model, config=config, params={"hidden_units": [16, 8]})
    exporter = tf.estimator.FinalExporter(
        "last",
        tf.estimator.export.build_raw_serving_input_receiver_fn(
            {"x": tf.compat.v1.placeholder(tf.float32, [None, 4])}
            if not tf.executing_eagerly()
            else {"x": tf.zeros([1, 4])}
        ),
    )
    train_spec = tf.estimator.TrainSpec(train_input_fn, max_steps=args.max_steps)
    eval_spec = tf.estimator.EvalSpec(eval_input_fn, steps=None, throttle_secs=0, exporters=exporter)
    metrics, exported = tf.estimator.train_and_evaluate(classifier, train_spec, eval_spec)
    predictions = list(classifier.predict(eval_input_fn))
    print(
        json.dumps(
            {
                "accuracy": float(metrics["accuracy"]),
                "global_step": int(metrics["global_step"]),
                "predictions": len(predictions),
                "saved_models": len(os.listdir(os.path.join(args.model_dir, "export", "last"))),
                "exports": len(exported),
            }
        )
    )


if __name__ == "__main__":
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
    main()
