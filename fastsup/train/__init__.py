"""The session-layer names of `tf.compat.v1.train`. A program switches to them by changing its import.

The classes of the step loop are fastsup's. Coordinator, QueueRunner, Saver and similar classes are TensorFlow's. All
other names of `tf.compat.v1.train` are forwarded to TensorFlow.
"""

from typing import Any

import fastsup.runtime as _runtime  # isort: skip  (its error names the missing extra if TensorFlow isn't installed)

from tensorflow.python.training import basic_session_run_hooks as _tf_hooks
from tensorflow.python.training import (
    coordinator,
    queue_runner,
    saver,
    server_lib,
    session_run_hook,
)

from fastsup.checkpoint.directory import latest_intact_checkpoint
from fastsup.checkpoint.restore import NoIntactCheckpointError
from fastsup.core import SecondOrStepTimer
from fastsup.train.hooks.adapted_hook import AdaptedHook
from fastsup.train.hooks.checkpoint_saver import CheckpointSaverHook
from fastsup.train.hooks.event_files import ProfilerHook, StepCounterHook, SummarySaverHook
from fastsup.train.hooks.progress import ProgressHook
from fastsup.train.hooks.step_limits import GlobalStepWaiterHook, StopAtStepHook
from fastsup.train.hooks.tensor_values import LoggingTensorHook, NanTensorHook
from fastsup.train.hooks.watchdog import WatchdogHook
from fastsup.train.session.monitored_session import MonitoredSession, SingularMonitoredSession
from fastsup.train.session.session_creators import ChiefSessionCreator, Scaffold, SessionCreator, WorkerSessionCreator
from fastsup.train.session.session_manager import SessionManager
from fastsup.train.session.training_session import MonitoredTrainingSession
from fastsup.train.session.wrapped_sessions import CoordinatedSession, HookedSession, RecoverableSession, WrappedSession
from fastsup.train.supervisor.supervisor import Supervisor

# The following names are TensorFlow's own.
CheckpointSaverListener = _tf_hooks.CheckpointSaverListener
Coordinator = coordinator.Coordinator
FeedFnHook = _tf_hooks.FeedFnHook
FinalOpsHook = _tf_hooks.FinalOpsHook
LooperThread = coordinator.LooperThread
NanLossDuringTrainingError = _tf_hooks.NanLossDuringTrainingError
QueueRunner = queue_runner.QueueRunner
Saver = saver.Saver
Server = server_lib.Server
SessionRunArgs = session_run_hook.SessionRunArgs
SessionRunContext = session_run_hook.SessionRunContext
SessionRunHook = session_run_hook.SessionRunHook
SessionRunValues = session_run_hook.SessionRunValues


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(_runtime.tensorflow.compat.v1.train, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    forwarded = [name for name in dir(_runtime.tensorflow.compat.v1.train) if not name.startswith("_")]
    return sorted({*__all__, *forwarded})


__all__ = [
    "AdaptedHook",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "ChiefSessionCreator",
    "CoordinatedSession",
    "Coordinator",
    "FeedFnHook",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "HookedSession",
    "LoggingTensorHook",
    "LooperThread",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "NoIntactCheckpointError",
    "ProfilerHook",
    "ProgressHook",
    "QueueRunner",
    "RecoverableSession",
    "Saver",
    "Scaffold",
    "SecondOrStepTimer",
    "Server",
    "SessionCreator",
    "SessionManager",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "SingularMonitoredSession",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "Supervisor",
    "WatchdogHook",
    "WorkerSessionCreator",
    "WrappedSession",
    "latest_intact_checkpoint",
]
