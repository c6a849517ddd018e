"""Trains a classifier of handwritten digits in TensorFlow 2. Kill it and run it again: it goes on.

Run `python examples/train_tf2.py [folder]`.
"""

import sys

import keras
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import fastsup
from fastsup.loop import train

digits = load_digits()
images, labels = (digits.data / 16).astype("float32"), digits.target.astype("int32")
x, test_x, y, test_y = train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels)
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)])
optimizer = keras.optimizers.Adam(1e-3)
optimizer.build(model.trainable_variables)
losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
batches = fastsup.ArrayBatches((x, y), batch_size=32, shuffle=True, seed=0, epochs=None)


@fastsup.function
def step(images, labels):
    with tf.GradientTape() as tape:
        loss = losses(labels, model(images, training=True))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


def evaluate():
    return {"accuracy": (model(test_x).numpy().argmax(axis=1) == test_y).mean()}


folder = sys.argv[1] if len(sys.argv) > 1 else "train-tf2"
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
loop = train(step, batches, max_steps=5000, states={"training": checkpoint}, directory=folder,
             evaluate=evaluate, metric="accuracy", mode="max", patience=20)  # fmt: skip
print(f"Step {loop.global_step}, resumed from {loop.restored_step}: test accuracy {evaluate()['accuracy']:.2%}")
