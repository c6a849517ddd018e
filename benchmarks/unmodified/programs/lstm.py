"""An LSTM that predicts the next letter, in a training loop of its own."""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(0)
text = np.random.default_rng(0).integers(0, 30, 20_000)
windows = np.lib.stride_tricks.sliding_window_view(text, 17)
model = keras.Sequential([keras.layers.Embedding(30, 16), keras.layers.LSTM(32), keras.layers.Dense(30)])
optimizer = keras.optimizers.Adam()
losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def train(letters, targets):
    with tf.GradientTape() as tape:
        loss = losses(targets, model(letters, training=True))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights))
    return loss


for batch in range(600):
    rows = windows[32 * batch % 19_000 :][:32]
    loss = train(tf.constant(rows[:, :-1]), tf.constant(rows[:, -1]))
print("loss", float(loss).hex())
