"""The inputs of a predictor: the placeholders of a model's features, and the values to feed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from tensorflow.python.framework import dtypes, ops, sparse_tensor, tensor_spec
from tensorflow.python.framework import tensor as tensor_lib
from tensorflow.python.ops import array_ops
from tensorflow.python.util import nest

__all__ = [
    "ModelInputs",
    "check_specs",
    "explaining_features",
    "inputs_from_receiver",
    "inputs_from_specs",
    "specs_of",
]

# The types that TensorFlow gives to Python numbers.
_OF_PYTHON = {np.dtype(np.float64): np.dtype(np.float32), np.dtype(np.int64): np.dtype(np.int32)}


class ModelInputs:
    """The features of a built model, and the tensors that a prediction feeds."""

    def __init__(self, features: Any, tensors: Any) -> None:
        self.features = features
        self._tensors = tensors
        is_flat = isinstance(tensors, dict) and not any(map(nest.is_nested, tensors.values()))
        self._names = set(tensors) if is_flat else None
        self._optional: set[str] = set()
        # A single input can be passed without its name.
        self._only = next(iter(tensors.values())) if is_flat and len(tensors) == 1 else None

    def let_unused_be_left_out(self, predictions: Any) -> None:
        """Makes features that the model doesn't read optional. Call this after building the model."""
        fetched = {id(tensor) for tensor in nest.flatten(predictions)}
        self._optional = {
            name
            for name, tensor in (self._tensors.items() if self._names else ())
            if isinstance(tensor, tensor_lib.Tensor) and id(tensor) not in fetched and not tensor.consumers()
        }
        read = [tensor for name, tensor in self._tensors.items() if name not in self._optional] if self._names else ()
        self._only = read[0] if len(read) == 1 else None

    def check_sizes(self, feed_dict: dict[Any, Any]) -> None:
        """Raises an error if the model failed because values have the wrong size."""
        dense = {tensor: value for tensor, value in feed_dict.items() if isinstance(tensor, tensor_lib.Tensor)}
        for tensor, value in dense.items():
            if not tensor.shape.is_compatible_with(np.shape(value)):
                is_one = tensor.shape.rank == np.ndim(value) + 1
                raise ValueError(
                    f"{tensor.op.name} must be of the shape {tensor.shape}, whose first dimension counts the "
                    f"examples; got the shape {np.shape(value)}."
                    + (" For a single example give [value]." if is_one else "")
                )
        examples = {tensor.op.name: len(value) for tensor, value in dense.items() if np.ndim(value)}
        if len(set(examples.values())) > 1:
            raise ValueError(f"The features have different numbers of examples: {examples}.")

    def feed_dict(self, features: Any) -> dict[Any, Any]:
        """Returns the feed dictionary for a prediction."""
        if self._names is None:
            nest.assert_shallow_structure(self._tensors, features, check_types=False)
            values = nest.flatten_up_to(self._tensors, features, check_types=False)
            return {
                tensor: _fed(tensor, value) for tensor, value in zip(nest.flatten(self._tensors), values, strict=True)
            }
        if not isinstance(features, Mapping):
            if self._only is None:
                raise TypeError(
                    f"features must be a dictionary with the values of {sorted(self._names - self._optional)}; got "
                    f"{features!r}."
                )
            return {self._only: _fed(self._only, features)}
        if features.keys() != self._names:
            missing = self._names - features.keys() - self._optional
            unknown = features.keys() - self._names
            if missing or unknown:
                raise ValueError(
                    f"features must have the names {sorted(self._names - self._optional)}; got {sorted(features)}. "
                    f"Missing: {sorted(missing)}; unknown: {sorted(unknown)}."
                )
        return {self._tensors[name]: _fed(self._tensors[name], value) for name, value in features.items()}


def _fed(tensor: Any, value: Any) -> Any:
    """Converts a value for feeding. Rejects values outside the tensor's type, which a session would truncate."""
    if isinstance(value, sparse_tensor.SparseTensor):
        return sparse_tensor.SparseTensorValue(
            *(part.numpy() for part in (value.indices, value.values, value.dense_shape))
        )
    if not isinstance(tensor, tensor_lib.Tensor) or tensor.dtype == dtypes.string:
        return _array(value)
    try:
        array = np.asarray(_array(value))
    except ValueError as error:
        raise ValueError(f"{tensor.op.name}: {error}") from error
    wanted = np.dtype(tensor.dtype.as_numpy_dtype)
    if array.dtype == wanted:
        return array
    holds = np.can_cast(array.dtype, wanted, "same_kind")
    if holds and array.dtype.kind in "iu" and wanted.kind in "iu":
        holds = bool((array.astype(wanted) == array).all())
    if not holds:
        raise TypeError(f"{tensor.op.name} must be of type {tensor.dtype.name}; got {value!r} of type {array.dtype}.")
    return array.astype(wanted)


