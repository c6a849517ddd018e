"""The predictors of `tf.contrib.predictor`, which are functions of dictionaries that keep a trained model's session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.saved_model import loader, model_utils, signature_constants, tag_constants

from fastsup.contrib.learn.estimator import Estimator as LearnEstimator
from fastsup.contrib.learn.exports import as_receiver_fn
from fastsup.estimator.model.argument_checks import check_type
from fastsup.estimator.model.estimator import EstimatorV1, check_estimator
from fastsup.estimator.model.model_fn import ModeKeys
from fastsup.runtime.session import Session
from fastsup.train import ChiefSessionCreator, MonitoredSession

__all__ = [
    "ContribEstimatorPredictor",
    "CoreEstimatorPredictor",
    "Predictor",
    "SavedModelPredictor",
    "from_contrib_estimator",
    "from_estimator",
    "from_saved_model",
]

_DEFAULT_KEY = signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY


class Predictor:
    """Base of the predictors, which are functions from a dictionary of inputs to a dictionary of predictions.

    A subclass sets `_graph`, `_session`, `_feed_tensors` and `_fetch_tensors`.
    """

    _graph: Any
    _session: Any
    _feed_tensors: dict[str, Any]
    _fetch_tensors: dict[str, Any]

    @property
    def graph(self) -> Any:
        """Graph of the model."""
        return self._graph

    @property
    def session(self) -> Any:
        """Session for all calls."""
        return self._session

    @property
    def feed_tensors(self) -> dict[str, Any]:
        """Tensors to feed, by input name."""
        return self._feed_tensors

    @property
    def fetch_tensors(self) -> dict[str, Any]:
        """Tensors to fetch, by prediction name."""
        return self._fetch_tensors

    def __repr__(self) -> str:
        return f"{type(self).__name__} with feed tensors {self._feed_tensors} and fetch_tensors {self._fetch_tensors}"

    def __call__(self, input_dict: Mapping[str, Any]) -> dict[str, Any]:
        """Predicts.

        Args:
          input_dict: dictionary from input names to arrays. Missing inputs aren't fed.

        Returns:
          Dictionary from prediction names to arrays.

        Raises:
          ValueError: If `input_dict` has an unknown name.
        """
        unexpected = sorted(set(input_dict) - set(self._feed_tensors))
        if unexpected:
            raise ValueError(f"Got unexpected keys in input_dict: {unexpected}\nexpected: {sorted(self._feed_tensors)}")
        feed_dict = {self._feed_tensors[name]: value for name, value in input_dict.items() if value is not None}
        return self._session.run(self._fetch_tensors, feed_dict)  # type: ignore[no-any-return]

    def _open(
        self, estimator: EstimatorV1, receiver_fn: Callable[[], Any], output_key: str | None, graph: Any, config: Any
    ) -> None:
        """Builds an Estimator's model, and restores its newest checkpoint in a session."""
        self._graph = graph or ops.Graph()
        with self._graph.as_default():
            receiver = receiver_fn()
            spec = estimator.model_fn(receiver.features, None, ModeKeys.PREDICT, estimator.config)
            outputs = model_utils.get_export_outputs(spec.export_outputs, spec.predictions)
            key = _DEFAULT_KEY if output_key is None else output_key
            if key not in outputs:
                raise KeyError(f"output_key must be one of {sorted(outputs)}; got {key}")
            signature_def = outputs[key].as_signature_def(receiver.receiver_tensors)
            self._set_tensors(_names(signature_def.inputs), _names(signature_def.outputs))
            path = estimator._checkpoint_or_initialize(None, "predict")
            self._session = MonitoredSession(
                ChiefSessionCreator(spec.scaffold, config=config, checkpoint_filename_with_path=path)
            )

    def _set_tensors(self, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
        """Finds the graph's tensors by the names of inputs and outputs."""
        self._feed_tensors = {key: self._graph.get_tensor_by_name(name) for key, name in inputs.items()}
        self._fetch_tensors = {key: self._graph.get_tensor_by_name(name) for key, name in outputs.items()}


def _names(tensor_infos: Mapping[str, Any]) -> dict[str, str]:
    return {key: info.name for key, info in tensor_infos.items()}


class SavedModelPredictor(Predictor):
    """Predicts with a SavedModel.

    Args:
      export_dir: directory of the SavedModel.
      signature_def_key: key of the signature. Defaults to the serving signature. Exclusive with the next three.
      signature_def: a SignatureDef.
      input_names: dictionary from names of inputs to names of tensors. Requires `output_names`.
      output_names: dictionary from names of predictions to names of tensors.
      tags: tags of the graph to load, as a list or a comma-separated string. Defaults to "serve".
      graph: graph to load the model into. Defaults to a new one.
      config: ConfigProto of the session.

    Raises:
      ValueError: If the signature is described in more than one way, only one of `input_names` and `output_names` is
        given, or the SavedModel lacks the signature.
    """

    def __init__(
        self,
        export_dir: Any,
        signature_def_key: str | None = None,
        signature_def: Any = None,
        input_names: Mapping[str, str] | None = None,
        output_names: Mapping[str, str] | None = None,
        tags: str | Iterable[str] | None = None,
        graph: Any = None,
        config: Any = None,
    ) -> None:
        if (input_names is None) != (output_names is None):
            raise ValueError(
                "input_names and output_names must both be specified or both be unspecified, got "
                f"input_names={input_names!r} and output_names={output_names!r}."
            )
        if sum(given is not None for given in (signature_def_key, signature_def, input_names)) > 1:
            raise ValueError(
                "You must specify at most one of signature_def_key OR signature_def OR (input_names AND output_names)."
            )
        wanted = [tag_constants.SERVING] if tags is None else tags.split(",") if isinstance(tags, str) else list(tags)
        self._graph = graph or ops.Graph()
        with self._graph.as_default():
            self._session = Session(graph=self._graph, config=config)
            meta_graph = loader.load(self._session, wanted, export_dir)
        if input_names is None or output_names is None:
            if signature_def is None:
                key = _DEFAULT_KEY if signature_def_key is None else signature_def_key
                if key not in meta_graph.signature_def:
                    raise ValueError(
                        f'Got signature_def_key "{key}". Available signatures are {sorted(meta_graph.signature_def)}.'
                    )
                signature_def = meta_graph.signature_def[key]
            input_names, output_names = _names(signature_def.inputs), _names(signature_def.outputs)
        self._set_tensors(input_names, output_names)


class CoreEstimatorPredictor(Predictor):
    """Predicts with the newest checkpoint of a `tf.estimator.Estimator`.

    Args:
      estimator: the Estimator.
      serving_input_receiver_fn: function without arguments that returns a `ServingInputReceiver`.
      output_key: name of the export output to predict. Defaults to the serving output.
      graph: graph to build the model in. Defaults to a new one.
      config: ConfigProto of the session.

    Raises:
      KeyError: If the model has no such export output.
      TypeError: If `estimator` isn't a `tf.estimator.Estimator`. Use `from_contrib_estimator` for a
        `tf.contrib.learn.Estimator`.
    """

    def __init__(
        self,
        estimator: Any,
        serving_input_receiver_fn: Callable[[], Any],
        output_key: str | None = None,
        graph: Any = None,
        config: Any = None,
    ) -> None:
        if isinstance(estimator, LearnEstimator):
            raise TypeError(
                "Expected estimator to be of type tf.estimator.Estimator, but got a tf.contrib.learn.Estimator. You "
                "likely want to call from_contrib_estimator."
            )
        check_estimator(estimator)
        self._open(estimator, serving_input_receiver_fn, output_key, graph, config)


class ContribEstimatorPredictor(Predictor):
    """Predicts with the newest checkpoint of a `tf.contrib.learn.Estimator`.

    Args:
      estimator: the Estimator.
      prediction_input_fn: function without arguments that returns `InputFnOps` or a `ServingInputReceiver`.
      input_alternative_key: must be None, because there is only one input.
      output_alternative_key: name of the head to predict, or None for the only one.
      graph: graph to build the model in. Defaults to a new one.
      config: ConfigProto of the session.

    Raises:
      KeyError: If the model has no such export output.
      TypeError: If `estimator` isn't a `tf.contrib.learn.Estimator`. Use `from_estimator` for a
        `tf.estimator.Estimator`.
      ValueError: If `input_alternative_key` isn't None.
    """

    def __init__(
        self,
        estimator: Any,
        prediction_input_fn: Callable[[], Any],
        input_alternative_key: str | None = None,
        output_alternative_key: str | None = None,
        graph: Any = None,
        config: Any = None,
    ) -> None:
        if isinstance(estimator, EstimatorV1):
            raise TypeError(
                "Expected estimator to be of type tf.contrib.learn.Estimator, but got a tf.estimator.Estimator. You "
                "likely want to call from_estimator."
            )
        check_type("estimator", estimator, LearnEstimator)
        if input_alternative_key is not None:
            raise ValueError(
                f"input_alternative_key={input_alternative_key!r} isn't supported: InputFnOps has one input, which "
                "prediction_input_fn returns as features and default_inputs."
            )
        serving = estimator._serving_estimator(output_alternative_key)
        self._open(serving, as_receiver_fn(prediction_input_fn), None, graph, config)


from_saved_model = SavedModelPredictor
from_estimator = CoreEstimatorPredictor
from_contrib_estimator = ContribEstimatorPredictor
