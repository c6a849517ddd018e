"""TrainingExecutor: which role does what, on an Estimator that only looks like one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import tensorflow as tf
from tensorflow.python.training import server_lib

from fastsup import estimator
from fastsup.estimator.jobs import train_and_evaluate as executor_module

v1 = tf.compat.v1

CLUSTER = {"chief": ["h0:1"], "worker": ["h1:1", "h2:1", "h3:1"], "ps": ["h4:1", "h5:1"]}
MASTER_CLUSTER = {"master": ["h0:1"], "worker": ["h1:1"], "ps": ["h4:1"]}


def no_data() -> None:
    """An input function."""


@pytest.fixture
def run_config(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The RunConfig of a task, and TF_CONFIG as it would be there."""

    def make(role: str | None = None, index: int = 0, cluster: Any = None, environment: Any = None, **rest: Any) -> Any:
        tf_config: dict[str, Any] = {}
        if role:
            cluster = cluster or (MASTER_CLUSTER if role == "master" else CLUSTER)
            tf_config = {"cluster": cluster, "task": {"type": role, "index": index}}
        if environment:
            tf_config["environment"] = environment
        monkeypatch.setenv("TF_CONFIG", json.dumps(tf_config))
        return estimator.RunConfig(**rest)

    return make


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    """TensorFlow's Server, replaced."""
    replacement = mock.Mock()
    monkeypatch.setattr(server_lib, "Server", replacement)
    return replacement


