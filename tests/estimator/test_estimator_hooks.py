"""Early stopping, evaluation in memory, the stop at a checkpoint's step."""

from __future__ import annotations

import os
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.training import training_util

from fastsup import estimator as est
from fastsup import train

v1 = tf.compat.v1


def write_metrics(directory: str, values: dict[int, dict[str, float]]) -> None:
    writer = v1.summary.FileWriterCache.get(directory)
    for step, metrics in values.items():
        summary = v1.Summary(value=[v1.Summary.Value(tag=tag, simple_value=value) for tag, value in metrics.items()])
        writer.add_summary(summary, step)
    v1.summary.FileWriterCache.clear()


def test_reads_what_evaluations_have_written(tmp_path: Any, tf_log: Any) -> None:
    assert est.read_eval_metrics(str(tmp_path / "none")) == {}
    with tf.Graph().as_default():
        write_metrics(str(tmp_path), {20: {"a": 2.0}, 10: {"a": 1.0, "b": 5.0}})
    assert list(est.read_eval_metrics(str(tmp_path)).items()) == [(10, {"a": 1.0, "b": 5.0}), (20, {"a": 2.0})]
    (tmp_path / "events.out.tfevents.9.damaged").write_bytes(b"nonsense nonsense nonsense")
    assert len(est.read_eval_metrics(str(tmp_path))) == 2
    assert "Skipping rest of the file due to encountering data corruption error" in tf_log.text


METRICS = {10: {"m": 1.0}, 20: {"m": 3.0}, 30: {"m": 2.0}, 40: {"m": 2.5}}

# Which hook, with which arguments, stops by these metrics, and what it says.
STOPS = [
    ("stop_if_higher_hook", (2.9,), {}, 'At step 20, metric "m" has value 3.0 which is greater than'),
    ("stop_if_higher_hook", (3.0,), {}, None),
    ("stop_if_higher_hook", (2.2,), {"min_steps": 31}, "At step 40"),
    ("stop_if_lower_hook", (1.5,), {}, 'At step 10, metric "m" has value 1.0 which is less than the configured'),
    ("stop_if_lower_hook", (1.5,), {"min_steps": 11}, None),
    ("stop_if_no_increase_hook", (20,), {}, 'No increase in metric "m" for 20 steps, which is greater than or equal'),
    ("stop_if_no_increase_hook", (21,), {}, None),
    ("stop_if_no_decrease_hook", (30,), {}, 'No decrease in metric "m" for 30 steps'),
    ("stop_if_no_decrease_hook", (20,), {"min_steps": 20}, None),
]


@pytest.mark.parametrize(("name", "arguments", "more", "line"), STOPS)
def test_stops_by_a_metric(
    make: Any, input_fn: Any, tf_log: Any, name: str, arguments: Any, more: Any, line: Any
) -> None:
    model = make()
    with tf.Graph().as_default():
        write_metrics(model.eval_dir(), METRICS)
    hook = getattr(est, name)(model, "m", *arguments, run_every_secs=None, run_every_steps=2, **more)
    assert getattr(est.experimental, name) is getattr(est, name)
    model.train(lambda: input_fn().repeat(), steps=8, hooks=[hook])
    assert model.get_variable_value("global_step") == (8 if line is None else 1)
    assert bool(model.get_variable_value("signal_early_stopping/STOP")) == (line is not None)
    if line is not None:
        assert line in tf_log.text
        assert "Requesting early stopping at global step 0" in tf_log.messages


@pytest.mark.parametrize("more", [(), (v1.train.SessionRunHook(),)], ids=["scheduled", "called in each run"])
def test_asks_as_often_as_told(make: Any, input_fn: Any, tf_log: Any, more: Any) -> None:
    """At the steps that a hook reads, which are those before its runs: 0, 3, 6, 9. The reference says so too."""
    asked = []
    model = make()
    hook = est.make_early_stopping_hook(model, lambda: asked.append(1) or len(asked) == 4, None, run_every_steps=3)
    model.train(lambda: input_fn().repeat(), steps=50, hooks=[hook, *more])
    assert model.get_variable_value("global_step") == 10
    assert "Requesting early stopping at global step 9" in tf_log.messages


