"""Input receivers, which define the inputs of an exported model, and functions that build them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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

# The default names of single tensors in dictionaries.
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
        # A wrapper around a tensor, such as LabeledTensor.
        try:
            tensor_conversion_registry.convert(tensor)
        except TypeError:
            pass
        else:
            return
    label = f"{kind} {name}" if name else kind
    raise ValueError(f"{label} must be a Tensor, SparseTensor, or RaggedTensor.")


def _as_dictionary(tensors: Any, kind: str, allow_int_keys: bool = False) -> dict[Any, Any]:
    """Checks and returns a dictionary from names to tensors. A single tensor gets the default name of its kind."""
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


class _ServingFields(NamedTuple):
    features: dict[Any, Any]
    receiver_tensors: dict[Any, Any]
    receiver_tensors_alternatives: dict[Any, dict[Any, Any]] | None


class _TensorServingFields(NamedTuple):
    features: Any
    receiver_tensors: dict[Any, Any]
    receiver_tensors_alternatives: dict[Any, dict[Any, Any]] | None


class _SupervisedFields(NamedTuple):
    features: Any
    labels: Any
    receiver_tensors: dict[Any, Any]


class ServingInputReceiver(_ServingFields):
    """The return value of a serving_input_receiver_fn, for a model whose features are a dictionary.

    Args:
      features: dictionary from names to tensors, for the model. A single tensor gets the name "feature".
      receiver_tensors: tensors that a server feeds: one tensor, or a dictionary from names to tensors.
      receiver_tensors_alternatives: dictionary from names to alternatives for receiver_tensors, each with its own
        signatures; or None.

    Raises:
      ValueError: If an argument is missing, a value isn't a tensor, or a name isn't a string.
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
    """The return value of a serving_input_receiver_fn, for a model whose features are a single tensor.

    Args:
      features: the tensor, for the model.
      receiver_tensors: as for `ServingInputReceiver`.
      receiver_tensors_alternatives: as for `ServingInputReceiver`.

    Raises:
      ValueError: If an argument is missing, or a value isn't a tensor.
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
    """The return value of an input_receiver_fn for training or evaluation without labels.

    Args:
      features: as for `ServingInputReceiver`.
      receiver_tensors: as for `ServingInputReceiver`.
    """

    __slots__ = ()

    def __new__(cls, features: Any, receiver_tensors: Any) -> Any:
        return super().__new__(cls, features, receiver_tensors, None)


class SupervisedInputReceiver(_SupervisedFields):
    """The return value of an input_receiver_fn for training or evaluation with labels.

    Args:
      features: tensor, or dictionary of tensors, passed to the model unchanged.
      labels: tensor, or dictionary of tensors, passed to the model unchanged.
      receiver_tensors: tensors to feed: one tensor, or a dictionary from names to tensors.

    Raises:
      ValueError: If an argument is missing, a value isn't a tensor, or a name isn't a string.
    """

    __slots__ = ()

    def __new__(cls, features: Any, labels: Any, receiver_tensors: Any) -> Any:
        # The dictionaries aren't used. The calls only check the values.
        _as_dictionary(features, "feature", allow_int_keys=True)
        _as_dictionary(labels, "label", allow_int_keys=True)
        return super().__new__(cls, features, labels, _as_dictionary(receiver_tensors, "receiver_tensor"))


def _placeholder_like(tensor: Any, batch_size: int | None) -> Any:
    """Returns a placeholder with a tensor's type, shape (except the batch size) and operation name."""
    shape = tensor_shape.TensorShape([batch_size]).concatenate(tensor.shape[1:])
    try:
        name = tensor.op.name
    except AttributeError:
        name = None  # Eager tensors and tf.TensorSpecs have no operation.
    return array_ops.placeholder(dtype=tensor.dtype, shape=shape, name=name)


def _placeholders_like(tensors: dict[str, Any], batch_size: int | None) -> dict[str, Any]:
    return {name: _placeholder_like(tensor, batch_size) for name, tensor in tensors.items()}


def build_parsing_serving_input_receiver_fn(
    feature_spec: dict[str, Any], default_batch_size: int | None = None
) -> Callable[[], Any]:
    """Creates a serving_input_receiver_fn whose input is serialized `tf.train.Example`s, under the name "examples".

    Args:
      feature_spec: dictionary from names to `tf.io.FixedLenFeature` and `tf.io.VarLenFeature`.
      default_batch_size: number of examples per batch. If None, accepts any number.

    Returns:
      Function without arguments that returns a `ServingInputReceiver`.
    """

    def serving_input_receiver_fn() -> Any:
        examples = array_ops.placeholder(dtypes.string, shape=[default_batch_size], name="input_example_tensor")
        return ServingInputReceiver(parsing_ops.parse_example(examples, feature_spec), {"examples": examples})

    return serving_input_receiver_fn


def build_raw_serving_input_receiver_fn(
    features: dict[str, Any], default_batch_size: int | None = None
) -> Callable[[], Any]:
    """Creates a serving_input_receiver_fn whose inputs are the features.

    Args:
      features: dictionary from names to tensors or `tf.TensorSpec`s with the types and shapes of the features.
      default_batch_size: number of examples per batch. If None, accepts any number.

    Returns:
      Function without arguments that returns a `ServingInputReceiver`.
    """

    def serving_input_receiver_fn() -> Any:
        placeholders = _placeholders_like(features, default_batch_size)
        return ServingInputReceiver(placeholders, placeholders)

    return serving_input_receiver_fn


def build_raw_supervised_input_receiver_fn(
    features: Any, labels: Any, default_batch_size: int | None = None
) -> Callable[[], Any]:
    """Creates an input_receiver_fn whose inputs are features and labels, for an export in training or evaluation mode.

    Args:
      features: tensor, or dictionary of tensors, with the types and shapes of the features.
      labels: tensor, or dictionary of tensors, with the types and shapes of the labels.
      default_batch_size: number of examples per batch. If None, accepts any number.

    Returns:
      Function without arguments that returns a `SupervisedInputReceiver`.

    Raises:
      ValueError: If features and labels have a name in common.
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
    """Calls `build_raw_supervised_input_receiver_fn` with the types and shapes of an input_fn's result.

    Args:
      input_fn: function that creates the input. It is called in its own graph.
      **input_fn_args: arguments of the input_fn.

    Returns:
      Function without arguments that returns a `SupervisedInputReceiver`.
    """
    with ops.Graph().as_default():
        features, labels, _ = parse_input_fn_result(input_fn(**input_fn_args), input_fn)
    return build_raw_supervised_input_receiver_fn(features, labels)
