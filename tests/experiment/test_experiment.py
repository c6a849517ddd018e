"""Experiment on what looks like an Estimator, or like one of the older kind: who is called, when, with what."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import tensorflow as tf
from tensorflow.python.training import server_lib

from fastsup import estimator, train
from fastsup.cluster.job_completion import mark_task_ended
from fastsup.experiment import Experiment, ExportStrategy

v1 = tf.compat.v1


class OlderEstimator:
    """An estimator with `fit`, of the older kind."""

    def __init__(self, config: Any, model_dir: str) -> None:
        self.config, self.model_dir = config, model_dir
        self.fit, self.evaluate = mock.Mock(return_value=self), mock.Mock(return_value={"global_step": 10})


@pytest.fixture
def config() -> Any:
    return mock.Mock(
        spec=estimator.RunConfig, cluster_spec=None, master="", task_type="worker", task_id=0, session_config=None,
        protocol=None, save_checkpoints_secs=None, save_checkpoints_steps=None,
    )  # fmt: skip


@pytest.fixture
def est(config: Any, tmp_path: Path) -> Any:
    made = mock.Mock(spec=estimator.Estimator, config=config, model_dir=str(tmp_path))
    made.train.return_value = made
    made.evaluate.return_value = {"global_step": 10}
    return made


@pytest.fixture
def sleep(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`time.sleep` that passes the time of a clock that else stands still: `sleep.total`."""
    replacement = mock.Mock(total=0.0)

    def pass_time(secs: float) -> None:
        replacement.total += secs

    replacement.side_effect = pass_time
    monkeypatch.setattr(time, "sleep", replacement)
    monkeypatch.setattr(time, "time", lambda: 1e9 + replacement.total)
    return replacement


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    """TensorFlow's Server, replaced."""
    replacement = mock.Mock()
    monkeypatch.setattr(server_lib, "Server", replacement)
    return replacement


def train_input() -> Any:
    pytest.fail("the Estimator calls this, if anybody")


def eval_input() -> Any:
    pytest.fail("the Estimator calls this, if anybody")


def make(est: Any, **arguments: Any) -> Experiment:
    return Experiment(est, **{"train_input_fn": train_input, "eval_input_fn": eval_input, **arguments})


def checkpoint(model_dir: Any, step: int = 10) -> str:
    """A file by the name of a checkpoint, and what says that it is the newest."""
    path = Path(model_dir, f"model.ckpt-{step}")
    path.with_name(path.name + ".index").write_text("")
    Path(model_dir, "checkpoint").write_text(f'model_checkpoint_path: "{path}"\n')
    return str(path)


# What it is made with.


def test_an_older_estimator_takes_monitors(config: Any, sleep: Any) -> None:
    est, monitor = OlderEstimator(config, "dir"), mock.Mock(spec=["begin", "end", "step_begin", "step_end"])
    make(est, train_monitors=[monitor]).train()
    est.fit.assert_called_once_with(input_fn=train_input, steps=None, max_steps=None, monitors=[monitor])


def test_what_can_be_iterated_over_once_lasts(est: Any) -> None:
    listener, hook = v1.train.CheckpointSaverListener(), v1.train.SessionRunHook()
    experiment = make(est, saving_listeners=iter([listener]), train_monitors=iter([hook]))
    experiment.continuous_train_and_eval(stops_after(2))
    called = [call[1] for call in est.train.call_args_list]
    assert [(call["saving_listeners"], call["hooks"]) for call in called] == [([listener], [hook])] * 2


def test_a_task_that_only_trains_needs_no_data_to_evaluate(est: Any, sleep: Any) -> None:
    assert make(est, eval_input_fn=None).train() is est


@pytest.mark.parametrize("method", ["train_and_evaluate", "local_run", "continuous_train_and_eval", "test"])
def test_what_could_not_evaluate_does_not_train(est: Any, method: str) -> None:
    with pytest.raises(ValueError, match=r"`eval_input_fn` is None\. Give the Experiment a function"):
        getattr(make(est, eval_input_fn=None), method)()
    assert est.method_calls == []


# Training.


