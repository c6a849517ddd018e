"""ModelFnOps: what a model_fn of `tf.contrib.learn` returns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tensorflow.python.framework import dtypes, ops, sparse_tensor, tensor_shape
from tensorflow.python.ops import array_ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.saved_model import signature_constants
from tensorflow.python.training import session_run_hook

from fastsup import estimator
from fastsup.compat.contrib.learn.keys import MetricKey, ModeKeys, PredictionKey, ProblemType

__all__ = ["ModelFnOps"]


class _ModelFnOps(NamedTuple):
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: Any
    output_alternatives: Any
    training_chief_hooks: Any
    training_hooks: Any
    scaffold: Any
    mode: Any


def _scalar(loss: Any) -> Any:
    loss = ops.convert_to_tensor(loss)
    shape = loss.get_shape()
    if shape.num_elements() not in (None, 1):
        raise ValueError(f"Loss must be scalar: {loss}.")
    return loss if shape.is_compatible_with(tensor_shape.TensorShape([])) else array_ops.reshape(loss, [])


def _tensors(predictions: Any) -> Any:
    convert = sparse_tensor.convert_to_tensor_or_sparse_tensor
    if isinstance(predictions, dict):
        return {name: convert(value) for name, value in predictions.items()}
    return convert(predictions)


class ModelFnOps(_ModelFnOps):
    """A model: predictions, loss, and the operation of a training step.

    Args:
      mode: one of `ModeKeys`.
      predictions: a tensor or a dictionary of tensors. Needed to evaluate and to predict.
      loss: scalar tensor. Needed to train and to evaluate.
      train_op: operation of a training step. Needed to train.
      eval_metric_ops: dictionary from names to metrics, or None.
      output_alternatives: dictionary from names of heads to pairs of a `ProblemType` and a dictionary of predictions,
        for exports; or None.
      training_chief_hooks: hooks of the chief, or None.
      training_hooks: hooks for training, or None.
      scaffold: `Scaffold`, or None.

    Raises:
      ValueError: what the mode needs is missing, or a value is of the wrong kind.
      TypeError: a hook is no `SessionRunHook`.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: Any = None,
        output_alternatives: Any = None,
        training_chief_hooks: Iterable[Any] | None = None,
        training_hooks: Iterable[Any] | None = None,
        scaffold: Any = None,
    ) -> ModelFnOps:
        ModeKeys.validate(mode)
        if train_op is None and mode == ModeKeys.TRAIN:
            raise ValueError("Missing train_op.")
        if loss is None and mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
            raise ValueError("Missing loss.")
        if predictions is None and mode in (ModeKeys.INFER, ModeKeys.EVAL):
            raise ValueError("Missing predictions.")
        if eval_metric_ops is not None and not isinstance(eval_metric_ops, dict):
            raise ValueError("eval_metric_ops must be a dict.")
        if train_op is not None and not isinstance(train_op, ops.Operation):
            train_op = ops.convert_to_tensor(train_op).op
        chief_hooks, hooks = list(training_chief_hooks or []), list(training_hooks or [])
        for hook in [*hooks, *chief_hooks]:
            if not isinstance(hook, session_run_hook.SessionRunHook):
                raise TypeError(
                    "All hooks returned from model_fn must be SessionRunHook instances, got instance of "
                    f"{type(hook)}: {hook}"
                )
        return super().__new__(
            cls,
            predictions=None if predictions is None else _tensors(predictions),
            loss=None if loss is None else _scalar(loss),
            train_op=train_op,
            eval_metric_ops={} if eval_metric_ops is None else eval_metric_ops,
            output_alternatives=output_alternatives,
            training_chief_hooks=chief_hooks,
            training_hooks=hooks,
            scaffold=scaffold,
            mode=mode,
        )

    def estimator_spec(self, default_serving_output_alternative_key: str | None = None) -> Any:
        """The same model for a `tf.estimator.Estimator`.

        Args:
          default_serving_output_alternative_key: name of the head to serve, if there are several.

        Returns:
          The `EstimatorSpec`.

        Raises:
          ValueError: a head is of an unknown kind.
        """
        heads = dict(self.output_alternatives or {})
        default = signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
        if len(heads) > 1 and default not in heads:
            heads[default] = heads[default_serving_output_alternative_key]
        return estimator.EstimatorSpec(
            mode=self.mode,
            predictions=self.predictions,
            loss=self.loss,
            train_op=self.train_op,
            # The Estimator adds the mean loss itself.
            eval_metric_ops={name: ops for name, ops in self.eval_metric_ops.items() if name != MetricKey.LOSS},
            export_outputs={name: _export_output(*head) for name, head in heads.items()} or None,
            training_chief_hooks=self.training_chief_hooks,
            training_hooks=self.training_hooks,
            scaffold=self.scaffold,
        )


def _export_output(problem_type: int | None, predictions: Any) -> Any:
    scores = predictions.get(PredictionKey.SCORES, predictions.get(PredictionKey.PROBABILITIES))
    if problem_type == ProblemType.LINEAR_REGRESSION:
        return estimator.export.RegressionOutput(scores)
    if problem_type in (ProblemType.CLASSIFICATION, ProblemType.LOGISTIC_REGRESSION):
        classes = predictions.get(PredictionKey.CLASSES)
        if classes is None:
            logging.warning("classes is None, Servo inference will not have class ids.")
        elif classes.dtype != dtypes.string:
            logging.warning("classes is not string, Servo inference will not have class ids.")
            classes = None
        return estimator.export.ClassificationOutput(scores=scores, classes=classes)
    if problem_type == ProblemType.UNSPECIFIED:
        return estimator.export.PredictOutput(predictions)
    raise ValueError(f"Unknown problem_type={problem_type}")
