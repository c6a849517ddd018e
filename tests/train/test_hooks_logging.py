"""LoggingTensorHook and NanTensorHook: what is logged, on which runs, in which words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1


@pytest.fixture
def x(graph: Any) -> Any:
    """A tensor whose value is fed."""
    return v1.placeholder_with_default(42.0, [], name="x")


def runs_that_log(outer: Any, tensor: Any, tf_log: Any, count: int) -> list[int]:
    """The numbers of the runs, from 1, on which something was logged."""
    logged = []
    for number in range(1, count + 1):
        tf_log.clear()
        outer.run(tensor)
        if tf_log.messages:
            logged.append(number)
    return logged


# When.


@pytest.mark.parametrize(("every", "runs"), [(1, [1, 2, 3, 4]), (2, [1, 3]), (3, [1, 4]), (10, [1])])
def test_every_n_iter(impl: Any, hooked: Any, x: Any, tf_log: Any, every: int, runs: list[int]) -> None:
    session, outer = hooked(impl.train.LoggingTensorHook([x], every_n_iter=every))
    assert runs_that_log(outer, x, tf_log, 4) == runs
    session.close()


def test_every_n_secs(impl: Any, hooked: Any, x: Any, tf_log: Any, clock: Any) -> None:
    session, outer = hooked(impl.train.LoggingTensorHook([x], every_n_secs=1.5))
    logged = []
    for passing in (0, 1.0, 0.25, 0.25, 0, 1.5, 3.0, 1.0):
        clock.now += passing
        tf_log.clear()
        outer.run(x)
        logged.append(len(tf_log.messages))
    assert logged == [1, 0, 0, 1, 0, 1, 1, 0]
    session.close()


def test_local_steps_are_counted_not_global_ones(
    impl: Any, hooked: Any, graph: Any, tf_log: Any, counting_step: Any
) -> None:
    step = counting_step(10)
    session, outer = hooked(impl.train.LoggingTensorHook([step.read], every_n_iter=3))
    assert runs_that_log(outer, step.op, tf_log, 7) == [1, 4, 7]
    session.close()


def test_begin_starts_anew(impl: Any, hooked: Any, x: Any, tf_log: Any) -> None:
    hook = impl.train.LoggingTensorHook([x], every_n_iter=3)
    for _ in range(2):
        session, outer = hooked(hook)
        assert runs_that_log(outer, x, tf_log, 4) == [1, 4]
        session.close()


@pytest.mark.parametrize("arguments", [{}, {"every_n_iter": 2}, {"every_n_secs": 60}], ids=["alone", "iter", "secs"])
def test_at_end(impl: Any, hooked: Any, x: Any, tf_log: Any, clock: Any, arguments: Any) -> None:
    hook = impl.train.LoggingTensorHook([x], at_end=True, **arguments)
    session, outer = hooked(hook)
    assert runs_that_log(outer, x, tf_log, 1) == ([1] if arguments else [])
    tf_log.clear()
    hook.end(session)
    elapsed = " (0.000 sec)" if arguments else ""
    assert tf_log.messages == [f"{x.name if hasattr(x, 'name') else x} = 42.0{elapsed}".replace(x.name, str(x))]
    session.close()


def test_not_at_end(impl: Any, hooked: Any, x: Any, tf_log: Any) -> None:
    hook = impl.train.LoggingTensorHook([x], every_n_iter=2)
    session, _ = hooked(hook)
    hook.end(session)
    assert tf_log.messages == []
    session.close()


def test_failed_runs_are_not_counted(impl: Any, hooked: Any, x: Any, tf_log: Any) -> None:
    fails = tf.raw_ops.Assert(condition=tf.constant(False), data=["never"])
    session, outer = hooked(impl.train.LoggingTensorHook([x], every_n_iter=3))
    assert runs_that_log(outer, x, tf_log, 2) == [1]
    with pytest.raises(tf.errors.InvalidArgumentError):
        outer.run(fails)
    assert runs_that_log(outer, x, tf_log, 3) == [2]
    session.close()


def test_tensors_are_fetched_only_when_they_are_logged(impl: Any, hooked: Any, x: Any, tf_log: Any) -> None:
    fetched = []
    probe = v1.py_func(lambda: fetched.append(1) or np.float32(1), [], tf.float32)
    session, outer = hooked(impl.train.LoggingTensorHook([probe], every_n_iter=3))
    counts = []
    for _ in range(5):
        outer.run(x)
        counts.append(len(fetched))
    assert counts == [1, 1, 1, 2, 2]
    session.close()


# What.


def test_text_and_order_of_tags(impl: Any, hooked: Any, x: Any, tf_log: Any, clock: Any) -> None:
    tensors = {"loss": x, "accuracy": "y:0", "Zeta": "y"}
    tf.constant([1.5, 2.0], name="y")
    session, outer = hooked(impl.train.LoggingTensorHook(tensors, every_n_iter=1))
    outer.run(x)
    clock.now += 1.23456
    outer.run(x, {x: 0.125})
    assert tf_log.messages == [
        "Zeta = [1.5 2. ], accuracy = [1.5 2. ], loss = 42.0",
        "Zeta = [1.5 2. ], accuracy = [1.5 2. ], loss = 0.125 (1.235 sec)",
    ]
    session.close()


def test_a_list_keeps_its_order(impl: Any, hooked: Any, x: Any, tf_log: Any) -> None:
    tf.constant(1, name="b")
    tf.constant(2, name="a")
    session, outer = hooked(impl.train.LoggingTensorHook(["b", "x:0", "a:0"], every_n_iter=1))
    outer.run(x)
    assert tf_log.messages == ["b = 1, x:0 = 42.0, a:0 = 2"]
    session.close()


def test_tensors_themselves_are_tags(impl: Any, hooked: Any, x: Any, tf_log: Any) -> None:
    session, outer = hooked(impl.train.LoggingTensorHook([x], every_n_iter=1))
    outer.run(x)
    assert tf_log.messages == [f"{x} = 42.0"]
    session.close()


def test_formatter_writes_the_whole_line(impl: Any, hooked: Any, x: Any, tf_log: Any) -> None:
    seen = []

    def formatter(values: Any) -> str:
        seen.append(values)
        return f"x is {values['x']:.1f}, 100%"

    session, outer = hooked(impl.train.LoggingTensorHook({"x": x}, every_n_iter=1, formatter=formatter))
    outer.run(x)
    outer.run(x, {x: 1.0})
    assert tf_log.messages == ["x is 42.0, 100%", "x is 1.0, 100%"]
    assert seen == [{"x": 42.0}, {"x": 1.0}]
    session.close()


def test_numbers_are_written_without_exponents(impl: Any, hooked: Any, x: Any, tf_log: Any) -> None:
    """And the program's own print options are as they were afterwards."""
    values = tf.constant([1e-5, 1.0])
    session, outer = hooked(impl.train.LoggingTensorHook({"v": values}, every_n_iter=1))
    before = np.get_printoptions()
    with np.printoptions(precision=3):
        inside = np.get_printoptions()
        outer.run(x)
        assert np.get_printoptions() == inside
    assert np.get_printoptions() == before
    assert tf_log.messages == ["v = [0. 1.]"]
    session.close()