def test_train(est: Any, sleep: Any) -> None:
    hook, listener = v1.train.SessionRunHook(), v1.train.CheckpointSaverListener()
    experiment = make(est, train_steps=7, train_monitors=[hook], saving_listeners=[listener])
    assert experiment.train() is est
    est.train.assert_called_once_with(
        input_fn=train_input, steps=None, max_steps=7, hooks=[hook], saving_listeners=[listener]
    )
    sleep.assert_not_called()


def test_train_an_older_estimator(config: Any, sleep: Any) -> None:
    est, hook = OlderEstimator(config, "dir"), v1.train.SessionRunHook()
    make(est, train_steps=7, train_monitors=(hook,), eval_metrics={"m": 1}).train()
    est.fit.assert_called_once_with(input_fn=train_input, steps=None, max_steps=7, monitors=[hook])


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_train_after_a_delay(est: Any, sleep: Any, delay: int, tf_log: Any) -> None:
    make(est).train(delay_secs=delay)
    assert sleep.total == delay
    assert (f"Waiting {delay} secs before starting training." in tf_log.messages) == bool(delay)


@pytest.mark.parametrize(("task", "delay"), [(None, 0), (0, 0), (1, 5), (3, 15), (12, 60), (40, 60)])
def test_the_delay_of_a_task(est: Any, sleep: Any, task: Any, delay: int) -> None:
    est.config.task_id = task
    make(est).train()
    assert sleep.total == delay


@pytest.mark.parametrize(("task", "step"), [(0, 0), (1, 5545), (2, 8788), (3, 11090)])
def test_a_delay_by_the_global_step(est: Any, sleep: Any, task: int, step: int) -> None:
    est.config.task_id = task
    make(est, delay_workers_by_global_step=True).train()
    (hook,) = est.train.call_args[1]["hooks"]
    assert isinstance(hook, train.GlobalStepWaiterHook)
    assert hook._wait_until_step == step
    assert sleep.total == 0


def in_cluster(config: Any, **attributes: Any) -> Any:
    config.cluster_spec = tf.train.ClusterSpec({"worker": ["h1:1", "h2:1"], "ps": ["h3:1"]})
    config.master, config.task_type, config.task_id = "grpc://h2:1", "worker", 1
    for name, value in attributes.items():
        setattr(config, name, value)
    return config


def test_train_starts_the_server_first(est: Any, config: Any, sleep: Any, server: Any) -> None:
    in_cluster(config)
    pass_time = sleep.side_effect

    def after_the_server(secs: float) -> None:
        server.return_value.start.assert_called_once_with()
        pass_time(secs)

    sleep.side_effect = after_the_server
    make(est).train()
    server.assert_called_once_with(
        config.cluster_spec, job_name="worker", task_index=1, config=mock.ANY, start=False, protocol=None
    )
    assert sleep.total == 5


@pytest.mark.parametrize(
    ("environment", "starts", "warns"), [("cloud", True, False), ("google", False, False), ("local", False, True)]
)
def test_configs_of_the_older_kind(
    est: Any, sleep: Any, server: Any, tf_log: Any, environment: str, starts: bool, warns: bool
) -> None:
    older = in_cluster(mock.Mock(tf_config=v1.ConfigProto(), environment=environment))
    est.config = older
    make(est).train()
    expected = mock.call(older.cluster_spec, job_name="worker", task_index=1, config=older.tf_config, start=False)
    assert server.call_args_list == ([expected] if starts else [])
    assert any("environment is set to 'local'" in message for message in tf_log.messages) == warns


@pytest.mark.parametrize(("environment", "starts"), [("cloud", 1), ("google", 0), ("local", 0)])
def test_the_environment_of_tf_config(
    est: Any, config: Any, sleep: Any, server: Any, monkeypatch: pytest.MonkeyPatch, environment: str, starts: int
) -> None:
    in_cluster(config)
    monkeypatch.setenv("TF_CONFIG", json.dumps({"environment": environment}))
    make(est).train()
    assert server.call_count == starts


@pytest.mark.parametrize("lacks", ["cluster_spec", "master"])
def test_no_server_without_a_cluster(est: Any, config: Any, sleep: Any, server: Any, lacks: str) -> None:
    in_cluster(config, **{lacks: None})
    make(est).train()
    server.assert_not_called()


