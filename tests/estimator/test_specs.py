"""TrainSpec and EvalSpec: what they hold, and what they refuse."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import tensorflow as tf

from fastsup import estimator

v1 = tf.compat.v1


def named(name: Any) -> Any:
    exporter = mock.Mock(spec=estimator.Exporter)
    exporter.name = name
    return exporter


def no_data() -> None:
    """An input function."""


def test_the_fields_of_a_train_spec() -> None:
    hook, listener = v1.train.SessionRunHook(), v1.train.CheckpointSaverListener()
    spec = estimator.TrainSpec(no_data, 2, [hook], iter([listener]))
    assert spec == (no_data, 2, (hook,), (listener,))
    assert spec.input_fn is no_data
    assert spec.max_steps == 2
    assert estimator.TrainSpec(no_data) == (no_data, None, (), ())


def test_the_fields_of_an_eval_spec() -> None:
    hook, exporter = v1.train.SessionRunHook(), named("a")
    spec = estimator.EvalSpec(no_data, 2, "name", [hook], exporter, 3, 4)
    assert spec[:7] == (no_data, 2, "name", (hook,), (exporter,), 3, 4)
    assert estimator.EvalSpec(no_data) == (no_data, 100, None, (), (), 120, 600, None, None, False)
    spec = estimator.EvalSpec(no_data, throttle_steps=7, idle_timeout_secs=8.5)
    assert (spec.throttle_steps, spec.idle_timeout_secs) == (7, 8.5)
    assert estimator.EvalSpec(no_data, steps=None).steps is None


@pytest.mark.parametrize("kind", [estimator.TrainSpec, estimator.EvalSpec])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"input_fn": 1},
            TypeError,
            "`input_fn` must be callable, given: 1. Pass a function that returns a tf.data.Dataset, or the tensors "
            "(features, labels).",
        ),
        ({"hooks": [1]}, TypeError, "All hooks must be `SessionRunHook` instances, given: 1"),
        ({"hooks": 1}, TypeError, "`hooks` must be an iterable of `SessionRunHook` instances, given: 1"),
    ],
)
def test_what_both_refuse(kind: Any, arguments: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error) as raised:
        kind(**{"input_fn": no_data, **arguments})
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"max_steps": 0}, ValueError, "Must specify max_steps > 0, given: 0. Pass None for no limit."),
        (
            {"max_steps": -1},
            ValueError,
            "Must specify max_steps > 0, given: -1. Pass None for no limit.",
        ),
        ({"max_steps": "9"}, TypeError, "max_steps must be an integer or None, given: '9'"),
        (
            {"saving_listeners": [2]},
            TypeError,
            "All saving_listeners must be `CheckpointSaverListener` instances, given: 2",
        ),
        (
            {"saving_listeners": [tf.compat.v1.train.CheckpointSaverListener]},
            TypeError,
            "All saving_listeners must be `CheckpointSaverListener` instances, given: "
            f"{tf.compat.v1.train.CheckpointSaverListener}. CheckpointSaverListener is a class: pass an object, "
            "CheckpointSaverListener(...).",
        ),
    ],
)
def test_what_a_train_spec_refuses(arguments: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error) as raised:
        estimator.TrainSpec(no_data, **arguments)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"steps": 0}, ValueError, "Must specify steps > 0, given: 0. Pass None for no limit."),
        ({"steps": float("inf")}, TypeError, "steps must be an integer or None, given: inf"),
        ({"steps": "1"}, TypeError, "steps must be an integer or None, given: '1'"),
        ({"name": 123}, TypeError, "`name` must be string, given: 123"),
        ({"start_delay_secs": -1}, ValueError, "Must specify start_delay_secs >= 0, given: -1"),
        ({"throttle_secs": -0.5}, ValueError, "Must specify throttle_secs >= 0, given: -0.5"),
        (
            {"throttle_secs": None},
            TypeError,
            "`throttle_secs` must be a number, given: None. Must specify throttle_secs >= 0.",
        ),
        ({"throttle_steps": 0}, ValueError, "Must specify throttle_steps > 0, given: 0. Pass None for no limit."),
        ({"idle_timeout_secs": 0}, ValueError, "Must specify idle_timeout_secs > 0, or None, given: 0"),
        ({"keep_graph": 1}, TypeError, "keep_graph must be True or False, got 1."),
        (
            {"exporters": 5},
            TypeError,
            "`exporters` must be an Exporter, an iterable of Exporter, or `None`, found 5.",
        ),
        (
            {"exporters": [None]},
            TypeError,
            "`exporters` must be an Exporter, an iterable of Exporter, or `None`, found [None].",
        ),
        (
            {"exporters": [named("a"), named("b"), named("a")]},
            ValueError,
            "`exporters` must have unique names. Such a name cannot be `None`. All exporter names: ['a', 'b', 'a']",
        ),
        (
            {"exporters": [named("a"), named("")]},
            ValueError,
            "An Exporter cannot have a name that is `None` or empty. All exporter names: ['a', '']",
        ),
        ({"exporters": named(5)}, ValueError, "An Exporter must have a string name. Given: <class 'int'>"),
    ],
)
def test_what_an_eval_spec_refuses(arguments: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error) as raised:
        estimator.EvalSpec(no_data, **arguments)
    assert str(raised.value) == message


def test_exporters_of_an_iterator_are_all_taken() -> None:
    exporters = [named("a"), named("b")]
    assert estimator.EvalSpec(no_data, exporters=iter(exporters)).exporters == tuple(exporters)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("no new checkpoint", {"loss": 1}), ValueError, "metrics must be `None` if status is not evaluated"),
        (("missing checkpoint", None, "path"), ValueError, "checkpoint must be `None` if status is not evaluated"),
        (("evaluated", {}), ValueError, "`Estimator.evaluate` should never return empty metrics."),
        (("evaluated", 123), TypeError, "`Estimator.evaluate` should return dict. Given <class 'int'>."),
        (("evaluated", {"loss": 1}), ValueError, "result should have `global_step` in result. Given {'loss': 1}"),
        (("evaluated", {"global_step": 1}), ValueError, "Internal error: `checkpoint_path` should never be empty."),
    ],
)
def test_what_an_eval_result_refuses(arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error) as raised:
        estimator.EvalResult(*arguments)
    assert message in str(raised.value)


def test_the_fields_of_an_eval_result() -> None:
    assert estimator.EvalResult(status=estimator.EvalStatus.NO_NEW_CHECKPOINT) == ("no new checkpoint", None, None)
    result = estimator.EvalResult(estimator.EvalStatus.EVALUATED, {"global_step": 3}, "path")
    assert (result.metrics, result.checkpoint_path) == ({"global_step": 3}, "path")


def test_numbers_that_the_reference_takes(tf_log: Any) -> None:
    """A fraction of a step is a whole one; what never ends isn't a limit; NaN for a wait is none."""
    for value in (1.5, float("inf"), float("nan")):
        assert estimator.TrainSpec(no_data, max_steps=value).max_steps is value
    assert estimator.EvalSpec(no_data, steps=2.5).steps == 2.5
    assert "max_steps=1.5 isn't an integer" in tf_log.text
    assert "steps=2.5 isn't an integer" in tf_log.text
    nan = float("nan")
    assert estimator.EvalSpec(no_data, throttle_secs=nan, start_delay_secs=nan).throttle_secs is nan
