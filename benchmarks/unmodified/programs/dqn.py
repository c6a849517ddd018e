"""Deep Q-learning on a cart-pole made here: predict of one state for each action, fit of one batch for each step."""

import random

import keras
import numpy as np

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input([4]), keras.layers.Dense(24, "relu"), keras.layers.Dense(2)])
model.compile(keras.optimizers.Adam(1e-3), "mse")
memory, generator = [], random.Random(0)


def move(state, action):
    position, speed, angle, turn = state
    force = 10.0 if action else -10.0
    bend = (force + 0.05 * turn**2 * np.sin(angle)) / 1.1
    spin = (9.8 * np.sin(angle) - np.cos(angle) * bend) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
    push = bend - 0.05 * spin * np.cos(angle) / 1.1
    new = np.array([position + 0.02 * speed, speed + 0.02 * push, angle + 0.02 * turn, turn + 0.02 * spin], np.float32)
    return new, bool(abs(new[0]) > 2.4 or abs(new[2]) > 0.2)


state = np.zeros(4, np.float32)
for step in range(300):
    values = model.predict(state[None], verbose=0)[0]
    action = generator.randrange(2) if generator.random() < 0.2 else int(values.argmax())
    new, failed = move(state, action)
    memory.append((state, action, new, failed))
    state = np.zeros(4, np.float32) if failed else new
    if len(memory) >= 32 and step % 4 == 0:
        batch = generator.sample(memory, 32)
        states, news = np.stack([row[0] for row in batch]), np.stack([row[2] for row in batch])
        targets, next_values = model.predict(states, verbose=0), model.predict(news, verbose=0)
        for row, (_, chosen, _, ended) in enumerate(batch):
            targets[row, chosen] = -1.0 if ended else 1.0 + 0.95 * next_values[row].max()
        model.fit(states, targets, epochs=1, verbose=0)
print("weights", sum(float(np.abs(weight).sum()) for weight in model.get_weights()).hex())
