"""What is refused, in which words; and that a refusal leaves nothing behind."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fastsup import estimator, train

v1 = tf.compat.v1


def global_step() -> None:
    v1.train.get_or_create_global_step()


def opens(make_hooks: Callable[..., Any]) -> Callable[..., Any]:
    """A mistake in the hooks of a session whose graph has a global step."""

    def mistake(train: Any, folder: str) -> Any:
        global_step()
        return train.MonitoredSession(hooks=make_hooks(train, folder))

    return mistake


def logs(tensors: Any) -> Callable[..., Any]:
    def mistake(train: Any, folder: str) -> Any:
        tf.split(tf.constant([1.0, 2.0]), 2, name="halves")
        tf.no_op(name="nothing_out")
        return train.MonitoredSession(hooks=[train.LoggingTensorHook(tensors, every_n_iter=1)])

    return mistake


def fetches(hook: Callable[..., Any]) -> Callable[..., Any]:
    """A mistake that comes out in the first run."""

    def mistake(train: Any, folder: str) -> Any:
        global_step()
        value = tf.constant([1.0, 2.0], name="vector")
        with train.MonitoredSession(hooks=[hook(train, folder)]) as session:
            session.run(value)

    return mistake


def in_a_file(folder: str) -> str:
    """The path of a file, where a directory is wanted."""
    path = os.path.join(folder, "file")
    with open(path, "w") as file:
        file.write("not a directory")
    return path


with tf.Graph().as_default():
    FOREIGN = tf.constant(1.0, name="foreign")
NO_DIRECTORY = (tf.errors.FailedPreconditionError, "file is not a directory")
NOT_OF_THIS_GRAPH = 'cannot be interpreted as a Tensor. (Tensor Tensor("foreign:0", shape=(), dtype=float32) is not an'

# What is done, the exception's type, and how its text begins or what is in it.
MISTAKES: dict[str, tuple[Callable[..., Any], type[BaseException], str]] = {
    # Hooks, listeners, creators of the wrong type.
    "an object for a hook": (opens(lambda *_: [object()]), AttributeError, "'object' object has no attribute 'begin'"),
    "None for a hook": (opens(lambda *_: [None]), AttributeError, "'NoneType' object has no attribute 'begin'"),
    "a text for hooks": (opens(lambda *_: "ab"), AttributeError, "'str' object has no attribute 'begin'"),
    "a number for hooks": (opens(lambda *_: 5), TypeError, "'int' object is not iterable"),
    "a hook for a list of hooks": (
        opens(lambda train, _: train.StopAtStepHook(last_step=1)), TypeError,
        "'StopAtStepHook' object is not iterable"),
    "a class for a hook": (
        opens(lambda train, _: [train.SessionRunHook]), TypeError, "missing 1 required positional argument: 'self'"),
    "an object for a listener": (
        opens(lambda train, folder: [train.CheckpointSaverHook(folder, save_steps=1, listeners=[object()])]),
        AttributeError, "'object' object has no attribute 'begin'"),
    "a text for a creator": (
        lambda train, _: train.MonitoredSession("creator"), AttributeError,
        "'str' object has no attribute 'create_session'"),
    "a number for a scaffold": (
        lambda train, _: train.MonitoredTrainingSession(scaffold=3), AttributeError,
        "'int' object has no attribute 'finalize'"),
    "a dict for a config": (
        lambda train, _: train.MonitoredTrainingSession(config={"a": 1}), TypeError,
        'Argument `config` must be a tf.ConfigProto, but got "dict"'),
    "a text for a scaffold to copy": (
        lambda train, _: train.Scaffold(copy_from_scaffold="x"), TypeError,
        "copy_from_scaffold is not a Scaffold instance."),
    # Tensors to log.
    "a tensor of another graph to log": (
        logs([FOREIGN]), ValueError, 'Passed Tensor("foreign:0", shape=(), dtype=float32) should have graph attribute'),
    "a number to log": (logs([5]), ValueError, "Passed 5 should have graph attribute that is equal to current graph"),
    "a name of nothing to log": (logs(["none"]), KeyError, "The name 'none:0' refers to a Tensor which does not"),
    "a name of no tensor to log": (logs(["none:0"]), KeyError, "The name 'none:0' refers to a Tensor which does not"),
    "an ambiguous name to log": (
        logs(["halves"]), ValueError,
        "Name halves is ambiguous, as this `Operation` has multiple outputs (at least 2)."),
    "an operation without outputs to log": (logs({"x": "nothing_out"}), KeyError, "exists but only has 0 outputs."),
    # Fetches of hooks.
    "a loss of another graph": (fetches(lambda train, _: train.NanTensorHook(FOREIGN)), ValueError, NOT_OF_THIS_GRAPH),
    "a loss that is a vector": (
        fetches(lambda train, _: train.NanTensorHook("vector:0")), ValueError,
        "The truth value of an array with more than one element is ambiguous."),
    "a summary of another graph": (
        fetches(lambda train, folder: train.SummarySaverHook(1, output_dir=folder, summary_op=FOREIGN)),
        ValueError, NOT_OF_THIS_GRAPH),
    "final ops of another graph": (
        fetches(lambda train, _: train.FinalOpsHook([FOREIGN])), ValueError, NOT_OF_THIS_GRAPH),
    # Directories.
    "a file for a checkpoint directory": (
        opens(lambda train, folder: [train.CheckpointSaverHook(in_a_file(folder), save_steps=1)]), *NO_DIRECTORY),
    "a checkpoint directory in a file": (
        opens(lambda train, folder: [train.CheckpointSaverHook(in_a_file(folder) + "/sub", save_steps=1)]),
        *NO_DIRECTORY),
    "a file for a summary directory": (
        opens(lambda train, folder: [train.StepCounterHook(output_dir=in_a_file(folder))]), *NO_DIRECTORY),
    "a file for a profile directory": (
        opens(lambda train, folder: [train.ProfilerHook(save_steps=1, output_dir=in_a_file(folder))]), *NO_DIRECTORY),
    "a file for the directory of training": (
        lambda train, folder: (global_step(), train.MonitoredTrainingSession(checkpoint_dir=in_a_file(folder))),
        *NO_DIRECTORY),
    "a checkpoint that isn't": (
        lambda train, folder: (
            global_step(), train.SingularMonitoredSession(checkpoint_filename_with_path=folder + "/none")),
        ValueError, "The passed save_path is not a valid checkpoint: "),
    # The model.
    "no global step": (
        lambda train, folder: train.MonitoredTrainingSession(checkpoint_dir=folder + "/new"),
        RuntimeError, "Global step should be created to use StepCounterHook."),
    "two savers": (
        lambda train, _: (
            global_step(), [v1.add_to_collection("savers", v1.train.Saver()) for _ in range(2)],
            train.MonitoredSession()),
        RuntimeError, "More than one item in collection savers. Please indicate which one to use"),
    "a global step that is no integer": (
        lambda train, _: (
            v1.get_variable("global_step", initializer=1.0),
            train.MonitoredSession(hooks=[train.StopAtStepHook(last_step=1)])),
        TypeError, 'Existing "global_step" does not have integer type: '),
    "a model that init_op doesn't get ready": (
        lambda train, _: (
            v1.get_variable("w", initializer=1.0),
            train.MonitoredSession(train.ChiefSessionCreator(train.Scaffold(init_op=tf.no_op())))),
        RuntimeError, "Init operations did not make model ready for local_init.  Init op: NoOp, init fn: None, error: "
        "Variables not initialized: w"),
    # Intervals that TensorFlow refuses too.
    "no interval to save at": (
        lambda train, folder: train.CheckpointSaverHook(folder), ValueError,
        "Either every_secs or every_steps should be provided."),
    "two intervals to save at": (
        lambda train, folder: train.CheckpointSaverHook(folder, save_secs=1, save_steps=1), ValueError,
        "Can not provide both every_secs and every_steps."),
    "two intervals to profile at": (
        lambda train, folder: train.ProfilerHook(1, 1, folder + "/new"), ValueError,
        "Can not provide both every_secs and every_steps."),
    "no interval to log at": (
        lambda train, _: train.LoggingTensorHook([]), ValueError,
        "either at_end and/or exactly one of every_n_iter and every_n_secs must be provided."),
    "two intervals to log at": (
        lambda train, _: train.LoggingTensorHook([], every_n_iter=1, every_n_secs=1, at_end=True), ValueError,
        "either at_end and/or exactly one of every_n_iter and every_n_secs must be provided."),
    "an interval to log at of zero": (
        lambda train, _: train.LoggingTensorHook([], every_n_iter=0), ValueError, "invalid every_n_iter=0."),
    "an interval to log at below zero": (
        lambda train, _: train.LoggingTensorHook([], every_n_iter=-10), ValueError, "invalid every_n_iter=-10."),
}  # fmt: skip


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_what_is_said(impl: Any, graph: Any, tmp_path: Any, mistake: str) -> None:
    make, error, text = MISTAKES[mistake]
    with pytest.raises(error) as raised:
        make(impl.train, str(tmp_path))
    assert raised.type is error
    assert text in str(raised.value)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are listed on Linux alone")
@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_nothing_is_left_behind(graph: Any, tmp_path: Any, open_files: Any, mistake: str) -> None:
    """No thread, no open file, no directory that wasn't there."""
    make, error, _ = MISTAKES[mistake]
    threads = set(threading.enumerate())
    with pytest.raises(error):
        make(train, str(tmp_path))
    assert set(threading.enumerate()) <= threads
    assert open_files() == []
    assert [name for name in os.listdir(tmp_path) if os.path.isdir(tmp_path / name)] == []


