"""The example of train_and_evaluate's documentation, with data: a DNNClassifier over an embedding column."""

import json
import sys

import numpy as np
import tensorflow as tf
from tensorflow import feature_column
from tensorflow.estimator import DNNClassifier

words = np.array(["ant", "bee", "cat", "dog", "emu", "fox", "gnu", "hen"])
random = np.random.RandomState(4)
chosen = random.randint(0, len(words), 400)

categorial_feature_a = feature_column.categorical_column_with_hash_bucket("categorial_feature_a", 20)
categorial_feature_a_emb = feature_column.embedding_column(categorical_column=categorial_feature_a, dimension=4)

estimator = DNNClassifier(
    config=tf.estimator.RunConfig(model_dir=sys.argv[1], save_summary_steps=100, tf_random_seed=1),
    feature_columns=[categorial_feature_a_emb],
    hidden_units=[1024, 512, 256],
)


def train_input_fn():
    data = {"categorial_feature_a": words[chosen]}, (chosen % 2).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices(data).shuffle(400, seed=1).repeat().batch(20)


def eval_input_fn():
    data = {"categorial_feature_a": words}, (np.arange(len(words)) % 2).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices(data).batch(8)


train_spec = tf.estimator.TrainSpec(input_fn=train_input_fn, max_steps=300)
eval_spec = tf.estimator.EvalSpec(input_fn=eval_input_fn)

metrics, _ = tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)
print(
    json.dumps(
        {
            "accuracy": float(metrics["accuracy"]),
            "average_loss": float(metrics["average_loss"]),
            "global_step": int(metrics["global_step"]),
        }
    )
)
