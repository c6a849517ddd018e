"""What the models of the archive import from the other modules of tensorflow_estimator: fastsup's classes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tensorflow.python.saved_model import model_utils
from tensorflow.python.saved_model.model_utils import export_output

from fastsup.estimator import inputs
from fastsup.estimator.config.run_config import RunConfig, resolve_config
from fastsup.estimator.export import receivers
from fastsup.estimator.model.estimator import Estimator, EstimatorV1
from fastsup.estimator.model.model_checkpoints import VocabInfo, WarmStartSettings
from fastsup.estimator.model.model_fn import EstimatorSpec, ModeKeys, TPUEstimatorSpec, call_logit_fn

__all__ = ["AVERAGE_LOSS_METRIC_KEY", "LOSS_METRIC_KEY", "OUR_MODULES", "estimator_export"]

LOSS_METRIC_KEY = "loss"
AVERAGE_LOSS_METRIC_KEY = "average_loss"


def estimator_export(*names: str, **names_by_version: Any) -> Callable[[Any], Any]:
    """A decorator that does nothing: it marked what the public interface had.

    Args:
      *names: the public names.
      **names_by_version: the public names in a version.
    """
    del names, names_by_version
    return lambda exported: exported


class _UsageGauge:
    """Stands for the gauge in which the models recorded their use for the authors of TensorFlow."""

    def get_cell(self, *labels: str) -> _UsageGauge:
        del labels
        return self

    def set(self, value: Any) -> None:
        del value


# By their names below `tensorflow_estimator.python.estimator`.
OUR_MODULES: dict[str, Any] = {
    "estimator": SimpleNamespace(
        Estimator=EstimatorV1,
        EstimatorV2=Estimator,
        VocabInfo=VocabInfo,
        WarmStartSettings=WarmStartSettings,
        _canned_estimator_api_gauge=_UsageGauge(),
        maybe_overwrite_model_dir_and_session_config=resolve_config,
    ),
    "estimator_export": SimpleNamespace(estimator_export=estimator_export),
    "estimator_lib": SimpleNamespace(Estimator=EstimatorV1, EstimatorSpec=EstimatorSpec, ModeKeys=ModeKeys),
    "export.export": receivers,
    "export.export_lib": SimpleNamespace(
        **{
            **vars(model_utils),
            "_SupervisedOutput": export_output._SupervisedOutput,
            **{name: getattr(receivers, name) for name in receivers.__all__},
        },
    ),
    "export.export_output": export_output,
    "inputs.numpy_io": inputs,
    "inputs.pandas_io": inputs,
    "mode_keys": SimpleNamespace(ModeKeys=ModeKeys),
    "model_fn": SimpleNamespace(
        AVERAGE_LOSS_METRIC_KEY=AVERAGE_LOSS_METRIC_KEY,
        EstimatorSpec=EstimatorSpec,
        LOSS_METRIC_KEY=LOSS_METRIC_KEY,
        ModeKeys=ModeKeys,
        _TPUEstimatorSpec=TPUEstimatorSpec,
        call_logit_fn=call_logit_fn,
    ),
    "run_config": SimpleNamespace(RunConfig=RunConfig),
}
