"""Trains a classifier of handwritten digits in JAX with optax, without TensorFlow. A killed run goes on when restarted.

Run `python examples/train_jax.py [folder]`.
"""

import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from fastsup.loop import train

digits = load_digits()
images, labels = (digits.data / 16).astype("float32"), digits.target.astype("int32")
x, test_x, y, test_y = train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels)
keys = jax.random.split(jax.random.key(0))
weights = [jax.random.normal(key, (64, units)) / 8 for key, units in zip(keys, (64, 10), strict=True)]
params = [(matrix, jnp.zeros(matrix.shape[1])) for matrix in weights]
optimizer = optax.adam(1e-3)
state = SimpleNamespace(params=params, moments=optimizer.init(params))


def batches(epoch):
    order = np.random.default_rng(epoch).permutation(len(y))
    return [(x[rows], y[rows]) for rows in np.split(order[: len(y) // 32 * 32], len(y) // 32)]


def scores(params, images):
    (weights, biases), (weights_2, biases_2) = params
    return jax.nn.relu(images @ weights + biases) @ weights_2 + biases_2


def loss_of(params, images, labels):
    chances = jax.nn.log_softmax(scores(params, images))
    return -jnp.take_along_axis(chances, labels[:, None], axis=1).mean()


@jax.jit
def update(params, moments, images, labels):
    loss, gradients = jax.value_and_grad(loss_of)(params, images, labels)
    updates, moments = optimizer.update(gradients, moments)
    return optax.apply_updates(params, updates), moments, loss


def step(images, labels):
    state.params, state.moments, loss = update(state.params, state.moments, images, labels)
    return loss


def evaluate():
    return {"accuracy": (scores(state.params, test_x).argmax(axis=1) == test_y).mean()}


folder = sys.argv[1] if len(sys.argv) > 1 else "train-jax"
loop = train(step, batches, max_steps=5000, states={"state": state}, directory=folder,
             evaluate=evaluate, metric="accuracy", mode="max", patience=20)  # fmt: skip
print(f"Step {loop.global_step}, resumed from {loop.restored_step}: test accuracy {evaluate()['accuracy']:.2%}")
