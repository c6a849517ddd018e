"""Our classes are TensorFlow's for isinstance and issubclass, and nothing that they do is TensorFlow's."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from fastsup import train

v1 = tf.compat.v1

NAMES = [
    "ChiefSessionCreator", "MonitoredSession", "SingularMonitoredSession", "Supervisor", "WorkerSessionCreator",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_subclass_of_tensorflows(name: str) -> None:
    assert issubclass(getattr(train, name), getattr(v1.train, name))
    assert not issubclass(getattr(v1.train, name), getattr(train, name))


@pytest.mark.parametrize("name", [*NAMES, "SessionManager"])
def test_only_our_methods_are_found(name: str) -> None:
    """Of SessionManager some are TensorFlow's on purpose."""
    ours, theirs = getattr(train, name), getattr(v1.train, name)
    inherited = {
        attribute
        for attribute in dir(theirs)
        if attribute not in dir(object) and getattr(ours, attribute) is getattr(theirs, attribute)
    }
    # Python 3.14 keeps annotations as a function, which is None where a class has none.
    data = {"_tf_api_names", "_tf_api_names_v1", "__dict__", "__weakref__", "_abc_impl", "__annotate_func__"}
    if name == "SessionManager":
        assert "prepare_session" not in inherited
    elif name == "Supervisor":
        assert inherited - data == {"USE_DEFAULT"}  # the number 0
    else:
        # Python 3.13 notes in a class what its methods assign to; Cython doesn't.
        assert inherited - data <= {"__module__", "__abstractmethods__", "__static_attributes__"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: train.MonitoredSession(),
        lambda: train.MonitoredTrainingSession(),
        lambda: train.SingularMonitoredSession(),
    ],
)
def test_sessions(graph: Any, make: Any) -> None:
    w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
    found: list[Any] = []

    def step_fn(step_context: Any) -> Any:
        found.append(step_context)
        return step_context.session.run(w)

    with make() as session:
        kind = type(session).__name__
        assert isinstance(session, getattr(v1.train, kind))
        assert isinstance(session, v1.train.SingularMonitoredSession) == (kind[0] == "S")
        session.run_step_fn(step_fn)
        assert isinstance(found[0], v1.train.MonitoredSession.StepContext)
        assert isinstance(found[0], train.MonitoredSession.StepContext)
        assert session.run(w) == 0.0


def test_a_session_of_tensorflow_is_none_of_ours(graph: Any) -> None:
    with v1.train.MonitoredSession() as session:
        assert not isinstance(session, train.MonitoredSession)


def test_a_subclass_of_both(graph: Any) -> None:
    class Both(train.MonitoredSession):
        def __init__(self, **more: Any) -> None:
            super().__init__(**more)
            self.made = True

    with Both(hooks=[]) as session:
        assert session.made
        assert not session.should_stop()
    assert isinstance(session, v1.train.MonitoredSession)


def test_a_supervisor(graph: Any) -> None:
    assert isinstance(train.Supervisor(), v1.train.Supervisor)
