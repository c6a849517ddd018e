"""What the programs next to it train: a line through the origin, under fastsup's classes."""

import fastsup

fastsup.install()

import tensorflow as tf  # noqa: E402

v1 = tf.compat.v1


def model_fn(features, labels, mode):
    """The slope is 2 in the data, and is trained from 0."""
    slope = v1.get_variable("slope", initializer=0.0)
    predicted = features["x"] * slope
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"y": predicted})
    loss = tf.reduce_mean((predicted - labels) ** 2)
    v1.summary.scalar("squared_error", loss)
    optimizer = v1.train.GradientDescentOptimizer(0.01)
    step = optimizer.minimize(loss, v1.train.get_global_step()) if mode == tf.estimator.ModeKeys.TRAIN else None
    metrics = {"mae": v1.metrics.mean_absolute_error(labels, predicted)}
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step, eval_metric_ops=metrics)


def data():
    """Four points, for ever."""
    points = ({"x": [1.0, 2.0, 3.0, 4.0]}, [2.0, 4.0, 6.0, 8.0])
    return tf.data.Dataset.from_tensors(points).repeat()


def estimator(folder, **config):
    """The model in a folder."""
    made = tf.estimator.Estimator(model_fn, folder, tf.estimator.RunConfig(**config))
    assert type(made).__module__.startswith("fastsup."), type(made)
    return made
