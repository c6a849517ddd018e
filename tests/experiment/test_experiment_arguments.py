"""What an Experiment is made with: which arguments, in which order, and which are refused, and how."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from fastsup import estimator
from fastsup.experiment import Experiment, ExportStrategy, learn_runner

v1 = tf.compat.v1


@pytest.fixture
def est(tmp_path: Path) -> Any:
    return mock.Mock(spec=estimator.Estimator, model_dir=str(tmp_path), config=estimator.RunConfig())


@pytest.fixture
def older() -> Any:
    """An estimator with `fit`, of the older kind."""
    return mock.Mock(spec=["fit", "evaluate", "model_dir"])


def data() -> Any:
    pytest.fail("nothing that an Experiment is made with is called then")


def make(est: Any, **arguments: Any) -> Experiment:
    return Experiment(est, **{"train_input_fn": data, "eval_input_fn": data, **arguments})


# fmt: off
SIGNATURES = [
    (Experiment,
     "estimator train_input_fn eval_input_fn eval_metrics=None train_steps=None eval_steps=100 train_monitors=None "
     "eval_hooks=None local_eval_frequency=None eval_delay_secs=120 continuous_eval_throttle_secs=60 "
     "min_eval_frequency=None delay_workers_by_global_step=False export_strategies=None "
     "train_steps_per_iteration=None checkpoint_and_export=False saving_listeners=None check_interval_secs=5"),
    (Experiment.train, "self delay_secs=None"),
    (Experiment.evaluate, "self delay_secs=None name=None"),
    (Experiment.continuous_eval,
     "self delay_secs=None throttle_delay_secs=None evaluate_checkpoint_only_once=True "
     "continuous_eval_predicate_fn=None name='continuous'"),
    (Experiment.continuous_eval_on_train_data,
     "self delay_secs=None throttle_delay_secs=None continuous_eval_predicate_fn=None name='continuous_on_train_data'"),
    (Experiment.continuous_train_and_eval, "self continuous_eval_predicate_fn=None"),
    (Experiment.reset_export_strategies, "self new_export_strategies=None"),
    (Experiment.extend_train_hooks, "self additional_hooks"),
    (ExportStrategy, "name export_fn strip_default_attrs=None"),
    (ExportStrategy.export, "self estimator export_path checkpoint_path=None eval_result=None"),
    (learn_runner.run, "experiment_fn output_dir=None schedule=None run_config=None hparams=None"),
    (learn_runner.tune, "experiment_fn tuner"),
]
# fmt: on


@pytest.mark.parametrize(("function", "parameters"), SIGNATURES, ids=[row[0].__name__ for row in SIGNATURES])
def test_arguments_and_their_order(function: Any, parameters: str) -> None:
    found = [
        name if each.default is each.empty else f"{name}={each.default!r}"
        for name, each in inspect.signature(function).parameters.items()
    ]
    assert " ".join(found) == parameters


def test_the_defaults(est: Any) -> None:
    made = Experiment(est, data, data)
    assert (made.estimator, made.eval_metrics, made.train_steps, made.eval_steps) == (est, None, None, 100)
    assert est.method_calls == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eval_metrics": {}}, "`eval_metrics` must be `None` with `tf.estimator.Estimator`"),
        ({"estimator": "none"}, "`estimator` must be a `fastsup.estimator.Estimator`, or have the methods"),
        ({"export_strategies": "not"}, "`export_strategies` must be an ExportStrategy, an iterable of"),
        ({"export_strategies": 1}, "or `None`, found 1."),
        ({"export_strategies": [ExportStrategy("a", lambda e, p: p), None]}, "found None."),
        ({"train_steps_per_iteration": "123"}, "`train_steps_per_iteration` must be an integer. Got '123'."),
        ({"train_steps_per_iteration": 1.5}, "`train_steps_per_iteration` must be an integer. Got 1.5."),
        ({"train_steps_per_iteration": 0}, "`train_steps_per_iteration` must be positive. Got 0."),
        ({"train_input_fn": [1]}, "`train_input_fn` must be a function that returns the data, or `None`. Got [1]."),
        ({"eval_input_fn": 1}, "`eval_input_fn` must be a function that returns the data, or `None`. Got 1."),
        ({"train_steps": [10]}, "`train_steps` must be an integer, or `None`. Got [10]."),
        ({"train_steps": 0}, "`train_steps` must be positive. Got 0."),
        ({"eval_steps": -1}, "`eval_steps` must be positive. Got -1."),
        ({"continuous_eval_throttle_secs": "1"}, "`continuous_eval_throttle_secs` must be a number of seconds"),
        ({"eval_delay_secs": float("inf")}, "`eval_delay_secs` must be a number of seconds, 0 or more. Got inf."),
        ({"train_monitors": 1}, "`train_monitors` must be an iterable, or `None`. Got 1."),
        ({"train_monitors": ["hook"]}, "`train_monitors` must be `SessionRunHook` instances, found 'hook'."),
        ({"eval_hooks": 1}, "`eval_hooks` must be an iterable, or `None`. Got 1."),
        ({"eval_hooks": [v1.train.SessionRunHook]}, "`eval_hooks` must be `SessionRunHook` instances, found <class"),
        ({"saving_listeners": 1}, "`saving_listeners` must be an iterable, or `None`. Got 1."),
        ({"saving_listeners": [1]}, "`saving_listeners` must be `CheckpointSaverListener` instances, found 1."),
    ],
)
def test_what_it_refuses(est: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        Experiment(**{"estimator": est, "train_input_fn": data, "eval_input_fn": data, **arguments})
    assert message in str(raised.value)
    assert est.method_calls == []


@pytest.mark.parametrize(
    ("arguments", "doubt"),
    [
        ({"train_steps": 1.5}, None),
        ({"train_steps": float("inf"), "train_steps_per_iteration": True}, None),
        ({"eval_steps": np.float32(1.5)}, None),
        ({"local_eval_frequency": 0.5, "min_eval_frequency": np.int64(3)}, None),
        ({"min_eval_frequency": -1}, "`min_eval_frequency`=-1 is negative"),
        ({"eval_delay_secs": -1}, "`eval_delay_secs`=-1 is negative: no wait"),
        ({"continuous_eval_throttle_secs": np.float32(2)}, None),
        ({"check_interval_secs": float("nan")}, "`check_interval_secs` is NaN: no wait"),
    ],
)
def test_numbers_that_the_reference_takes(est: Any, tf_log: Any, arguments: dict[str, Any], doubt: str | None) -> None:
    make(est, **arguments)
    assert (doubt or "Pass") in tf_log.text or (doubt is None and "Pass" not in tf_log.text)


def test_an_older_estimator_has_no_saving_listeners(older: Any) -> None:
    with pytest.raises(ValueError, match="`saving_listeners` must be `None`"):
        make(older, saving_listeners=[])


def test_what_an_older_estimator_refuses(older: Any) -> None:
    with pytest.raises(ValueError, match=r"`eval_metrics` must be a dictionary .* Got \['accuracy'\]"):
        make(older, eval_metrics=["accuracy"])
    with pytest.raises(ValueError, match="`train_monitors` must be `SessionRunHook` instances, found 3"):
        make(older, train_monitors=[3])


def test_names_in_place_of_things_arrive_where_these_would(est: Any, older: Any) -> None:
    """As the tests of the reference have them."""
    names = {"train_steps": "steps", "train_input_fn": "train_input", "eval_input_fn": "eval_input"}
    Experiment(est, saving_listeners="listeners", **names).train(delay_secs=0)
    est.train.assert_called_once_with(
        input_fn="train_input", steps=None, max_steps="steps", hooks=[], saving_listeners="listeners"
    )
    Experiment(older, eval_metrics="metrics", **names, eval_steps="steps").evaluate(delay_secs=0)
    older.evaluate.assert_called_once_with(
        input_fn="eval_input", steps="steps", name="one_pass", checkpoint_path=None, hooks=[], metrics="metrics"
    )


@pytest.mark.parametrize("steps", [1e5, 100_000, np.int64(100_000)])
def test_whole_numbers_of_steps(est: Any, steps: Any) -> None:
    assert make(est, train_steps=steps, eval_steps=steps).train_steps == 100_000


def test_hooks_that_are_none_can_t_be_added(est: Any) -> None:
    experiment = make(est)
    with pytest.raises(ValueError, match="`additional_hooks` must be `SessionRunHook` instances, found 'hook'"):
        experiment.extend_train_hooks([v1.train.SessionRunHook(), "hook"])
    assert experiment._train_monitors == []


def test_the_frequency_of_evaluations_on_gcs(est: Any) -> None:
    assert make(est)._min_eval_frequency == 1
    est.model_dir = "gs://bucket/model"
    assert make(est)._min_eval_frequency == 1000
    assert make(est, min_eval_frequency=0)._min_eval_frequency == 0