def test_early_stopping_refuses(make: Any, tmp_path: Any) -> None:
    model = make()
    with pytest.raises(TypeError, match=r"`estimator` must have type `tf\.estimator\.Estimator`"):
        est.make_early_stopping_hook(1, lambda: True)
    with pytest.raises(ValueError, match="Only one of `run_every_secs` and `run_every_steps` must be set"):
        est.make_early_stopping_hook(model, lambda: True, 60, 5)
    with pytest.raises(TypeError, match="`should_stop_fn` must be callable"):
        est.make_early_stopping_hook(model, 1)
    with pytest.raises(TypeError, match=r"^run_every_secs must be a number, got 'a' of type str\.$"):
        est.make_early_stopping_hook(model, lambda: True, "a")
    message = r"^Either every_secs or every_steps should be provided\. \(run_every_secs=None, run_every_steps=None\)$"
    with pytest.raises(ValueError, match=message):
        est.make_early_stopping_hook(model, lambda: True, None)
    with tf.Graph().as_default():
        write_metrics(str(tmp_path / "e"), METRICS)
    for name, hint in (("typo", ""), ("M", r" Did you mean 'm'\?")):
        hook = est.stop_if_higher_hook(model, name, 1, str(tmp_path / "e"))
        with pytest.raises(KeyError, match=rf"'{name}' isn't among the metrics in .*: \['m'\]\.{hint}\"$"):
            hook._should_stop_fn()


@pytest.mark.parametrize(
    ("arguments", "stops_at"),
    [
        ({"run_every_secs": 0}, 3),
        ({"run_every_secs": -1}, 3),
        ({"run_every_secs": None, "run_every_steps": 0}, 3),
        ({"run_every_secs": None, "run_every_steps": -2}, 3),
        ({"run_every_secs": float("nan")}, 5),
    ],
)
def test_early_stopping_asks_after_every_step(
    make: Any, input_fn: Any, tf_log: Any, arguments: dict[str, Any], stops_at: int
) -> None:
    model, asked = make(), []

    def should_stop() -> bool:
        asked.append(1)
        return len(asked) == 3

    model.train(input_fn, hooks=[est.make_early_stopping_hook(model, should_stop, **arguments)])
    assert model.get_variable_value("global_step") == stops_at
    doubtful = any(value is not None and not value >= 0 for value in arguments.values())
    assert ("Pass a number of 0 or more" in tf_log.text) == doubtful


@pytest.mark.parametrize("last_step", [0, -1, 1.5])
def test_a_last_step_that_the_reference_takes(make: Any, input_fn: Any, tf_log: Any, last_step: float) -> None:
    model = make()
    model.train(input_fn, hooks=[est.make_stop_at_checkpoint_step_hook(model, last_step)])
    assert model.get_variable_value("global_step") == (2 if last_step == 1.5 else 1)
    assert ("training ends after its first step" in tf_log.text) == (last_step <= 0)


def test_a_worker_stops_with_the_chief(make: Any, set_tf_config: Any, graph: Any) -> None:
    set_tf_config({"cluster": {"chief": ["h:1"], "worker": ["h:2"]}, "task": {"type": "worker", "index": 0}})
    hook = est.make_early_stopping_hook(make(), lambda: True)
    step = v1.assign_add(v1.train.get_or_create_global_step(), 1)
    with train.MonitoredSession(hooks=[hook]) as session:
        session.run(step)
        assert not session.should_stop()
        session.raw_session().run(hook._stop_var.initializer, {hook._stop_var.initializer.inputs[1]: True})
        session.run(step)
        assert session.should_stop()


def test_evaluates_in_memory(make: Any, input_fn: Any) -> None:
    model = make(save_checkpoints_secs=None)
    hook = est.InMemoryEvaluatorHook(model, input_fn, name="memory", every_n_iter=4)
    model.train(lambda: input_fn().repeat(), steps=10, hooks=[hook])
    found = est.read_eval_metrics(model.eval_dir("memory"))
    assert list(found) == [0, 4, 8, 10]
    # The last evaluation sees what a checkpoint would have held.
    other = make(model_dir=model.model_dir + "-saved")
    other.train(lambda: input_fn().repeat(), steps=10)
    assert found[10]["mae"] == pytest.approx(other.evaluate(input_fn)["mae"], rel=1e-5)
    assert not [name for name in os.listdir(model.model_dir) if name.startswith("model.ckpt")]


METRIC_HOOKS = [
    (est.stop_if_higher_hook, "threshold"),
    (est.stop_if_lower_hook, "threshold"),
    (est.stop_if_no_increase_hook, "max_steps_without_increase"),
    (est.stop_if_no_decrease_hook, "max_steps_without_decrease"),
]


