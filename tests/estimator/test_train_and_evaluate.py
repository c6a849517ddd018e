"""train_and_evaluate with a model: what tensorflow-estimator 2.15 makes of the same program, and what is ours."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from fastsup import estimator
from fastsup.cluster.job_completion import mark_task_ended
from fastsup.estimator.jobs.evaluator import Evaluator

v1 = tf.compat.v1


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    """A line through the origin."""
    w = v1.get_variable("w", initializer=0.0)
    predicted = features["x"] * w
    if mode == "infer":
        return estimator.EstimatorSpec(mode, predictions={"y": predicted})
    loss = tf.reduce_mean((predicted - labels) ** 2)
    optimizer = v1.train.GradientDescentOptimizer(0.01)
    train_op = optimizer.minimize(loss, v1.train.get_or_create_global_step()) if mode == "train" else None
    metrics = {"mae": v1.metrics.mean_absolute_error(labels, predicted)}
    return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


def data(repeat: int | None = 1) -> Any:
    """Four points of it, in batches of two."""
    dataset = tf.data.Dataset.from_tensor_slices(({"x": [1.0, 2.0, 3.0, 4.0]}, [2.0, 4.0, 6.0, 8.0]))
    return dataset.repeat(repeat).batch(2)


def endless() -> Any:
    return data(None)


def receiver() -> Any:
    x = v1.placeholder(tf.float32, [None], name="x")
    return estimator.export.ServingInputReceiver({"x": x}, {"x": x})


def make(model_dir: Path, **config: Any) -> Any:
    config = {"save_checkpoints_steps": 10, "tf_random_seed": 1, "log_step_count_steps": 10, **config}
    return estimator.Estimator(model_fn, str(model_dir), estimator.RunConfig(**config))


def saved(messages: list[str]) -> list[str]:
    return [message.partition(": ")[2] for message in messages if message.startswith("Saving dict for global step")]


@pytest.fixture
def exporters() -> list[Any]:
    return [
        estimator.BestExporter(serving_input_receiver_fn=receiver),
        estimator.FinalExporter("final", receiver),
        estimator.LatestExporter("latest", receiver, exports_to_keep=2),
    ]


def test_the_same_as_2_15(tmp_path: Path, tf_log: Any, exporters: list[Any]) -> None:
    spec = estimator.EvalSpec(data, throttle_secs=0, exporters=exporters)
    metrics, exported = estimator.train_and_evaluate(make(tmp_path), estimator.TrainSpec(endless, max_steps=35), spec)
    # Each number below is one that 2.15 logged.
    assert saved(tf_log.messages) == [
        "global_step = 10, loss = 1.0115091, mae = 0.91810906",
        "global_step = 20, loss = 0.034104917, mae = 0.16858459",
        "global_step = 30, loss = 0.0011499242, mae = 0.03095594",
        "global_step = 35, loss = 0.0002674542, mae = 0.014929116",
    ]
    assert metrics == {
        "loss": pytest.approx(0.0002674542, abs=1e-6), "mae": pytest.approx(0.014929116, abs=1e-6), "global_step": 35
    }  # fmt: skip
    reported = [re.sub(r" \(.*", "", message) for message in tf_log.messages if message.startswith("loss = ")]
    losses = ["10.0", "0.33716974", "0.011368305", "0.00038330883"]
    assert len(reported) == len(losses)
    for i, (loss, line) in enumerate(zip(losses, reported, strict=True)):
        # Read while the step increments it: the step before or the step after, as it happens, there as here.
        assert line in (f"loss = {loss}, step = {10 * i}", f"loss = {loss}, step = {10 * i + 1}")
    assert "Loss for final step: 9.8785276e-05." in tf_log.messages
    folders = [Path(os.fsdecode(path)) for path in exported]
    assert [folder.parent for folder in folders] == [
        tmp_path / "export" / name for name in ("best_exporter", "final", "latest")
    ]
    assert [len(list(folder.parent.iterdir())) for folder in folders] == [4, 1, 2]
    assert all((folder / "saved_model.pb").exists() for folder in folders)


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("arguments", [{}, {"steps": 1, "name": "other"}])
def test_a_kept_graph_evaluates_the_same(tmp_path: Path, tf_log: Any, exporters: list[Any], arguments: Any) -> None:
    calls: list[str] = []

    class Hook(estimator.SessionRunHook):
        def begin(self) -> None:
            calls.append("begin")

        def end(self, session: Any) -> None:
            calls.append("end")

    def counted_data() -> Any:
        calls.append("input")
        return data()

    found, called = [], []
    for keep_graph in (False, True):
        calls.clear()
        tf_log.clear()
        folder = tmp_path / str(keep_graph)
        spec = estimator.EvalSpec(
            counted_data, throttle_secs=0, exporters=exporters, hooks=[Hook()], keep_graph=keep_graph, **arguments
        )
        result = estimator.train_and_evaluate(make(folder), estimator.TrainSpec(endless, max_steps=35), spec)
        events = estimator.read_eval_metrics(make(folder).eval_dir(arguments.get("name")))
        found.append((result[0], saved(tf_log.messages), events))
        called.append(list(calls))
    assert found[0] == found[1]
    assert len(found[0][1]) == 4
    assert called == [["input", "begin", "end"] * 4, ["input", *["begin", "end"] * 4]]


class FailsOnce(estimator.SessionRunHook):
    """Fails in its second session."""

    sessions = 0

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.sessions += 1
        if self.sessions == 2:
            raise OSError("not this time")


class AddsVariable(estimator.SessionRunHook):
    """Makes a variable in each `begin`."""

    def begin(self) -> None:
        self.variable = v1.get_local_variable("counter", initializer=0.0)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        run_context.session.run(self.variable)


@pytest.mark.parametrize("hook", [FailsOnce, AddsVariable])
def test_a_graph_that_can_not_be_kept_is_built_again(tmp_path: Path, hook: Any) -> None:
    model = make(tmp_path)
    evaluator = Evaluator(model, estimator.EvalSpec(data, throttle_secs=0, hooks=[hook()], keep_graph=True), None)
    found = []
    for _ in range(3):
        model.train(endless, steps=10)
        try:
            found.append(int(evaluator.evaluate_and_export()[0].metrics["global_step"]))
        except OSError as error:
            found.append(str(error))
    assert found == ([10, "not this time", 30] if hook is FailsOnce else [10, 20, 30])


def test_a_kept_graph_does_not_grow(tmp_path: Path) -> None:
    sizes: list[int] = []

    class Counts(estimator.SessionRunHook):
        def end(self, session: Any) -> None:
            sizes.append(len(session.graph.get_operations()))

    spec = estimator.EvalSpec(data, throttle_secs=0, hooks=[Counts()], keep_graph=True)
    estimator.train_and_evaluate(make(tmp_path), estimator.TrainSpec(endless, max_steps=50), spec)
    assert len(sizes) == 5
    assert len(set(sizes[1:])) == 1, sizes


def test_a_second_call_returns_the_same(tmp_path: Path) -> None:
    train_spec, eval_spec = estimator.TrainSpec(endless, max_steps=15), estimator.EvalSpec(data)
    first = estimator.train_and_evaluate(make(tmp_path), train_spec, eval_spec)
    assert first[0]["global_step"] == 15
    assert estimator.train_and_evaluate(make(tmp_path), train_spec, eval_spec) == first


def test_the_program_of_the_reference_s_documentation(tmp_path: Path) -> None:
    """With a custom model_fn in place of the canned DNNClassifier."""
    est = estimator.Estimator(model_fn, config=estimator.RunConfig(model_dir=str(tmp_path), save_summary_steps=100))
    train_spec = estimator.TrainSpec(input_fn=endless, max_steps=1000)
    eval_spec = estimator.EvalSpec(input_fn=data)
    metrics, _ = estimator.train_and_evaluate(est, train_spec, eval_spec)
    assert metrics["global_step"] == 1000
    assert metrics["mae"] < 1e-5


def test_data_that_ends_before_max_steps(tmp_path: Path, tf_log: Any) -> None:
    train_spec = estimator.TrainSpec(lambda: data(7), max_steps=1000)
    spec = estimator.EvalSpec(data, throttle_secs=1000, exporters=estimator.FinalExporter("final", receiver))
    metrics, exported = estimator.train_and_evaluate(make(tmp_path), train_spec, spec)
    assert metrics["global_step"] == 14
    assert exported == [None]
    assert [line.partition(",")[0] for line in saved(tf_log.messages)] == ["global_step = 10", "global_step = 14"]


def test_data_that_ends_before_max_steps_and_more_of_it(tmp_path: Path) -> None:
    for last in (14, 28):
        metrics, _ = estimator.train_and_evaluate(
            make(tmp_path), estimator.TrainSpec(lambda: data(7), max_steps=1000), estimator.EvalSpec(data)
        )
        assert metrics["global_step"] == last


def test_checkpoints_that_are_written_in_the_background(tmp_path: Path, tf_log: Any) -> None:
    spec = estimator.EvalSpec(data, throttle_secs=0)
    est = make(tmp_path, async_save=True)
    metrics, _ = estimator.train_and_evaluate(est, estimator.TrainSpec(endless, max_steps=35), spec)
    assert metrics["global_step"] == 35
    steps = [int(re.findall(r"global_step = (\d+)", line)[0]) for line in saved(tf_log.messages)]
    assert steps[-1] == 35
    assert steps == sorted(set(steps))


def test_throttles_hooks_names_and_listeners_together(tmp_path: Path, tf_log: Any) -> None:
    begun = []

    class Hook(v1.train.SessionRunHook):
        def begin(self) -> None:
            begun.append(v1.train.get_global_step().graph)

    class Listener(v1.train.CheckpointSaverListener):
        def after_save(self, session: Any, global_step_value: Any) -> None:
            listened.append(int(global_step_value))

    listened: list[int] = []
    train_spec = estimator.TrainSpec(endless, max_steps=50, saving_listeners=[Listener()])
    spec = estimator.EvalSpec(data, steps=1, name="once", hooks=[Hook()], throttle_secs=0, throttle_steps=20)
    estimator.train_and_evaluate(make(tmp_path), train_spec, spec)
    assert listened == [0, 10, 20, 30, 40, 50]
    assert [line.partition(",")[0] for line in saved(tf_log.messages)] == [
        f"global_step = {step}" for step in (10, 30, 50)
    ]
    assert len(begun) == 3
    assert (tmp_path / "eval_once").is_dir()


def test_the_best_export_survives_a_restart(tmp_path: Path, exporters: list[Any]) -> None:
    spec = estimator.EvalSpec(data, throttle_secs=0, exporters=exporters[0])
    estimator.train_and_evaluate(make(tmp_path), estimator.TrainSpec(endless, max_steps=10), spec)
    best = estimator.BestExporter(serving_input_receiver_fn=receiver)
    spec = estimator.EvalSpec(data, exporters=best)
    assert estimator.train_and_evaluate(make(tmp_path), estimator.TrainSpec(endless, max_steps=10), spec)[1] == [None]
    _, (path,) = estimator.train_and_evaluate(make(tmp_path), estimator.TrainSpec(endless, max_steps=20), spec)
    assert path
    assert len(list((tmp_path / "export" / "best_exporter").iterdir())) == 2


# An evaluator alongside a training.


@pytest.fixture
def evaluator_s_config(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"chief": ["localhost:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "evaluator", "index": 0}}))


EVALUATOR = estimator.EvalSpec(data, start_delay_secs=0, throttle_secs=0)


def trained(model_dir: Path, *steps: int) -> None:
    est = make(model_dir, save_checkpoints_steps=1000, keep_checkpoint_max=None)
    for step in steps:
        est.train(endless, max_steps=step)


def trained_alone(monkeypatch: pytest.MonkeyPatch, model_dir: Path, *steps: int) -> None:
    """The same, not as a task of a cluster."""
    with monkeypatch.context() as alone:
        alone.delenv("TF_CONFIG")
        trained(model_dir, *steps)


def state_naming_step(model_dir: Path, step: int) -> str:
    """Has the state file name the checkpoint of a step. Returns what was in it."""
    state = model_dir / "checkpoint"
    before = state.read_text()
    state.write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')
    return before


@pytest.mark.usefixtures("evaluator_s_config")
def test_an_evaluator_ends_with_the_last_step(tmp_path: Path, tf_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trained_alone(monkeypatch, tmp_path, 10, 20)
    train_spec = estimator.TrainSpec(endless, max_steps=20)
    assert estimator.train_and_evaluate(make(tmp_path), train_spec, EVALUATOR) is None
    assert len(saved(tf_log.messages)) == 1
    assert tf_log.messages[-1] == "Exiting evaluation, global_step=20 >= train max_steps=20"


@pytest.mark.usefixtures("evaluator_s_config")
@pytest.mark.parametrize("what", ["all", "index", "data"])
def test_a_checkpoint_that_is_deleted_under_the_evaluator(
    tmp_path: Path, tf_log: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    trained_alone(monkeypatch, tmp_path, 10, 20)
    newest = state_naming_step(tmp_path, 10)

    def data_that_takes_its_time() -> Any:
        if (tmp_path / "model.ckpt-10.index").exists():
            for path in tmp_path.glob("model.ckpt-10.*"):
                # A saver deletes the index first.
                if what == "all" or "index" in path.name or what in path.name:
                    path.unlink()
            (tmp_path / "checkpoint").write_text(newest)
        return data()

    spec = EVALUATOR._replace(input_fn=data_that_takes_its_time)
    estimator.train_and_evaluate(make(tmp_path), estimator.TrainSpec(endless, max_steps=20), spec)
    assert any(
        re.search(r"model.ckpt-10 was deleted while it was being evaluated .* Evaluating .*model.ckpt-20", message)
        for message in tf_log.messages
    )
    assert [line.partition(",")[0] for line in saved(tf_log.messages)] == ["global_step = 20"]


@pytest.mark.usefixtures("evaluator_s_config")
def test_training_that_saves_faster_than_an_evaluation_starts(
    tmp_path: Path, tf_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained_alone(monkeypatch, tmp_path, 20)
    steps = iter(range(20, 33))

    def data_that_takes_its_time() -> Any:
        step = next(steps, None)
        if step is not None:
            for path in tmp_path.glob(f"model.ckpt-{step}.*"):
                path.rename(str(path).replace(f"-{step}.", f"-{step + 1}."))
            (tmp_path / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step + 1}"\n')
        return data()

    spec = EVALUATOR._replace(input_fn=data_that_takes_its_time)
    estimator.train_and_evaluate(make(tmp_path), estimator.TrainSpec(endless, max_steps=20), spec)
    replaced = [message for message in tf_log.messages if "was deleted while it was being evaluated" in message]
    assert len(replaced) == 13
    assert saved(tf_log.messages)[-1].startswith("global_step = 20")


@pytest.mark.usefixtures("evaluator_s_config")
def test_an_error_of_the_model_is_raised_though_the_checkpoint_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained_alone(monkeypatch, tmp_path, 10, 20)
    newest = state_naming_step(tmp_path, 10)

    def broken_data() -> Any:
        for path in tmp_path.glob("model.ckpt-10.*"):
            path.unlink()
        (tmp_path / "checkpoint").write_text(newest)
        raise ValueError("no such column")

    spec = EVALUATOR._replace(input_fn=broken_data)
    with pytest.raises(ValueError, match=r"^no such column$"):
        estimator.train_and_evaluate(make(tmp_path), estimator.TrainSpec(endless, max_steps=20), spec)


@pytest.mark.usefixtures("evaluator_s_config")
def test_a_checkpoint_that_is_deleted_and_was_the_last_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained_alone(monkeypatch, tmp_path, 10)

    def data_that_takes_its_time() -> Any:
        for path in tmp_path.glob("model.ckpt-10.*"):
            path.unlink()
        return data()

    spec = EVALUATOR._replace(input_fn=data_that_takes_its_time)
    with pytest.raises((ValueError, tf.errors.OpError)):
        estimator.train_and_evaluate(make(tmp_path), estimator.TrainSpec(endless, max_steps=20), spec)


@pytest.mark.usefixtures("evaluator_s_config")
def test_an_evaluator_without_checkpoints_and_with_a_limit(tmp_path: Path, tf_log: Any) -> None:
    spec = EVALUATOR._replace(idle_timeout_secs=0.5)
    estimator.train_and_evaluate(make(tmp_path), estimator.TrainSpec(endless), spec)
    assert "Exiting evaluation, there has been no new checkpoint for" in tf_log.messages[-1]


@pytest.mark.usefixtures("evaluator_s_config")
def test_an_evaluator_evaluates_what_a_training_left_that_ended_early(
    tmp_path: Path, tf_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained_alone(monkeypatch, tmp_path / "elsewhere", 10)

    class Hook(v1.train.SessionRunHook):
        """While the first checkpoint is evaluated, training ends with another one."""

        def begin(self) -> None:
            if not (tmp_path / "ended_tasks").exists():
                with monkeypatch.context() as alone:
                    alone.delenv("TF_CONFIG")
                    with tf.Graph().as_default():
                        trained(tmp_path, 13)
                mark_task_ended(tmp_path, "chief", 0)

    shutil.copytree(tmp_path / "elsewhere", tmp_path, dirs_exist_ok=True)
    spec = EVALUATOR._replace(hooks=(Hook(),), throttle_steps=100)
    estimator.train_and_evaluate(make(tmp_path), estimator.TrainSpec(endless, max_steps=1000), spec)
    assert [line.partition(",")[0] for line in saved(tf_log.messages)][-2:] == ["global_step = 10", "global_step = 13"]
    line = "Exiting evaluation, training has ended before max_steps=1000. See `python -m fastsup docs dropin#clusters`."
    assert tf_log.messages[-1] == line


@pytest.mark.parametrize(("number", "leaves"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
@pytest.mark.parametrize("where", ["training", "evaluation", "in memory"])
def test_a_signal_saves_and_leaves_the_last_evaluation_out(
    tmp_path: Path, tf_log: Any, number: int, leaves: type[BaseException], where: str
) -> None:
    class Signal(estimator.SessionRunHook):
        runs = 0

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.runs += 1
            if self.runs == (2 if where == "evaluation" else 13):
                signal.raise_signal(number)

    hooks = [Signal()]
    made = make(tmp_path)
    training = [] if where == "evaluation" else hooks
    if where == "in memory":
        training.insert(0, estimator.experimental.InMemoryEvaluatorHook(made, data, every_n_iter=1_000))
    spec = estimator.EvalSpec(data, throttle_secs=0, hooks=hooks if where == "evaluation" else [])
    with pytest.raises(leaves):
        estimator.train_and_evaluate(made, estimator.TrainSpec(endless, max_steps=35, hooks=training), spec)
    step = 10 if where == "evaluation" else 13
    assert os.path.basename(made.latest_checkpoint()) == f"model.ckpt-{step}"
    assert [record.getMessage() for record in tf_log.records if record.levelname == "ERROR" or record.exc_info] == []
    skipped = [message for message in tf_log.messages if message.endswith(": a signal is ending the training.")]
    assert (
        skipped
        == {
            "training": ["Skip the eval of the checkpoint of step 13: a signal is ending the training."],
            "evaluation": [],
            "in memory": [
                "Skip the eval of the checkpoint of step 13: a signal is ending the training.",
                "Skip the eval of the final model: a signal is ending the training.",
            ],
        }[where]
    )
