"""One run of a whole program for `python -m benchmarks --programs`: `program_worker.py PROGRAM SIDE STEPS`.

Sides are `tensorflow` (its MonitoredTrainingSession), `fastsup`, and `estimator`: the Estimator that TensorFlow has
up to 2.15. Only the side `fastsup` needs fastsup. The last line of the output is a JSON object with readings of a
clock that all processes share, in seconds: `first` at the end of the first step, `last` at the end of the last one; and
`peak_mb`, the largest resident memory of the process in millions of bytes.
"""

import json
import os
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1


# A cart with a pole on it: NumPy only, as environments are.

GRAVITY, CART_MASS, POLE_MASS, HALF_LENGTH, FORCE, TICK = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
MAX_EPISODE = 200


class CartPole:
    """The classic control task: push a cart to the left or to the right so that its pole stays up.

    Args:
      seed: seed of the first states.
    """

    def __init__(self, seed):
        self._random = np.random.default_rng(seed)

    def reset(self):
        """Starts an episode, and returns the observation: four floats."""
        self._state = self._random.uniform(-0.05, 0.05, 4)
        self._ticks = 0
        return self._state.astype(np.float32)

    def step(self, action):
        """Returns the next observation, and whether the episode is over."""
        position, speed, angle, turn = self._state
        force = FORCE if action == 1 else -FORCE
        cosine, sine = np.cos(angle), np.sin(angle)
        mass = CART_MASS + POLE_MASS
        push = (force + POLE_MASS * HALF_LENGTH * turn**2 * sine) / mass
        turning = (GRAVITY * sine - cosine * push) / (HALF_LENGTH * (4 / 3 - POLE_MASS * cosine**2 / mass))
        moving = push - POLE_MASS * HALF_LENGTH * turning * cosine / mass
        self._state = np.array(
            [position + TICK * speed, speed + TICK * moving, angle + TICK * turn, turn + TICK * turning]
        )
        self._ticks += 1
        over = abs(self._state[0]) > 2.4 or abs(self._state[2]) > 0.2095 or self._ticks >= MAX_EPISODE
        return self._state.astype(np.float32), bool(over)


def dense(inputs, units, name, activation=None):
    """A layer of raw variables, which every TensorFlow has."""
    with tf1.variable_scope(name):
        weights = tf1.get_variable(
            "weights", [inputs.shape[-1], units], initializer=tf1.glorot_uniform_initializer(seed=1)
        )
        outputs = inputs @ weights + tf1.get_variable("bias", [units], initializer=tf1.zeros_initializer())
    return outputs if activation is None else activation(outputs)


def reinforcement_learning(side, folder, steps):
    """A policy gradient: an action for each observation, and a training step for each episode.

    Returns:
      The readings of the clock. A step is one of the environment.
    """
    train = session_layer(side)
    observations = tf1.placeholder(tf.float32, [None, 4])
    actions = tf1.placeholder(tf.int32, [None])
    returns = tf1.placeholder(tf.float32, [None])
    logits = dense(dense(observations, 32, "hidden", tf.nn.tanh), 2, "logits")
    probabilities = tf.nn.softmax(logits)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=actions, logits=logits)
    loss = tf.reduce_mean(losses * returns)
    train_op = tf1.train.AdamOptimizer(0.01).minimize(loss, tf1.train.get_or_create_global_step())
    environment, random = CartPole(seed=0), np.random.default_rng(0)
    first = None
    with train.MonitoredTrainingSession(checkpoint_dir=folder) as session:
        observation, episode = environment.reset(), []
        for _ in range(steps):
            (chances,) = session.run(probabilities, {observations: observation[None]})
            action = int(random.random() < chances[1])
            episode.append((observation, action))
            observation, over = environment.step(action)
            if over:
                seen, done = zip(*episode, strict=True)
                discounted = (1 - 0.99 ** np.arange(len(done), 0, -1)) / 0.01
                advantages = (discounted - discounted.mean()) / (discounted.std() + 1e-6)
                session.run([train_op, loss], {observations: np.stack(seen), actions: done, returns: advantages})
                observation, episode = environment.reset(), []
            first = first or time.monotonic()
        last = time.monotonic()
    return {"first": first, "last": last}


# A wide and deep model of hashed categories and numbers.

ROWS, BATCH, BUCKETS, EMBEDDING, NUMBERS = 20_000, 128, 1000, 8, 8
CATEGORIES = ("city", "device", "campaign", "hour")


def write_clicks(path):
    """Writes a log of clicks as CSV, drawn by chance: strings, numbers, and whether there was a click."""
    random = np.random.default_rng(0)
    categories = random.integers(0, 500, (ROWS, len(CATEGORIES)))
    numbers = random.normal(size=(ROWS, NUMBERS))
    labels = numbers.sum(axis=1) + random.normal(size=ROWS) > 0
    with open(path, "w") as file:
        for row in zip(categories, numbers, labels, strict=True):
            file.write(",".join([*map("v{}".format, row[0]), *map("{:.4f}".format, row[1]), str(int(row[2]))]) + "\n")


