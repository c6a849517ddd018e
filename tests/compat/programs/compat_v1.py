"""`import tensorflow.compat.v1 as tf` without the behaviour of TensorFlow 2: sessions, placeholders, a hook."""

import json
import sys

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import estimator as tf_estimator
from tensorflow.compat.v1.train import SessionRunHook

tf.disable_v2_behavior()


class Losses(SessionRunHook):
    def begin(self):
        self.seen = []

    def before_run(self, run_context):
        return tf.train.SessionRunArgs("loss:0")

    def after_run(self, run_context, run_values):
        self.seen.append(float(run_values.results))
        if len(self.seen) == 30:
            run_context.request_stop()


inputs = tf.placeholder(tf.float32, [None, 2], name="inputs")
targets = tf.placeholder(tf.float32, [None], name="targets")
weights = tf.Variable(tf.zeros([2, 1]), name="weights")
loss = tf.reduce_mean(tf.squared_difference(tf.squeeze(tf.matmul(inputs, weights), 1), targets), name="loss")
step = tf.train.get_or_create_global_step()
train_op = tf.train.AdamOptimizer(0.1).minimize(loss, global_step=step)
x = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]], np.float32)
feed = {inputs: x, targets: x.sum(1)}

losses = Losses()
with tf.train.SingularMonitoredSession(hooks=[losses], checkpoint_dir=sys.argv[1]) as session:
    while not session.should_stop():
        session.run(train_op, feed_dict=feed)

with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    before = session.run(loss, feed)
    for _ in range(10):
        session.run([train_op, loss], feed)
    after = session.run(loss, feed)

interactive = tf.InteractiveSession()
product = (tf.constant(6) * tf.constant(7)).eval()
interactive.close()


def model_fn(features, labels, mode):
    value = tf.get_variable("value", [], initializer=tf.zeros_initializer())
    update = tf.group(tf.assign_add(value, 1.0), tf.assign_add(tf.train.get_global_step(), 1))
    return tf_estimator.EstimatorSpec(mode, loss=tf.reduce_sum(features["x"]) + value, train_op=update)


numpy_input_fn = tf_estimator.inputs.numpy_input_fn(
    {"x": np.ones(8, np.float32)}, batch_size=2, num_epochs=1, shuffle=False
)
trained = tf_estimator.Estimator(model_fn, sys.argv[1] + "/estimator").train(numpy_input_fn)
print(
    json.dumps(
        {
            "steps": len(losses.seen),
            "falls": losses.seen[-1] < losses.seen[0] and bool(after < before),
            "product": int(product),
            "value": float(trained.get_variable_value("value")),
        }
    )
)
