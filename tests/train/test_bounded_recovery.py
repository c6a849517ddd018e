"""How often, and after what waits, a preempted session is made again, and then the error that it was preempted with."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import tensorflow as tf

from fastsup import train

v1 = tf.compat.v1


def aborted(number: int = 0) -> Exception:
    return tf.errors.AbortedError(None, None, f"failure {number}")


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What `time.sleep` was asked for. It doesn't."""
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    return waits


class Creator:
    """Makes sessions of scripts: what each run returns or raises; or raises in place of a session."""

    def __init__(self, scripted: Any, *scripts: Any) -> None:
        self.scripted, self.scripts, self.made = scripted, list(scripts), 0

    def create_session(self) -> Any:
        self.made += 1
        script = self.scripts.pop(0) if self.scripts else [aborted(self.made)]
        if isinstance(script, Exception):
            raise script
        return self.scripted(*script)


@pytest.mark.parametrize("limit", [0, 1, 3, 10])
def test_so_many_failures_in_a_row(scripted: Any, slept: list[float], tf_log: Any, limit: int) -> None:
    creator = Creator(scripted)
    session = train.RecoverableSession(creator, max_recoveries=limit)
    with pytest.raises(tf.errors.AbortedError) as raised:
        session.run("fetches")
    # The error of the last try, as it was.
    assert raised.value.message == f"failure {limit + 1}"
    assert creator.made == limit + 1
    warnings = [record for record in tf_log.records if "new session will be created" in record.getMessage()]
    assert len(warnings) == limit
    assert all(record.levelname == "WARNING" for record in warnings)
    for number, record in enumerate(warnings, 1):
        assert f"failure {number} (Failure {number} of at most {limit + 1} in a row" in record.getMessage()
    (error,) = [record for record in tf_log.records if record.levelname == "ERROR"]
    assert f"{limit + 1} failures, without a step that ran in between, in a row" in error.getMessage()
    assert "max_recoveries" in error.getMessage()


def test_the_waits(scripted: Any, slept: list[float]) -> None:
    """The first recovery comes at once; a single preemption costs no time."""
    session = train.RecoverableSession(Creator(scripted), max_recoveries=12)
    with pytest.raises(tf.errors.AbortedError):
        session.run("fetches")
    assert slept == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0])


def test_the_default_is_ten(scripted: Any, slept: list[float]) -> None:
    creator = Creator(scripted)
    with pytest.raises(tf.errors.AbortedError):
        train.RecoverableSession(creator).run("fetches")
    assert creator.made == 11


def test_none_is_without_end(scripted: Any, slept: list[float], tf_log: Any) -> None:
    creator = Creator(scripted, *([aborted()] for _ in range(50)), ["result"])
    assert train.RecoverableSession(creator, max_recoveries=None).run("fetches") == "result"
    assert creator.made == 51
    assert slept[-1] == 30.0
    assert "(Failure 50 in a row; the next try in 30 seconds.)" in tf_log.messages[-1]


@pytest.mark.parametrize("value", [-1, -10])
def test_it_isnt_negative(scripted: Any, value: int) -> None:
    creator = Creator(scripted)
    with pytest.raises(ValueError, match=f"max_recoveries must not be negative, got {value}"):
        train.RecoverableSession(creator, max_recoveries=value)
    assert creator.made == 0


@pytest.mark.parametrize("value", [1.5, "3", [1]])
def test_it_is_an_integer(scripted: Any, value: Any) -> None:
    with pytest.raises(TypeError, match="max_recoveries must be an integer or None, got"):
        train.RecoverableSession(Creator(scripted), max_recoveries=value)


def test_progress_starts_the_count_anew(scripted: Any, slept: list[float]) -> None:
    scripts = [script for n in range(6) for script in ([aborted()], ["result", aborted()])]
    creator = Creator(scripted, *scripts)
    session = train.RecoverableSession(creator, max_recoveries=2)
    for _ in range(6):
        assert session.run("fetches") == "result"
    with pytest.raises(tf.errors.AbortedError):
        session.run("fetches")
    # After each step that went well: a recovery at once, and one after 0.1 seconds.
    assert slept == pytest.approx([0.1] * 6)


def test_failures_to_make_a_session_count(scripted: Any, slept: list[float], tf_log: Any) -> None:
    creator = Creator(scripted, [aborted(1)], aborted(2), aborted(3), aborted(4))
    session = train.RecoverableSession(creator, max_recoveries=3)
    with pytest.raises(tf.errors.AbortedError, match="failure 4"):
        session.run("fetches")
    assert creator.made == 4
    assert "while a session was being created" in tf_log.messages[-2]


