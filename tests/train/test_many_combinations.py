"""More combinations of fetches and feeds than there is room for, in monitored sessions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import fastsup

v1 = tf.compat.v1


def test_a_watching_hook_halves_no_limit(graph: tf.Graph, room_for: Any, compiled: list[bytes]) -> None:
    """What is looked at and isn't compiled takes next to nothing."""
    watched = tf.constant(1.0)
    parts = [tf.constant(i) for i in range(20)]
    room_for(40)
    hook = fastsup.train.NanTensorHook(watched)
    with fastsup.train.MonitoredSession(hooks=[hook]) as session:
        session.run(watched)
        compiled.clear()
        for _ in range(4):
            assert [session.run(part) for part in parts] == list(range(20))
        assert len(compiled) == 20
        assert session.raw_session().plan_cache_info().left == 0


@pytest.mark.parametrize("room", [12, 6])
def test_a_watched_value_is_checked_without_room_too(
    graph: tf.Graph, room_for: Any, compiled: list[bytes], room: int
) -> None:
    x = v1.placeholder_with_default(1.0, [])
    watched = x * 2.0
    parts = [x + float(i) for i in range(12)]
    room_for(room)
    hooks = [fastsup.train.NanTensorHook(watched, fail_on_nan_loss=False)]
    with fastsup.train.MonitoredSession(hooks=hooks) as session:
        raw = session.raw_session()
        for i in range(3):
            assert [session.run(part, {x: float(i)}) for part in parts] == [float(i + j) for j in range(12)]
        compiled.clear()
        for i in range(3):
            assert [session.run(part, {x: float(i)}) for part in parts] == [float(i + j) for j in range(12)]
        assert compiled == []
        before = raw.plan_cache_info()
        assert np.isnan(session.run(parts[-1], {x: np.nan}))
        assert raw.plan_cache_info().left == before.left + 1
        assert session.should_stop()


def test_the_step_is_counted_without_room_too(graph: tf.Graph, room_for: Any, impl: Any) -> None:
    step = v1.train.get_or_create_global_step()
    increments = [step.assign_add(1).op if i % 3 == 0 else step.assign_add(2).op for i in range(10)]
    others = [tf.constant(i) for i in range(10)]
    room_for(4)
    seen: list[int] = []

    class Seeing(v1.train.SessionRunHook):  # type: ignore[misc]
        def after_run(self, run_context: Any, run_values: Any) -> None:
            seen.append(int(run_context.session.run(step)))

    hooks = [impl.train.StopAtStepHook(last_step=60), Seeing()]
    with impl.train.MonitoredSession(hooks=hooks) as session:
        runs = 0
        while not session.should_stop():
            session.run([increments[runs % 10], others[runs * 3 % 10]])
            runs += 1
    expected = np.cumsum([1 if i % 3 == 0 else 2 for i in range(10)] * 4)
    assert seen == [int(step) for step in expected if step < 60] + [int(next(s for s in expected if s >= 60))]


def test_a_save_without_room(graph: tf.Graph, room_for: Any, tmp_path: Any) -> None:
    """Saves and copies for async_save are right where TensorFlow's own executors run them."""
    variable = v1.get_variable("v", initializer=np.arange(4.0, dtype=np.float32), use_resource=True)
    add = variable.assign_add([1.0] * 4)
    others = [tf.constant(i) for i in range(8)]
    saver = v1.train.Saver()
    room_for(4)
    with fastsup.Session() as session:
        session.run(variable.initializer)
        for _ in range(2):
            for other in others:
                session.run(other)
        session.run(add)
        left = session.plan_cache_info().left
        path = saver.save(session, str(tmp_path / "model"))
        (copy,) = session._copy_values([variable._graph_element], [None], [False])
        assert session.plan_cache_info().left > left
        session.run(add)
        assert copy.tolist() == [1.0, 2.0, 3.0, 4.0]
        saver.restore(session, path)
        assert session.run(variable).tolist() == [1.0, 2.0, 3.0, 4.0]


def test_errors_without_room(graph: tf.Graph, room_for: Any, both: Any) -> None:
    """They are those of TensorFlow's session."""
    x = v1.placeholder(tf.int32, [], name="x")
    quotient = v1.div(10, x, name="quotient")
    others = [tf.constant(i) for i in range(8)]
    room_for(4)

    def texts(session_class: Any) -> list[str]:
        raised = []
        with session_class() as session:
            for _ in range(2):
                for other in others:
                    session.run(other)
            for feeds in ({x: 0}, None, {x: [1, 2]}):
                with pytest.raises((tf.errors.OpError, ValueError)) as caught:
                    session.run(quotient, feeds)
                raised.append(f"{type(caught.value).__name__}: {str(caught.value).split('Original stack')[0]}")
            assert session.run(quotient, {x: 3}) == 3
        return raised

    assert texts(both.fastsup.Session) == texts(both.tensorflow.Session)
