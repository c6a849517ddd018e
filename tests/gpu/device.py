"""What the programs of the GPU tests share: the device, a ConfigProto that has it, and a model on it."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import fastsup
from fastsup import estimator, train

__all__ = ["DEVICE", "config", "estimator", "fastsup", "model", "model_fn", "np", "numbers", "tf", "train", "v1"]

v1 = tf.compat.v1
DEVICE = os.environ["FASTSUP_TEST_DEVICE"]
_kind, _, _number = DEVICE.strip("/").partition(":")
if _kind == "cpu":
    _cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(_cpu, [tf.config.LogicalDeviceConfiguration()] * (int(_number) + 1))
config = v1.ConfigProto(device_count={"CPU": int(_number) + 1} if _kind == "cpu" else {})
config.gpu_options.allow_growth = True


def model(rows: int = 8) -> tuple[Any, Any]:
    """(train_op, variable): each step adds 1 to all of a variable on the device, and to the global step."""
    step = v1.train.get_or_create_global_step()
    with tf.device(DEVICE):
        weights = v1.get_variable("weights", [rows, 256], initializer=v1.zeros_initializer(), use_resource=True)
        update = weights.assign_add(tf.ones([rows, 256]))
    with tf.control_dependencies([update]):
        return v1.assign_add(step, tf.constant(1, tf.int64)).op, weights


def numbers(input_context: Any = None) -> Any:
    """Twenty pairs of x and 3 x."""
    x = np.linspace(0.0, 1.0, 20, dtype=np.float32)[:, None]
    return tf.data.Dataset.from_tensor_slices((x, 3.0 * x)).repeat().batch(4)


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    """Linear regression, its variable wherever TensorFlow or the strategy puts it."""
    weight = v1.get_variable("weight", [1, 1], initializer=v1.zeros_initializer())
    predicted = tf.matmul(features, weight)
    loss = tf.reduce_mean(tf.square(predicted - labels))
    train_op = v1.train.GradientDescentOptimizer(0.5).minimize(loss, v1.train.get_global_step())
    return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, predictions=predicted)