def click_input(path):
    """The input of the wide and deep model: shuffled rows, parsed batch by batch."""
    defaults = [*[[""]] * len(CATEGORIES), *[[0.0]] * (NUMBERS + 1)]

    def parse(lines):
        columns = tf.io.decode_csv(lines, defaults)
        features = dict(zip(CATEGORIES, columns[: len(CATEGORIES)], strict=True))
        features["numbers"] = tf.stack(columns[len(CATEGORIES) : -1], 1)
        return features, columns[-1]

    lines = tf.data.TextLineDataset(path).shuffle(ROWS, seed=0).repeat().batch(BATCH, drop_remainder=True)
    return lines.map(parse).prefetch(2)


def wide_and_deep_loss(features, labels):
    """The loss of the wide and deep model."""
    wide, deep = [], [features["numbers"]]
    for name in CATEGORIES:
        bucket = tf.strings.to_hash_bucket_fast(features[name], BUCKETS)
        with tf1.variable_scope(name):
            wide.append(tf.gather(tf1.get_variable("wide", [BUCKETS], initializer=tf1.zeros_initializer()), bucket))
            table = tf1.get_variable(
                "embedding", [BUCKETS, EMBEDDING], initializer=tf1.truncated_normal_initializer(stddev=0.1, seed=1)
            )
            deep.append(tf.gather(table, bucket))
    hidden = dense(tf.concat(deep, 1), 64, "hidden0", tf.nn.relu)
    logits = tf.squeeze(dense(dense(hidden, 32, "hidden1", tf.nn.relu), 1, "logits"), 1) + tf.add_n(wide)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


class Clock(tf1.train.SessionRunHook):
    """Reads the clock after the first step and after the last one."""

    first = last = None

    def after_run(self, run_context, run_values):
        """A step is over."""
        self.first = self.first or time.monotonic()

    def end(self, session):
        """The last step is over. The last checkpoint comes later."""
        self.last = time.monotonic()


def wide_and_deep(side, folder, steps):
    """Trains the model: with an Estimator or, in a session of TensorFlow's, with the hooks of an Estimator.

    Returns:
      The readings of the clock.
    """
    clock = Clock()
    path = os.path.join(folder, "clicks.csv")
    write_clicks(path)
    folder = os.path.join(folder, "model")

    def train_op_of(loss):
        return tf1.train.AdagradOptimizer(0.05).minimize(loss, tf1.train.get_or_create_global_step())

    if side == "tensorflow":
        loss = wide_and_deep_loss(*tf1.data.make_one_shot_iterator(click_input(path)).get_next())
        step = tf1.train.get_or_create_global_step()
        train_op = train_op_of(loss)
        tf1.summary.scalar("loss", loss)
        hooks = [
            clock,
            tf1.train.StopAtStepHook(num_steps=steps),
            tf1.train.NanTensorHook(loss),
            tf1.train.LoggingTensorHook({"loss": loss, "step": step}, every_n_iter=100),
        ]
        with tf1.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as session:
            while not session.should_stop():
                session.run([train_op, loss])
        return {"first": clock.first, "last": clock.last}

    if side == "fastsup":
        from fastsup import estimator as library
    else:
        library = tf1.estimator

    def model_fn(features, labels, mode):
        loss = wide_and_deep_loss(features, labels)
        return library.EstimatorSpec(mode, loss=loss, train_op=train_op_of(loss))

    library.Estimator(model_fn, folder).train(lambda: click_input(path), hooks=[clock], steps=steps)
    return {"first": clock.first, "last": clock.last}


def session_layer(side):
    """The module with `MonitoredTrainingSession`."""
    if side == "fastsup":
        from fastsup import train

        return train
    return tf1.train


def main():
    """Runs the program that the command line names."""
    name, side, steps = sys.argv[1:]
    program = {"reinforcement_learning": reinforcement_learning, "wide_and_deep": wide_and_deep}[name]
    with tempfile.TemporaryDirectory(prefix="fastsup-benchmark-") as folder, tf.Graph().as_default():
        readings = program(side, folder, int(steps))
    # Not what the parent is told: its number includes the parent's own memory at the start of the process.
    with open("/proc/self/status") as status:
        peak_mb = next(int(line.split()[1]) * 1024 / 1e6 for line in status if line.startswith("VmHWM"))
    print(json.dumps({**readings, "peak_mb": peak_mb, "tensorflow": tf.__version__}), flush=True)


if __name__ == "__main__":
    main()