@pytest.mark.parametrize("options", [{}, {"precision": 2, "floatmode": "fixed"}, {"legacy": "1.13"}])
def test_text_of_numbers(impl: Any, hooked: Any, x: Any, tf_log: Any, options: Any) -> None:
    values = {
        "half": np.float16(1e-5), "single": np.float32(1e-5), "double": np.float64(1) / 3, "large": np.float32(3e30),
        "integer": np.int64(-7), "small": np.uint8(200), "truth": np.bool_(True), "text": b"a\xffb",
        "complex": np.complex64(1e-5 + 2j), "nan": np.float32("nan"), "infinite": np.float64("-inf"),
    }  # fmt: skip
    tensors = {name: tf.constant(value) for name, value in values.items()}
    tensors["brain"] = tf.constant(0.1, tf.bfloat16)
    session, outer = hooked(impl.train.LoggingTensorHook(tensors, every_n_iter=1))
    values["brain"] = tf.bfloat16.as_numpy_dtype(0.1)
    with np.printoptions(**options):
        outer.run(x)
        expected = ", ".join(f"{name} = {values[name]!s}" for name in sorted(values))
    assert tf_log.messages == [expected]
    session.close()


def test_logs_at_info_level(impl: Any, hooked: Any, x: Any, tf_log: Any) -> None:
    session, outer = hooked(impl.train.LoggingTensorHook([x], every_n_iter=1))
    outer.run(x)
    assert [(record.name, record.levelname) for record in tf_log.records] == [("tensorflow", "INFO")]
    session.close()


