"""An Experiment of tf.contrib.learn, run by learn_runner with hyperparameters from the command line."""

import argparse
import json
import os

import numpy as np
import tensorflow as tf
from tensorflow.contrib import layers
from tensorflow.contrib.learn.python.learn import learn_runner
from tensorflow.contrib.learn.python.learn.estimators import run_config
from tensorflow.contrib.learn.python.learn.utils import saved_model_export_utils

RANDOM = np.random.RandomState(7)
X = RANDOM.uniform(-1, 1, (200, 3)).astype(np.float32)
Y = (X.sum(axis=1) > 0).astype(np.int32)


class CountSteps(tf.contrib.learn.monitors.EveryN):
    """A monitor of the program's own."""

    def __init__(self):
        super(CountSteps, self).__init__(every_n_steps=10)
        self.seen = []

    def every_n_step_end(self, step, outputs):
        self.seen.append(int(step))
        return False


def model_fn(features, labels, mode, params):
    net = features["x"]
    for size in params.hidden:
        net = layers.fully_connected(net, size, weights_regularizer=layers.l2_regularizer(1e-5))
    logits = layers.fully_connected(net, 2, activation_fn=None)
    classes = tf.argmax(logits, 1)
    if mode == tf.contrib.learn.ModeKeys.INFER:
        return tf.estimator.EstimatorSpec(mode, predictions={"classes": classes})
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    train_op = layers.optimize_loss(
        loss, tf.contrib.framework.get_or_create_global_step(), params.rate, params.optimizer, summaries=["loss"]
    )
    metrics = {"accuracy": tf.metrics.accuracy(labels, classes)}
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


def serving_input_fn():
    features = {"x": tf.placeholder(tf.float32, [None, 3])}
    return tf.contrib.learn.InputFnOps(features, None, features)


def make_experiment_fn(counter):
    def experiment_fn(run_config, hparams):
        estimator = tf.estimator.Estimator(model_fn, config=run_config, params=hparams)
        return tf.contrib.learn.Experiment(
            estimator=estimator,
            train_input_fn=tf.estimator.inputs.numpy_input_fn(
                {"x": X}, Y, batch_size=20, num_epochs=None, shuffle=True
            ),
            eval_input_fn=tf.contrib.learn.io.numpy_input_fn({"x": X}, Y, batch_size=20, num_epochs=1, shuffle=False),
            train_steps=hparams.steps,
            eval_steps=None,
            train_monitors=[counter],
            export_strategies=[saved_model_export_utils.make_export_strategy(serving_input_fn, exports_to_keep=1)],
        )

    return experiment_fn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_dir")
    parser.add_argument("--hparams", default="rate=0.05,hidden=[16,8],steps=60")
    arguments = parser.parse_args()
    hparams = tf.contrib.training.HParams(rate=0.1, hidden=[4], steps=10, optimizer="Adam")
    hparams.parse(arguments.hparams)
    config = run_config.RunConfig(model_dir=arguments.model_dir, save_checkpoints_steps=20, tf_random_seed=1)
    counter = CountSteps()
    metrics, exports = learn_runner.run(make_experiment_fn(counter), run_config=config, hparams=hparams)
    servo = os.path.join(arguments.model_dir, "export", "Servo")
    print(
        json.dumps(
            {
                "accuracy": float(metrics["accuracy"]),
                "step": int(metrics["global_step"]),
                "exports": [len(exports), os.listdir(servo) == [os.path.basename(exports[0]).decode()]],
                "seen": counter.seen,
                "hparams": json.loads(hparams.to_json(sort_keys=True)),
            }
        )
    )


if __name__ == "__main__":
    main()
