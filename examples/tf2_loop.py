"""Trains a classifier on handwritten digits with a training loop of TF 2's kind: no session, no Estimator.

The step is a `fastsup.function`, the loop a `StepLoop` with hooks for checkpoints, summaries and progress. Interrupt it
with Ctrl-C and run it again: it goes on after the step at which it was interrupted.

    pip install -e ".[cpu,examples]"  # tensorboard for the summaries, rich for the bar
    python examples/tf2_loop.py
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

# Before TensorFlow is imported: no notices about the processor, and sums in the same order everywhere.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import fastsup
from fastsup.loop import CheckpointHook, NanGuardHook, ProgressHook, StepLoop, SummaryHook


class Classifier(tf.Module):
    """A network with one hidden layer, trained by gradient descent with momentum."""

    def __init__(self, learning_rate: float = 0.1, momentum: float = 0.9) -> None:
        super().__init__()
        random = tf.random.Generator.from_seed(0)
        self.weights = [
            tf.Variable(value)
            for value in (random.normal([64, 64]) / 8, tf.zeros([64]), random.normal([64, 10]) / 8, tf.zeros([10]))
        ]
        self.momenta = [tf.Variable(tf.zeros_like(weight)) for weight in self.weights]
        self.learning_rate, self.momentum = learning_rate, momentum

    def logits(self, images: Any) -> Any:
        """The scores of the ten digits."""
        hidden = tf.nn.relu(images @ self.weights[0] + self.weights[1])
        return hidden @ self.weights[2] + self.weights[3]

    @fastsup.function
    def train_step(self, iterator: Any) -> Any:
        """Takes one batch from the iterator, and returns the loss."""
        images, labels = next(iterator)
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=self.logits(images))
            loss = tf.reduce_mean(losses)
        for weight, momentum, gradient in zip(
            self.weights, self.momenta, tape.gradient(loss, self.weights), strict=True
        ):
            momentum.assign(self.momentum * momentum + gradient)
            weight.assign_sub(self.learning_rate * momentum)
        return loss

    @fastsup.function
    def accuracy(self, images: Any, labels: Any) -> Any:
        """The share of images whose digit is recognized."""
        correct = tf.argmax(self.logits(images), axis=1, output_type=tf.int32) == labels
        return tf.reduce_mean(tf.cast(correct, tf.float32))


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 0, or 130 when interrupted. A wrong command line exits with 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logdir", type=Path, default="tf2-logdir", help="folder (./%(default)s)")
    parser.add_argument("--steps", type=int, default=5000, help="train up to this step (%(default)s)")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error(f"argument --steps: must be above 0, got {options.steps}")

    data = load_digits()
    images, labels = (data.data / 16).astype(np.float32), data.target.astype(np.int32)
    train_x, test_x, train_y, test_y = train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels)
    dataset = tf.data.Dataset.from_tensor_slices((train_x, train_y)).shuffle(len(train_y), seed=0).repeat()
    model = Classifier()
    # The iterator is in the checkpoint too, so that training goes on with the batch after the last one.
    batches = iter(dataset.batch(32, drop_remainder=True))
    checkpoint = tf.train.Checkpoint(model=model, batches=batches)

    saver = CheckpointHook(checkpoint, every_steps=1000, directory=options.logdir)
    writer = tf.summary.create_file_writer(str(options.logdir))
    summaries = SummaryHook(writer, every_steps=100, values=lambda loss: {"loss": float(loss)})
    progress = ProgressHook(values=lambda loss: {"loss": float(loss)})
    hooks = [NanGuardHook(every_steps=100), saver, summaries, progress]
    loop = StepLoop(fastsup.bind(model.train_step, batches), hooks, max_steps=options.steps, resume_from=saver)
    try:
        loop.run()
    except KeyboardInterrupt:
        print(f"Interrupted after step {loop.global_step:,}. Run again, training goes on there.")
        return 130
    finally:
        writer.close()
    started = "" if loop.restored_step is None else f", resumed after step {loop.restored_step:,}"
    print(f"Trained up to step {loop.global_step:,}{started}.")
    accuracy = float(model.accuracy(tf.constant(test_x), tf.constant(test_y)))
    print(f"Test accuracy {accuracy:.2%} on {len(test_y)} images. Checkpoints and logs are in {options.logdir}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
