"""A network that solves a differential equation: second derivatives of its outputs in a tf.function."""

import numpy as np
import tensorflow as tf

random = np.random.default_rng(0)
sizes = [(2, 20), (20, 20), (20, 1)]
weights = [tf.Variable(random.normal(0, 0.4, size).astype("float32")) for size in sizes]
biases = [tf.Variable(tf.zeros([size[1]])) for size in sizes]
optimizer = tf.keras.optimizers.Adam(1e-3)


def solution(place, time):
    values = tf.stack([place, time], axis=1)
    for weight, bias in zip(weights[:-1], biases[:-1]):
        values = tf.tanh(values @ weight + bias)
    return (values @ weights[-1] + biases[-1])[:, 0]


@tf.function
def train(place, time):
    with tf.GradientTape() as outer:
        with tf.GradientTape() as second:
            second.watch(place)
            with tf.GradientTape(persistent=True) as first:
                first.watch([place, time])
                found = solution(place, time)
            slope = first.gradient(found, place)
            change = first.gradient(found, time)
        bend = second.gradient(slope, place)
        begin = solution(place, tf.zeros_like(time))
        loss = tf.reduce_mean((change + found * slope - 0.01 * bend) ** 2)
        loss += tf.reduce_mean((begin + tf.sin(np.pi * place)) ** 2)
    variables = weights + biases
    optimizer.apply_gradients(zip(outer.gradient(loss, variables), variables))
    return loss


for _ in range(3000):
    place = random.uniform(-1, 1, 64).astype("float32")
    time = random.uniform(0, 1, 64).astype("float32")
    loss = train(tf.constant(place), tf.constant(time))
print("loss", float(loss).hex())
