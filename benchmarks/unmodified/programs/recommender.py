"""A recommender: embeddings of 100,000 users and 20,000 items, a dot product, sampled pairs."""

import keras
import numpy as np

keras.utils.set_random_seed(0)
random = np.random.default_rng(0)
users, items = random.integers(0, 100_000, 60_000), random.integers(0, 20_000, 60_000)
liked = ((users + items) % 3 == 0).astype("float32")
user, item = keras.Input([], dtype="int64"), keras.Input([], dtype="int64")
factors = keras.layers.Embedding(100_000, 16)(user), keras.layers.Embedding(20_000, 16)(item)
model = keras.Model([user, item], keras.layers.Dot(1)(factors))
model.compile(keras.optimizers.SGD(0.1), keras.losses.BinaryCrossentropy(from_logits=True))
history = model.fit([users, items], liked, batch_size=64, epochs=2, verbose=0)
print("loss", float(history.history["loss"][-1]).hex())
