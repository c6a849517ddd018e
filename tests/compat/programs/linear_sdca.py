"""A linear model trained by stochastic dual coordinate ascent, and the three clusters of its examples."""

import json
import os
import sys

import numpy as np
import tensorflow as tf

folder = sys.argv[1]
random = np.random.RandomState(2)
CENTRES = np.array([[0.0, 4.0], [4.0, 0.0], [-4.0, -4.0]], np.float32)
KINDS = random.randint(0, 3, 300)
POINTS = (CENTRES[KINDS] + random.normal(size=(300, 2))).astype(np.float32)
LABELS = (POINTS.sum(1) + random.normal(size=300) > 0).astype(np.float32)


def input_fn(epochs=1):
    features = {"point": POINTS, "id": [str(index) for index in range(300)]}
    return tf.data.Dataset.from_tensor_slices((features, LABELS)).repeat(epochs).batch(100)


def points():
    return tf.data.Dataset.from_tensors({"point": POINTS})


column = tf.feature_column.numeric_column("point", [2])
config = tf.estimator.RunConfig(os.path.join(folder, "linear"), tf_random_seed=1, save_checkpoints_steps=100)
optimizer = tf.estimator.experimental.LinearSDCA(example_id_column="id", symmetric_l2_regularization=1.0)
classifier = tf.estimator.LinearClassifier([column], optimizer=optimizer, config=config)
classifier.train(lambda: input_fn(None), steps=150)
metrics = classifier.evaluate(input_fn)

kmeans = tf.compat.v1.estimator.experimental.KMeans(
    num_clusters=3,
    model_dir=os.path.join(folder, "kmeans"),
    initial_clusters="kmeans_plus_plus",
    seed=1,
    use_mini_batch=False,
    feature_columns=[column],
)
for _ in range(5):
    kmeans.train(points)
centres = kmeans.cluster_centers()
order = np.argsort(centres[:, 0])
found = np.concatenate([row["cluster_index"].ravel() for row in kmeans.predict(points)])
print(
    json.dumps(
        {
            "accuracy": float(metrics["accuracy"]),
            "average_loss": float(metrics["average_loss"]),
            "step": int(metrics["global_step"]),
            "centres": np.round(centres[order], 5).astype(float).tolist(),
            "score": float(kmeans.score(points)),
            "sizes": [int(np.sum(found == index)) for index in order],
        }
    )
)
