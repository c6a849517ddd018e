"""A wide-and-deep model of the breast cancer data of scikit-learn: trained, evaluated, compared, exported, used."""

import argparse
import json
import os

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", required=True)
parser.add_argument("--train_steps", type=int, default=200)
parser.add_argument("--batch_size", type=int, default=32)
args = parser.parse_args()

data = load_breast_cancer()
NAMES = [name.replace(" ", "_") for name in data.feature_names[:10]]
MEANS = data.data[:, : len(NAMES)]
SCALED = (MEANS - MEANS.mean(0)) / MEANS.std(0)
TRAIN_X, TEST_X, TRAIN_Y, TEST_Y = train_test_split(SCALED, data.target, test_size=0.25, random_state=1)


def build_columns():
    numeric = [tf.feature_column.numeric_column(name) for name in NAMES]
    bucketized = {
        name: tf.feature_column.bucketized_column(column, [-1.0, -0.5, 0.0, 0.5, 1.0])
        for name, column in zip(NAMES, numeric)
    }
    crossed = [
        tf.feature_column.crossed_column([bucketized["mean_radius"], bucketized["mean_texture"]], 64),
        tf.feature_column.crossed_column([bucketized["mean_area"], bucketized["mean_concavity"]], 64),
    ]
    deep = numeric + [tf.feature_column.embedding_column(crossed[0], 4)]
    return list(bucketized.values()) + crossed, deep


def to_features(x):
    return {name: x[:, index].astype(np.float32) for index, name in enumerate(NAMES)}


def train_input_fn():
    dataset = tf.data.Dataset.from_tensor_slices((to_features(TRAIN_X), TRAIN_Y))
    return dataset.shuffle(1000, seed=3).repeat().batch(args.batch_size).prefetch(1)


def eval_input_fn():
    return tf.data.Dataset.from_tensor_slices((to_features(TEST_X), TEST_Y)).batch(64)


def main():
    wide, deep = build_columns()
    config = tf.estimator.RunConfig(
        model_dir=args.model_dir, tf_random_seed=1, save_checkpoints_steps=100, keep_checkpoint_max=2
    )
    model = tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=wide,
        dnn_feature_columns=deep,
        dnn_hidden_units=[32, 16],
        dnn_dropout=0.1,
        config=config,
    )
    model = tf.estimator.add_metrics(
        model, lambda labels, predictions: {"positives": tf.compat.v1.metrics.mean(predictions["class_ids"])}
    )
    parsing = tf.feature_column.make_parse_example_spec(wide + deep)
    receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(parsing)
    metrics, exports = tf.estimator.train_and_evaluate(
        model,
        tf.estimator.TrainSpec(train_input_fn, max_steps=args.train_steps),
        tf.estimator.EvalSpec(
            eval_input_fn, steps=None, throttle_secs=0, exporters=tf.estimator.BestExporter("best", receiver)
        ),
    )
    predicted = [int(row["class_ids"][0]) for row in model.predict(eval_input_fn)]

    exported = model.export_saved_model(os.path.join(args.model_dir, "saved"), receiver)
    served = tf.saved_model.load(exported.decode() if isinstance(exported, bytes) else exported)
    example = tf.train.Example()
    for name, value in to_features(TEST_X[:1]).items():
        example.features.feature[name].float_list.value.append(float(value[0]))
    answer = served.signatures["predict"](tf.constant([example.SerializeToString()]))
    print(
        json.dumps(
            {
                "accuracy": float(metrics["accuracy"]),
                "auc": float(metrics["auc"]),
                "average_loss": float(metrics["average_loss"]),
                "positives": float(metrics["positives"]),
                "global_step": int(metrics["global_step"]),
                "agrees": float(np.mean(np.array(predicted) == TEST_Y)),
                "served": int(answer["class_ids"][0, 0]),
                "first": predicted[0],
                "best": len(os.listdir(os.path.join(args.model_dir, "export", "best"))),
                "exports": len(exports),
            }
        )
    )


if __name__ == "__main__":
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
    main()
