"""What a signal handler raises while a function is lifted, or its error explained, reaches the program."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

import fastsup
from fastsup.common.errors import is_user_error
from fastsup.eager import lift, tf_abi


class Late(Exception):
    """Raised by a signal handler."""


@pytest.fixture(params=[TimeoutError, ValueError, RuntimeError, Late])
def raised(request: pytest.FixtureRequest) -> Iterator[type[Exception]]:
    """The class of what the handler of SIGUSR1 raises."""

    def handle(number: int, frame: Any) -> None:
        raise request.param("too late")

    before = signal.signal(signal.SIGUSR1, handle)
    yield request.param
    signal.signal(signal.SIGUSR1, before)


def interrupt(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Lets a signal come in the next call of a method, and never again."""
    original = getattr(owner, name)

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGUSR1)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, interrupted)


@pytest.mark.parametrize("place", ["__init__", "compile", "_import"])
def test_while_a_function_is_lifted(raised: type[Exception], place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function = fastsup.function(lambda x: x + 1.0, executor="inline", fallback="raise")
    interrupt(monkeypatch, lift.LiftedGraph, place)
    with pytest.raises(raised, match="too late"):
        function(tf.constant(1.0))
    assert function(tf.constant(1.0)) == 2.0
    assert function.lifted
    assert function.why_not_lifted == ""


def test_while_an_error_is_explained(raised: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    function = fastsup.function(lambda x: tf.gather(tf.ones([3]), x), executor="single_threaded", fallback="raise")
    assert function(tf.constant(1)) == 1.0
    interrupt(monkeypatch, lift.LiftedGraph, "with_operation")
    with pytest.raises(raised, match="too late"):
        function(tf.constant(5))
    with pytest.raises(tf.errors.InvalidArgumentError, match="GatherV2"):
        function(tf.constant(5))


def test_while_the_self_test_runs(raised: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(monkeypatch, subprocess.Popen, "communicate")
    with pytest.raises(raised, match="too late"):
        tf_abi._self_test()


def test_errors_of_lifting_itself_leave_the_function_to_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    # Raised within the library, as what a new version of TensorFlow refuses would be.
    monkeypatch.setattr(lift, "_remove_nodes", lift.ops.convert_to_tensor)
    function = fastsup.function(lambda x: x + 1.0, fallback="silent")
    assert function(tf.constant(1.0)) == 2.0
    assert not function.lifted
    assert function.why_not_lifted


def own() -> None:
    raise ValueError


def of_a_library() -> None:
    tf.reshape(tf.ones([3]), [2])


@pytest.mark.parametrize(("function", "is_outside"), [(own, True), (of_a_library, False)])
def test_where_an_error_comes_from(function: Any, is_outside: bool) -> None:
    with pytest.raises((ValueError, tf.errors.OpError)) as raised:
        function()
    # Caught in a library, the traceback would begin there.
    here = raised.value.__traceback__
    assert here is not None
    raised.value.__traceback__ = here.tb_next if is_outside else here.tb_next and here.tb_next.tb_next
    assert is_user_error(raised.value) is is_outside
