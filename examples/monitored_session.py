"""A TensorFlow program moved to fastsup: the import of `train` is all that changes.

Run it with `python examples/monitored_session.py`.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import tensorflow.compat.v1 as tf

from fastsup import train  # was: from tensorflow.compat.v1 import train

tf.logging.set_verbosity(tf.logging.INFO)  # LoggingTensorHook logs at this level.

with tf.Graph().as_default():
    weights = tf.get_variable("weights", initializer=[5.0, -3.0, 1.0])
    loss = tf.reduce_sum(tf.square(weights))
    global_step = tf.train.get_or_create_global_step()
    train_op = tf.train.GradientDescentOptimizer(0.01).minimize(loss, global_step)

    hooks = [
        train.StopAtStepHook(last_step=500),
        train.LoggingTensorHook({"step": global_step, "loss": loss}, every_n_iter=100),
        train.NanTensorHook(loss),
    ]
    with train.MonitoredTrainingSession(hooks=hooks) as session:
        while not session.should_stop():
            _, last_loss = session.run([train_op, loss])

print(f"The loss of the last step was {last_loss:.2e}.")