@pytest.mark.parametrize(("make_hook", "limit"), METRIC_HOOKS)
def test_early_stopping_by_a_metric_refuses(make: Any, make_hook: Any, limit: str) -> None:
    with pytest.raises(TypeError, match=r"^`estimator` must have type `tf.estimator.Estimator`. Got: <class 'int'>"):
        make_hook(5, "loss", 1)
    model = make()
    with pytest.raises(TypeError, match=r"^`metric_name` must be the name of a metric, a string. Got: 5$"):
        make_hook(model, 5, 1)
    with pytest.raises(TypeError, match=rf"^`{limit}` must be a number. Got: 'a'$"):
        make_hook(model, "loss", "a")
    with pytest.raises(TypeError, match=r"^`min_steps` must be a number. Got: None$"):
        make_hook(model, "loss", 1, min_steps=None)
    with pytest.raises(TypeError, match=r"^`eval_dir` must be the path of a directory, or None .*\. Got: 5$"):
        make_hook(model, "loss", 1, eval_dir=5)


def test_evaluation_in_memory_refuses(make: Any, input_fn: Any, set_tf_config: Any) -> None:
    with pytest.raises(TypeError, match=r"^`estimator` must have type"):
        est.InMemoryEvaluatorHook(5, input_fn)
    with pytest.raises(TypeError, match=r"^`input_fn` must be callable, given: 5\. Pass a function"):
        est.InMemoryEvaluatorHook(make(), 5)
    with pytest.raises(TypeError, match=r"^every_n_iter must be a number of steps, given: 'a'$"):
        est.InMemoryEvaluatorHook(make(), input_fn, every_n_iter="a")
    with pytest.raises(TypeError, match=r"^name must be a string or None, given: 5$"):
        est.InMemoryEvaluatorHook(make(), input_fn, name=5)
    for n in (None, 0):
        with pytest.raises(ValueError, match=f"invalid every_n_iter={n}"):
            est.InMemoryEvaluatorHook(make(), input_fn, every_n_iter=n)
    set_tf_config({"cluster": {"chief": ["h:1"], "ps": ["h:2"]}, "task": {"type": "chief", "index": 0}})
    with pytest.raises(ValueError, match="InMemoryEvaluator supports only single machine"):
        est.InMemoryEvaluatorHook(make(), input_fn)


def test_stops_at_the_step_of_a_checkpoint(make: Any, input_fn: Any, set_tf_config: Any, monkeypatch: Any) -> None:
    model = make()
    with pytest.raises(TypeError, match=r"^`estimator` must have type"):
        est.make_stop_at_checkpoint_step_hook(5, 5)
    with pytest.raises(TypeError, match=r"^last_step must be an integer, got 'a' of type str\.$"):
        est.make_stop_at_checkpoint_step_hook(model, "a")
    with pytest.raises(TypeError, match=r"^wait_after_file_check_secs must be a number of seconds, got 'a'\.$"):
        est.make_stop_at_checkpoint_step_hook(model, 5, "a")
    chief = est.make_stop_at_checkpoint_step_hook(model, 5)
    assert isinstance(chief, train.StopAtStepHook)
    model.train(lambda: input_fn().repeat(), hooks=[chief])
    set_tf_config({"cluster": {"chief": ["h:1"], "worker": ["h:2"]}, "task": {"type": "worker", "index": 0}})
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    with tf.Graph().as_default():
        variable = v1.train.get_or_create_global_step()
        # The order is given: else a run may read the step before or after it adds to it.
        with tf.control_dependencies([training_util._get_or_create_global_step_read()]):
            step = v1.assign_add(variable, 1).op
        hooks = [est.make_stop_at_checkpoint_step_hook(make(), last, 7) for last in (3, 6)]
        with train.MonitoredSession(hooks=hooks[:1]) as session:
            session.run_loop(step, steps=9)
            assert session.should_stop()
            assert session.raw_session().run(variable) == 3
        with train.MonitoredSession(hooks=hooks[1:]) as session:
            session.run_loop(step, steps=7)
            assert not session.should_stop()
    assert waited == [7, 7]


def test_checkpoints_of_the_input_pipeline_refuse_wrong_arguments(tmp_path: Any) -> None:
    model = est.Estimator(lambda features: None, est.RunConfig(str(tmp_path)).model_dir)
    hook = est.experimental.CheckpointInputPipelineHook
    with pytest.raises(ValueError, match=r'external_state_policy must be "fail", "warn".*got \'never\''):
        hook(model, "never")
    with pytest.raises(TypeError, match=r"estimator.*must have type.*int"):
        hook(5)
    for policy in (None, "warn", "ignore", "fail"):
        hook(model, policy)
