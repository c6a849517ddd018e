"""A variational autoencoder: a Keras model with its own train_step and metrics."""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(0)


class Autoencoder(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([keras.layers.Dense(32, "relu"), keras.layers.Dense(8)])
        self.decoder = keras.Sequential([keras.layers.Dense(32, "relu"), keras.layers.Dense(64)])
        self.seeds = keras.random.SeedGenerator(1)
        self.tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.tracker]

    def call(self, inputs):
        return self.decoder(self.encoder(inputs)[:, :4])

    def train_step(self, data):
        with tf.GradientTape() as tape:
            mean, log_variance = tf.split(self.encoder(data), 2, axis=1)
            noise = keras.random.normal(tf.shape(mean), seed=self.seeds)
            rebuilt = self.decoder(mean + noise * tf.exp(0.5 * log_variance))
            spread = -0.5 * tf.reduce_mean(1.0 + log_variance - mean**2 - tf.exp(log_variance))
            loss = tf.reduce_mean((data - rebuilt) ** 2) + 0.01 * spread
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_weights), self.trainable_weights))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


images = np.random.default_rng(0).random((4096, 64), np.float32)
model = Autoencoder()
model.compile("adam")
history = model.fit(images, batch_size=32, epochs=15, verbose=0)
print("loss", float(history.history["loss"][-1]).hex())
