"""Every canned model: restores an old checkpoint or makes one, evaluates, predicts, trains on, and evaluates again.

With --make only the first checkpoints are made.
"""

import argparse
import json
import os

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--make", action="store_true")
parser.add_argument("--only")
args = parser.parse_args()

v1 = tf.compat.v1
fc = tf.feature_column
random = np.random.RandomState(3)
EXAMPLES = 160
NUMBERS = random.normal(size=(EXAMPLES, 4)).astype(np.float32)
COLOURS = random.choice(["red", "green", "blue", "grey"], size=(EXAMPLES, 1))
CITIES = random.randint(0, 50, size=(EXAMPLES, 2))
SCORE = NUMBERS[:, 0] - NUMBERS[:, 1] + 1.5 * (COLOURS[:, 0] == "red") + 0.02 * CITIES.sum(1)
AMOUNT = SCORE[:, np.newaxis].astype(np.float32)
BINARY = (SCORE > 1.2).astype(np.int32)[:, np.newaxis]
CLASSES = np.digitize(SCORE, [0.4, 1.8]).astype(np.int32)[:, np.newaxis]
NAMES = np.array(["low", "middle", "high"])[CLASSES[:, 0]][:, np.newaxis]
LABELS = np.stack([SCORE > 0.5, SCORE > 1.5, COLOURS[:, 0] == "red"], 1).astype(np.int64)
COUNTS = np.round(np.exp(0.3 * SCORE)).astype(np.float32)[:, np.newaxis]
TIMES = np.stack([NUMBERS, np.roll(NUMBERS, 1, 0)], 1)

x = fc.numeric_column("x", [4])
buckets = fc.bucketized_column(fc.numeric_column("first"), [-1.0, 0.0, 1.0])
colour = fc.categorical_column_with_vocabulary_list("colour", ["red", "green", "blue"], num_oov_buckets=1)
city = fc.categorical_column_with_hash_bucket("city", 16, dtype=tf.int64)
crossed = fc.crossed_column(["colour", buckets], 12)
WIDE = [x, buckets, colour, city, crossed]
DEEP = [x, fc.indicator_column(colour), fc.embedding_column(city, 3)]


def inputs(labels, epochs):
    features = {"x": NUMBERS, "first": NUMBERS[:, 0], "colour": COLOURS, "city": CITIES, "weight": np.abs(AMOUNT)}

    def input_fn():
        data = (features, labels) if labels is not None else features
        return tf.data.Dataset.from_tensor_slices(data).repeat(epochs).batch(32, drop_remainder=True)

    return input_fn


def decayed_ftrl():
    return v1.train.FtrlOptimizer(v1.train.exponential_decay(0.1, v1.train.get_global_step(), 10, 0.9))


def rnn_inputs(epochs):
    def input_fn():
        data = ({"t": TIMES}, BINARY)
        dataset = tf.data.Dataset.from_tensor_slices(data).repeat(epochs).batch(32, drop_remainder=True)
        return dataset.map(lambda features, labels: ({"t": tf.sparse.from_dense(features["t"])}, labels))

    return input_fn


def merged_heads():
    heads = [tf.estimator.MultiClassHead(3, name="kind"), tf.estimator.RegressionHead(name="amount")]
    return tf.estimator.MultiHead(heads, head_weights=[1.0, 0.5])


