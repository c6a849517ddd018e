"""The loops of tf.contrib.training: train, then evaluate each checkpoint."""

import json
import sys

import tensorflow as tf


def model():
    x = tf.constant([[0.0], [1.0], [2.0], [3.0]])
    y = 2.0 * x + 1.0
    with tf.variable_scope("line"):
        slope = tf.get_variable("slope", [1, 1], initializer=tf.zeros_initializer())
        offset = tf.get_variable("offset", [1], initializer=tf.zeros_initializer())
    predicted = tf.matmul(x, slope) + offset
    return y, predicted


def train(folder):
    with tf.Graph().as_default():
        y, predicted = model()
        loss = tf.losses.mean_squared_error(y, predicted)
        tf.summary.scalar("loss", loss)
        train_op = tf.contrib.training.create_train_op(
            loss,
            tf.train.GradientDescentOptimizer(0.1),
            transform_grads_fn=tf.contrib.training.clip_gradient_norms_fn(10.0),
            summarize_gradients=True,
        )
        return tf.contrib.training.train(
            train_op, folder, hooks=[tf.train.StopAtStepHook(last_step=150)], save_summaries_steps=50
        )


def evaluate(folder):
    with tf.Graph().as_default():
        y, predicted = model()
        tf.train.get_or_create_global_step()
        value, update = tf.metrics.mean_absolute_error(y, predicted)
        tf.summary.scalar("mae", value)
        path = tf.train.latest_checkpoint(folder)
        hooks = [
            tf.contrib.training.StopAfterNEvalsHook(3),
            tf.contrib.training.SummaryAtEndHook(folder + "/eval"),
        ]
        once = tf.contrib.training.evaluate_once(path, eval_ops=update, final_ops={"mae": value}, hooks=hooks)
        again = tf.contrib.training.evaluate_repeatedly(
            folder, eval_ops=update, final_ops=value, hooks=hooks, eval_interval_secs=0, max_number_of_evaluations=1
        )
        paths = list(tf.contrib.training.checkpoints_iterator(folder, timeout=0))
        return once["mae"], again, paths == [path]


loss = train(sys.argv[1])
once, again, same = evaluate(sys.argv[1])
print(json.dumps({"loss": float(loss), "once": float(once), "again": float(again), "same": same}))
