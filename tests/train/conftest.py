"""What the tests of fastsup.train share: a trace of callbacks, a clock that stands still, readers of event files."""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.training import monitored_session, training_util
from tensorflow.python.util import deprecation

v1 = tf.compat.v1

HOOK_CALLBACKS = ("begin", "after_create_session", "before_run", "after_run", "end")
LISTENER_CALLBACKS = ("begin", "before_save", "after_save", "end")


class RecordingHook(v1.train.SessionRunHook):
    """Writes each of its callbacks into a trace, and then does what it was told to do in it.

    Args:
      trace: where the callbacks are written, as "name.callback".
      name: what the trace calls this hook.
      actions: what a callback does, by the callback's name: called with the hook's number of calls of this callback so
        far and the callback's arguments, and gives the callback's return value.
    """

    def __init__(self, trace: list[str], name: str, **actions: Callable[..., Any]) -> None:
        assert set(actions) <= set(HOOK_CALLBACKS)
        self.trace, self.name, self.actions = trace, name, actions
        self.calls = dict.fromkeys(HOOK_CALLBACKS, 0)
        self.arguments: dict[str, list[Any]] = {callback: [] for callback in HOOK_CALLBACKS}

    def _note(self, callback: str, *args: Any) -> Any:
        number = self.calls[callback]
        self.calls[callback] += 1
        self.arguments[callback].append(args)
        self.trace.append(f"{self.name}.{callback}")
        return self.actions[callback](number, *args) if callback in self.actions else None

    def begin(self) -> None:
        self._note("begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._note("after_create_session", session, coord)

    def before_run(self, run_context: Any) -> Any:
        return self._note("before_run", run_context)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._note("after_run", run_context, run_values)

    def end(self, session: Any) -> None:
        self._note("end", session)


class RecordingListener(v1.train.CheckpointSaverListener):
    """Writes each of its callbacks with its global step into a trace; `actions` as for a RecordingHook."""

    def __init__(self, trace: list[str], name: str, **actions: Callable[..., Any]) -> None:
        assert set(actions) <= set(LISTENER_CALLBACKS)
        self.trace, self.name, self.actions = trace, name, actions
        self.calls = dict.fromkeys(LISTENER_CALLBACKS, 0)

    def _note(self, callback: str, *args: Any) -> Any:
        number = self.calls[callback]
        self.calls[callback] += 1
        self.trace.append(f"{self.name}.{callback}" + (f":{args[1]}" if args else ""))
        return self.actions[callback](number, *args) if callback in self.actions else None

    def begin(self) -> None:
        self._note("begin")

    def before_save(self, session: Any, global_step_value: Any) -> None:
        self._note("before_save", session, global_step_value)

    def after_save(self, session: Any, global_step_value: Any) -> Any:
        return self._note("after_save", session, global_step_value)

    def end(self, session: Any, global_step_value: Any) -> None:
        self._note("end", session, global_step_value)


class Trace(list[str]):
    """What was called back, in order."""

    def hook(self, name: str, **actions: Callable[..., Any]) -> RecordingHook:
        return RecordingHook(self, name, **actions)

    def listener(self, name: str, **actions: Callable[..., Any]) -> RecordingListener:
        return RecordingListener(self, name, **actions)


@pytest.fixture
def trace() -> Trace:
    return Trace()


class ScriptedSession:
    """A session that returns, or raises, what its script says, and remembers how it was called. Not a tf.Session."""

    sess_str = b"scripted"

    def __init__(self, *script: Any, close_error: Any = None) -> None:
        self.script, self.close_error, self.calls = list(script), close_error, []

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((args, kwargs))
        result = self.script.pop(0)
        if isinstance(result, BaseException):
            raise result
        return result

    def close(self) -> None:
        self.calls.append("close")
        if self.close_error is not None:
            raise self.close_error


@pytest.fixture
def scripted() -> type[ScriptedSession]:
    """Makes a session that returns, or raises, one thing a run: scripted("result", ValueError())."""
    return ScriptedSession


@pytest.fixture
def aborted() -> Callable[..., Exception]:
    """Makes the error of a session whose server went away."""
    return lambda text="the server went away": tf.errors.AbortedError(None, None, text)


@pytest.fixture
def report() -> Callable[[Any, Exception], None]:
    """Has a thread report an error to a coordinator, and end: report(coord, error)."""

    def run(coord: Any, error: Exception) -> None:
        def body() -> None:
            with coord.stop_on_exception():
                raise error

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()

    return run


class Clock:
    """`time.time` and `time.sleep` of a test: time passes when the test, or a sleeper, says so."""

    def __init__(self) -> None:
        self.now = 1_500_000_000.0
        self.reads = 0
        self.slept: list[float] = []

    def __call__(self) -> float:
        self.reads += 1
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replaces `time.time`. `clock.now += seconds` lets time pass, `clock.reads` counts the reads."""
    # fastsup takes the `time.time` that it finds when it is imported for the system's.
    import fastsup.core.clock  # noqa: F401

    replacement = Clock()
    monkeypatch.setattr("time.time", replacement)
    return replacement


class CountingStep:
    """The train op of a graph whose global step it increments. Global step reads of the same run come first."""

    def __init__(self, increment: Any = 1) -> None:
        self.global_step = v1.train.get_or_create_global_step()
        # Where a run both reads and writes the variable, TensorFlow leaves open which is first: so the order is given.
        self.read = training_util._get_or_create_global_step_read()
        with tf.control_dependencies([self.read]):
            self.op = v1.assign_add(self.global_step, tf.cast(increment, tf.int64)).op


@pytest.fixture
def counting_step() -> Callable[..., CountingStep]:
    """Builds, in the default graph, the global step and an op that adds to it: `.op`, `.global_step`, `.read`."""
    return CountingStep


@pytest.fixture
def step(graph: Any, counting_step: Any) -> CountingStep:
    """A step of the default graph that counts itself."""
    return counting_step()


@pytest.fixture
def train_op(step: CountingStep) -> Any:
    """The operation of `step`."""
    return step.op


@pytest.fixture
def step_tensor(graph: Any) -> Any:
    """A tensor that adds 1 to the global step. Its value is the step after the run."""
    return v1.assign_add(v1.train.get_or_create_global_step(), 1)


def _describe(event: Any) -> str | None:
    kind = event.WhichOneof("what")
    if kind == "summary":
        return f"{event.step}:" + ",".join(value.tag for value in event.summary.value)
    if kind == "session_log":
        return f"{event.step}:{type(event.session_log).SessionStatus.Name(event.session_log.status)}"
    if kind == "tagged_run_metadata":
        return f"{event.step}:run_metadata {event.tagged_run_metadata.tag}"
    return None if kind == "file_version" else f"{event.step}:{kind}"


def read_raw_events(folder: Any) -> list[Any]:
    v1.summary.FileWriterCache.clear()
    names = sorted(name for name in os.listdir(folder) if name.startswith("events.out.tfevents"))
    with deprecation.silence():
        return [event for name in names for event in v1.train.summary_iterator(os.path.join(folder, name))]


@pytest.fixture
def raw_events() -> Callable[[Any], list[Any]]:
    """Reads back the events that were written into a folder, as protocol buffers."""
    return read_raw_events


@pytest.fixture
def events() -> Callable[[Any], list[str]]:
    """Reads back the events that were written into a folder, as "step:what"; the file's version is left out."""
    return lambda folder: [text for text in map(_describe, read_raw_events(folder)) if text is not None]


@pytest.fixture
def files() -> Callable[[Any], list[str]]:
    """The names of the files under a folder; of event files without the time and the machine."""

    def names_under(folder: Any) -> list[str]:
        found = []
        for parent, _, names in os.walk(folder):
            relative = os.path.relpath(parent, folder)
            found += [os.path.normpath(os.path.join(relative, name)) for name in names]
        return sorted(re.sub(r"events\.out\.tfevents\..*", "events", name) for name in found)

    return names_under


@pytest.fixture
def raw_session() -> Callable[[Any], Any]:
    """The tf.Session under a monitored session of either implementation."""
    return lambda session: session.raw_session() if hasattr(session, "raw_session") else session._tf_sess()


_WRAPPED = ("WrappedSession", "HookedSession", "CoordinatedSession", "RecoverableSession")


def wrapped_of(impl: Any) -> SimpleNamespace:
    if impl.name == "tensorflow":
        return SimpleNamespace(**{name: getattr(monitored_session, f"_{name}") for name in _WRAPPED})
    return SimpleNamespace(**{name: getattr(impl.train, name) for name in _WRAPPED})


@pytest.fixture
def wrapped(impl: Any) -> SimpleNamespace:
    """The wrapped sessions of an implementation, under their public names: TensorFlow keeps them private."""
    return wrapped_of(impl)


def open_hooked(impl: Any, *hooks: Any) -> tuple[Any, Any]:
    for hook in hooks:
        hook.begin()
    session = impl.Session()
    session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
    for hook in hooks:
        hook.after_create_session(session, None)
    return session, wrapped_of(impl).HookedSession(session, list(hooks))


@pytest.fixture
def hooked(impl: Any) -> Callable[..., Any]:
    """Begins hooks, makes a session with initialised variables and gives (session, hooked session)."""
    return functools.partial(open_hooked, impl)


@pytest.fixture
def hooked_in() -> Callable[..., Any]:
    """As `hooked`, with the implementation as its first argument."""
    return open_hooked


@pytest.fixture(autouse=True)
def _sessions_leave_no_thread(no_thread_left: None) -> None:
    """A session that has ended leaves no thread behind, however it ended."""


@pytest.fixture
def open_files(tmp_path: Any) -> Callable[[], list[str]]:
    """Lists the files under the test's folder that this process holds open. On Linux alone."""

    def under_the_folder() -> list[str]:
        found = []
        for number in os.listdir("/proc/self/fd"):
            path = os.path.join("/proc/self/fd", number)
            target = os.readlink(path) if os.path.lexists(path) else ""
            if target.startswith(str(tmp_path)):
                found.append(target)
        return found

    return under_the_folder