@pytest.mark.parametrize("lacks", ["cluster_spec", "master", "task_type", "task_id"])
def test_a_server_that_can_t_be_started(est: Any, config: Any, server: Any, lacks: str) -> None:
    in_cluster(config, **{lacks: None})
    with pytest.raises(ValueError, match="Could not start server; be sure to specify cluster_spec, task_type, master"):
        make(est).run_std_server()


def test_run_std_server(est: Any, config: Any, server: Any) -> None:
    in_cluster(config, task_type="ps", task_id=0)
    make(est).run_std_server()
    server.return_value.start.assert_called_once_with()
    server.return_value.join.assert_called_once_with()


def test_hooks_can_be_added(est: Any) -> None:
    hooks = [v1.train.SessionRunHook() for _ in range(3)]
    given = [hooks[0]]
    experiment = make(est, train_monitors=given)
    experiment.extend_train_hooks(hooks[1:])
    experiment.train()
    assert est.train.call_args[1]["hooks"] == hooks
    assert given == hooks[:1]


def test_export_strategies_can_be_replaced(est: Any) -> None:
    first, second = (ExportStrategy(name, lambda e, p: p) for name in "ab")
    experiment = make(est, export_strategies=first)
    assert experiment.reset_export_strategies([second]) == (first,)
    assert experiment.reset_export_strategies() == (second,)
    assert experiment.reset_export_strategies() == ()
    with pytest.raises(ValueError, match="`export_strategies` must be an ExportStrategy"):
        experiment.reset_export_strategies("latest")


# Evaluation.


def test_evaluate(est: Any, sleep: Any, tf_log: Any) -> None:
    hook = v1.train.SessionRunHook()
    experiment = make(est, eval_steps=5, eval_hooks=[hook])
    assert experiment.evaluate() == {"global_step": 10}
    est.evaluate.assert_called_once_with(
        input_fn=eval_input, steps=5, name="one_pass", checkpoint_path=None, hooks=[hook]
    )
    assert sleep.total == 120
    assert "Waiting 120 secs before starting eval." in tf_log.messages
    experiment.evaluate(delay_secs=0, name="other")
    assert est.evaluate.call_args[1]["name"] == "other"
    assert sleep.total == 120


@pytest.mark.parametrize(
    ("method", "argument"),
    [
        ("train", "delay_secs"),
        ("evaluate", "delay_secs"),
        ("continuous_eval", "delay_secs"),
        ("continuous_eval", "throttle_delay_secs"),
        ("continuous_eval_on_train_data", "throttle_delay_secs"),
    ],
)
def test_a_delay_that_is_no_number(est: Any, method: str, argument: str) -> None:
    with pytest.raises(ValueError, match=f"`{argument}` must be a number of seconds, 0 or more. Got '1'."):
        getattr(make(est), method)(**{argument: "1"})
    assert est.method_calls == []


def test_no_delays(est: Any, sleep: Any) -> None:
    checkpoint(est.model_dir)
    made = make(est, train_steps=10, eval_delay_secs=None, continuous_eval_throttle_secs=None)
    made.evaluate()
    made.continuous_eval()
    assert est.evaluate.call_count == 2
    assert sleep.total == 0


def test_evaluate_an_older_estimator(config: Any, sleep: Any) -> None:
    est = OlderEstimator(config, "dir")
    make(est, eval_metrics={"m": "f"}, eval_delay_secs=3).evaluate()
    assert est.evaluate.call_args[1]["metrics"] == {"m": "f"}
    assert sleep.total == 3


def stops_after(number: int) -> Any:
    """A predicate that is True so many times."""
    answers = itertools.chain([True] * number, [False])
    asked: list[Any] = []

    def predicate(eval_results: Any) -> bool:
        asked.append(eval_results)
        return next(answers)

    predicate.asked = asked  # type: ignore[attr-defined]
    return predicate


def test_continuous_eval_of_each_checkpoint_once(est: Any, sleep: Any, tf_log: Any) -> None:
    path = checkpoint(est.model_dir)
    predicate = stops_after(4)
    make(est).continuous_eval(continuous_eval_predicate_fn=predicate)
    est.evaluate.assert_called_once_with(
        input_fn=eval_input, steps=100, name="continuous", checkpoint_path=path, hooks=[]
    )
    assert predicate.asked == [None, {"global_step": 10}, {}, {}, {}]
    assert sleep.total == 120 + 4 * 60
    assert tf_log.messages.count("No new checkpoint ready for evaluation.") == 1


