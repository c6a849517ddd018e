"""InputFnOps: what a function for serving returns, and functions that return it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tensorflow.python.framework import dtypes, tensor_shape
from tensorflow.python.ops import array_ops, parsing_ops

__all__ = ["InputFnOps", "build_default_serving_input_fn", "build_parsing_serving_input_fn"]


class InputFnOps(NamedTuple):
    """The input of an exported model, for an estimator of the older kind.

    Args:
      features: dictionary from names to the tensors that the model gets.
      labels: the labels, or None.
      default_inputs: dictionary from names to the placeholders that a request feeds.
    """

    features: Any
    labels: Any
    default_inputs: Any


def build_parsing_serving_input_fn(
    feature_spec: Any, default_batch_size: int | None = None
) -> Callable[[], InputFnOps]:
    """A function for serving requests of serialised `tf.Example`s.

    Args:
      feature_spec: dictionary from names to `FixedLenFeature` or `VarLenFeature`.
      default_batch_size: number of examples of a request. None: any.

    Returns:
      Function without arguments that returns `InputFnOps`.
    """

    def input_fn() -> InputFnOps:
        examples = array_ops.placeholder(dtypes.string, [default_batch_size], name="input_example_tensor")
        return InputFnOps(parsing_ops.parse_example(examples, feature_spec), None, {"examples": examples})

    return input_fn


def build_default_serving_input_fn(features: Any, default_batch_size: int | None = None) -> Callable[[], InputFnOps]:
    """A function for serving requests that feed the features themselves.

    Args:
      features: dictionary from names to tensors, whose types and shapes the placeholders get.
      default_batch_size: number of examples of a request. None: any.

    Returns:
      Function without arguments that returns `InputFnOps`.
    """

    def input_fn() -> InputFnOps:
        placeholders = {}
        for name, tensor in features.items():
            shape = tensor_shape.TensorShape([default_batch_size, *tensor.get_shape().as_list()[1:]])
            placeholders[name] = array_ops.placeholder(tensor.dtype, shape, name=tensor.op.name)
        return InputFnOps(placeholders, None, placeholders)

    return input_fn
