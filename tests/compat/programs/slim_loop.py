"""A model of slim with slim.learning.train, whose loop is a Supervisor's; then slim.evaluation."""

import json
import sys

import numpy as np
import tensorflow as tf
from tensorflow.contrib.framework.python.ops import arg_scope
from tensorflow.contrib.slim.nets import vgg

slim = tf.contrib.slim


def model(images):
    with slim.arg_scope([slim.conv2d, slim.fully_connected], weights_regularizer=slim.l2_regularizer(0.0005)):
        net = slim.conv2d(images, 4, [3, 3], scope="conv")
        net = slim.max_pool2d(net, [2, 2], scope="pool")
        net = slim.batch_norm(slim.flatten(net), scope="norm")
        return slim.fully_connected(net, 2, activation_fn=None, scope="logits")


def data():
    random = np.random.RandomState(1)
    images = random.uniform(0, 1, (16, 8, 8, 1)).astype(np.float32)
    labels = (images.mean(axis=(1, 2, 3)) > 0.5).astype(np.int64)
    return tf.constant(images), tf.constant(labels)


def train(logdir, steps):
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        images, labels = data()
        slim.losses.sparse_softmax_cross_entropy(model(images), labels)
        loss = slim.losses.get_total_loss()
        tf.summary.scalar("loss", loss)
        train_op = slim.learning.create_train_op(loss, tf.train.MomentumOptimizer(0.05, 0.9))
        return slim.learning.train(
            train_op, logdir, number_of_steps=steps, log_every_n_steps=10, save_summaries_secs=1, save_interval_secs=600
        )


def evaluate(logdir):
    with tf.Graph().as_default():
        images, labels = data()
        names, updates = slim.metrics.aggregate_metric_map(
            {"accuracy": slim.metrics.streaming_accuracy(tf.argmax(model(images), 1), labels)}
        )
        return slim.evaluation.evaluate_once(
            "",
            tf.train.latest_checkpoint(logdir),
            logdir + "/eval",
            num_evals=1,
            eval_op=list(updates.values()),
            final_op=names["accuracy"],
        )


first = float(train(sys.argv[1], 5))
last = float(train(sys.argv[1], 60))
print(
    json.dumps(
        {
            "falls": last < first,
            "path": tf.train.latest_checkpoint(sys.argv[1]).rpartition("/")[2],
            "accuracy": float(evaluate(sys.argv[1])),
            "scope": arg_scope is slim.arg_scope,
            "net": callable(vgg.vgg_16),
        }
    )
)