# What ours says after TensorFlow's text: the argument, the value, and what to give.
HINTS = {
    "an object for a hook": r"hooks must be SessionRunHook objects, got <object object",
    "a number for hooks": r"hooks=5 must be a list of SessionRunHook objects",
    "a hook for a list of hooks": r"hooks=<.*StopAtStepHook.*> must be a list of SessionRunHook objects",
    "a number for a scaffold": r"scaffold=3 must be a tf\.compat\.v1\.train\.Scaffold, or None",
}


@pytest.mark.parametrize("mistake", list(HINTS))
def test_what_to_give_instead(graph: Any, tmp_path: Any, mistake: str) -> None:
    make, error, _ = MISTAKES[mistake]
    with pytest.raises(error, match=HINTS[mistake]):
        make(train, str(tmp_path))


ARGUMENTS = [
    ({"chief_only_hooks": 3}, "'int' object is not iterable: chief_only_hooks=3 must be a list of SessionRunHook"),
    ({"save_checkpoint_steps": "a"}, "'save_checkpoint_steps': 'a'} must be numbers; pass 0 or None to disable them"),
    ({"save_summaries_secs": "b"}, "'save_summaries_secs': 'b'} must be numbers; pass 0 or None to disable them"),
    ({"log_step_count_steps": "c"}, "'log_step_count_steps': 'c'} must be numbers; pass 0 or None to disable them"),
]


