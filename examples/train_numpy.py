"""Trains a classifier of handwritten digits in NumPy, without TensorFlow. Kill it and run it again: it goes on.

Run `python examples/train_numpy.py [folder]`.
"""

import sys

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from fastsup.loop import train

digits = load_digits()
images, labels = digits.data / 16, digits.target
x, test_x, y, test_y = train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels)
model = {"weights": np.zeros((64, 10)), "biases": np.zeros(10)}


def batches(epoch):
    order = np.random.default_rng(epoch).permutation(len(y))
    return [(x[rows], y[rows]) for rows in np.array_split(order, len(y) // 32)]


def step(images, labels):
    scores = images @ model["weights"] + model["biases"]
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances = odds / odds.sum(axis=1, keepdims=True)
    gradient = (chances - np.eye(10)[labels]) / len(labels)
    model["weights"] -= 0.5 * images.T @ gradient
    model["biases"] -= 0.5 * gradient.sum(axis=0)
    return -np.log(chances[np.arange(len(labels)), labels]).mean()


def evaluate():
    guesses = (test_x @ model["weights"] + model["biases"]).argmax(axis=1)
    return {"accuracy": (guesses == test_y).mean()}


folder = sys.argv[1] if len(sys.argv) > 1 else "train-numpy"
loop = train(step, batches, max_steps=5000, states={"model": model}, directory=folder,
             evaluate=evaluate, metric="accuracy", mode="max", patience=20)  # fmt: skip
print(f"Step {loop.global_step}, resumed from {loop.restored_step}: test accuracy {evaluate()['accuracy']:.2%}")
