"""InputFnOps: what a function for serving returns, and functions that return it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fastsup.estimator.export import build_parsing_serving_input_receiver_fn, build_raw_serving_input_receiver_fn

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


def _of_receiver(receiver_fn: Callable[[], Any]) -> Callable[[], InputFnOps]:
    def input_fn() -> InputFnOps:
        made = receiver_fn()
        return InputFnOps(made.features, None, made.receiver_tensors)

    return input_fn


def build_parsing_serving_input_fn(
    feature_spec: Any, default_batch_size: int | None = None
) -> Callable[[], InputFnOps]:
    """A function for serving requests of serialised `tf.Example`s. See `build_parsing_serving_input_receiver_fn`.

    Args:
      feature_spec: dictionary from names to `FixedLenFeature` or `VarLenFeature`.
      default_batch_size: number of examples of a request. None: any.

    Returns:
      Function without arguments that returns `InputFnOps`.
    """
    return _of_receiver(build_parsing_serving_input_receiver_fn(feature_spec, default_batch_size))


def build_default_serving_input_fn(features: Any, default_batch_size: int | None = None) -> Callable[[], InputFnOps]:
    """A function for serving requests that feed the features themselves. See `build_raw_serving_input_receiver_fn`.

    Args:
      features: dictionary from names to tensors, whose types and shapes the placeholders get.
      default_batch_size: number of examples of a request. None: any.

    Returns:
      Function without arguments that returns `InputFnOps`.
    """
    return _of_receiver(build_raw_serving_input_receiver_fn(features, default_batch_size))
