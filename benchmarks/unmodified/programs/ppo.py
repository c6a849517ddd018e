"""Policy gradient with clipping: one tf.function acts, another one trains, called in turns."""

import numpy as np
import tensorflow as tf

tf.random.set_seed(0)
random = np.random.default_rng(0)
shape = {"hidden": (8, 32), "policy": (32, 4), "value": (32, 1)}
weights = {name: tf.Variable(random.normal(0, 0.1, size).astype("float32")) for name, size in shape.items()}
optimizer = tf.keras.optimizers.Adam(3e-4)


def outputs(states):
    hidden = tf.tanh(states @ weights["hidden"])
    return hidden @ weights["policy"], (hidden @ weights["value"])[:, 0]


@tf.function
def act(states, noise):
    logits, _ = outputs(states)
    actions = tf.argmax(logits + noise, axis=1)
    chances = tf.nn.log_softmax(logits)
    return actions, tf.gather(chances, actions, axis=1, batch_dims=1)


@tf.function
def train(states, actions, before, returns):
    with tf.GradientTape() as tape:
        logits, values = outputs(states)
        now = tf.gather(tf.nn.log_softmax(logits), actions, axis=1, batch_dims=1)
        gains = returns - tf.stop_gradient(values)
        ratio = tf.exp(now - before)
        clipped = tf.clip_by_value(ratio, 0.8, 1.2)
        loss = -tf.reduce_mean(tf.minimum(ratio * gains, clipped * gains)) + tf.reduce_mean((returns - values) ** 2)
    variables = list(weights.values())
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    return loss


for _ in range(60):
    states = np.zeros((32, 16, 8), np.float32)
    chosen, chances = np.zeros((32, 16), np.int64), np.zeros((32, 16), np.float32)
    current = random.normal(size=(16, 8)).astype("float32")
    for step in range(32):
        states[step] = current
        noise = random.gumbel(size=(16, 4)).astype("float32")
        chosen[step], chances[step] = act(tf.constant(current), tf.constant(noise))
        current = (0.9 * current + 0.1 * np.roll(current, 1, 1) + 0.1 * (chosen[step][:, None] - 1.5)).astype("float32")
    returns = -np.abs(states).sum(2).reshape(-1)
    for _ in range(4):
        loss = train(states.reshape(-1, 8), chosen.reshape(-1), chances.reshape(-1), returns)
print("loss", float(loss).hex())
