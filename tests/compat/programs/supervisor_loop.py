"""A Supervisor with its services around a training loop; started again, it goes on from the checkpoint."""

import json
import os
import sys

import tensorflow as tf

v1 = tf.compat.v1


def train(logdir, steps):
    with tf.Graph().as_default():
        global_step = v1.train.get_or_create_global_step()
        weight = v1.get_variable("weight", [], initializer=v1.zeros_initializer(), use_resource=True)
        loss = tf.square(weight - 3.0)
        v1.summary.scalar("loss", loss)
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=global_step)
        with tf.control_dependencies([train_op]):
            step_after = tf.identity(global_step.read_value())
        supervisor = v1.train.Supervisor(
            logdir=logdir, save_model_secs=600, save_summaries_secs=0, global_step=global_step
        )
        with supervisor.managed_session() as session:
            start = v1.train.global_step(session, global_step)
            step = start
            while not supervisor.should_stop() and step < steps:
                _, step = session.run([train_op, step_after])
            supervisor.saver.save(session, supervisor.save_path, global_step=global_step)
            return int(start), int(step), float(session.run(weight))


first = train(sys.argv[1], 20)
second = train(sys.argv[1], 50)
print(
    json.dumps(
        {
            "first": first[:2],
            "second": second[:2],
            "weight": second[2],
            "files": "checkpoint" in os.listdir(sys.argv[1]),
        }
    )
)