def test_logger_is_looked_up_when_it_is_used(impl: Any, hooked: Any, x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorflow.python.platform import tf_logging

    said = []
    session, outer = hooked(impl.train.LoggingTensorHook({"x": x}, every_n_iter=1))
    monkeypatch.setattr(tf_logging, "info", lambda text, *args: said.append(text % args))
    outer.run(x)
    assert said == ["x = 42.0"]
    session.close()


def test_in_a_monitored_session(impl: Any, x: Any, tf_log: Any) -> None:
    hook = impl.train.LoggingTensorHook({"x": x}, every_n_iter=2, at_end=True, formatter=lambda values: "logged")
    with impl.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(4):
            session.run(x)
    assert tf_log.messages.count("logged") == 3


# NanTensorHook.


def test_nan_fails(impl: Any, hooked: Any, x: Any, tf_log: Any) -> None:
    session, outer = hooked(impl.train.NanTensorHook(x))
    outer.run([])
    with pytest.raises(impl.train.NanLossDuringTrainingError, match=r"^NaN loss during training\.$"):
        outer.run([], {x: float("nan")})
    (record,) = tf_log.records
    assert (record.levelname, record.getMessage()) == ("ERROR", "Model diverged with loss = NaN.")
    assert issubclass(impl.train.NanLossDuringTrainingError, RuntimeError)
    session.close()


def test_nan_stops(impl: Any, hooked: Any, x: Any, tf_log: Any) -> None:
    session, outer = hooked(impl.train.NanTensorHook(x, fail_on_nan_loss=False))
    for fine in (1.0, float("inf"), -1.0):
        outer.run([], {x: fine})
        assert not outer.should_stop()
    outer.run([], {x: float("nan")})
    assert outer.should_stop()
    (record,) = tf_log.records
    assert (record.levelname, record.getMessage()) == ("WARNING", "Model diverged with loss = NaN.")
    session.close()


def test_nan_ends_training(impl: Any, x: Any, trace: Any) -> None:
    values = iter([1.0, 2.0, float("nan"), 3.0])
    feed = impl.train.FeedFnHook(lambda: {x: next(values)})
    hooks = [feed, impl.train.NanTensorHook(x, fail_on_nan_loss=False), trace.hook("a")]
    with impl.train.MonitoredSession(hooks=hooks) as session:
        while not session.should_stop():
            session.run([])
    assert trace.count("a.after_run") == 3
    values = iter([1.0, float("nan")])
    feed.feed_fn = lambda: {x: next(values)}
    trace.clear()
    hooks[1] = impl.train.NanTensorHook(x)
    with pytest.raises(impl.train.NanLossDuringTrainingError):
        with impl.train.MonitoredSession(hooks=hooks) as session:
            while not session.should_stop():
                session.run([])
    assert trace.count("a.after_run") == 1
    assert "a.end" not in trace


def test_nan_hook_takes_a_name_or_a_half_precision_loss(impl: Any, hooked: Any, graph: Any) -> None:
    half = v1.placeholder_with_default(tf.constant(1, tf.bfloat16), [], name="half")
    session, outer = hooked(impl.train.NanTensorHook("half:0"))
    outer.run([])
    with pytest.raises(impl.train.NanLossDuringTrainingError):
        outer.run([], {half: np.array(float("nan"), half.dtype.as_numpy_dtype)})
    session.close()