def _array(value: Any) -> Any:
    return value.numpy() if isinstance(value, ops.EagerTensor) else value


def inputs_from_specs(specs: Any) -> ModelInputs:
    """Creates placeholders in the default graph."""
    tensors = nest.map_structure_with_paths(_placeholder, specs)
    return ModelInputs(tensors, tensors)


def inputs_from_receiver(receiver_fn: Callable[[], Any]) -> ModelInputs:
    """Creates the inputs of an exported model in the default graph."""
    receiver = receiver_fn()
    try:
        return ModelInputs(receiver.features, dict(receiver.receiver_tensors))
    except AttributeError:
        raise TypeError(
            f"The function passed as features must return a ServingInputReceiver; it returned {receiver!r}."
        ) from None


def _placeholder(path: str, spec: Any) -> Any:
    # A column can have any name, but an operation can't.
    name = re.sub(r"^[^A-Za-z0-9.]|[^A-Za-z0-9_.-]", "_", spec.name or path or "features")
    return array_ops.placeholder(spec.dtype, spec.shape, f"f{name}" if name.startswith("_") else name)


def check_specs(specs: Any) -> None:
    """Rejects a structure with a member that isn't a `tf.TensorSpec`."""
    for path, spec in nest.flatten_with_joined_string_paths(specs):
        if not isinstance(spec, tensor_spec.TensorSpec):
            raise TypeError(
                "features must have a tf.TensorSpec for each feature, or be a function that returns a "
                f"ServingInputReceiver; {path or 'it'} is {spec!r}."
            )


def specs_of(features: Any) -> Any:
    """Returns the structure of `tf.TensorSpec`s that features match, with any number of examples."""
    if isinstance(features, sparse_tensor.SparseTensor | sparse_tensor.SparseTensorValue):
        raise TypeError(
            "A sparse feature needs a function that returns a ServingInputReceiver with its placeholder, as the "
            f"argument features of the Predictor; got {features!r}."
        )
    if isinstance(features, Mapping):
        return {name: _spec_of_feature(name, value) for name, value in features.items()}
    if isinstance(features, tuple):
        specs = [specs_of(value) for value in features]
        return type(features)(*specs) if hasattr(features, "_fields") else tuple(specs)
    array = np.asarray(_array(features))
    if features is None:
        raise TypeError("A feature must be an array of numbers, strings or booleans; got None.")
    if not array.ndim:
        raise ValueError(f"A feature is a single value without a batch dimension: {features!r}. Give it [value].")
    if not isinstance(features, np.ndarray | ops.EagerTensor):
        smaller = array.astype(_OF_PYTHON.get(array.dtype, array.dtype))
        array = smaller if array.dtype.kind != "i" or (smaller == array).all() else array
    try:
        dtype = dtypes.string if array.dtype.kind in "OSU" else dtypes.as_dtype(array.dtype)
    except TypeError:
        raise TypeError(f"A feature must be an array of numbers, strings or booleans; got {features!r}.") from None
    return tensor_spec.TensorSpec([None, *array.shape[1:]], dtype)


def _spec_of_feature(name: Any, value: Any) -> Any:
    try:
        return specs_of(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error


@contextlib.contextmanager
def explaining_features(specs: Any) -> Iterator[None]:
    """Adds the features that the model is built for to an error of a model_fn."""
    try:
        yield
    except KeyError as error:
        name = error.args[0] if error.args else None
        if not isinstance(specs, Mapping) or not isinstance(name, str) or name in specs:
            raise
        raise ValueError(f"The model reads the feature {name!r}; got {sorted(specs)}.") from error
    except (TypeError, ValueError) as error:
        if type(error) not in (TypeError, ValueError):
            raise
        built_for = [
            f"{path or 'features'}: {spec.dtype.name} of shape {spec.shape}"
            for path, spec in nest.flatten_with_joined_string_paths(specs)
        ]
        raise type(error)(
            f"The model can't be built for these features: {'; '.join(built_for)}. Pass them with the names, types "
            f"and shapes of the training features. model_fn: {error}"
        ) from error
