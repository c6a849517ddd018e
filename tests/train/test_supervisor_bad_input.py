"""What a Supervisor refuses, in which words; and that a refusal leaves nothing behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fastsup import train

v1 = tf.compat.v1


@pytest.fixture
def graph(graph: Any) -> Any:
    v1.get_variable("w", initializer=1.0)
    return graph


with tf.Graph().as_default():
    FOREIGN = tf.constant([""], name="foreign")
    v1.get_variable("v", initializer=1.0)
    FOREIGN_SAVER = v1.train.Saver(name="foreign_saver")
NOT_OF_THIS_GRAPH = 'cannot be interpreted as a Tensor. (Tensor Tensor("foreign:0", shape=(1,), dtype=string) is not an'
NO_FETCH = 'Argument `fetch` = 5 has invalid type "int" must be a string or Tensor.'


def in_a_file(folder: str) -> str:
    """The path of a file, where a directory is wanted."""
    path = os.path.join(folder, "file")
    with open(path, "w") as file:
        file.write("not a directory")
    return path


def opens(**arguments: Any) -> Callable[..., Any]:
    """A mistake in the arguments of a supervisor that saves."""

    def mistake(train: Any, folder: str) -> None:
        with train.Supervisor(**{"logdir": os.path.join(folder, "new"), **arguments}).managed_session() as session:
            session.run(tf.compat.v1.global_variables())

    return mistake


# What is done, the exception's type and what is in its text. The same for both.
BEFORE_ANYTHING_IS_MADE: dict[str, tuple[Callable[..., Any], type[BaseException], str]] = {
    "a file for a directory": (
        lambda train, folder: train.Supervisor(logdir=in_a_file(folder)), tf.errors.FailedPreconditionError,
        "file is not a directory"),
    "a directory in a file": (
        lambda train, folder: train.Supervisor(logdir=in_a_file(folder) + "/sub"), tf.errors.FailedPreconditionError,
        "file is not a directory"),
    "a directory where none can be made": (
        lambda train, _: train.Supervisor(logdir="/proc/self/new"), tf.errors.NotFoundError, "/proc/self/new"),
    "a number for a directory": (
        opens(logdir=3), TypeError, "expected str, bytes or os.PathLike object, not int"),
    "a number for a base name": (
        opens(checkpoint_basename=3), TypeError, "join() argument must be str, bytes, or os.PathLike object, not "),
    "a text for a graph": (opens(graph="x"), AttributeError, "'str' object has no attribute 'as_default'"),
    "a text for a saver": (opens(saver="x"), AttributeError, "'str' object has no attribute 'saver_def'"),
    "a number for an init_fn": (opens(init_fn=3), TypeError, "'int' object is not callable"),
    "an argument that isn't": (opens(nothing=1), TypeError, "got an unexpected keyword argument 'nothing'"),
    "ready for local init without it": (
        opens(local_init_op=None, ready_for_local_init_op=FOREIGN), ValueError,
        "If you pass a ready_for_local_init_op you must also pass a local_init_op , ready_for_local_init_op [Tensor("),
    "a ready_op of another graph": (opens(ready_op=FOREIGN), ValueError, NOT_OF_THIS_GRAPH),
    "a number for a ready_op": (opens(ready_op=5), TypeError, NO_FETCH),
    "the name of no ready_op": (
        opens(ready_op="nothing"), ValueError, "The name 'nothing' refers to an Operation not in the graph."),
    "an init_op of another graph": (opens(init_op=FOREIGN), ValueError, NOT_OF_THIS_GRAPH),
    "a number for an init_op": (opens(init_op=5), TypeError, NO_FETCH),
    "a local_init_op of another graph": (opens(local_init_op=FOREIGN), ValueError, NOT_OF_THIS_GRAPH),
    "a ready_for_local_init_op of another graph": (
        opens(ready_for_local_init_op=FOREIGN), ValueError, NOT_OF_THIS_GRAPH),
    "a number for a global step": (opens(global_step=5), TypeError, NO_FETCH),
}  # fmt: skip

# What comes out when the session is made. An events file has been begun then.
WITH_THE_SESSION: dict[str, tuple[Callable[..., Any], type[BaseException], str]] = {
    "a directory that can't be written": (
        opens(logdir="/proc/self"), tf.errors.NotFoundError, "/proc/self/graph.pbtxt"),
    "a model that init_op doesn't get ready": (
        lambda train, folder: opens(init_op=tf.no_op())(train, folder), RuntimeError,
        "Init operations did not make model ready.  Init op: NoOp, init fn: None, local_init_op: "),
    "feeds of another graph": (
        opens(init_feed_dict={FOREIGN: ["a"]}), TypeError, "Cannot interpret feed_dict key as Tensor: Tensor Tensor("),
    "a number for a session manager": (
        opens(session_manager=3), AttributeError, "'int' object has no attribute 'prepare_session'"),
}  # fmt: skip
MISTAKES = {**BEFORE_ANYTHING_IS_MADE, **WITH_THE_SESSION}


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_what_is_said(impl: Any, graph: Any, tmp_path: Any, mistake: str) -> None:
    make, error, text = MISTAKES[mistake]
    left = set(threading.enumerate())
    with pytest.raises(error) as raised:
        make(impl.train, str(tmp_path))
    assert raised.type is error
    assert text in str(raised.value)
    if impl.name == "tensorflow":
        # It may leave the thread of an events writer, which nobody can end but through itself.
        for thread in set(threading.enumerate()) - left:
            thread._queue.put(thread._close_sentinel)  # type: ignore[attr-defined]


# What ours says after TensorFlow's text: the argument, the value, and what to give.
HINTS = {
    "a number for a directory": r"not int: logdir=3 must be the path of a directory",
    "a text for a graph": r"graph='x' must be a tf\.Graph",
    "a text for a saver": r"saver='x' must be a tf\.compat\.v1\.train\.Saver, or None to save nothing",
    "a number for an init_fn": r"init_fn=3 must be a function of the session",
}


@pytest.mark.parametrize("mistake", list(HINTS))
def test_what_to_give_instead(graph: Any, tmp_path: Any, mistake: str) -> None:
    make, error, _ = MISTAKES[mistake]
    with pytest.raises(error, match=HINTS[mistake]):
        make(train, str(tmp_path))
    # Nor was the graph touched.
    assert not graph.finalized
    assert len(graph.get_collection(v1.GraphKeys.READY_OP)) == 0


@pytest.mark.parametrize("value", [1.0, [1.0]])
def test_ready_op_that_answers_something_else(graph: Any, value: Any) -> None:
    text = r"The result of ready_op=<tf\.Tensor 'answer:0' .*> must be an empty 1-D string tensor if the model is"
    sv = train.Supervisor(ready_op=tf.constant(value, name="answer"))
    with pytest.raises((TypeError, AttributeError), match=text), sv.managed_session():
        pass


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are listed on Linux alone")
@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_nothing_is_left_behind(graph: Any, tmp_path: Any, open_files: Any, mistake: str) -> None:
    make, error, _ = MISTAKES[mistake]
    threads = set(threading.enumerate())
    with pytest.raises(error):
        make(train, str(tmp_path))
    assert set(threading.enumerate()) <= threads
    assert open_files() == []
    if mistake in BEFORE_ANYTHING_IS_MADE:
        assert [name for name in os.listdir(tmp_path) if os.path.isdir(tmp_path / name)] == []


def test_session_that_was_not_managed(graph: Any, tmp_path: Any, events: Any) -> None:
    """Its supervisor holds nothing either, and can be used again or stopped."""
    wanted = threading.Event()

    def init_fn(session: Any) -> None:
        if not wanted.is_set():
            raise KeyError("not yet")

    threads = set(threading.enumerate())
    sv = train.Supervisor(logdir=str(tmp_path), init_fn=init_fn, save_model_secs=0, save_summaries_secs=0)
    with pytest.raises(KeyError, match="not yet"):
        sv.prepare_or_wait_for_session()
    assert set(threading.enumerate()) <= threads
    sv.stop()
    wanted.set()
    sv.prepare_or_wait_for_session().close()
    sv.stop()
    assert events(tmp_path)[-3:] == ["0:graph_def", "0:meta_graph_def", "0:STOP"]


# What TensorFlow takes, and then does wrong or fails later.


@pytest.mark.parametrize("argument", ["save_summaries_secs", "save_model_secs"])
def test_endless_seconds(graph: Any, argument: str) -> None:
    with pytest.raises(ValueError, match=f"^{argument} must be finite, got inf; pass 0 "):
        train.Supervisor(**{argument: float("inf")})


@pytest.mark.parametrize(
    ("argument", "value"),
    [("save_summaries_secs", "1"), ("save_model_secs", [1]), ("stop_grace_secs", None), ("stop_grace_secs", "1")],
)
def test_seconds_that_are_no_number(graph: Any, argument: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"^{argument} must be a number of seconds, got .* of type "):
        train.Supervisor(**{argument: value})


@pytest.mark.parametrize("value", [0, 1, 0.5, np.int64(2), np.float32(0.5), True])
def test_seconds_that_are_taken(impl: Any, graph: Any, value: Any) -> None:
    sv = impl.train.Supervisor(save_summaries_secs=value, save_model_secs=value, stop_grace_secs=value)
    assert sv.save_summaries_secs is value
    assert sv.save_model_secs is value
    with sv.managed_session():
        pass


def test_endless_grace(impl: Any, graph: Any) -> None:
    sv = impl.train.Supervisor(stop_grace_secs=float("inf"))
    with sv.managed_session():
        thread = sv.loop(0.01, lambda: None)
    assert sv.should_stop()
    assert not thread.is_alive()


@pytest.mark.parametrize("value", ["", "Warn", None, 3])
def test_stray_threads(graph: Any, value: Any) -> None:
    with pytest.raises(ValueError, match=r"^stray_threads must be one of 'warn', 'raise'; got ") as raised:
        train.Supervisor(stray_threads=value)
    assert repr(value) in str(raised.value)


@pytest.mark.parametrize("value", ["fast", None, 3])
def test_executor_that_is_none(graph: Any, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"^executor must be") as raised:
        train.Supervisor(executor=value)
    assert repr(value) in str(raised.value)


def test_executor_and_session_manager(graph: Any) -> None:
    manager = train.SessionManager()
    with pytest.raises(ValueError, match=r"^executor='inline' and session_manager=.* were both given: .* pass "):
        train.Supervisor(session_manager=manager, executor="inline")
    with train.Supervisor(session_manager=manager).managed_session():
        pass


def test_saver_of_another_graph(graph: Any, tmp_path: Any) -> None:
    text = r"^Cannot interpret feed_dict key as Tensor: The name 'foreign_saver/Const:0' refers to a Tensor which does "
    with pytest.raises(TypeError, match=text) as raised:
        train.Supervisor(logdir=str(tmp_path / "new"), saver=FOREIGN_SAVER)
    assert "was created for another graph: create it while the Supervisor's graph is the default" in str(raised.value)
    assert os.listdir(tmp_path) == []
    # Without a directory it's never used.
    with train.Supervisor(saver=FOREIGN_SAVER).managed_session():
        pass


def test_summary_op_of_another_graph(graph: Any, tmp_path: Any) -> None:
    with pytest.raises(ValueError) as raised:
        train.Supervisor(logdir=str(tmp_path / "new"), summary_op=FOREIGN)
    assert NOT_OF_THIS_GRAPH in str(raised.value)
    assert str(raised.value).endswith("It was passed as summary_op: pass one from the Supervisor's graph.")
    assert os.listdir(tmp_path) == []


def test_names_for_operations(impl: Any, graph: Any) -> None:
    """As a session takes them."""
    ready = tf.constant([], tf.string, name="ready")
    initializer = v1.global_variables_initializer()
    sv = impl.train.Supervisor(ready_op=ready.name, init_op=initializer.name, local_init_op=[])
    with sv.managed_session() as session:
        assert session.run(v1.global_variables()) == [1.0]


def test_loop_at_an_endless_interval(graph: Any) -> None:
    sv = train.Supervisor()
    with pytest.raises(ValueError, match=r"^timer_interval_secs must be finite, got inf; pass None for no pause"):
        sv.loop(float("inf"), print)
    assert sv.coord._registered_threads == set()


def test_loop_of_no_function(graph: Any) -> None:
    sv = train.Supervisor()
    with pytest.raises(TypeError, match=r"^'int' object is not callable: target must be a function"):
        sv.loop(1, 5)
    assert sv.coord._registered_threads == set()


def test_loop_with_arguments_for_nothing(impl: Any, graph: Any) -> None:
    with pytest.raises(ValueError, match=r"^'args' and 'kwargs' argument require that you also pass 'target'$"):
        impl.train.Supervisor().loop(1, None, (1,))


def test_use_after_the_stop(impl: Any, graph: Any, tmp_path: Any) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path), save_model_secs=0, save_summaries_secs=0)
    with sv.managed_session() as session:
        pass
    with pytest.raises(RuntimeError, match=r"^Attempted to use a closed Session\.$"):
        session.run("w:0")
    with pytest.raises(RuntimeError, match=r"^Attempted to use a closed Session\.$"):
        sv.saver.save(session, sv.save_path)
    with pytest.warns(UserWarning, match="Attempting to use a closed FileWriter"):
        sv.summary_computed(session, v1.Summary())


def test_services_that_can_not_be_started(graph: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that were made and not started hold nothing up, nor does a grace without end."""

    def no_thread(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    threads = set(threading.enumerate())
    sv = train.Supervisor(logdir=str(tmp_path), stop_grace_secs=float("inf"))
    monkeypatch.setattr(train.LooperThread, "start", no_thread)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        sv.prepare_or_wait_for_session()
    assert set(threading.enumerate()) <= threads
    assert not sv.should_stop()
