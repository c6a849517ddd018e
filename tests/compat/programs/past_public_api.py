"""Imports past the public interface, as libraries over TensorFlow have them."""

import json
import sys

import numpy as np
import tensorflow as tf
import tensorflow_estimator as tfe
from tensorflow.python.estimator.model_fn import EstimatorSpec as OldEstimatorSpec
from tensorflow.python.training import basic_session_run_hooks, monitored_session, session_run_hook, training_util
from tensorflow.python.training.basic_session_run_hooks import CheckpointSaverHook, SecondOrStepTimer
from tensorflow.python.training.evaluation import _StopAfterNEvalsHook
from tensorflow.python.training.monitored_session import (
    _CoordinatedSession,
    _HookedSession,
    _RecoverableSession,
    _WrappedSession,
)
from tensorflow.python.training.session_manager import SessionManager, _CountDownTimer, _maybe_name, _ready
from tensorflow.python.training.supervisor import Supervisor
from tensorflow_estimator.python.estimator import estimator as estimator_lib
from tensorflow_estimator.python.estimator import model_fn as model_fn_lib
from tensorflow_estimator.python.estimator import run_config as run_config_lib
from tensorflow_estimator.python.estimator import util
from tensorflow_estimator.python.estimator.export import export_lib
from tensorflow_estimator.python.estimator.exporter import LatestExporter, _SavedModelExporter
from tensorflow_estimator.python.estimator.inputs.numpy_io import numpy_input_fn
from tensorflow_estimator.python.estimator.mode_keys import ModeKeys
from tensorflow_estimator.python.estimator.training import _assert_eval_spec, _StopAtSecsHook, _TrainingExecutor

try:
    from tensorflow_estimator.python.estimator.canned.dnn import DNNClassifier
except ImportError as error:
    DNNClassifier = str(error)


class Trainer(estimator_lib.Estimator):
    def __init__(self, model_dir):
        super(Trainer, self).__init__(self._build, config=run_config_lib.RunConfig(model_dir=model_dir))

    def _build(self, features, labels, mode):
        loss = tf.reduce_mean(tf.cast(features["x"], tf.float32))
        train_op = tf.compat.v1.assign_add(training_util.get_global_step(), 1)
        return model_fn_lib.EstimatorSpec(mode, loss=loss, train_op=train_op)


class Saver(CheckpointSaverHook):
    saves = 0

    def _save(self, session, step):
        Saver.saves += 1
        return super(Saver, self)._save(session, step)


class Timed(session_run_hook.SessionRunHook):
    def __init__(self):
        self.timer = SecondOrStepTimer(every_steps=2)


folder = sys.argv[1]
inputs = {"x": np.arange(6.0)}
trainer = Trainer(folder)
trainer.train(lambda: tf.data.Dataset.from_tensor_slices(inputs).batch(1), hooks=[Timed()])
train_spec = tf.estimator.TrainSpec(lambda: tf.data.Dataset.from_tensor_slices(inputs).batch(1).repeat(), max_steps=10)
eval_spec = tf.estimator.EvalSpec(lambda: tf.data.Dataset.from_tensor_slices(inputs).batch(3), steps=None)
_assert_eval_spec(eval_spec)
metrics, _ = _TrainingExecutor(trainer, train_spec, eval_spec).run_local()

with tf.Graph().as_default():
    step = training_util.get_or_create_global_step()
    add = tf.compat.v1.assign_add(step, 1)
    hooks = [Saver(folder + "/own", save_steps=2), basic_session_run_hooks.StopAtStepHook(last_step=4)]
    with monitored_session.MonitoredSession(monitored_session.ChiefSessionCreator(), hooks=hooks) as session:
        kinds = []
        inner = session._sess
        while isinstance(inner, _WrappedSession):
            kinds.append(type(inner).__name__)
            inner = inner._sess
        while not session.should_stop():
            session.run(add)

print(
    json.dumps(
        {
            "step": int(metrics["global_step"]),
            "loss": float(metrics["loss"]),
            "saves": Saver.saves,
            "kinds": kinds,
            "spec": OldEstimatorSpec is tfe.estimator.EstimatorSpec,
            "canned": getattr(DNNClassifier, "__name__", DNNClassifier),
            "args": list(util.fn_args(lambda a, b: None)),
            "ready": _ready(None, None, "") == (True, None)
            and _maybe_name(None) == "None"
            and _CountDownTimer(5).secs_remaining() > 0,
            "classes": [
                issubclass(_RecoverableSession, _WrappedSession),
                issubclass(_CoordinatedSession, _WrappedSession),
                issubclass(_HookedSession, _WrappedSession),
                issubclass(LatestExporter, tf.estimator.Exporter),
                ModeKeys is tf.estimator.ModeKeys,
                export_lib.ServingInputReceiver is tf.estimator.export.ServingInputReceiver,
            ],
            "modules": sorted(
                {
                    kind.__module__.split(".")[0]
                    for kind in (SessionManager, Supervisor, _StopAfterNEvalsHook, _SavedModelExporter, _StopAtSecsHook)
                }
            ),
            "input_fn": callable(numpy_input_fn(inputs, shuffle=False)),
        }
    )
)
