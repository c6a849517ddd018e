"""A program that has replaced a name in TensorFlow's modules: an Estimator calls what it has put there, as in 2.15."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.training import basic_session_run_hooks, evaluation, monitored_session, training

import fastsup
from fastsup import estimator as est
from fastsup import train

v1 = tf.compat.v1

# The names that tf.estimator 2.15 calls in each phase, with the module that it looks each of them up in.
CALLED = {
    "train": [
        (training, "MonitoredTrainingSession"),
        (v1.train, "CheckpointSaverHook"), (v1.train, "LoggingTensorHook"), (v1.train, "NanTensorHook"),
        (v1.train, "Saver"), (v1.train, "Scaffold"), (v1.train, "StopAtStepHook"), (v1.train, "create_global_step"),
        (v1.train, "get_global_step"), (v1.random, "set_random_seed"),
    ],
    "evaluate": [
        (evaluation, "_StopAfterNEvalsHook"), (evaluation, "_evaluate_once"),
        (monitored_session, "ChiefSessionCreator"), (monitored_session, "MonitoredSession"),
        (basic_session_run_hooks, "FinalOpsHook"), (tf.train, "latest_checkpoint"), (v1.metrics, "mean"),
        (v1.train, "create_global_step"), (v1.train, "get_global_step"),
    ],
    "predict": [
        (v1.train, "ChiefSessionCreator"), (v1.train, "MonitoredSession"), (v1.train, "Scaffold"),
        (tf.train, "latest_checkpoint"),
    ],
    "export": [(v1, "Session"), (v1.saved_model, "Builder"), (v1.train, "Saver"), (v1.random, "set_random_seed")],
    "values": [(tf.train, "load_variable"), (tf.train, "list_variables")],
}  # fmt: skip


def receiver() -> Any:
    features = {"x": v1.placeholder(tf.float32, [None, 2])}
    return est.export.ServingInputReceiver(features, features)


def act(estimator: Any, phase: str, input_fn: Any, folder: str) -> Any:
    if phase == "train":
        return estimator.train(input_fn, steps=3)
    if phase == "evaluate":
        return estimator.evaluate(input_fn, steps=2)
    if phase == "predict":
        return len(list(estimator.predict(lambda: input_fn().take(1))))
    if phase == "export":
        return estimator.export_saved_model(folder, receiver)
    return estimator.get_variable_names(), estimator.get_variable_value("lin/w")


def plain(real: Any, calls: list[int]) -> Any:
    def replacement(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return real(*args, **kwargs)

    return replacement


def wrapped(real: Any, calls: list[int]) -> Any:
    """As TensorFlow's by its name and module."""
    return functools.wraps(real)(plain(real, calls))


@pytest.mark.first_cases(20)
@pytest.mark.parametrize("replace", [plain, wrapped])
@pytest.mark.parametrize(
    ("phase", "module", "name"),
    [pytest.param(phase, *place, id=f"{phase}-{place[1]}") for phase, places in CALLED.items() for place in places],
)
def test_calls_what_a_program_has_put_there(
    make: Callable[..., Any], input_fn: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any,
    phase: str, module: Any, name: str, replace: Any,
) -> None:  # fmt: skip
    estimator = make()
    if phase != "train":
        act(estimator, "train", input_fn, "")
    calls: list[int] = []
    if module is v1:
        module = tf.compat.v1  # An import of Keras 2, by another test, makes it again.
    real = getattr(module, name)
    if name == "MonitoredSession":
        # TensorFlow's class looks itself up by that name.
        real = train.MonitoredSession
    monkeypatch.setattr(module, name, replace(real, calls))
    done = act(estimator, phase, input_fn, str(tmp_path / "exports"))
    assert calls
    if phase == "train":
        assert done is not None
        assert estimator.get_variable_value("global_step") == 3
    elif phase == "evaluate":
        assert done["global_step"] == 3
    elif phase == "predict":
        assert done == 4


def test_our_options_reach_a_replacement_that_takes_them(
    make: Callable[..., Any], input_fn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replacement is called with the arguments of 2.15, and with those of fastsup that the program has set."""
    given: list[set[str]] = []

    def replacement(**kwargs: Any) -> Any:
        given.append(set(kwargs))
        return train.MonitoredTrainingSession(**kwargs)

    monkeypatch.setattr(training, "MonitoredTrainingSession", replacement)
    make().train(input_fn, steps=1)
    make(executor="thread_pool").train(input_fn, steps=1)
    assert given[1] - given[0] == {"executor"}
    assert not given[0] & {"recovery_wait_secs", "profiler", "executor"}


def test_a_subclass_in_the_place_of_a_hook(
    make: Callable[..., Any], input_fn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []

    class Announcing(v1.train.CheckpointSaverHook):
        def _save(self, session: Any, step: Any) -> Any:
            saved.append(int(step))
            return super()._save(session, step)

    monkeypatch.setattr(v1.train, "CheckpointSaverHook", Announcing)
    make(save_checkpoints_steps=2).train(input_fn, steps=4)
    assert saved[0] == 0
    assert saved[-1] == 4


def test_a_session_that_only_runs(make: Callable[..., Any], input_fn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What 2.15 asks of a session: run, should_stop, and that it is a context manager."""

    class Session:
        def __init__(self, **kwargs: Any) -> None:
            self.inner = train.MonitoredTrainingSession(**kwargs)

        def __enter__(self) -> Session:
            return self

        def __exit__(self, *error: Any) -> bool:
            return self.inner.__exit__(*error)

        def should_stop(self) -> bool:
            return self.inner.should_stop()

        def run(self, fetches: Any) -> Any:
            return self.inner.run(fetches)

    monkeypatch.setattr(training, "MonitoredTrainingSession", Session)
    estimator = make()
    estimator.train(input_fn)  # Until the input ends.
    assert estimator.get_variable_value("global_step") == 5


def test_a_replacement_after_install(make: Callable[..., Any], input_fn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    fastsup.install()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(training, "MonitoredTrainingSession", plain(training.MonitoredTrainingSession, calls))
            patch.setattr(v1.train, "StopAtStepHook", plain(v1.train.StopAtStepHook, calls))
            make(executor="thread_pool").train(input_fn, steps=2)
    finally:
        fastsup.uninstall()
    assert len(calls) == 2
