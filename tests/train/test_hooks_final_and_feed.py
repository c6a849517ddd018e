"""FinalOpsHook and FeedFnHook: what is run at the end, and what is fed on each run."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1


# FinalOpsHook.


@pytest.mark.parametrize(
    ("ops", "expected"),
    [("a:0", 2.0), (["a:0", "b:0"], [2.0, 5.0]), ({"x": "b:0", "y": ["a:0"]}, {"x": 5.0, "y": [2.0]})],
    ids=["tensor", "list", "dict"],
)
def test_values_at_the_end(impl: Any, graph: Any, ops: Any, expected: Any) -> None:
    a = v1.get_variable("v", initializer=1.0)
    double = v1.assign(a, a * 2)
    tf.identity(a if v1.resource_variables_enabled() else a.read_value(), name="a")
    tf.constant(5.0, name="b")
    hook = impl.train.FinalOpsHook(ops)
    assert hook.final_ops_values is None
    with impl.train.MonitoredSession(hooks=[hook]) as session:
        session.run(double.op)
        assert hook.final_ops_values is None
    assert hook.final_ops_values == expected


def test_values_are_fed(impl: Any, graph: Any) -> None:
    x = v1.placeholder(tf.float32, [])
    hook = impl.train.FinalOpsHook({"x": x * 2}, final_ops_feed_dict={x: 21.0})
    with impl.train.MonitoredSession(hooks=[hook]):
        pass
    assert hook.final_ops_values == {"x": 42.0}


def test_no_final_ops(impl: Any, graph: Any) -> None:
    hook = impl.train.FinalOpsHook(None)
    with impl.train.MonitoredSession(hooks=[hook]):
        pass
    assert hook.final_ops_values is None


def test_final_ops_values_cannot_be_set(impl: Any) -> None:
    with pytest.raises(AttributeError):
        impl.train.FinalOpsHook(None).final_ops_values = 3


def test_no_values_after_an_error(impl: Any, graph: Any) -> None:
    hook = impl.train.FinalOpsHook(tf.constant(1.0))
    with pytest.raises(KeyError):
        with impl.train.MonitoredSession(hooks=[hook]):
            raise KeyError
    assert hook.final_ops_values is None


def test_final_ops_that_read_input_past_its_end(impl: Any, graph: Any, tf_log: Any) -> None:
    queue = v1.FIFOQueue(1, [tf.float32])
    element, close = queue.dequeue(), queue.close()
    hook = impl.train.FinalOpsHook(element)
    with pytest.raises(tf.errors.OutOfRangeError, match="is closed and has insufficient elements"):
        with impl.train.MonitoredSession(hooks=[hook]) as session:
            session.run(close)
    assert hook.final_ops_values is None
    warnings = [record.getMessage() for record in tf_log.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert warnings[0].startswith(
        "An OutOfRangeError or StopIteration exception is raised by the code in FinalOpsHook."
    )


# FeedFnHook.


def test_feeds_each_run_anew(impl: Any, hooked: Any, graph: Any) -> None:
    x, y = v1.placeholder(tf.float32, []), v1.placeholder(tf.float32, [])
    numbers = iter(range(10))
    hook = impl.train.FeedFnHook(lambda: {x: next(numbers)})
    session, outer = hooked(hook)
    assert [outer.run(x) for _ in range(3)] == [0.0, 1.0, 2.0]
    assert outer.run(x + y, {y: 10.0}) == 13.0
    assert next(numbers) == 4  # Called once a run.
    session.close()


@pytest.mark.parametrize("nothing", [None, {}])
def test_may_feed_nothing(impl: Any, hooked: Any, graph: Any, nothing: Any) -> None:
    x = v1.placeholder_with_default(3.0, [])
    session, outer = hooked(impl.train.FeedFnHook(lambda: nothing))
    assert outer.run(x) == 3.0
    session.close()


def test_feed_fn_can_be_replaced(impl: Any, hooked: Any, graph: Any) -> None:
    x = v1.placeholder(tf.float32, [])
    hook = impl.train.FeedFnHook(lambda: {x: 1.0})
    session, outer = hooked(hook)
    assert outer.run(x) == 1.0
    hook.feed_fn = lambda: {x: 2.0}
    assert outer.run(x) == 2.0
    session.close()


def test_end_of_the_feed_ends_training(impl: Any, graph: Any, trace: Any) -> None:
    x = v1.placeholder(tf.float32, [])
    numbers = iter([1.0, 2.0])
    seen = []
    hooks = [impl.train.FeedFnHook(lambda: {x: next(numbers)}), trace.hook("a")]
    with impl.train.MonitoredSession(hooks=hooks) as session:
        while not session.should_stop():
            seen.append(session.run(x))
    assert seen == [1.0, 2.0]
    assert trace[-1] == "a.end"


def test_feed_conflicts_with_the_callers(impl: Any, hooked: Any, graph: Any) -> None:
    x = v1.placeholder(tf.float32, [])
    session, outer = hooked(impl.train.FeedFnHook(lambda: {x: 1.0}))
    with pytest.raises(RuntimeError, match=r"^Same tensor is fed by a SessionRunHook and user\. Conflict\(s\): \["):
        outer.run(x, {x: 1.0})
    session.close()