def test_continuous_eval_of_a_checkpoint_again_and_again(est: Any, sleep: Any) -> None:
    checkpoint(est.model_dir)
    make(est, eval_delay_secs=0, continuous_eval_throttle_secs=2).continuous_eval(
        evaluate_checkpoint_only_once=False, continuous_eval_predicate_fn=stops_after(5)
    )
    assert est.evaluate.call_count == 5
    assert sleep.total == 10


def test_continuous_eval_warns_every_ten_minutes(est: Any, sleep: Any, tf_log: Any) -> None:
    make(est, eval_delay_secs=0).continuous_eval(continuous_eval_predicate_fn=stops_after(23))
    message = "Estimator is not fitted yet. Will start an evaluation when a checkpoint is ready."
    assert tf_log.messages.count(message) == 3  # at 0, 660 and 1320 seconds
    est.evaluate.assert_not_called()


def test_continuous_eval_ends_with_the_last_step(est: Any, sleep: Any, tf_log: Any) -> None:
    checkpoint(est.model_dir)
    make(est, train_steps=10).continuous_eval(delay_secs=0, throttle_delay_secs=1)
    assert est.evaluate.call_count == 1
    assert sleep.total == 1
    assert tf_log.messages[-1] == "Exiting continuous eval, global_step=10 >= train_step=10"


def test_continuous_eval_ends_when_training_has(est: Any, sleep: Any, tf_log: Any) -> None:
    path = checkpoint(est.model_dir)

    def evaluate(**arguments: Any) -> Any:
        mark_task_ended(est.model_dir, "chief", 0)
        return {"global_step": 10}

    est.evaluate.side_effect = evaluate
    make(est, train_steps=100).continuous_eval(delay_secs=0)
    assert [call[1]["checkpoint_path"] for call in est.evaluate.call_args_list] == [path]
    line = "Exiting continuous eval, training has ended before train_steps=100. See `python -m fastsup docs dropin#"
    assert tf_log.messages[-1] == f"{line}experiment-and-tfcontrib`."


def test_a_predicate_of_result_and_path(est: Any, sleep: Any) -> None:
    path = checkpoint(est.model_dir)
    asked = []

    def predicate(eval_results: Any, checkpoint_path: Any) -> bool:
        asked.append((eval_results, checkpoint_path))
        return len(asked) < 3

    make(est).continuous_eval(continuous_eval_predicate_fn=predicate)
    assert asked == [(None, None), ({"global_step": 10}, path), ({}, path)]


def test_continuous_eval_exports(est: Any, sleep: Any) -> None:
    path = checkpoint(est.model_dir)
    exported: list[Any] = []
    strategy = ExportStrategy("name", lambda *args, **rest: exported.append((args, rest)))
    make(est, train_steps=10, export_strategies=[strategy]).continuous_eval()
    assert exported == [((est, f"{est.model_dir}/export/name"), {})]
    make(est, train_steps=10, export_strategies=[strategy]).continuous_eval_on_train_data()
    assert len(exported) == 1
    assert est.evaluate.call_args == mock.call(
        input_fn=train_input, steps=100, name="continuous_on_train_data", checkpoint_path=path, hooks=[]
    )


@pytest.mark.parametrize("method", ["continuous_eval", "continuous_eval_on_train_data", "continuous_train_and_eval"])
def test_a_predicate_that_can_t_be_called(est: Any, method: str) -> None:
    with pytest.raises(ValueError, match="`continuous_eval_predicate_fn` must be a callable, or None"):
        getattr(make(est), method)(continuous_eval_predicate_fn="fn")
    assert est.method_calls == []


# Both.


def test_train_and_evaluate(est: Any, sleep: Any) -> None:
    strategy = ExportStrategy("name", lambda e, p: "exported")
    hook = v1.train.SessionRunHook()
    experiment = make(est, train_steps=10, train_monitors=[hook], export_strategies=strategy)
    assert experiment.train_and_evaluate() == ({"global_step": 10}, ["exported"])
    assert est.train.call_args[1]["hooks"][0] is hook
    assert len(est.train.call_args[1]["hooks"]) == 2
    est.evaluate.assert_called_once_with(input_fn=eval_input, steps=100, name=None, checkpoint_path=None, hooks=[])
    experiment.train()
    assert est.train.call_args[1]["hooks"] == [hook]
    assert sleep.total == 0


