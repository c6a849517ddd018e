"""Gaussian processes whose parameters SciPy fits: for each data set a new tf.function, called some times."""

import numpy as np
import tensorflow as tf
from scipy.optimize import minimize

random = np.random.default_rng(0)
total = 0.0
for _ in range(12):
    x = np.sort(random.uniform(0, 5, 30))
    y = np.sin(x) + 0.1 * random.normal(size=30)
    inputs, targets = tf.constant(x[:, None]), tf.constant(y[:, None])

    @tf.function
    def loss_and_gradient(logs):
        with tf.GradientTape() as tape:
            tape.watch(logs)
            scale, length, noise = tf.unstack(tf.exp(logs))
            distance = (inputs - tf.transpose(inputs)) ** 2
            kernel = scale * tf.exp(-0.5 * distance / length**2) + (noise + 1e-6) * tf.eye(30, dtype=tf.float64)
            factor = tf.linalg.cholesky(kernel)
            solved = tf.linalg.cholesky_solve(factor, targets)
            loss = 0.5 * tf.reduce_sum(targets * solved) + tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)))
        return loss, tape.gradient(loss, logs)

    def evaluate(logs):
        return [part.numpy() for part in loss_and_gradient(tf.constant(logs))]

    total += float(minimize(evaluate, np.zeros(3), jac=True, method="L-BFGS-B", options={"maxiter": 30}).fun)
print("total", total.hex())