@pytest.mark.parametrize(("arguments", "text"), ARGUMENTS)
def test_arguments_of_a_training_session(graph: Any, tmp_path: Any, arguments: Any, text: str) -> None:
    global_step()
    with pytest.raises(TypeError, match=text):
        train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path / "new"), **arguments)
    assert os.listdir(tmp_path) == []


def test_a_number_for_a_checkpoint_directory(graph: Any) -> None:
    text = "expected str, bytes or os.PathLike object, not int: checkpoint_dir=3 must be the path of a directory"
    with pytest.raises(TypeError, match=text):
        train.CheckpointSaverHook(3, save_steps=1)


def test_training_session_takes_them_for_off(graph: Any, tmp_path: Any) -> None:
    """As TensorFlow does: there they mean that the hook isn't wanted."""
    global_step()
    with train.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), save_checkpoint_secs=0, save_summaries_steps=-1, log_step_count_steps=0
    ):
        pass
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("executor", ["fast", "", None, 3])
def test_an_executor_that_is_none(graph: Any, executor: Any) -> None:
    for make in (
        lambda: train.MonitoredTrainingSession(executor=executor),
        lambda: train.MonitoredSession(train.ChiefSessionCreator(executor=executor)),
    ):
        with pytest.raises((ValueError, TypeError)) as raised:
            make()
        assert "executor" in str(raised.value)
        assert repr(executor) in str(raised.value)
        if isinstance(executor, str):
            assert "thread_pool" in str(raised.value)  # One of those that there are.


