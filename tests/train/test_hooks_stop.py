"""StopAtStepHook and GlobalStepWaiterHook: when training ends, and when it begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from fastsup import train

v1 = tf.compat.v1


@pytest.fixture
def steps(graph: Any) -> SimpleNamespace:
    """A global step that is set from outside: `set_to(session, value)`; `op` leaves it alone."""
    step = v1.train.get_or_create_global_step()
    value = v1.placeholder(tf.int64, [])
    assign = v1.assign(step, value).op
    return SimpleNamespace(
        op=tf.no_op(), step=step, set_to=lambda session, number: session.run(assign, {value: number})
    )


# StopAtStepHook.


def test_needs_exactly_one_end(impl: Any) -> None:
    with pytest.raises(ValueError, match=r"^One of num_steps or last_step must be specified\."):
        impl.train.StopAtStepHook()
    with pytest.raises(ValueError, match=r"^Only one of num_steps or last_step can be specified\."):
        impl.train.StopAtStepHook(num_steps=10, last_step=20)


def test_needs_a_global_step(impl: Any, graph: Any) -> None:
    with pytest.raises(RuntimeError, match=r"^Global step should be created to use StopAtStepHook\."):
        impl.train.StopAtStepHook(last_step=10).begin()


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ({"last_step": 10}, [(5, False), (9, False), (10, True)]),
        ({"last_step": 10}, [(11, True)]),
        ({"num_steps": 10}, [(5, False), (14, False), (15, True)]),
        ({"num_steps": 10}, [(5, False), (20, True)]),
        ({"num_steps": 10}, [(5, False), (4, False), (16, True)]),
        ({"last_step": 0}, [(5, True)]),
        ({"num_steps": 0}, [(5, True)]),
    ],
)
def test_stops_at(impl: Any, wrapped: Any, steps: Any, arguments: Any, values: list[tuple[int, bool]]) -> None:
    """The values that the global step has after each run, starting at 5, and whether training should stop by then."""
    hook = impl.train.StopAtStepHook(**arguments)
    hook.begin()
    with impl.Session() as session:
        steps.set_to(session, 5)
        hook.after_create_session(session, None)
        outer = wrapped.HookedSession(session, [hook])
        for value, stopped in values:
            if outer.should_stop():
                break
            steps.set_to(session, value)
            outer.run(steps.op)
            assert outer.should_stop() is stopped


@pytest.mark.parametrize("kind", ["MonitoredSession", "SingularMonitoredSession"])
@pytest.mark.parametrize(("arguments", "ran"), [({"last_step": 5}, 5), ({"num_steps": 3}, 3), ({"last_step": 1}, 1)])
def test_number_of_runs(impl: Any, graph: Any, counting_step: Any, kind: str, arguments: Any, ran: int) -> None:
    step = counting_step()
    runs = 0
    with getattr(impl.train, kind)(hooks=[impl.train.StopAtStepHook(**arguments)]) as session:
        while not session.should_stop():
            session.run(step.op)
            runs += 1
        with pytest.raises(RuntimeError, match="Run called even after should_stop requested"):
            session.run(step.op)
    assert runs == ran


def test_runs_that_leave_the_global_step_alone(impl: Any, graph: Any, counting_step: Any) -> None:
    step = counting_step()
    with impl.train.MonitoredSession(hooks=[impl.train.StopAtStepHook(last_step=2)]) as session:
        for _ in range(5):
            session.run(step.global_step)
            assert not session.should_stop()
        session.run(step.op)
        session.run([])
        assert not session.should_stop()
        session.run(step.op)
        assert session.should_stop()


def test_num_steps_count_from_where_training_resumes(impl: Any, graph: Any, counting_step: Any, tmp_path: Any) -> None:
    step = counting_step()
    for end in (3, 6):
        hooks = [impl.train.StopAtStepHook(num_steps=3)]
        with impl.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks) as session:
            while not session.should_stop():
                value, _ = session.run([step.read, step.op])
        assert value + 1 == end


def test_num_steps_survive_a_recovery(impl: Any, graph: Any, counting_step: Any, trace: Any, tmp_path: Any) -> None:
    """The last step is fixed when the first session is made: a recovered session ends at the same."""
    step = counting_step()

    def fail_once(number: int, _: Any) -> None:
        if number == 3:
            raise tf.errors.AbortedError(None, None, "away")

    runs = []
    hooks = [impl.train.StopAtStepHook(num_steps=4), trace.hook("a", before_run=fail_once)]
    with impl.train.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), hooks=hooks, save_checkpoint_steps=2
    ) as session:
        while not session.should_stop():
            runs.append(session.run([step.read, step.op])[0])
    assert runs == [0, 1, 2, 2, 3]


def test_the_earliest_of_several(impl: Any, graph: Any, counting_step: Any) -> None:
    step = counting_step()
    hooks = [impl.train.StopAtStepHook(last_step=last) for last in (7, 3, 5)]
    with impl.train.MonitoredSession(hooks=hooks) as session:
        while not session.should_stop():
            value, _ = session.run([step.read, step.op])
    assert value + 1 == 3


# GlobalStepWaiterHook.


def waits(impl: Any, steps: Any, monkeypatch: Any, hooked: Any, wait_until: int, values: list[int]) -> list[float]:
    """How long a hook slept before a run, while the global step took the values one after the other."""
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        steps.set_to(session, values.pop(0))

    monkeypatch.setattr("time.sleep", sleep)
    session, outer = hooked(impl.train.GlobalStepWaiterHook(wait_until))
    steps.set_to(session, values.pop(0))
    outer.run(steps.op)
    first = list(slept)
    steps.set_to(session, 0)
    outer.run(steps.op)
    assert slept == first  # It waits before the first run alone.
    session.close()
    return slept


@pytest.mark.parametrize(
    ("wait_until", "values", "naps"),
    [(0, [0], 0), (-1, [0], 0), (5, [5], 0), (5, [9], 0), (5, [0, 5], 1), (5, [0, 2, 4, 7], 3)],
)
def test_waits_for_the_global_step(
    impl: Any, steps: Any, hooked: Any, monkeypatch: Any, wait_until: int, values: list[int], naps: int
) -> None:
    assert waits(impl, steps, monkeypatch, hooked, wait_until, list(values)) == [0.5] * naps


def test_what_a_waiting_hook_logs(impl: Any, steps: Any, hooked: Any, monkeypatch: Any, tf_log: Any) -> None:
    waits(impl, steps, monkeypatch, hooked, 5000, [0, 1000, 1001, 2001, 2002, 5000])
    first = "Waiting for global step 5000 before starting training."
    assert tf_log.messages == [first, f"{first} Current step is 1001.", f"{first} Current step is 2002."]


def test_a_hook_that_needs_no_wait_logs_nothing(
    impl: Any, steps: Any, hooked: Any, monkeypatch: Any, tf_log: Any
) -> None:
    waits(impl, steps, monkeypatch, hooked, 0, [0])
    assert tf_log.messages == []


def test_waiter_needs_a_global_step(impl: Any, graph: Any) -> None:
    with pytest.raises(RuntimeError, match=r"^Global step should be created to use _GlobalStepWaiterHook\."):
        impl.train.GlobalStepWaiterHook(wait_until_step=10).begin()


@pytest.mark.parametrize("argument", ["num_steps", "last_step"])
def test_a_number_of_steps_that_is_none(argument: str) -> None:
    with pytest.raises(TypeError, match=f"{argument} must be a number of steps, got '10' of type str"):
        train.StopAtStepHook(**{argument: "10"})
