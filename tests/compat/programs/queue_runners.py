"""Lines of CSV files from queues, trained in a MonitoredTrainingSession until the input has ended."""

import json
import os
import sys

import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()


class CountSteps(v1.train.SessionRunHook):
    def __init__(self):
        self.calls, self.ended = 0, False

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(v1.train.get_global_step())

    def after_run(self, run_context, run_values):
        self.calls += 1
        self.last = run_values.results

    def end(self, session):
        self.ended = True


folder = sys.argv[1]
path = os.path.join(folder, "rows.csv")
with open(path, "w") as file:
    for row in range(40):
        file.write("%f,%f\n" % (row / 40.0, 2.0 * row / 40.0))

names = v1.train.string_input_producer([path], num_epochs=5, shuffle=False)
_, line = v1.TextLineReader().read(names)
x, y = tf.io.decode_csv(line, record_defaults=[[0.0], [0.0]])
x_batch, y_batch = v1.train.shuffle_batch([x, y], batch_size=10, capacity=100, min_after_dequeue=20, seed=1)
slope = v1.get_variable("slope", [], initializer=v1.zeros_initializer())
loss = tf.reduce_mean(tf.square(slope * x_batch - y_batch))
global_step = v1.train.get_or_create_global_step()
train_op = v1.train.GradientDescentOptimizer(0.5).minimize(loss, global_step=global_step)

counter = CountSteps()
hooks = [counter, v1.train.NanTensorHook(loss), v1.train.StopAtStepHook(last_step=1000)]
with v1.train.MonitoredTrainingSession(
    checkpoint_dir=os.path.join(folder, "model"), hooks=hooks, save_checkpoint_steps=5, log_step_count_steps=5
) as session:
    assert isinstance(session, v1.train.MonitoredSession)
    while not session.should_stop():
        session.run(train_op)
print(
    json.dumps(
        {
            "steps": counter.calls,
            "ended": counter.ended,
            "saved": v1.train.latest_checkpoint(os.path.join(folder, "model")).split("-")[-1],
        }
    )
)