MODELS = {
    "dnn_classifier": lambda c: (tf.estimator.DNNClassifier([8, 4], DEEP, config=c), BINARY),
    "dnn_classes": lambda c: (
        tf.estimator.DNNClassifier(
            [8], DEEP, n_classes=3, label_vocabulary=["low", "middle", "high"], optimizer="Adam", batch_norm=True,
            weight_column="weight", config=c,
        ),
        NAMES,
    ),
    "dnn_regressor": lambda c: (tf.estimator.DNNRegressor([8], DEEP, optimizer="RMSProp", config=c), AMOUNT),
    "linear_classifier": lambda c: (tf.estimator.LinearClassifier(WIDE, config=c), BINARY),
    "linear_regressor": lambda c: (
        tf.estimator.LinearRegressor(WIDE, optimizer="Ftrl", sparse_combiner="mean", config=c),
        AMOUNT,
    ),
    "wide_and_deep": lambda c: (
        tf.estimator.DNNLinearCombinedClassifier(
            linear_feature_columns=WIDE, dnn_feature_columns=DEEP, dnn_hidden_units=[8, 4], config=c
        ),
        BINARY,
    ),
    "wide_and_deep_regressor": lambda c: (
        tf.estimator.DNNLinearCombinedRegressor(
            linear_feature_columns=WIDE, dnn_feature_columns=DEEP, dnn_hidden_units=[8], dnn_optimizer="SGD", config=c
        ),
        AMOUNT,
    ),
    "baseline_classifier": lambda c: (tf.estimator.BaselineClassifier(n_classes=3, config=c), CLASSES),
    "baseline_regressor": lambda c: (tf.estimator.BaselineRegressor(config=c), AMOUNT),
    "multi_label_head": lambda c: (
        tf.estimator.DNNEstimator(tf.estimator.MultiLabelHead(3, thresholds=[0.3]), [6], DEEP, config=c),
        LABELS,
    ),
    "poisson_head": lambda c: (
        tf.estimator.LinearEstimator(tf.estimator.PoissonRegressionHead(), [x, colour], config=c),
        COUNTS,
    ),
    "logistic_head": lambda c: (
        tf.estimator.LinearEstimator(tf.estimator.LogisticRegressionHead(), [x], config=c),
        BINARY.astype(np.float32),
    ),
    "binary_head": lambda c: (
        tf.estimator.DNNLinearCombinedEstimator(
            tf.estimator.BinaryClassHead(thresholds=[0.4, 0.6]), linear_feature_columns=[x],
            dnn_feature_columns=[x], dnn_hidden_units=[4], config=c,
        ),
        BINARY,
    ),
    "multi_head": lambda c: (
        tf.estimator.DNNEstimator(merged_heads(), [6], [x], config=c),
        {"kind": CLASSES, "amount": AMOUNT},
    ),
    "rnn_classifier": lambda c: (
        tf.estimator.experimental.RNNClassifier(
            [fc.sequence_numeric_column("t", [4])], units=[5], cell_type="lstm", optimizer="SGD", config=c
        ),
        rnn_inputs,
    ),
    "v1_dnn_classifier": lambda c: (v1.estimator.DNNClassifier([8, 4], DEEP, batch_norm=True, config=c), BINARY),
    "v1_dnn_regressor": lambda c: (v1.estimator.DNNRegressor([8], DEEP, optimizer="Adam", config=c), AMOUNT),
    "v1_linear_classifier": lambda c: (v1.estimator.LinearClassifier(WIDE, n_classes=3, config=c), CLASSES),
    "v1_linear_regressor": lambda c: (v1.estimator.LinearRegressor(WIDE, optimizer=decayed_ftrl, config=c), AMOUNT),
    "v1_wide_and_deep": lambda c: (
        v1.estimator.DNNLinearCombinedClassifier(
            linear_feature_columns=WIDE, dnn_feature_columns=DEEP, dnn_hidden_units=[8, 4], config=c
        ),
        BINARY,
    ),
    "v1_baseline_classifier": lambda c: (v1.estimator.BaselineClassifier(n_classes=3, config=c), CLASSES),
    "v1_baseline_regressor": lambda c: (v1.estimator.BaselineRegressor(config=c), AMOUNT),
    "v1_kmeans": lambda c: (
        v1.estimator.experimental.KMeans(
            3, initial_clusters=NUMBERS[:3].copy(), use_mini_batch=False, feature_columns=[x], config=c
        ),
        None,
    ),
}  # fmt: skip


def plain(value):
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, bytes):
        return value.decode()
    value = np.asarray(value)
    if value.dtype.kind in "OS":
        return [plain(part) for part in value.ravel().tolist()]
    return [round(float(number), 7) for number in value.ravel()]


def outcome(name, make):
    config = tf.estimator.RunConfig(os.path.join(args.folder, name), tf_random_seed=5, save_summary_steps=5)
    model, labels = make(config)
    if labels is rnn_inputs:
        endless, once = rnn_inputs(None), rnn_inputs(1)
    else:
        endless, once = inputs(labels, None), inputs(labels, 1)
    if model.latest_checkpoint() is None:
        model.train(endless, steps=10)
    if args.make:
        return None
    found = {"old": plain(model.evaluate(once))}
    predictions = [row for row, _ in zip(model.predict(once), range(3))]
    found["predictions"] = [
        {"/".join(key) if isinstance(key, tuple) else key: plain(part) for key, part in row.items()}
        for row in predictions
    ]
    model.train(endless, steps=20)
    found["trained"] = plain(model.evaluate(once))
    found["variables"] = model.get_variable_names()
    return found


def main():
    chosen = args.only.split(",") if args.only else MODELS
    print(json.dumps({name: outcome(name, MODELS[name]) for name in chosen}))


if __name__ == "__main__":
    main()