@pytest.mark.parametrize("value", ["no", "False", b"0", ""])
@pytest.mark.parametrize("make", ["MonitoredTrainingSession", "Supervisor"])
def test_texts_for_chief(graph: Any, make: str, value: Any, tf_log: Any) -> None:
    """They count as TensorFlow counts them, with a warning."""
    global_step()
    made = getattr(train, make)(is_chief=value or True)
    if make == "MonitoredTrainingSession":
        made.close()
    expected = f"is_chief={value!r} counts as True. Pass True or False, as in is_chief=(text == 'true')."
    assert (expected in tf_log.messages) == bool(value)


@pytest.mark.parametrize("value", [1, np.bool_(True), np.int64(1)])
def test_other_truth_values_for_chief(impl: Any, graph: Any, value: Any) -> None:
    global_step()
    with impl.train.MonitoredTrainingSession(is_chief=value) as session:
        assert session.run(v1.train.get_global_step()) == 0


UNWRITTEN = [
    ({"save_checkpoint_steps": 10}, "save_checkpoint_steps=10 has no effect without .* Pass checkpoint_dir.$"),
    ({"save_checkpoint_secs": 10, "summary_dir": "there"}, "save_checkpoint_secs=10 has .*: no checkpoint is written"),
    ({"save_summaries_secs": 5}, "save_summaries_secs=5 has .*: no summary .* Pass checkpoint_dir or summary_dir.$"),
]


@pytest.mark.parametrize(("arguments", "text"), UNWRITTEN)
def test_intervals_without_a_directory(graph: Any, tmp_path: Any, tf_log: Any, arguments: Any, text: str) -> None:
    global_step()
    if "summary_dir" in arguments:
        arguments = {**arguments, "summary_dir": str(tmp_path)}
    with train.MonitoredTrainingSession(**arguments):
        pass
    assert len([message for message in tf_log.messages if re.search(text, message)]) == 1


def test_intervals_that_are_off_or_used(graph: Any, tmp_path: Any, tf_log: Any) -> None:
    global_step()
    for arguments in (
        {"save_checkpoint_steps": 0, "save_checkpoint_secs": None},
        {"save_summaries_steps": 5, "summary_dir": str(tmp_path / "summaries")},
        {"save_checkpoint_steps": 10, "checkpoint_dir": str(tmp_path / "model")},
    ):
        with train.MonitoredTrainingSession(**arguments):
            pass
    assert "has no effect" not in tf_log.text


GRACES = [
    (-1, "stop_grace_period_secs=-1 is negative: `close` doesn't wait for threads. Pass a number of 0 or more."),
    (float("nan"), "stop_grace_period_secs is NaN: `close` doesn't wait for threads."),
    ("120", "stop_grace_period_secs='120' isn't a number: `close` fails if a thread runs. Pass a number of seconds."),
    (None, "stop_grace_period_secs=None isn't a number"),
]


@pytest.mark.parametrize(("value", "text"), GRACES)
def test_grace_periods(impl: Any, graph: Any, tf_log: Any, value: Any, text: str) -> None:
    global_step()
    for make in (impl.train.MonitoredTrainingSession, impl.train.MonitoredSession):
        with make(stop_grace_period_secs=value) as session:
            session.run(v1.train.get_global_step())
    assert tf_log.text.count(text) == 2 * (impl.train is train)


@pytest.mark.parametrize(
    ("make", "name", "near"),
    [
        (train.MonitoredTrainingSession, "checkpoint_directory", "checkpoint_dir"),
        (estimator.RunConfig, "save_checkpoint_steps", "save_checkpoints_steps"),
    ],
)
def test_misspelled_arguments(make: Callable[..., Any], name: str, near: str) -> None:
    with pytest.raises(TypeError, match=f"got an unexpected keyword argument '{name}'. Did you mean '{near}'"):
        make(**{name: 5})
