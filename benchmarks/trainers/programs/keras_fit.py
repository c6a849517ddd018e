"""Keras's `fit` with its own callbacks, on TensorFlow."""

import sys

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

digits = load_digits()
images, labels = (digits.data / 16).astype("float32"), digits.target.astype("int32")
x, test_x, y, test_y = train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels)
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)])
losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(1e-3), losses, metrics=["accuracy"])

folder = sys.argv[1] if len(sys.argv) > 1 else "train-keras"
best = f"{folder}/best.keras"
callbacks = [
    keras.callbacks.ModelCheckpoint(best, monitor="val_accuracy", mode="max", save_best_only=True),
    keras.callbacks.EarlyStopping("val_accuracy", mode="max", patience=20),
    keras.callbacks.BackupAndRestore(f"{folder}/backup"),
]
model.fit(x, y, batch_size=32, epochs=117, validation_data=(test_x, test_y), callbacks=callbacks)
step = int(model.optimizer.iterations)
_, accuracy = keras.models.load_model(best).evaluate(test_x, test_y, verbose=0)
print(f"Step {step}: test accuracy {accuracy:.2%}")
