"""SummarySaverHook: which steps' summaries are written, where, and how often they are computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import fastsup

v1 = tf.compat.v1


@pytest.fixture
def summary(step: Any) -> Any:
    """A summary op that counts how often it runs, in `summary.runs`."""

    class Counted:
        def __init__(self) -> None:
            self.runs = 0

            def count() -> np.float32:
                self.runs += 1
                return np.float32(self.runs)

            value = v1.py_func(count, [], tf.float32)
            value.set_shape([])
            self.op = v1.summary.scalar("counted", value)

    return Counted()


@pytest.fixture
def written(raw_events: Any, tmp_path: Any) -> Any:
    """The (step, tag, value) records of the folder."""

    def read() -> list[tuple[int, str, float]]:
        return [
            (event.step, value.tag, value.simple_value)
            for event in raw_events(tmp_path)
            if event.WhichOneof("what") == "summary"
            for value in event.summary.value
        ]

    return read


def test_needs_a_summary_op_or_a_scaffold(impl: Any, graph: Any) -> None:
    text = r"^Exactly one of scaffold or summary_op must be provided\."
    with pytest.raises(ValueError, match=text):
        impl.train.SummarySaverHook(save_steps=10)
    with pytest.raises(ValueError, match=text):
        impl.train.SummarySaverHook(save_steps=10, scaffold=impl.train.Scaffold(), summary_op=tf.constant(""))


def test_needs_exactly_one_interval(impl: Any, graph: Any) -> None:
    op = tf.constant("")
    with pytest.raises(ValueError, match=r"^Can not provide both every_secs and every_steps\."):
        impl.train.SummarySaverHook(save_steps=10, save_secs=5, summary_op=op)
    with pytest.raises(ValueError, match=r"^Either every_secs or every_steps should be provided\."):
        impl.train.SummarySaverHook(summary_op=op)


def test_needs_a_global_step(impl: Any, graph: Any, tmp_path: Any) -> None:
    hook = impl.train.SummarySaverHook(save_steps=10, output_dir=str(tmp_path), summary_op=tf.constant(""))
    with pytest.raises(RuntimeError, match=r"^Global step should be created to use SummarySaverHook\."):
        hook.begin()


@pytest.mark.parametrize(
    ("increment", "every", "steps"),
    [
        (1, 1, [1, 2, 3, 4, 5, 6]),
        (1, 2, [1, 3, 5]),
        (1, 4, [1, 5]),
        (1, 100, [1]),
        (3, 4, [3, 12]),
        (3, 1, [3, 6, 9, 12, 15, 18]),
    ],
)
def test_every_n_steps(
    impl: Any, hooked: Any, graph: Any, counting_step: Any, tmp_path: Any, written: Any,
    increment: int, every: int, steps: list[int],
) -> None:  # fmt: skip
    step = counting_step(increment)
    op = v1.summary.scalar("loss", tf.constant(1.5))
    hook = impl.train.SummarySaverHook(save_steps=every, output_dir=str(tmp_path), summary_op=op)
    session, outer = hooked(hook)
    for _ in range(6):
        outer.run(step.op)
    hook.end(session)
    session.close()
    assert written() == [(number, "loss", 1.5) for number in steps]


def test_every_n_secs(impl: Any, hooked: Any, step: Any, summary: Any, tmp_path: Any, written: Any, clock: Any) -> None:
    hook = impl.train.SummarySaverHook(save_secs=2, output_dir=str(tmp_path), summary_op=summary.op)
    session, outer = hooked(hook)
    for passing in (0, 1, 0.9, 0.1, 0, 5, 5):
        clock.now += passing
        outer.run(step.op)
    hook.end(session)
    session.close()
    assert written() == [(1, "counted", 1.0), (4, "counted", 2.0), (6, "counted", 3.0), (7, "counted", 4.0)]


def test_summaries_are_computed_only_when_they_are_written(
    impl: Any, hooked: Any, step: Any, summary: Any, tmp_path: Any
) -> None:
    session, outer = hooked(impl.train.SummarySaverHook(save_steps=3, output_dir=str(tmp_path), summary_op=summary.op))
    computed = []
    for _ in range(8):
        outer.run(step.op)
        computed.append(summary.runs)
    assert computed == [1, 1, 1, 2, 2, 2, 3, 3]
    session.close()


def test_first_run_starts_a_session(
    impl: Any, hooked: Any, step: Any, summary: Any, tmp_path: Any, events: Any
) -> None:
    hook = impl.train.SummarySaverHook(save_steps=5, output_dir=str(tmp_path), summary_op=summary.op)
    session, outer = hooked(hook)
    for _ in range(3):
        outer.run(step.op)
    hook.end(session)
    session.close()
    assert [text for text in events(tmp_path) if "graph_def" not in text] == ["1:START", "1:counted"]


def test_several_summary_ops(impl: Any, hooked: Any, step: Any, summary: Any, tmp_path: Any, written: Any) -> None:
    other = v1.summary.merge([v1.summary.scalar("a", tf.constant(1.0)), v1.summary.scalar("b", tf.constant(2.0))])
    session, outer = hooked(
        impl.train.SummarySaverHook(save_steps=5, output_dir=str(tmp_path), summary_op=[summary.op, other])
    )
    outer.run(step.op)
    session.close()
    assert written() == [(1, "counted", 1.0), (1, "a", 1.0), (1, "b", 2.0)]


def test_the_scaffolds_summary_op(impl: Any, step: Any, summary: Any, tmp_path: Any, written: Any) -> None:
    """Taken when it is needed, since a scaffold makes it only when it is finalised."""
    scaffold = impl.train.Scaffold()
    hook = impl.train.SummarySaverHook(save_steps=2, output_dir=str(tmp_path), scaffold=scaffold)
    with impl.train.SingularMonitoredSession([hook], scaffold) as session:
        for _ in range(3):
            session.run(step.op)
    assert written() == [(1, "counted", 1.0), (3, "counted", 2.0)]


def test_no_summaries_in_the_graph(impl: Any, step: Any, tmp_path: Any, events: Any) -> None:
    scaffold = impl.train.Scaffold()
    hook = impl.train.SummarySaverHook(save_steps=1, output_dir=str(tmp_path), scaffold=scaffold)
    with impl.train.SingularMonitoredSession([hook], scaffold) as session:
        for _ in range(3):
            session.run(step.op)
    assert scaffold.summary_op is None
    assert [text for text in events(tmp_path) if "graph_def" not in text] == ["1:START"]


def test_own_summary_writer(impl: Any, hooked: Any, step: Any, summary: Any) -> None:
    class Writer:
        def __init__(self) -> None:
            self.calls: list[Any] = []

        def add_summary(self, summary: Any, global_step: Any) -> None:
            self.calls.append((type(summary).__name__, int(global_step)))

        def add_session_log(self, session_log: Any, global_step: Any) -> None:
            self.calls.append((session_log.SessionStatus.Name(session_log.status), int(global_step)))

        def flush(self) -> None:
            self.calls.append("flush")

    writer = Writer()
    hook = impl.train.SummarySaverHook(save_steps=2, summary_writer=writer, summary_op=summary.op)
    session, outer = hooked(hook)
    for _ in range(4):
        outer.run(step.op)
    hook.end(session)
    session.close()
    assert writer.calls == [("START", 1), ("bytes", 1), ("bytes", 3), "flush"]


def test_without_a_writer_nothing_is_written(impl: Any, hooked: Any, step: Any, summary: Any) -> None:
    if tuple(map(int, tf.__version__.split(".")[:2])) >= (2, 22):
        with pytest.raises(ValueError, match="At least one of output_dir or summary_writer must be provided"):
            impl.train.SummarySaverHook(save_steps=2, summary_op=summary.op)
        return
    session, outer = hooked(impl.train.SummarySaverHook(save_steps=2, summary_op=summary.op))
    computed = []
    for _ in range(3):
        outer.run(step.op)
        computed.append(summary.runs)
    assert computed == [1, 2, 3]  # It never learns that it was due, so it asks on each run.
    session.close()


def test_a_failed_run_writes_nothing(
    impl: Any, hooked: Any, step: Any, summary: Any, tmp_path: Any, written: Any
) -> None:
    fails = tf.raw_ops.Assert(condition=tf.constant(False), data=["never"])
    session, outer = hooked(impl.train.SummarySaverHook(save_steps=2, output_dir=str(tmp_path), summary_op=summary.op))
    outer.run(step.op)
    for op in (step.op, step.op, step.op):
        with pytest.raises(tf.errors.InvalidArgumentError):
            outer.run(fails)
        outer.run(op)
    session.close()
    assert [number for number, _, _ in written()] == [1, 3]


def test_writer_is_shared_with_other_hooks(
    impl: Any, step: Any, summary: Any, tmp_path: Any, files: Any, events: Any
) -> None:
    hooks = [
        impl.train.SummarySaverHook(save_steps=2, output_dir=str(tmp_path), summary_op=summary.op),
        impl.train.StepCounterHook(every_n_steps=2, output_dir=str(tmp_path)),
    ]
    with impl.train.MonitoredSession(hooks=hooks) as session:
        for _ in range(4):
            session.run(step.op)
    assert files(tmp_path) == ["events"]
    assert [text for text in events(tmp_path) if "graph_def" not in text] == [
        "1:START", "1:counted", "3:counted", "3:global_step/sec",
    ]  # fmt: skip


def test_the_step_that_a_session_counts_is_its_own(
    graph: Any, step: Any, summary: Any, written: Any, tmp_path: Any
) -> None:
    """A hook knows the step from the session only while that calls it: another session has another one."""
    hook = fastsup.train.SummarySaverHook(save_steps=1, output_dir=str(tmp_path), summary_op=summary.op)
    known = []

    class Look(fastsup.train.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            known.append(hook.counted_step)

    with fastsup.train.SingularMonitoredSession(hooks=[hook, Look()]) as session:
        for _ in range(3):
            session.run(step.op)
    with v1.train.SingularMonitoredSession(hooks=[hook]) as session:
        for _ in range(2):
            session.run(step.op)
    assert known == [None] * 3
    assert [number for number, _, _ in written()] == [1, 2, 3, 1, 2]


def test_what_the_program_flushes_and_adds_comes_after_the_hooks_summaries(
    impl: Any, step: Any, summary: Any, tmp_path: Any
) -> None:
    """The writer is the program's too: FileWriterCache hands it out."""

    def written() -> list[tuple[int, str]]:
        # While the file is still open.
        (path,) = tmp_path.glob("events*")
        read = v1.train.summary_iterator(str(path))
        return [(event.step, value.tag) for event in read for value in event.summary.value]

    hook = impl.train.SummarySaverHook(save_steps=1, summary_op=summary.op, output_dir=str(tmp_path))
    with impl.train.SingularMonitoredSession(hooks=[hook]) as session:
        writer = v1.summary.FileWriterCache.get(str(tmp_path))
        for _ in range(3):
            session.run(step.op)
        writer.flush()
        assert [entry[0] for entry in written()] == [1, 2, 3]
        session.run(step.op)
        own = v1.Summary(value=[v1.Summary.Value(tag="own", simple_value=0.5)])
        writer.add_summary(own, 4)
        session.run(step.op)
        writer.add_event(v1.Event(step=5, summary=own))
        session.run(step.op)
        writer.flush()
        assert written()[3:] == [(4, "counted"), (4, "own"), (5, "counted"), (5, "own"), (6, "counted")]