@pytest.fixture
def sleep(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`time.sleep`, replaced."""
    replacement = mock.Mock()
    monkeypatch.setattr(time, "sleep", replacement)
    return replacement


def an_estimator(config: Any, **attributes: Any) -> Any:
    return mock.Mock(spec=estimator.Estimator, config=config, **attributes)


def make(estimator_: Any, max_steps: int | None = 200, eval_spec: Any = None, **rest: Any) -> Any:
    hooks = [v1.train.SessionRunHook()]
    train_spec = estimator.TrainSpec(no_data, max_steps=max_steps, hooks=hooks)
    eval_spec = eval_spec or estimator.EvalSpec(no_data, start_delay_secs=0, throttle_secs=0)
    return estimator.TrainingExecutor(estimator_, train_spec, eval_spec, **rest)


# What it is made with.


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (0, "`estimator` must have type `tf.estimator.Estimator`. Got: <class 'str'>"),
        (1, "`train_spec` must have type `tf.estimator.TrainSpec`. Got: <class 'str'>"),
        (2, "`eval_spec` must be either `None` or have type `tf.estimator.EvalSpec`. Got: <class 'str'>"),
        (3, "All hooks must be `SessionRunHook` instances, given: w"),
        (4, "`continuous_eval_listener` must have type `_ContinuousEvalListener`."),
    ],
)
def test_arguments_of_the_wrong_type(run_config: Any, position: int, message: str) -> None:
    arguments: list[Any] = [an_estimator(run_config()), estimator.TrainSpec(no_data), None, None, None]
    arguments[position] = "wrong"
    with pytest.raises(TypeError) as raised:
        estimator.TrainingExecutor(*arguments)
    assert str(raised.value) == message


def test_it_takes_what_looks_like_its_arguments() -> None:
    config = mock.Mock()
    made = estimator.TrainingExecutor(
        mock.Mock(spec=estimator.Estimator, config=config),
        mock.Mock(spec=estimator.TrainSpec),
        mock.Mock(spec=estimator.EvalSpec),
    )
    assert made.estimator.config is config


# Which role does what.


@pytest.mark.parametrize("role", ["chief", "worker", "ps", "evaluator", "master"])
def test_each_role_has_its_method(run_config: Any, role: str) -> None:
    executor = make(an_estimator(run_config(role)))
    with mock.patch.object(executor, f"run_{role}") as method:
        assert executor.run() is None
    method.assert_called_once_with()


def test_without_a_cluster_it_runs_locally(run_config: Any) -> None:
    executor = make(an_estimator(run_config()))
    with mock.patch.object(executor, "run_local", return_value=("metrics", "exports")):
        assert executor.run() == ("metrics", "exports")


@pytest.mark.parametrize(
    ("task_type", "message"),
    [
        (None, "`estimator.config` must have task_type set. This usually means TF_CONFIG environment is not set"),
        ("", "`estimator.config` must have task_type set. This usually means TF_CONFIG environment is not set"),
        ("local", "`task.type` in TF_CONFIG cannot be `local`. Leaving `cluster` and `task` properties in TF_CONFIG"),
        (
            "unknown",
            "Task type unknown is not supported. Supported task types are ['chief', 'evaluator', 'master', 'ps', "
            "'worker']",
        ),
    ],
)
def test_roles_that_nobody_runs(task_type: Any, message: str) -> None:
    config = mock.Mock(cluster_spec={"worker": ["dummy"]}, task_type=task_type)
    with pytest.raises(ValueError) as raised:
        make(an_estimator(config)).run()
    assert str(raised.value).startswith(message)
    assert 'TF_CONFIG["cluster"] has the roles: ' in str(raised.value)


def test_a_subclass_may_add_a_role() -> None:
    class Executor(estimator.TrainingExecutor):
        def run_foo(self) -> None:
            ran.append("foo")

    ran: list[str] = []
    config = mock.Mock(cluster_spec={"worker": ["dummy"]}, task_type="foo")
    Executor(an_estimator(config), estimator.TrainSpec(no_data), None).run()
    assert ran == ["foo"]


def test_a_second_evaluator_is_refused() -> None:
    config = mock.Mock(task_type="evaluator", task_id=1)
    with pytest.raises(ValueError) as raised:
        estimator.train_and_evaluate(an_estimator(config), estimator.TrainSpec(no_data), estimator.EvalSpec(no_data))
    assert "there can only be one `evaluator` task (with task id 0).  Given task id 1" in str(raised.value)


def test_train_and_evaluate_looks_at_the_eval_spec_first() -> None:
    with pytest.raises(TypeError, match=r"`eval_spec` must have type `tf.estimator.EvalSpec`. Got: <class 'str'>"):
        estimator.train_and_evaluate("neither", "nor", "none")


# Tasks that train.


@pytest.mark.parametrize("role", ["chief", "master", "worker"])
def test_a_task_that_trains_starts_its_server_and_trains(
    run_config: Any, server: Any, sleep: Any, tf_log: Any, role: str
) -> None:
    config = run_config(role, session_config=v1.ConfigProto(gpu_options={"allow_growth": True}))
    est = an_estimator(config)
    extra = v1.train.SessionRunHook()
    executor = make(est, train_hooks=[extra])
    executor.run()
    server.assert_called_once_with(
        config.cluster_spec, job_name=role, task_index=0, config=mock.ANY, start=False, protocol=None
    )
    server.return_value.start.assert_called_once_with()
    assert server.call_args[1]["config"] == v1.ConfigProto(gpu_options={"allow_growth": True})
    train_spec = executor._train_spec
    est.train.assert_called_once_with(
        input_fn=no_data, max_steps=200, hooks=[*train_spec.hooks, extra], saving_listeners=mock.ANY
    )
    est.evaluate.assert_not_called()
    assert "Start Tensorflow server." in tf_log.messages
    assert sleep.call_args_list == ([mock.call(5)] if role == "worker" else [])


def test_the_protocol_reaches_the_server(run_config: Any, server: Any) -> None:
    make(an_estimator(run_config("chief", protocol="grpc"))).run()
    assert server.call_args[1]["protocol"] == "grpc"


@pytest.mark.parametrize(("index", "secs"), [(0, 5), (1, 10), (2, 15)])
def test_a_worker_waits(run_config: Any, server: Any, sleep: Any, tf_log: Any, index: int, secs: int) -> None:
    make(an_estimator(run_config("worker", index))).run()
    sleep.assert_called_once_with(secs)
    assert f"Waiting {secs} secs before starting training." in tf_log.messages


def test_a_worker_waits_a_minute_at_most(run_config: Any, server: Any, sleep: Any) -> None:
    cluster = {"chief": ["h0:1"], "worker": [f"w{i}:1" for i in range(30)], "ps": ["h4:1"]}
    make(an_estimator(run_config("worker", 29, cluster))).run()
    sleep.assert_called_once_with(60)


def test_the_wait_of_a_worker_can_be_bounded(run_config: Any, server: Any, sleep: Any) -> None:
    make(an_estimator(run_config("worker", 2, experimental_max_worker_delay_secs=7))).run()
    make(an_estimator(run_config("worker", 2, experimental_max_worker_delay_secs=0))).run()
    assert sleep.call_args_list == [mock.call(7)]


def test_a_worker_starts_its_server_before_it_waits(run_config: Any, server: Any, sleep: Any) -> None:
    sleep.side_effect = lambda secs: server.return_value.start.assert_called_once_with()
    make(an_estimator(run_config("worker"))).run()
    sleep.assert_called_once_with(5)


def test_no_server_in_google_s_environment(run_config: Any, server: Any, sleep: Any) -> None:
    est = an_estimator(run_config("worker", environment="google"))
    make(est).run()
    server.assert_not_called()
    est.train.assert_called_once()


def test_an_empty_tf_config_is_warned_of(
    run_config: Any, server: Any, tf_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_config("chief")
    monkeypatch.delenv("TF_CONFIG")
    make(an_estimator(config)).run()
    assert "TF_CONFIG should not be empty in distributed environment." in tf_log.messages


@pytest.mark.parametrize("role", ["chief", "master"])
def test_a_single_node_needs_no_server(run_config: Any, server: Any, tf_log: Any, role: str) -> None:
    est = an_estimator(run_config(role, cluster={role: ["h0:1"]}))
    make(est).run()
    server.assert_not_called()
    est.train.assert_called_once()
    assert "Skip starting Tensorflow server as there is only one node in the cluster." in tf_log.messages


@pytest.mark.parametrize("role", ["chief", "master", "worker", "ps"])
@pytest.mark.parametrize("lacks", ["cluster_spec", "master", "task_type", "task_id"])
def test_a_config_that_lacks_something(run_config: Any, server: Any, sleep: Any, role: str, lacks: str) -> None:
    run_config(role)
    values = {"cluster_spec": tf.train.ClusterSpec(CLUSTER), "master": "grpc://h0", "task_type": role, "task_id": 1}
    config = mock.Mock(**{**values, lacks: None})
    executor = make(an_estimator(config))
    with pytest.raises(RuntimeError, match="Could not start server; be sure to specify"):
        getattr(executor, f"run_{role}")()
    server.assert_not_called()


def test_a_chief_has_the_saving_listeners_and_a_worker_has_none(run_config: Any, server: Any, sleep: Any) -> None:
    listener = v1.train.CheckpointSaverListener()
    train_spec = estimator.TrainSpec(no_data, saving_listeners=[listener])
    for role, expected in (("chief", (listener,)), ("worker", None)):
        est = an_estimator(run_config(role))
        estimator.TrainingExecutor(est, train_spec, None).run()
        assert est.train.call_args[1]["saving_listeners"] == expected


def test_a_master_evaluates_after_its_checkpoints(run_config: Any, server: Any) -> None:
    listener = v1.train.CheckpointSaverListener()
    exporter = mock.Mock(spec=estimator.Exporter)
    exporter.name = "see_how_you_like_it"

    def train(saving_listeners: Any, **rest: Any) -> None:
        first, ours = saving_listeners
        assert first is listener
        ours.begin()
        for step in (0, 100):
            ours.after_save(None, step)
        ours.end(None, 200)

    est = an_estimator(run_config("master"), model_dir="model")
    est.train = train
    est.evaluate.side_effect = [{"global_step": 100}, {"global_step": 200}]
    est.latest_checkpoint.side_effect = ["ckpt-100", "ckpt-200"]
    spec = estimator.EvalSpec(no_data, exporters=exporter, throttle_secs=0)
    train_spec = estimator.TrainSpec(no_data, max_steps=200, saving_listeners=[listener])
    assert estimator.TrainingExecutor(est, train_spec, spec).run() is None
    assert [call[1]["is_the_final_export"] for call in exporter.export.call_args_list] == [False, True]
    assert exporter.export.call_args == mock.call(
        estimator=est,
        export_path="model/export/see_how_you_like_it",
        checkpoint_path="ckpt-200",
        eval_result={"global_step": 200},
        is_the_final_export=True,
    )


@pytest.mark.parametrize("method", ["run_master", "run_evaluator", "run_local"])
def test_roles_that_evaluate_need_an_eval_spec(run_config: Any, server: Any, method: str) -> None:
    executor = estimator.TrainingExecutor(an_estimator(run_config()), estimator.TrainSpec(no_data), None)
    with pytest.raises(TypeError, match=r"`eval_spec` must have type `tf.estimator.EvalSpec`"):
        getattr(executor, method)()


def test_a_parameter_server_joins(run_config: Any, server: Any) -> None:
    config = run_config("ps", 1)
    make(an_estimator(config)).run()
    server.assert_called_once_with(
        config.cluster_spec, job_name="ps", task_index=1, config=mock.ANY, start=False, protocol=None
    )
    server.return_value.start.assert_called_once_with()
    server.return_value.join.assert_called_once_with()


def test_what_ends_a_parameter_server_s_join_is_raised(run_config: Any, server: Any) -> None:
    server.return_value.join.side_effect = tf.errors.AbortedError(None, None, "gone")
    with pytest.raises(tf.errors.AbortedError, match="gone"):
        make(an_estimator(run_config("ps"))).run()


# The evaluator.


def evaluator_executor(config: Any, reached: list[int], paths: list[Any], **spec: Any) -> Any:
    est = an_estimator(config, model_dir="model")
    est.evaluate.side_effect = [{"global_step": step} for step in reached]
    est.latest_checkpoint.side_effect = paths
    spec = {"start_delay_secs": 0, "throttle_secs": 0, **spec}
    return make(est, eval_spec=estimator.EvalSpec(no_data, **spec))


def test_an_evaluator_evaluates_up_to_max_steps(run_config: Any, server: Any, sleep: Any, tf_log: Any) -> None:
    hook = v1.train.SessionRunHook()
    executor = evaluator_executor(
        run_config("evaluator"), [100, 200], ["a", "b"], steps=2, name="cont_eval", hooks=[hook]
    )
    executor.run()
    est = executor.estimator
    assert est.evaluate.call_args_list == [
        mock.call(name="cont_eval", input_fn=no_data, steps=2, checkpoint_path=path, hooks=(hook,))
        for path in ("a", "b")
    ]
    est.train.assert_not_called()
    server.assert_not_called()
    sleep.assert_not_called()
    assert tf_log.messages[-1] == "Exiting evaluation, global_step=200 >= train max_steps=200"


def test_an_evaluator_waits_before_it_starts(run_config: Any, sleep: Any, tf_log: Any) -> None:
    evaluator_executor(run_config("evaluator"), [200], ["a"], start_delay_secs=12).run()
    sleep.assert_called_once_with(12)
    assert "Waiting 12.000000 secs before starting eval." in tf_log.messages


def test_an_evaluator_waits_between_evaluations(run_config: Any, sleep: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = evaluator_executor(run_config("evaluator"), [200], ["a"], throttle_secs=12)
    # As in TensorFlow: two looks at the clock for each evaluation. The logger looks at it too.
    monkeypatch.setattr(time, "time", mock.Mock(side_effect=[921, 923]))
    monkeypatch.setattr(executor_module.logging, "info", mock.Mock())
    executor.run()
    sleep.assert_called_once_with(12 - (923 - 921))


def test_looks_without_a_new_checkpoint(run_config: Any, sleep: Any, tf_log: Any) -> None:
    executor = evaluator_executor(run_config("evaluator"), [100, 200], [None, "", "same", "same", "path_2"])
    executor.run()
    assert executor.estimator.latest_checkpoint.call_count == 5
    assert executor.estimator.evaluate.call_count == 2
    skipped = [r for r in tf_log.records if "Estimator is not trained yet" in r.message or "No new" in r.message]
    assert [record.levelname for record in skipped] == ["WARNING", "INFO", "WARNING"]
    assert all("save_checkpoints_steps" in record.message for record in skipped)


def test_a_listener_ends_an_evaluator_before(run_config: Any, tf_log: Any) -> None:
    class Listener(estimator.ContinuousEvalListener):
        def before_eval(self) -> bool:
            return False

    est = an_estimator(run_config("evaluator"), model_dir="model")
    make(est, continuous_eval_listener=Listener()).run()
    est.evaluate.assert_not_called()
    assert "Exiting evaluation, as requested by _ContinuousEvalListener.before_eval." in tf_log.messages


def test_a_listener_ends_an_evaluator_after(run_config: Any, tf_log: Any) -> None:
    results = []

    class Listener(estimator.ContinuousEvalListener):
        def after_eval(self, eval_result: Any) -> bool:
            results.append(eval_result)
            return len(results) < 2

    executor = evaluator_executor(run_config("evaluator"), [50], ["a", "a"])
    executor._continuous_eval_listener = Listener()
    with mock.patch.object(time, "sleep"):
        executor.run()
    assert results == [("evaluated", {"global_step": 50}, "a"), ("no new checkpoint", None, None)]
    assert "Exiting evaluation, as requested by _ContinuousEvalListener.after_eval." in tf_log.messages


@pytest.mark.parametrize(
    ("metrics", "error", "message"),
    [
        ({}, ValueError, "Internal error: `Estimator.evaluate` should never return empty metrics."),
        (123, TypeError, "`Estimator.evaluate` should return dict. Given <class 'int'>."),
        ({"loss": 1}, ValueError, "result should have `global_step` in result. Given {'loss': 1}"),
    ],
)
def test_metrics_that_are_none(run_config: Any, metrics: Any, error: Any, message: str) -> None:
    executor = evaluator_executor(run_config("evaluator"), [], ["a"])
    executor.estimator.evaluate = mock.Mock(return_value=metrics)
    with pytest.raises(error) as raised:
        executor.run()
    assert message in str(raised.value)


def test_throttle_steps_in_an_evaluator(run_config: Any, sleep: Any, tf_log: Any) -> None:
    paths = [f"model.ckpt-{step}" for step in (10, 50, 110, 190, 200)]
    executor = evaluator_executor(run_config("evaluator"), [10, 110, 200], paths, throttle_steps=100)
    executor.run()
    evaluated = [call[1]["checkpoint_path"] for call in executor.estimator.evaluate.call_args_list]
    assert evaluated == ["model.ckpt-10", "model.ckpt-110", "model.ckpt-200"]
    skipped = [message for message in tf_log.messages if message.startswith("Skip the current checkpoint eval due to")]
    start = "Skip the current checkpoint eval due to throttle steps (100 steps)."
    assert [message.startswith(f"{start} Step {step},") for message, step in zip(skipped, (50, 190), strict=True)] == [
        True,
        True,
    ]
    assert all("EvalSpec.throttle_steps" in message for message in skipped)


def test_an_idle_evaluator_ends(run_config: Any, tf_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    slept = []

    def sleep(secs: float) -> None:
        slept.append(secs)
        now[0] += secs

    executor = evaluator_executor(
        run_config("evaluator"), [50, 60], [None, "a", "b", "b", "b"], throttle_secs=40, idle_timeout_secs=50
    )
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(time, "sleep", sleep)
    executor.run()
    # 40, 40, 40 and 10 seconds, in parts: it looks for the end of the chief meanwhile.
    assert slept == [10] * 13
    assert "Exiting evaluation, there has been no new checkpoint for 50" in tf_log.messages[-1]
    assert "EvalSpec.idle_timeout_secs=50" in tf_log.messages[-1]


# A process on its own.


def local(config: Any, saves: list[int], last: int, **rest: Any) -> Any:
    """An executor whose Estimator saves checkpoints at some steps, and evaluates them at one step after the other."""
    est = an_estimator(config, model_dir="model")
    est.saved = None

    def train(saving_listeners: Any, **_: Any) -> None:
        for listener in saving_listeners:
            listener.begin()
        for step in saves:
            est.saved = step
            stops = [listener.after_save(None, step) for listener in saving_listeners]
            if any(stops):
                break
        for listener in saving_listeners:
            listener.end(None, est.saved)

    est.train.side_effect = train
    est.latest_checkpoint.side_effect = lambda: f"model.ckpt-{est.saved}"
    est.evaluate.side_effect = lambda **_: {"global_step": est.saved}
    return make(est, max_steps=last, **rest)


def evaluated(executor: Any) -> list[str]:
    return [call[1]["checkpoint_path"] for call in executor.estimator.evaluate.call_args_list]


def test_a_local_run(run_config: Any, tf_log: Any) -> None:
    extra = v1.train.SessionRunHook()
    exporter = mock.Mock(spec=estimator.Exporter)
    exporter.name = "name"
    exporter.export.side_effect = ["one", "two"]
    spec = estimator.EvalSpec(no_data, exporters=exporter, throttle_secs=0)
    executor = local(run_config(save_checkpoints_steps=100), [0, 100, 200], 200, eval_spec=spec, train_hooks=[extra])
    assert executor.run() == ({"global_step": 200}, ["two"])
    assert evaluated(executor) == ["model.ckpt-100", "model.ckpt-200"]
    assert executor.estimator.train.call_args[1]["hooks"] == [*executor._train_spec.hooks, extra]
    assert "Running training and evaluation locally (non-distributed)." in tf_log.messages
    assert (
        "Start train and evaluate loop. The evaluate will happen after every checkpoint. Checkpoint frequency is "
        "determined based on RunConfig arguments: save_checkpoints_steps 100 or save_checkpoints_secs None."
    ) in tf_log.messages
    assert [call[1]["is_the_final_export"] for call in exporter.export.call_args_list] == [False, True]


def test_a_local_run_without_max_steps_makes_no_final_export(run_config: Any) -> None:
    exporter = mock.Mock(spec=estimator.Exporter)
    exporter.name = "name"
    spec = estimator.EvalSpec(no_data, exporters=exporter, throttle_secs=0)
    local(run_config(), [0, 100], None, eval_spec=spec).run()
    assert [call[1]["is_the_final_export"] for call in exporter.export.call_args_list] == [False]


def test_the_throttle_of_a_local_run_says_so_and_leaves_out_all_but_the_last(run_config: Any, tf_log: Any) -> None:
    spec = estimator.EvalSpec(no_data, throttle_secs=500)
    executor = local(run_config(), [0, 10, 20, 30, 40], 40, eval_spec=spec)
    assert executor.run()[0] == {"global_step": 40}
    assert evaluated(executor) == ["model.ckpt-10", "model.ckpt-40"]
    skipped = [message for message in tf_log.messages if message.startswith("Skip")]
    assert "step 0" in skipped[0]
    start = "Skip the current checkpoint eval due to throttle secs (500 secs)."
    assert [message.startswith(start) for message in skipped[1:]] == [True] * 3
    assert all("EvalSpec.throttle_secs" in message for message in skipped[1:])


def test_throttle_steps_in_a_local_run(run_config: Any, tf_log: Any) -> None:
    spec = estimator.EvalSpec(no_data, throttle_secs=0, throttle_steps=25)
    executor = local(run_config(), [0, 10, 20, 30, 40, 50], 50, eval_spec=spec)
    assert executor.run()[0] == {"global_step": 50}
    assert evaluated(executor) == ["model.ckpt-10", "model.ckpt-40", "model.ckpt-50"]
    assert sum("due to throttle steps (25 steps)" in message for message in tf_log.messages) == 3


def test_a_listener_that_wants_no_evaluation(run_config: Any, tf_log: Any) -> None:
    class Listener(estimator.ContinuousEvalListener):
        def before_eval(self) -> bool:
            return False

    executor = local(run_config(), [0, 10, 20], 20, continuous_eval_listener=Listener())
    assert executor.run() == (None, None)
    assert evaluated(executor) == []
    assert (
        "Exiting training and evaluation loop, as requested by _ContinuousEvalListener.before_eval." in tf_log.messages
    )


def test_a_listener_that_wants_one_evaluation(run_config: Any) -> None:
    class Listener(estimator.ContinuousEvalListener):
        def after_eval(self, eval_result: Any) -> bool:
            return False

    executor = local(run_config(), [0, 10, 20], 20, continuous_eval_listener=Listener())
    assert executor.run()[0] == {"global_step": 10}
    assert executor.estimator.saved == 10


def test_no_new_checkpoint_after_training(run_config: Any) -> None:
    executor = local(run_config(), [0, 10], 10)
    executor.estimator.latest_checkpoint.side_effect = [None]
    with pytest.raises(RuntimeError, match=r"There was no new checkpoint after the training. Eval status: missing"):
        executor.run()


def test_a_model_that_had_reached_max_steps_is_evaluated(run_config: Any, tf_log: Any) -> None:
    executor = make(an_estimator(run_config(), model_dir="model"), max_steps=40)
    executor.estimator.latest_checkpoint.return_value = "model.ckpt-41"
    executor.estimator.evaluate.return_value = {"global_step": 41, "loss": 1.0}
    assert executor.run() == ({"global_step": 41, "loss": 1.0}, [])
    line = (
        "Evaluating the checkpoint of step 41: training had already reached max_steps. See `python -m fastsup docs "
        "dropin#estimator`."
    )
    assert line in tf_log.messages


def test_training_that_did_nothing_else(run_config: Any) -> None:
    executor = make(an_estimator(run_config(), model_dir="model"), max_steps=40)
    executor.estimator.latest_checkpoint.return_value = "model.ckpt-39"
    assert executor.run() == (None, None)


def test_stop_at_secs(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    with pytest.raises(TypeError, match=r"^stop_after_secs must be a number of seconds, got 'a'\.$"):
        estimator.StopAtSecsHook("a")  # type: ignore[arg-type]
    hook = estimator.StopAtSecsHook(stop_after_secs=3)
    hook.begin()
    context = mock.Mock()
    for moment, stops in ((1.5, 0), (3.9, 0), (4.0, 1), (9.0, 2)):
        now[0] = moment
        hook.after_run(context, None)
        assert context.request_stop.call_count == stops
