"""A program of TensorFlow 1: `import tensorflow as tf`, flags, tf.app.run, placeholders, a Session and a Saver."""

import json
import os
import sys

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.training import session_run_hook

flags = tf.app.flags
FLAGS = flags.FLAGS
flags.DEFINE_string("folder", None, "where the checkpoints go")
flags.DEFINE_integer("steps", 25, "how many steps")


class Nothing(session_run_hook.SessionRunHook):
    pass


def main(unused_argv):
    tf.logging.set_verbosity(tf.logging.INFO)
    tf.set_random_seed(3)
    x = tf.placeholder(tf.float32, shape=(None, 1))
    y = tf.placeholder(tf.float32, shape=(None, 1))
    with tf.variable_scope("line"):
        a = tf.get_variable("a", shape=[1, 1], initializer=tf.random_normal_initializer())
        b = tf.get_variable("b", shape=[1], initializer=tf.constant_initializer(0.0))
    loss = tf.losses.mean_squared_error(y, tf.matmul(x, a) + b)
    global_step = tf.train.create_global_step()
    train_op = tf.train.MomentumOptimizer(0.05, 0.5).minimize(loss, global_step=global_step)
    saver = tf.train.Saver()
    data = [[0.0], [1.0], [2.0]]
    labels = [[1.0], [3.0], [5.0]]
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
        sess.run(tf.global_variables_initializer())
        first = sess.run(loss, {x: data, y: labels})
        for _ in range(FLAGS.steps):
            _, last = sess.run([train_op, loss], feed_dict={x: data, y: labels})
        path = saver.save(sess, os.path.join(FLAGS.folder, "model"), global_step=global_step)
    with tf.train.MonitoredTrainingSession(hooks=[Nothing()]) as sess:
        assert isinstance(sess, tf.train.MonitoredSession)
        sess.run(train_op, {x: data, y: labels})
    assert ops.get_default_graph() is tf.get_default_graph()
    assert tf.contrib.training.HParams(steps=3).steps == 3
    with tf.variable_scope("cells"):
        outputs, _ = tf.nn.dynamic_rnn(tf.contrib.rnn.GRUCell(4), tf.zeros([2, 5, 3]), dtype=tf.float32)
        names = [variable.op.name for variable in tf.trainable_variables("cells")]
    try:
        import tensorflow.contrib.seq2seq as seq2seq
    except ImportError:
        seq2seq = None
    config = tf.estimator.RunConfig(model_dir=FLAGS.folder)
    print(
        json.dumps(
            {
                "falls": bool(last < first),
                "path": os.path.basename(path),
                "seq2seq": seq2seq,
                "cells": [outputs.shape.as_list(), names[0]],
                "dir": config.model_dir == FLAGS.folder,
                "eager": tf.executing_eagerly(),
                "name": __name__,
                "argv": sys.argv[1:2],
            }
        )
    )


if __name__ == "__main__":
    tf.app.run()
