"""Wide and deep on records like Criteo's: 26 categorical and 13 numeric columns, from TFRecords, by Keras."""

import os
import tempfile

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(0)
random = np.random.default_rng(0)
path = os.path.join(tempfile.mkdtemp(), "records")
with tf.io.TFRecordWriter(path) as writer:
    for _ in range(6000):
        categories, numbers = random.integers(0, 1000, 26), random.random(13)
        feature = {
            "categories": tf.train.Feature(int64_list=tf.train.Int64List(value=categories)),
            "numbers": tf.train.Feature(float_list=tf.train.FloatList(value=numbers)),
            "label": tf.train.Feature(float_list=tf.train.FloatList(value=[float(categories.sum() % 2)])),
        }
        writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
columns = {
    "categories": tf.io.FixedLenFeature([26], tf.int64),
    "numbers": tf.io.FixedLenFeature([13], tf.float32),
    "label": tf.io.FixedLenFeature([1], tf.float32),
}


def parse(records):
    parsed = tf.io.parse_example(records, columns)
    label = parsed.pop("label")
    return parsed, label


dataset = tf.data.TFRecordDataset(path).batch(64).map(parse).prefetch(2)
inputs = {"categories": keras.Input([26], dtype="int64"), "numbers": keras.Input([13])}
wide = keras.layers.Flatten()(keras.layers.Embedding(1000, 1)(inputs["categories"]))
embedded = keras.layers.Flatten()(keras.layers.Embedding(1000, 8)(inputs["categories"]))
deep = keras.layers.Concatenate()([embedded, inputs["numbers"]])
for units in (64, 32):
    deep = keras.layers.Dense(units, "relu")(deep)
model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()([wide, deep])))
model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
history = model.fit(dataset, epochs=8, verbose=0)
print("loss", float(history.history["loss"][-1]).hex())
