"""Where a served model gets its input from: the receivers, and functions that build them."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from tensorflow.python.framework import dtypes, ops, sparse_tensor, tensor_conversion_registry, tensor_shape
from tensorflow.python.framework import tensor as tensor_lib
from tensorflow.python.ops import array_ops, parsing_ops
from tensorflow.python.ops.ragged import ragged_tensor
from tensorflow.python.saved_model.model_utils.export_utils import (
    SINGLE_FEATURE_DEFAULT_NAME,
    SINGLE_LABEL_DEFAULT_NAME,
    SINGLE_RECEIVER_DEFAULT_NAME,
)

from fastsup.estimator.inputs.input_fn import parse_input_fn_result

__all__ = [
    "ServingInputReceiver",
    "SupervisedInputReceiver",
    "TensorServingInputReceiver",
    "UnsupervisedInputReceiver",
    "build_parsing_serving_input_receiver_fn",
    "build_raw_serving_input_receiver_fn",
    "build_raw_supervised_input_receiver_fn",
    "build_supervised_input_receiver_fn_from_input_fn",
]

_TENSORS = (tensor_lib.Tensor, sparse_tensor.SparseTensor, ragged_tensor.RaggedTensor)

# What a single tensor is called where a dictionary is needed.
_SINGLE_NAMES = {
    "feature": SINGLE_FEATURE_DEFAULT_NAME,
    "label": SINGLE_LABEL_DEFAULT_NAME,
    "receiver_tensor": SINGLE_RECEIVER_DEFAULT_NAME,
    "receiver_tensors_alternative": SINGLE_RECEIVER_DEFAULT_NAME,
}


def _check_tensor(tensor: Any, name: Any, kind: str = "feature") -> None:
    if isinstance(tensor, _TENSORS):
        return
    if hasattr(tensor, "tensor"):
        # A wrapper of a tensor, such as LabeledTensor.
        try:
            tensor_conversion_registry.convert(tensor)
        except TypeError:
            pass
        else:
            return
    label = f"{kind} {name}" if name else kind
    raise ValueError(f"{label} must be a Tensor, SparseTensor, or RaggedTensor.")


def _as_dictionary(tensors: Any, kind: str, allow_int_keys: bool = False) -> dict[Any, Any]:
    """Tensors by name, checked; a single one gets the default name of its kind."""
    if tensors is None:
        raise ValueError(f"{kind}s must be defined.")
    named: dict[Any, Any] = tensors if isinstance(tensors, dict) else {_SINGLE_NAMES[kind]: tensors}
    for name, tensor in named.items():
        if not isinstance(name, str):
            if not allow_int_keys:
                raise ValueError(f"{kind} keys must be strings: {name}.")
            if not isinstance(name, int):
                raise ValueError(f"{kind} keys must be strings or ints: {name}.")
        _check_tensor(tensor, name, kind)
    return named


_ServingFields = namedtuple("_ServingFields", ["features", "receiver_tensors", "receiver_tensors_alternatives"])
_TensorServingFields = namedtuple(
    "_TensorServingFields", ["features", "receiver_tensors", "receiver_tensors_alternatives"]
)
_SupervisedFields = namedtuple("_SupervisedFields", ["features", "labels", "receiver_tensors"])


class ServingInputReceiver(_ServingFields):
    """What a serving_input_receiver_fn returns, for a model whose features are a dictionary.

    Args:
      features: dictionary from names to the tensors that the model gets; a single tensor is put into one, as "feature".
      receiver_tensors: the tensors that a server feeds: one, or a dictionary from names to them.
      receiver_tensors_alternatives: dictionary from names to other tensors to feed, each one a tensor or a dictionary.
        Each gives signatures of its own. None for none.

    Raises:
      ValueError: something is missing, or is no tensor; a name is no string.
    """

    __slots__ = ()

    def __new__(cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None) -> Any:
        features = _as_dictionary(features, "feature", allow_int_keys=True)
        receiver_tensors = _as_dictionary(receiver_tensors, "receiver_tensor")
        if receiver_tensors_alternatives is not None:
            if not isinstance(receiver_tensors_alternatives, dict):
                raise ValueError(f"receiver_tensors_alternatives must be a dict: {receiver_tensors_alternatives}.")
            receiver_tensors_alternatives = {
                name: _as_dictionary(tensors, "receiver_tensors_alternative")
                for name, tensors in receiver_tensors_alternatives.items()
            }
        return super().__new__(cls, features, receiver_tensors, receiver_tensors_alternatives)


class TensorServingInputReceiver(_TensorServingFields):
    """What a serving_input_receiver_fn returns, for a model whose features are a single tensor.

    Args:
      features: the tensor that the model gets.
      receiver_tensors: as for `ServingInputReceiver`.
      receiver_tensors_alternatives: as for `ServingInputReceiver`.

    Raises:
      ValueError: something is missing, or is no tensor.
    """

    __slots__ = ()

    def __new__(cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None) -> Any:
        if features is None:
            raise ValueError("features must be defined.")
        _check_tensor(features, None)
        receiver = ServingInputReceiver(features, receiver_tensors, receiver_tensors_alternatives)
        return super().__new__(
            cls,
            receiver.features[SINGLE_FEATURE_DEFAULT_NAME],
            receiver.receiver_tensors,
            receiver.receiver_tensors_alternatives,
        )


class UnsupervisedInputReceiver(ServingInputReceiver):
    """What an input_receiver_fn for training or evaluation without labels returns.

    Args:
      features: as for `ServingInputReceiver`.
      receiver_tensors: as for `ServingInputReceiver`.
    """

    __slots__ = ()

    def __new__(cls, features: Any, receiver_tensors: Any) -> Any:
        return super().__new__(cls, features, receiver_tensors, None)


class SupervisedInputReceiver(_SupervisedFields):
    """What an input_receiver_fn for training or evaluation with labels returns.

    Args:
      features: tensor, or dictionary of tensors; the model gets it as it is.
      labels: tensor, or dictionary of tensors; the model gets it as it is.
      receiver_tensors: the tensors to feed: one, or a dictionary from names to them.

    Raises:
      ValueError: something is missing, or is no tensor; a name is no string.
    """

    __slots__ = ()

    def __new__(cls, features: Any, labels: Any, receiver_tensors: Any) -> Any:
        # Only to check them.
        _as_dictionary(features, "feature", allow_int_keys=True)
        _as_dictionary(labels, "label", allow_int_keys=True)
        return super().__new__(cls, features, labels, _as_dictionary(receiver_tensors, "receiver_tensor"))


def _placeholder_like(tensor: Any, batch_size: int | None) -> Any:
    """A placeholder of a tensor's type and shape, but for the batch size, and with its operation's name."""
    shape = tensor_shape.TensorShape([batch_size]).concatenate(tensor.get_shape()[1:])
    try:
        name = tensor.op.name
    except AttributeError:
        name = None  # An eager tensor has none.
    return array_ops.placeholder(dtype=tensor.dtype, shape=shape, name=name)


def _placeholders_like(tensors: dict[str, Any], batch_size: int | None) -> dict[str, Any]:
    return {name: _placeholder_like(tensor, batch_size) for name, tensor in tensors.items()}


def build_parsing_serving_input_receiver_fn(
    feature_spec: dict[str, Any], default_batch_size: int | None = None
) -> Callable[[], Any]:
    """A serving_input_receiver_fn that is fed serialised `tf.train.Example`s, under the name "examples".

    Args:
      feature_spec: dictionary from names to `tf.io.FixedLenFeature` and `tf.io.VarLenFeature`.
      default_batch_size: examples in a batch. None: any number.
    """

    def serving_input_receiver_fn() -> Any:
        examples = array_ops.placeholder(dtypes.string, shape=[default_batch_size], name="input_example_tensor")
        return ServingInputReceiver(parsing_ops.parse_example(examples, feature_spec), {"examples": examples})

    return serving_input_receiver_fn


def build_raw_serving_input_receiver_fn(
    features: dict[str, Any], default_batch_size: int | None = None
) -> Callable[[], Any]:
    """A serving_input_receiver_fn that is fed the features themselves.

    Args:
      features: dictionary from names to tensors of the type and the shape that the features have.
      default_batch_size: examples in a batch. None: any number.
    """

    def serving_input_receiver_fn() -> Any:
        placeholders = _placeholders_like(features, default_batch_size)
        return ServingInputReceiver(placeholders, placeholders)

    return serving_input_receiver_fn


def build_raw_supervised_input_receiver_fn(
    features: Any, labels: Any, default_batch_size: int | None = None
) -> Callable[[], Any]:
    """A function that makes placeholders for features and labels, for an export in training or evaluation mode.

    Args:
      features: tensor, or dictionary of tensors, of the type and the shape that the features have.
      labels: the same for the labels.
      default_batch_size: examples in a batch. None: any number.

    Raises:
      ValueError: features and labels have a name in common.
    """
    feature_names = features.keys() if isinstance(features, dict) else [SINGLE_RECEIVER_DEFAULT_NAME]
    label_names = labels.keys() if isinstance(labels, dict) else [SINGLE_LABEL_DEFAULT_NAME]
    common = set(feature_names) & set(label_names)
    if common:
        raise ValueError(f"Features and labels must have distinct keys. Found overlapping keys: {common}")

    def placeholders_for(tensors: Any, single_name: str) -> tuple[Any, dict[str, Any]]:
        if isinstance(tensors, dict):
            placeholders = _placeholders_like(tensors, default_batch_size)
            return placeholders, placeholders
        placeholder = _placeholder_like(tensors, default_batch_size)
        return placeholder, {single_name: placeholder}

    def supervised_input_receiver_fn() -> Any:
        model_features, fed_features = placeholders_for(features, SINGLE_RECEIVER_DEFAULT_NAME)
        model_labels, fed_labels = placeholders_for(labels, SINGLE_LABEL_DEFAULT_NAME)
        return SupervisedInputReceiver(model_features, model_labels, {**fed_features, **fed_labels})

    return supervised_input_receiver_fn


def build_supervised_input_receiver_fn_from_input_fn(
    input_fn: Callable[..., Any], **input_fn_args: Any
) -> Callable[[], Any]:
    """The same, with types and shapes of what an input_fn makes.

    Args:
      input_fn: function that makes the input. It is called, in a graph of its own.
      **input_fn_args: its arguments.
    """
    with ops.Graph().as_default():
        features, labels, _ = parse_input_fn_result(input_fn(**input_fn_args))
    return build_raw_supervised_input_receiver_fn(features, labels)
