"""StepCounterHook: how fast the global step goes, logged and as a summary."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.platform import tf_logging

import fastsup
from fastsup import train

v1 = tf.compat.v1


@pytest.fixture
def speeds(raw_events: Any, tmp_path: Any) -> Any:
    """The (step, speed) records of the test's folder."""

    def read() -> list[tuple[int, float]]:
        return [
            (event.step, event.summary.value[0].simple_value)
            for event in raw_events(tmp_path)
            if event.WhichOneof("what") == "summary" and event.summary.value[0].tag == "global_step/sec"
        ]

    return read


def test_every_n_steps(impl: Any, hooked: Any, graph: Any, counting_step: Any, tmp_path: Any, clock: Any, speeds: Any,
                       tf_log: Any) -> None:  # fmt: skip
    step = counting_step()
    hook = impl.train.StepCounterHook(output_dir=str(tmp_path), every_n_steps=10)
    session, outer = hooked(hook)
    for _ in range(30):
        clock.now += 0.1
        outer.run(step.op)
    clock.now += 1
    outer.run(step.op)
    hook.end(session)
    session.close()
    assert speeds() == [(11, pytest.approx(10.0)), (21, pytest.approx(10.0)), (31, pytest.approx(5.263158))]
    assert tf_log.messages == ["global_step/sec: 10", "global_step/sec: 10", "global_step/sec: 5.26316"]


def test_every_n_secs(impl: Any, hooked: Any, graph: Any, counting_step: Any, tmp_path: Any, clock: Any, speeds: Any,
                      tf_log: Any) -> None:  # fmt: skip
    step = counting_step(2)
    session, outer = hooked(impl.train.StepCounterHook(output_dir=str(tmp_path), every_n_steps=None, every_n_secs=2.0))
    for passing in (0, 0.5, 0.5, 0.5, 0.5, 1.0, 3.0, 0.0):
        clock.now += passing
        outer.run(step.op)
    session.close()
    assert speeds() == [(10, pytest.approx(4.0)), (14, pytest.approx(1.0))]
    assert tf_log.messages == ["global_step/sec: 4", "global_step/sec: 1"]


def test_default_is_every_100_steps(impl: Any, hooked: Any, graph: Any, counting_step: Any, tf_log: Any) -> None:
    step = counting_step()
    session, outer = hooked(impl.train.StepCounterHook())
    counts = []
    for _ in range(202):
        outer.run(step.op)
        counts.append(len(tf_log.messages))
    assert [counts.index(1), counts.index(2)] == [100, 200]
    session.close()


def test_needs_exactly_one_interval(impl: Any) -> None:
    text = r"^exactly one of every_n_steps and every_n_secs should be provided\."
    with pytest.raises(ValueError, match=text):
        impl.train.StepCounterHook(every_n_secs=5)
    with pytest.raises(ValueError, match=text):
        impl.train.StepCounterHook(every_n_steps=None)


def test_needs_a_global_step(impl: Any, graph: Any) -> None:
    with pytest.raises(RuntimeError, match=r"^Global step should be created to use StepCounterHook\."):
        impl.train.StepCounterHook().begin()


def test_tag_is_the_global_steps_name(impl: Any, hooked: Any, graph: Any, clock: Any, tf_log: Any) -> None:
    with v1.variable_scope("bar"):
        step = v1.get_variable(
            "foo", [], tf.int64, v1.zeros_initializer(), trainable=False,
            collections=[v1.GraphKeys.GLOBAL_STEP, v1.GraphKeys.GLOBAL_VARIABLES],
        )  # fmt: skip
    add = v1.assign_add(step, 1)
    session, outer = hooked(impl.train.StepCounterHook(every_n_steps=1))
    for _ in range(3):
        clock.now += 0.5
        outer.run(add.op)
    assert tf_log.messages[-1] == "bar/foo/sec: 2"
    session.close()


def test_own_summary_writer(impl: Any, hooked: Any, graph: Any, counting_step: Any, clock: Any) -> None:
    class Writer:
        def __init__(self) -> None:
            self.written: list[Any] = []

        def add_summary(self, summary: Any, global_step: Any) -> None:
            self.written.append((summary.value[0].tag, summary.value[0].simple_value, global_step))

    writer = Writer()
    step = counting_step()
    session, outer = hooked(impl.train.StepCounterHook(every_n_steps=2, summary_writer=writer))
    for _ in range(5):
        clock.now += 0.25
        outer.run(step.op)
    assert writer.written == [("global_step/sec", 4.0, 3), ("global_step/sec", 4.0, 5)]
    session.close()


def test_subclass_that_records_in_its_own_way(
    impl: Any, hooked: Any, graph: Any, counting_step: Any, clock: Any
) -> None:
    recorded = []

    class Counter(impl.train.StepCounterHook):
        def _log_and_record(self, elapsed_steps: Any, elapsed_time: Any, global_step: Any) -> None:
            recorded.append((elapsed_steps, elapsed_time, global_step))

    step = counting_step()
    session, outer = hooked(Counter(every_n_steps=2))
    for _ in range(5):
        clock.now += 0.25
        outer.run(step.op)
    assert recorded == [(2, 0.5, 3), (2, 0.5, 5)]
    session.close()


