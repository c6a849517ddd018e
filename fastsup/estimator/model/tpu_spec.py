"""TPUEstimatorSpec: what a model_fn for TPUs returns, and what it means on CPU and GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tensorflow.python.ops import summary_ops_v2
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import session_run_hook
from tensorflow.python.util import function_utils, tf_inspect

from fastsup.estimator.model.model_fn import EstimatorSpec

__all__ = ["TPUEstimatorSpec"]


class _TPUEstimatorSpec(NamedTuple):
    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metrics: Any
    export_outputs: Any
    scaffold_fn: Callable[[], Any] | None
    host_call: Any
    training_hooks: tuple[Any, ...]
    evaluation_hooks: tuple[Any, ...]
    prediction_hooks: tuple[Any, ...]


class _HostCallHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Runs in each step what a host_call has returned.

    Args:
      tensors: the tensors.
    """

    def __init__(self, tensors: Any) -> None:
        self._tensors = tensors

    def begin(self) -> None:
        self._writers = summary_ops_v2.summary_writer_initializer_op()
        self._flushes = [summary_ops_v2.legacy_raw_flush(writer=writer.inputs[0]) for writer in self._writers]

    def after_create_session(self, session: Any, coord: Any) -> None:
        del coord
        session.run(self._writers)

    def before_run(self, run_context: Any) -> Any:
        del run_context
        return session_run_hook.SessionRunArgs(self._tensors)

    def end(self, session: Any) -> None:
        session.run(self._flushes)


def _check_call(name: str, call: Any) -> None:
    if not isinstance(call, tuple | list):
        raise ValueError(f"{name} should be tuple or list")
    if len(call) != 2:
        raise ValueError(f"{name} should have two elements.")
    function, tensors = call
    if not callable(function):
        raise TypeError(f"{name}[0] should be callable.")
    if not isinstance(tensors, tuple | list | dict):
        raise ValueError(f"{name}[1] should be tuple or list, or dict.")
    taken = function_utils.fn_args(function)
    takes_any = tf_inspect.getfullargspec(function).varargs is not None
    if not isinstance(tensors, dict) and not takes_any and len(tensors) != len(taken):
        raise RuntimeError(
            f"In TPUEstimatorSpec.{name}, length of tensors {len(tensors)} does not match method args of the function, "
            f"which takes {len(taken)}."
        )


def _called(name: str, call: Any) -> Any:
    function, tensors = call
    if not isinstance(tensors, dict):
        return function(*tensors)
    try:
        return function(**tensors)
    except TypeError as error:
        logging.warning(
            "Exception while calling %s: %s. It is likely the tensors (%s[1]) do not match the function's arguments",
            name,
            error,
            name,
        )
        raise


class TPUEstimatorSpec(_TPUEstimatorSpec):
    """What the model_fn of a TPUEstimator returns.

    Args:
      mode: one of `tf.estimator.ModeKeys`.
      predictions: tensor, or dictionary of tensors.
      loss: tensor with one element.
      train_op: operation that makes a training step.
      eval_metrics: function, and the list or dictionary of tensors that it is called with. It returns a dictionary from
        names to metric objects or (value, update) pairs.
      export_outputs: dictionary from names of signatures to `export.ExportOutput`.
      scaffold_fn: function that makes the `Scaffold`, or None.
      host_call: function, and the list or dictionary of tensors that it is called with. What it returns is run in each
        step.
      training_hooks: hooks in training.
      evaluation_hooks: hooks in evaluation.
      prediction_hooks: hooks in prediction.

    Raises:
      ValueError: as for `tf.estimator.EstimatorSpec`; or `eval_metrics` or `host_call` isn't such a pair.
      TypeError: an argument is of the wrong type.
      RuntimeError: a function takes another number of tensors.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metrics: Any = None,
        export_outputs: Any = None,
        scaffold_fn: Callable[[], Any] | None = None,
        host_call: Any = None,
        training_hooks: Any = None,
        evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
    ) -> TPUEstimatorSpec:
        for name, call in (("eval_metrics", eval_metrics), ("host_call", host_call)):
            if call is not None:
                _check_call(name, call)
        checked = EstimatorSpec(
            mode,
            predictions=predictions,
            loss=loss,
            train_op=train_op,
            export_outputs=export_outputs,
            training_hooks=training_hooks,
            evaluation_hooks=evaluation_hooks,
            prediction_hooks=prediction_hooks,
        )
        return super().__new__(
            cls,
            mode,
            checked.predictions,
            checked.loss,
            checked.train_op,
            eval_metrics,
            checked.export_outputs,
            scaffold_fn,
            host_call,
            checked.training_hooks,
            checked.evaluation_hooks,
            checked.prediction_hooks,
        )

    def as_estimator_spec(self) -> Any:
        """The `tf.estimator.EstimatorSpec` of the same model on CPU and GPU."""
        metrics = None if self.eval_metrics is None else _called("eval_metrics", self.eval_metrics)
        hooks: tuple[Any, ...] = ()
        if self.host_call is not None:
            hooks = (_HostCallHook(_called("host_call", self.host_call)),)
        return EstimatorSpec(
            self.mode,
            predictions=self.predictions,
            loss=self.loss,
            train_op=self.train_op,
            eval_metric_ops=metrics,
            export_outputs=self.export_outputs,
            scaffold=self.scaffold_fn() if self.scaffold_fn else None,
            training_hooks=(*self.training_hooks, *hooks),
            evaluation_hooks=(*self.evaluation_hooks, *hooks),
            prediction_hooks=(*self.prediction_hooks, *hooks),
        )
