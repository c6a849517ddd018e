"""Orbit's `Controller` with its own actions. Orbit has no early stopping: a loop of Python counts the evaluations."""

import sys

import keras
import orbit
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

digits = load_digits()
images, labels = (digits.data / 16).astype("float32"), digits.target.astype("int32")
x, test_x, y, test_y = train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels)
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)])
optimizer = keras.optimizers.Adam(1e-3)
optimizer.build(model.trainable_variables)
losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
batches = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(y)).batch(32).repeat().prefetch(tf.data.AUTOTUNE)
test_batches = tf.data.Dataset.from_tensor_slices((test_x, test_y)).batch(len(test_y))


class Trainer(orbit.StandardTrainer):
    def __init__(self):
        super().__init__(batches)
        self.loss = keras.metrics.Mean()

    def train_loop_begin(self):
        self.loss.reset_state()

    def train_step(self, iterator):
        images, labels = next(iterator)
        with tf.GradientTape() as tape:
            loss = losses(labels, model(images, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        self.loss.update_state(loss)

    def train_loop_end(self):
        return {"loss": self.loss.result()}


class Evaluator(orbit.StandardEvaluator):
    def __init__(self):
        super().__init__(test_batches)
        self.accuracy = keras.metrics.SparseCategoricalAccuracy()

    def eval_begin(self):
        self.accuracy.reset_state()

    def eval_step(self, iterator):
        images, labels = next(iterator)
        self.accuracy.update_state(labels, model(images))

    def eval_end(self):
        return {"accuracy": self.accuracy.result()}


folder = sys.argv[1] if len(sys.argv) > 1 else "train-orbit"
max_steps = 5000
patience = 20
epoch_steps = -(-len(y) // 32)
step, waited = optimizer.iterations.value, tf.Variable(0)
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, waited=waited)
manager = tf.train.CheckpointManager(
    checkpoint, folder, max_to_keep=2, step_counter=step, checkpoint_interval=epoch_steps
)
new_best = orbit.actions.NewBestMetric("accuracy", filename=f"{folder}/best.json")


def wait(output):
    waited.assign(0 if new_best.test(output) else waited + 1)


def save_best(output):
    checkpoint.write(f"{folder}/best")


controller = orbit.Controller(
    global_step=step, trainer=Trainer(), evaluator=Evaluator(), steps_per_loop=epoch_steps, checkpoint_manager=manager,
    eval_actions=[wait, orbit.actions.ConditionalAction(new_best.test, [save_best, new_best.commit])],
)  # fmt: skip
while step < max_steps and waited < patience:
    controller.train(int(step) + epoch_steps)
    controller.evaluate()
last = int(step)
checkpoint.read(f"{folder}/best").expect_partial()
print(f"Step {last}: test accuracy {controller.evaluate()['accuracy']:.2%}")
