"""The part of an Estimator that predicts."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging

from fastsup import train
from fastsup.core.sessions import session_role
from fastsup.estimator.config.tensorflow_names import our_options, v1
from fastsup.estimator.inputs.input_fn import is_endless, parse_input_fn_result
from fastsup.estimator.model.argument_checks import check_hooks
from fastsup.estimator.model.model_fn import ModeKeys
from fastsup.estimator.model.user_model import UserModel

__all__ = [
    "PredictModel",
    "PredictionRun",
]

_NOTHING = contextlib.nullcontext()
_NO_BATCH = (
    "{} is a single value without a batch dimension: {!r}. Give it one value for each example, or pass "
    "yield_single_examples=False to yield it unchanged."
)


class PredictModel(NamedTuple):
    """A model built for predictions, and the requirements of its session."""

    predictions: Any
    scaffold: Any
    input_hooks: list[Any]
    hooks: Sequence[Any]


class PredictionRun:
    """The part of an Estimator that predicts, for `Estimator.predict` and `Predictor`."""

    def __init__(self, model: UserModel) -> None:
        self._model = model

    def predict(
        self, input_fn: Callable[..., Any], predict_keys: Any, hooks: Any, checkpoint_path: Any,
        yield_single_examples: bool
    ) -> Iterator[Any]:  # fmt: skip
        """Yields predictions. See `Estimator.predict`."""
        # The caller's code runs between predictions. This graph must not be the default graph during that time.
        graph = ops.Graph()
        methods = self._model.methods
        with graph.as_default():
            given_hooks = check_hooks(hooks)
            path = methods._checkpoint_or_initialize(checkpoint_path, "predict")
            model = self.build(
                lambda: methods._get_features_from_input_fn(input_fn, ModeKeys.PREDICT),
                predict_keys,
                path,
            )
            with session_role("predict"):
                session = v1.train.MonitoredSession(
                    session_creator=self.session_creator(model, path),
                    hooks=[*model.input_hooks, *given_hooks, *model.hooks],
                )
        try:
            while True:
                with graph.as_default():
                    if session.should_stop():
                        break
                    values = session.run(model.predictions)
                if yield_single_examples:
                    yield from self._examples_of(values)
                else:
                    yield values
        except BaseException:
            with graph.as_default():
                if not session.__exit__(*sys.exc_info()):
                    raise
        else:
            with graph.as_default():
                session.close()

    def build(
        self, make_features: Callable[[], tuple[Any, list[Any]]], predict_keys: Any, checkpoint_path: Any,
        in_model_fn: contextlib.AbstractContextManager[None] = _NOTHING,
    ) -> PredictModel:  # fmt: skip
        """Builds the model in the default graph.

        Args:
          make_features: function that returns the features, and the hooks that initialize the input.
          predict_keys: as for `Estimator.predict`.
          checkpoint_path: path of the checkpoint to restore later, or None for an untrained model.
          in_model_fn: context manager in which model_fn is called.
        """
        model, methods = self._model, self._model.methods
        model.warn_if_untrained(checkpoint_path, "predictions")
        model.seed_and_create_global_step(ops.get_default_graph())
        features, input_hooks = make_features()
        with in_model_fn:
            spec = methods._call_model_fn(features, None, ModeKeys.PREDICT, methods.config)
        # Warm-start after the model_fn has created the variables of the model.
        methods._maybe_warm_start(checkpoint_path)
        predictions = methods._extract_keys(spec.predictions, predict_keys)
        return PredictModel(predictions, spec.scaffold or v1.train.Scaffold(), input_hooks, spec.prediction_hooks or ())

    def session_creator(self, model: PredictModel, checkpoint_path: Any) -> Any:
        """Returns the session creator for a model in the default graph.

        Args:
          model: the model.
          checkpoint_path: path of the checkpoint to restore, or None for an untrained model.
        """
        new_creator = v1.train.ChiefSessionCreator
        return new_creator(
            scaffold=model.scaffold,
            checkpoint_filename_with_path=checkpoint_path,
            master=self._model.config.master,
            config=self._model.session_config,
            **our_options(new_creator, train.ChiefSessionCreator, executor=self._model.config.executor),
        )

    def _examples_of(self, values: Any) -> Iterator[Any]:
        """Yields the predictions for each example of a batch."""
        if isinstance(values, dict):
            for row in range(self._model.methods._extract_batch_length(values)):
                yield {name: batch[row] for name, batch in values.items()}
        elif np.ndim(values) == 0:
            raise TypeError(_NO_BATCH.format("predictions", values))
        else:
            yield from values

    def features(self, input_fn: Callable[..., Any], mode: str) -> tuple[Any, list[Any]]:
        """Calls an input_fn. Returns the features, and the hooks that initialize the input."""
        methods = self._model.methods
        features, _, hooks = parse_input_fn_result(methods._call_input_fn(input_fn, mode), input_fn)
        methods._validate_features_in_predict_input(features)
        return features, hooks

    def warn_if_endless(self, result: Any) -> None:
        """Warns about an input that never ends."""
        if is_endless(result):
            logging.warning(
                "Input graph does not use tf.data.Dataset or contain a QueueRunner. That means predict yields forever. "
                "This is probably a mistake."
            )

    def batch_length(self, preds_evaluated: dict[str, Any]) -> int:
        """Returns the common batch size of the predictions."""
        length: int | None = None
        for key, value in preds_evaluated.items():
            if np.ndim(value) == 0:
                raise IndexError(_NO_BATCH.format(f"predictions[{key!r}]", value))
            length = length or value.shape[0]
            if value.shape[0] != length:
                shapes = {name: other.shape for name, other in preds_evaluated.items()}
                raise ValueError(
                    f"Batch length of predictions should be same. {key} has different batch length than others. "
                    f"The shapes are {shapes}; yield_single_examples=False yields them unchanged."
                )
        return length or 0

    def select_keys(self, predictions: Any, predict_keys: Any) -> Any:
        """Returns the predictions to yield."""
        if not predict_keys:
            return predictions
        if not isinstance(predictions, dict):
            raise ValueError("predict_keys argument is not valid in case of non-dict predictions.")
        if not isinstance(predict_keys, Container | Iterable):
            raise TypeError(f"predict_keys must be a list of names of predictions, given: {predict_keys!r}")
        wanted = {key: value for key, value in predictions.items() if key in predict_keys}
        if not wanted:
            raise ValueError(f"Expected to run at least one output from {predictions.keys()}, provided {predict_keys}.")
        return wanted
