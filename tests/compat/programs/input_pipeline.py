"""Training that is continued, in the same process and in another Estimator, reads on where its input was."""

import json
import os
import sys

import tensorflow as tf

tf1 = tf.compat.v1


class Seen(tf1.train.SessionRunHook):
    def __init__(self):
        self.values = []

    def before_run(self, run_context):
        return tf1.train.SessionRunArgs("seen:0")

    def after_run(self, run_context, run_values):
        self.values.append(int(run_values.results))


def model_fn(features, labels, mode):
    seen = tf.identity(features, "seen")
    weight = tf1.get_variable("weight", [], initializer=tf1.zeros_initializer())
    loss = tf.square(weight - tf.cast(seen, tf.float32))
    train_op = tf1.train.GradientDescentOptimizer(0.01).minimize(loss, tf1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    return tf.data.Dataset.range(100)


def train(steps):
    config = tf.estimator.RunConfig(sys.argv[1], save_checkpoints_steps=4)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    seen = Seen()
    estimator.train(input_fn, hooks=[tf.data.experimental.CheckpointInputPipelineHook(estimator), seen], steps=steps)
    return seen.values


found = [train(6), train(3), train(5)]
with open(os.path.join(sys.argv[1], "checkpoint_input")) as file:
    kept = [line.split('"')[1] for line in file]
print(json.dumps({"seen": found, "kept": kept}))