def test_so_do_those_at_the_very_start(scripted: Any, slept: list[float]) -> None:
    creator = Creator(scripted, aborted(1), aborted(2), aborted(3))
    with pytest.raises(tf.errors.AbortedError, match="failure 3"):
        train.RecoverableSession(creator, max_recoveries=2)


def test_other_errors_are_not_recovered_from(scripted: Any, slept: list[float]) -> None:
    creator = Creator(scripted, [KeyError("another")])
    with pytest.raises(KeyError):
        train.RecoverableSession(creator).run("fetches")
    assert creator.made == 1


def test_an_error_in_place_of_a_new_session_has_the_preemption_for_its_cause(scripted: Any, slept: list[float]) -> None:
    late = [tf.errors.DeadlineExceededError(None, None, f"nobody there {number}") for number in range(2)]
    session = train.RecoverableSession(Creator(scripted, [aborted(1)], aborted(2), late[0]))
    with pytest.raises(tf.errors.DeadlineExceededError, match="nobody there 0") as raised:
        session.run("fetches")
    assert str(raised.value.__cause__) == "failure 2"
    # At the start there was nothing before it.
    with pytest.raises(tf.errors.DeadlineExceededError, match="nobody there 1") as raised:
        train.RecoverableSession(Creator(scripted, late[1]))
    assert raised.value.__cause__ is None


def test_should_stop_counts_too(scripted: Any, slept: list[float]) -> None:
    class Broken:
        made = 0

        def create_session(self) -> Any:
            self.made += 1
            session = scripted()

            def fail() -> Any:
                raise aborted(self.made)

            wrapped = train.WrappedSession(session)
            wrapped._check_stop = fail
            wrapped.should_stop = lambda: False
            return wrapped

    creator = Broken()
    session = train.RecoverableSession(creator, max_recoveries=2)
    assert session.should_stop() is False
    assert session.should_stop() is False
    with pytest.raises(tf.errors.AbortedError, match="failure 3"):
        session.should_stop()


# In a session with a graph.


class Preempted(v1.train.SessionRunHook):
    """Preempts the runs with these numbers."""

    def __init__(self, *numbers: int) -> None:
        self.numbers, self.runs = numbers, 0

    def before_run(self, run_context: Any) -> None:
        self.runs += 1
        if self.runs in self.numbers:
            raise aborted(self.runs)


def test_monitored_training_session(train_op: Any, slept: list[float], tmp_path: Any) -> None:
    hook = Preempted(2, 3, 4)
    with pytest.raises(tf.errors.AbortedError, match="failure 4"):
        with train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=[hook], max_recoveries=2) as session:
            for _ in range(10):
                session.run(train_op)
    assert hook.runs == 4
    assert slept == pytest.approx([0.1])


def test_a_step_whose_hooks_fail_is_no_progress(train_op: Any, slept: list[float], tmp_path: Any) -> None:
    """A file system that is away fails the save after each step: that doesn't go on for ever."""

    class Away(v1.train.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            raise tf.errors.UnavailableError(None, None, "the file system is away")

    with pytest.raises(tf.errors.UnavailableError):
        with train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=[Away()], max_recoveries=3) as session:
            session.run(train_op)
    assert slept == pytest.approx([0.1, 0.2])


@pytest.mark.slow
@pytest.mark.parametrize("way", ["run", "run_loop", "run_without_hooks first"])
def test_steps_are_progress(train_op: Any, slept: list[float], tmp_path: Any, way: str) -> None:
    hook = Preempted(2, 4, 6, 8)
    with train.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), hooks=[hook], max_recoveries=1, save_checkpoint_steps=1
    ) as session:
        if way == "run_loop":
            session.run_loop(train_op, steps=8)
        else:
            for _ in range(8):
                if way != "run":
                    session.run_without_hooks(train_op)
                session.run(train_op)
    assert slept == []


KINDS = ["fastsup's", "TensorFlow's", "wrapped"]