def test_global_step_that_stands_still(
    impl: Any, hooked: Any, graph: Any, counting_step: Any, clock: Any, tmp_path: Any, speeds: Any
) -> None:
    step = counting_step()
    session, outer = hooked(impl.train.StepCounterHook(every_n_steps=2, output_dir=str(tmp_path)))
    outer.run(step.op)
    for _ in range(10):
        clock.now += 1
        outer.run([])
    for _ in range(2):
        clock.now += 1
        outer.run(step.op)
    session.close()
    assert speeds() == [(3, pytest.approx(2 / 12))]


def test_steps_per_run(impl: Any, hooked: Any, graph: Any, counting_step: Any, clock: Any, tf_log: Any) -> None:
    """Told how many steps a run takes, the hook looks at the global step when that many could be enough."""
    step = counting_step(5)
    hook = impl.train.StepCounterHook(every_n_steps=10)
    hook._set_steps_per_run(5)
    session, outer = hooked(hook)
    for _ in range(6):
        clock.now += 1
        outer.run(step.op)
    assert tf_log.messages == ["global_step/sec: 5", "global_step/sec: 5"]
    session.close()


@pytest.mark.parametrize(("increment", "logged"), [(1, [3, 5, 7]), (5, [3, 5, 7])])
def test_without_steps_per_run(impl: Any, hooked: Any, graph: Any, counting_step: Any, clock: Any, tf_log: Any,
                               increment: int, logged: list[int]) -> None:  # fmt: skip
    step = counting_step(increment)
    session, outer = hooked(impl.train.StepCounterHook(every_n_steps=2))
    seen = []
    for number in range(1, 8):
        clock.now += 1
        tf_log.clear()
        outer.run(step.op)
        if tf_log.messages:
            seen.append(number)
    assert seen == logged
    session.close()


def step_that_cannot_be_counted() -> Any:
    """An operation that moves the global step by one, under a condition: only a fetch tells where it stands."""
    step = v1.train.get_or_create_global_step()
    return tf.cond(step < 1000, lambda: v1.assign_add(step, 1), lambda: v1.assign_add(step, 0))


def test_a_step_that_is_fetched(
    impl: Any, hooked: Any, graph: Any, clock: Any, tmp_path: Any, speeds: Any, tf_log: Any
) -> None:
    move = step_that_cannot_be_counted()
    session, outer = hooked(impl.train.StepCounterHook(every_n_steps=5, output_dir=str(tmp_path)))
    for _ in range(23):
        clock.now += 0.5
        outer.run(move.op)
    session.close()
    # What a run reads of the step is that before its increment or after it, as it happens.
    assert [speed for _, speed in speeds()] == pytest.approx([2.0] * len(speeds()))
    assert len(speeds()) in (4, 5)
    assert tf_log.messages == ["global_step/sec: 2"] * len(speeds())


def test_a_step_that_cannot_be_counted_costs_no_before_run(graph: Any) -> None:
    """It is fetched for the hooks that are called after the run."""
    move = step_that_cannot_be_counted()
    profiler = fastsup.HookProfiler()
    with train.SingularMonitoredSession(hooks=[train.StepCounterHook(every_n_steps=5)], profiler=profiler) as session:
        for _ in range(53):
            session.run(move.op)
    calls = {row.phase: row.times.calls for row in profiler.report().rows if row.owner == "StepCounterHook"}
    assert "before_run" not in calls
    assert 10 <= calls["after_run"] < 53


STALL = (
    "It seems that global step (tf.train.get_global_step) has not been increased. Current value (could be stable): {0} "
    "vs previous value: {0}. You could increase the global step by passing tf.train.get_global_step() to "
    "Optimizer.apply_gradients or Optimizer.minimize."
)


@pytest.mark.parametrize("still", ["nothing", "an operation"])
def test_warns_of_a_global_step_that_stands_still(
    impl: Any, graph: Any, counting_step: Any, tf_log: Any, monkeypatch: pytest.MonkeyPatch, still: str
) -> None:
    """Five times in the life of a process."""
    monkeypatch.setattr(tf_logging, "_log_counter_per_token", {})
    step = counting_step()
    idle = [] if still == "nothing" else tf.no_op()
    with impl.train.MonitoredSession(hooks=[impl.train.StepCounterHook()]) as session:
        for op in (*[step.op] * 3, *[idle] * 9):
            session.run(op)
    warnings = [record.getMessage() for record in tf_log.records if record.levelname == "WARNING"]
    assert warnings == [STALL.format(3)] * 5


def test_ours_warns_of_no_other(graph: Any, tf_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow warns of a global step that it read too late in one run, and early enough in the next."""
    monkeypatch.setattr(tf_logging, "_log_counter_per_token", {})
    op = v1.assign_add(v1.train.get_or_create_global_step(), 1).op
    with train.MonitoredSession(hooks=[train.StepCounterHook(every_n_steps=3)]) as session:
        for _ in range(300):
            session.run(op)
    assert not [record for record in tf_log.records if record.levelname == "WARNING"]
