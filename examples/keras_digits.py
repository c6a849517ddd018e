"""Trains a classifier on handwritten digits with Keras: 8x8 images, which come with scikit-learn.

One line, `fastsup.keras.accelerate(model)`, is all that differs from a Keras program. Interrupt it with Ctrl-C and run
it again: it goes on after the last epoch that has ended.

    python examples/keras_digits.py              # train, then measure the accuracy on images it hasn't seen
    python examples/keras_digits.py --compare    # the same training as Keras does it and accelerated
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

# Before TensorFlow is imported: no notices about the processor, and sums in the same order everywhere.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import fastsup

BATCH_SIZE = 32
STEPS_PER_EPOCH = 500


def load_data() -> list[Any]:
    """Training images, test images, training labels, test labels: always the same."""
    data = load_digits()
    images, labels = (data.data / 16).astype(np.float32), data.target.astype(np.int32)
    return list(train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels))


def build_model() -> Any:
    """A network with one hidden layer."""
    keras.utils.set_random_seed(0)
    layers = [keras.Input([64]), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)]
    model = keras.Sequential(layers, name="digits")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=["accuracy"])
    return model


def train(model: Any, images: Any, labels: Any, epochs: int, folder: Path | None = None, verbose: int = 0) -> Any:
    """Trains, and goes on from the backup in the folder if there is one. Returns Keras's history."""
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(labels), seed=0).repeat()
    batches = dataset.batch(BATCH_SIZE, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    backup = [] if folder is None else [keras.callbacks.BackupAndRestore(folder / "backup")]
    return model.fit(
        batches, epochs=epochs, steps_per_epoch=STEPS_PER_EPOCH, callbacks=backup, verbose=verbose, shuffle=False
    )


def compare(epochs: int) -> None:
    """Trains as Keras does it and accelerated, each time from the beginning."""
    images, test_images, labels, test_labels = load_data()
    seconds = {}
    for name in ("Keras", "accelerated"):
        model = build_model()
        if name == "accelerated":
            fastsup.keras.accelerate(model)
        train(model, images, labels, 1)  # Traces, and chooses the executor.
        started = time.perf_counter()
        train(model, images, labels, epochs)
        seconds[name] = time.perf_counter() - started
        _, accuracy = model.evaluate(test_images, test_labels, verbose=0)
        steps = epochs * STEPS_PER_EPOCH
        ratio = seconds["Keras"] / seconds[name]
        print(f"{name:11}  {steps / seconds[name]:8,.0f} steps/s  {ratio:5.2f} x  test accuracy {accuracy:.2%}")


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 0, or 130 when interrupted. A wrong command line exits with 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logdir", type=Path, default="keras-digits-logdir", help="folder (./%(default)s)")
    parser.add_argument("--epochs", type=int, default=10, help="of 500 steps each (%(default)s)")
    parser.add_argument("--compare", action="store_true", help="compare with Keras alone")
    options = parser.parse_args(arguments)
    if options.epochs < 1:
        parser.error(f"argument --epochs: must be above 0, got {options.epochs}")
    if options.compare:
        compare(options.epochs)
        return 0
    images, test_images, labels, test_labels = load_data()
    model = fastsup.keras.accelerate(build_model())
    try:
        train(model, images, labels, options.epochs, options.logdir, verbose=2)
    except KeyboardInterrupt:
        print("Interrupted. Run again, training goes on after the last epoch that has ended.")
        return 130
    model.save(options.logdir / "digits.keras")
    _, accuracy = model.evaluate(test_images, test_labels, verbose=0)
    print(fastsup.keras.report(model))
    print(f"Test accuracy {accuracy:.2%} on {len(test_labels)} images. The model is in {options.logdir}/digits.keras")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