class CreatorOf:
    """Makes sessions of a kind. Only those of fastsup count their steps."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.init = v1.global_variables_initializer()

    def create_session(self) -> Any:
        if self.kind == "TensorFlow's":
            session = v1.Session()
            session.run(self.init)
            return session
        session = train.ChiefSessionCreator().create_session()
        return train.WrappedSession(session) if self.kind == "wrapped" else session


READS = {
    "run_without_hooks": lambda session, step: session.run_without_hooks(step),
    "run_step_fn": lambda session, step: session.run_step_fn(lambda step_context: step_context.session.run(step)),
    "raw_session": lambda session, step: session.raw_session().run(step),
    "should_stop": lambda session, step: session.should_stop(),
}


class PreemptsTraining(v1.train.SessionRunHook):
    """Preempts each try of a training step, after a read in the new session."""

    def __init__(self, read: Any, train_op: Any) -> None:
        self.read, self.train_op, self.failures, self.reads, self.session = read, train_op, 0, 0, None

    def before_run(self, run_context: Any) -> None:
        if run_context.original_args.fetches is not self.train_op:
            return
        if self.session is not None:
            # As from another thread: outside of the step that fails.
            thread = threading.Thread(target=self._read)
            thread.start()
            thread.join(30)
        self.failures += 1
        if self.failures > 20:
            raise AssertionError("recovers without end")
        raise aborted(self.failures)

    def _read(self) -> None:
        self.read(self.session, tf.compat.v1.train.get_global_step(self.session.graph))
        self.reads += 1


@pytest.mark.parametrize("way", ["run", "run_step_fn", "run_loop"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("read", READS)
def test_reads_of_another_thread_are_no_progress(
    train_op: Any, slept: list[float], read: str, kind: str, way: str
) -> None:
    hook = PreemptsTraining(READS[read], train_op)
    with pytest.raises(tf.errors.AbortedError, match="failure 4"):
        with train.MonitoredSession(CreatorOf(kind), [hook], max_recoveries=3) as session:
            hook.session = session
            if way == "run":
                session.run(train_op)
            elif way == "run_loop":
                session.run_loop(train_op)
            else:
                session.run_step_fn(lambda step_context: step_context.run_with_hooks(train_op))
    assert (hook.failures, hook.reads) == (4, 4)


@pytest.mark.parametrize("way", ["run", "run_step_fn", "run_loop"])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_progress_in_each_kind_of_session(train_op: Any, slept: list[float], kind: str, way: str) -> None:
    hook = Preempted(2, 4, 6, 8)
    with train.MonitoredSession(CreatorOf(kind), [hook], max_recoveries=1) as session:
        if way == "run_loop":
            session.run_loop(train_op, steps=8)
        for _ in range(0 if way == "run_loop" else 8):
            if way == "run":
                session.run(train_op)
            else:
                session.run_step_fn(lambda step_context: step_context.run_with_hooks(train_op))
    assert slept == []


@pytest.mark.parametrize("limit", [-1, "many"])
def test_a_wrong_limit_is_refused(train_op: Any, limit: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="max_recoveries"):
        train.MonitoredSession(max_recoveries=limit)
    # Nothing is left of it.
    with train.MonitoredSession() as session:
        session.run(train_op)


# Saves that fail.


@pytest.mark.parametrize("fails", ["the save", "the state file"])
def test_steps_between_two_failed_saves_dont_begin_the_count_anew(
    train_op: Any, slept: list[float], tmp_path: Any, tf_log: Any, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    failed = []

    def fail(*args: Any, **kwargs: Any) -> None:
        failed.append(1)
        raise tf.errors.UnavailableError(None, None, "Host is down")

    with pytest.raises(tf.errors.UnavailableError, match="Host is down"):
        with train.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), save_checkpoint_steps=3, max_recoveries=4
        ) as session:
            if fails == "the save":
                monkeypatch.setattr(v1.train.Saver, "save", fail)
            else:
                monkeypatch.setattr("fastsup.checkpoint.durable.write_whole", fail)
            for _ in range(1000):
                session.run(train_op)
    assert len(failed) == 5
    assert "5 failed saves in a row" in tf_log.text


@pytest.mark.slow
def test_a_save_that_succeeds_ends_the_row(
    train_op: Any, slept: list[float], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second save fails: that goes on for ever, as the others save what was trained."""
    save, calls = v1.train.Saver.save, []

    def fail_in_turns(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) % 2:
            raise tf.errors.UnavailableError(None, None, "Host is down")
        return save(*args, **kwargs)

    with train.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), save_checkpoint_steps=1, max_recoveries=1
    ) as session:
        monkeypatch.setattr(v1.train.Saver, "save", fail_in_turns)
        for _ in range(12):
            session.run(train_op)
        monkeypatch.setattr(v1.train.Saver, "save", save)
    assert len(calls) >= 12