def test_no_evaluation_during_training(est: Any) -> None:
    make(est, min_eval_frequency=0).train_and_evaluate()
    assert est.train.call_args[1]["hooks"] == []
    assert est.evaluate.call_count == 1


def test_local_run_has_a_frequency_of_its_own(est: Any) -> None:
    experiment = make(est)
    experiment.local_run()
    assert est.train.call_args[1]["hooks"] == []
    make(est, local_eval_frequency=10).local_run()
    assert est.train.call_args[1]["hooks"][0]._every_n_steps == 10
    experiment.train_and_evaluate()
    assert est.train.call_args[1]["hooks"][0]._every_n_steps == 1


def test_one_step_each(est: Any) -> None:
    strategy = ExportStrategy("name", lambda e, p: exported.append(p))
    exported: list[str] = []
    make(est, export_strategies=strategy, eval_hooks=[v1.train.SessionRunHook()]).test()
    est.train.assert_called_once_with(input_fn=train_input, steps=1, max_steps=None, hooks=[], saving_listeners=None)
    est.evaluate.assert_called_once_with(
        input_fn=eval_input, steps=1, name="one_pass", checkpoint_path=None, hooks=None
    )
    assert exported == [f"{est.model_dir}/export/name"]


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        ({}, 1000), ({"train_steps": 50}, 5), ({"train_steps": 3}, 1),
        ({"train_steps": 50, "train_steps_per_iteration": 7}, 7),
    ],
)  # fmt: skip
def test_the_steps_of_a_turn(est: Any, arguments: dict[str, Any], steps: int) -> None:
    make(est, **arguments).continuous_train_and_eval(stops_after(1))
    est.train.assert_called_once_with(
        input_fn=train_input, steps=steps, max_steps=None, hooks=[], saving_listeners=None
    )


def test_turns(est: Any, tf_log: Any) -> None:
    path = checkpoint(est.model_dir)
    est.evaluate.side_effect = [{"global_step": step} for step in (10, 20, 30)]
    strategy = ExportStrategy("name", lambda e, p: "exported")
    experiment = make(est, train_steps=30, train_steps_per_iteration=10, export_strategies=strategy)
    assert experiment.continuous_train_and_eval() == ({"global_step": 30}, ["exported"])
    assert est.train.call_count == 3
    assert est.evaluate.call_args[1]["checkpoint_path"] == path
    assert tf_log.messages[-1] == "Stop training model as max steps reached"


# Export strategies.


def test_an_export_strategy_passes_what_its_function_takes(est: Any) -> None:
    assert ExportStrategy("a", lambda e, p: (e, p)).export(est, "path", "ckpt", {}) == (est, "path")
    assert ExportStrategy("a", lambda e, p, checkpoint_path: checkpoint_path).export(est, "path", "ckpt") == "ckpt"

    def four(est: Any, path: Any, checkpoint_path: Any, eval_result: Any) -> Any:
        return checkpoint_path, eval_result

    assert ExportStrategy("a", four).export(est, "path", "ckpt", {"loss": 1}) == ("ckpt", {"loss": 1})

    def five(est: Any, path: Any, checkpoint_path: Any, eval_result: Any, strip_default_attrs: Any) -> Any:
        return strip_default_attrs

    assert ExportStrategy("a", five).export(est, "path") is None
    assert ExportStrategy("a", five, False).export(est, "path") is False
    assert ExportStrategy("a", five, True).export(est, "path") is True


def test_an_export_function_with_a_result_and_no_checkpoint() -> None:
    with pytest.raises(ValueError, match="An export_fn accepting eval_result must also accept checkpoint_path"):
        ExportStrategy("a", lambda e, p, eval_result: p).export(None, "path")


def test_the_fields_of_an_export_strategy() -> None:
    assert ExportStrategy("a", "fn") == ("a", "fn", None)  # type: ignore[arg-type]
