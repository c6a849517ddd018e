"""The signatures of fastsup.train and fastsup.Session against those of the TensorFlow that is installed.

Where a name is TensorFlow's, a call that TensorFlow takes is taken here: the same parameters in the same order, of the
same kinds, with the same defaults. What is added comes behind them, with a default, and is listed with its reason. The
signatures of fastsup.estimator are compared with those of 2.15 in tests/compat/test_estimator_modules.py.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.training import monitored_session

import fastsup
from fastsup import train

v1 = tf.compat.v1

# TensorFlow keeps these private.
PRIVATE = ("CoordinatedSession", "HookedSession", "RecoverableSession", "WrappedSession")
PAIRS = {
    "Session": (v1.Session, fastsup.Session),
    **{name: (getattr(v1.train, name), getattr(train, name)) for name in train.__all__ if hasattr(v1.train, name)},
    **{name: (getattr(monitored_session, f"_{name}"), getattr(train, name)) for name in PRIVATE},
}
# What TensorFlow 2.16 to 2.22 has in none of its modules.
NEW = {
    "AdaptedHook": "a hook that says when it is due, in a session",
    "NoIntactCheckpointError": "TensorFlow starts again at step 0",
    "ProgressHook": "shows how far training is",
    "WatchdogHook": "notices a job that is stuck",
    "latest_intact_checkpoint": "tells a program which checkpoint will be restored",
}

EXECUTOR = "which executor runs the steps (docs/executors.md)"
PROFILER = "what the hooks cost (docs/profiling.md)"
SIGNALS = "whether SIGTERM and SIGINT end training with a checkpoint (docs/signals.md)"
RECOVERIES = "recovery has an end (docs/dropin.md#sessions-and-executors)"
WAIT = "of SessionManager alone in TensorFlow (docs/dropin.md#sessions-and-executors)"
RESTORE = "restores what a checkpoint has (docs/recovery.md#partial-restore)"
ASYNC = "training goes on during a save (docs/saving.md)"
PROGRESS = "adds a ProgressHook (docs/monitoring.md#progress)"
# Parameters that are added, by callable and name, with the reason.
ADDED: dict[str, dict[str, str]] = {
    "CheckpointSaverHook": {"async_save": ASYNC, "_ends_last": "private"},
    "ChiefSessionCreator": {
        "executor": EXECUTOR,
        "recovery_wait_secs": WAIT,
        "restore": RESTORE,
        "max_wait_secs": "a chief waits for a server that isn't up for so long at most",
    },
    "MonitoredSession": {
        "max_recoveries": RECOVERIES,
        "handle_signals": SIGNALS,
        "profiler": PROFILER,
    },
    "MonitoredTrainingSession": {
        "executor": EXECUTOR,
        "async_save": ASYNC,
        "recovery_wait_secs": WAIT,
        "restore": RESTORE,
        "max_recoveries": RECOVERIES,
        "handle_signals": SIGNALS,
        "profiler": PROFILER,
        "progress": PROGRESS,
    },
    "RecoverableSession": {"max_recoveries": RECOVERIES},
    "Session": {"executor": EXECUTOR},
    "SessionManager": {"executor": EXECUTOR, "restore": RESTORE, "_looks_early": "private"},
    "SingularMonitoredSession": {
        "executor": EXECUTOR,
        "profiler": PROFILER,
        "progress": PROGRESS,
        "recovery_wait_secs": WAIT,
        "restore": RESTORE,
        "handle_signals": SIGNALS,
    },
    "Supervisor": {
        "executor": EXECUTOR,
        "async_save": ASYNC,
        "stray_threads": "a thread that outlives the run is a warning (docs/dropin.md#supervisor)",
        "handle_signals": SIGNALS,
        "profiler": PROFILER,
    },
    "WorkerSessionCreator": {"executor": EXECUTOR, "recovery_wait_secs": WAIT},
}


def parameters(function: Any) -> list[inspect.Parameter]:
    found = list(inspect.signature(function).parameters.values())
    return [parameter.replace(annotation=inspect.Parameter.empty) for parameter in found if parameter.name != "self"]


def is_same_default(theirs: Any, ours: Any) -> bool:
    # A sentinel is an object of each library's own.
    return theirs is ours or theirs == ours or (type(theirs) is object and type(ours) is object)


def differences(theirs: Any, ours: Any, added: dict[str, str]) -> list[str]:
    """What a call by TensorFlow's signature would meet, and what is added without being listed.

    Args:
      theirs: TensorFlow's callable.
      ours: fastsup's.
      added: the listed parameters.
    """
    wanted, found = parameters(theirs), parameters(ours)
    problems = []
    for theirs_at, ours_at in zip(wanted, found, strict=False):
        if (theirs_at.name, theirs_at.kind) != (ours_at.name, ours_at.kind):
            problems.append(f"{ours_at} in place of {theirs_at}")
        elif not is_same_default(theirs_at.default, ours_at.default):
            problems.append(f"{ours_at.name}: {ours_at.default!r} in place of {theirs_at.default!r}")
    problems += [f"lacks {parameter}" for parameter in wanted[len(found) :]]
    behind = found[len(wanted) :]
    problems += [f"wants {parameter}" for parameter in behind if parameter.default is parameter.empty]
    names = {parameter.name for parameter in behind}
    problems += [f"adds {name}, which isn't listed" for name in sorted(names - set(added))]
    problems += [f"doesn't add {name}, which is listed" for name in sorted(set(added) - names)]
    return problems


def public_functions(kind: Any) -> list[str]:
    """The public methods of a class, those of its bases included, but for those of `object`."""
    return [
        name
        for name in dir(kind)
        if not name.startswith("_") and callable(getattr(kind, name)) and not inspect.isclass(getattr(kind, name))
    ]


def callables() -> list[Any]:
    found = []
    for name, (theirs, ours) in PAIRS.items():
        if theirs is ours:
            continue
        found.append(pytest.param(name, theirs, ours, id=name))
        methods = public_functions(theirs) if inspect.isclass(theirs) else []
        pairs = [(f"{name}.{method}", getattr(theirs, method), getattr(ours, method)) for method in methods]
        found += [pytest.param(*pair, id=pair[0]) for pair in pairs]
    return found


@pytest.mark.parametrize(("name", "theirs", "ours"), callables())
def test_signature(name: str, theirs: Any, ours: Any) -> None:
    assert differences(theirs, ours, ADDED.get(name, {})) == []


def test_every_member_of_theirs_is_there() -> None:
    for name, (theirs, ours) in PAIRS.items():
        missing = {member for member in dir(theirs) if not member.startswith("_")} - set(dir(ours))
        assert missing == set(), name


def test_the_lists_name_what_is_compared() -> None:
    names = {case.values[0] for case in callables()}
    assert set(ADDED) <= names
    assert len(names) > 100
    assert set(NEW) | set(PAIRS) == {"Session", *train.__all__}


def test_a_difference_is_found() -> None:
    def theirs(a: Any, b: Any = 1, *, c: Any = None) -> None: ...

    def renamed(a: Any, d: Any = 1, *, c: Any = None) -> None: ...

    def defaulted(a: Any, b: Any = 2, *, c: Any = None) -> None: ...

    def shorter(a: Any, b: Any = 1) -> None: ...

    def longer(a: Any, b: Any = 1, *, c: Any = None, e: Any = None, f: Any) -> None: ...

    assert differences(theirs, theirs, {}) == []
    assert differences(theirs, renamed, {}) == ["d=1 in place of b=1"]
    assert differences(theirs, defaulted, {}) == ["b: 2 in place of 1"]
    assert differences(theirs, shorter, {}) == ["lacks c=None"]
    assert differences(theirs, longer, {"e": "a reason"}) == ["wants f", "adds f, which isn't listed"]
    assert differences(theirs, theirs, {"e": "a reason"}) == ["doesn't add e, which is listed"]
