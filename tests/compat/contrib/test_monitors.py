"""Monitors: when they are called in a real training, and what each of them does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fastsup import estimator, train
from fastsup.contrib.learn import Experiment, NanLossDuringTrainingError, monitors

v1 = tf.compat.v1


def train_with(given: list[Any], steps: int, model_dir: Path, loss: Any = None, **chief: Any) -> Any:
    """Trains a weight towards 3 for a number of steps. Returns the global step at the end."""
    fake = SimpleNamespace(model_dir=str(model_dir), config=SimpleNamespace(is_chief=True, **chief))
    with tf.Graph().as_default():
        step = v1.train.create_global_step()
        weight = v1.get_variable("w", [], initializer=v1.zeros_initializer(), use_resource=True)
        value = tf.identity(tf.square(weight - 3.0) if loss is None else loss(step), name="loss")
        v1.summary.scalar("the_loss", value)
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(tf.square(weight - 3.0), step)
        made = [monitor() if callable(monitor) else monitor for monitor in given]
        hooks = monitors.replace_monitors_with_hooks(made, fake)
        with train.MonitoredSession(hooks=[*hooks, train.StopAtStepHook(last_step=steps)]) as session:
            while not session.should_stop():
                session.run(train_op)
                last = session.raw_session().run(step)
    return int(last)


class Recorder(monitors.EveryN):
    def __init__(self, every: int, first: int = 1) -> None:
        super().__init__(every, first)
        self.calls: list[Any] = []

    def every_n_step_begin(self, step: Any) -> list[Any]:
        self.calls.append(("begin", int(step)))
        return ["loss:0"]

    def every_n_step_end(self, step: Any, outputs: Any) -> bool:
        self.calls.append(("end", int(step), sorted(outputs)))
        return False

    def every_n_post_step(self, step: Any, session: Any) -> None:
        self.calls.append(("post", int(step)))


def test_when_every_n_acts(tmp_path: Path) -> None:
    recorder = Recorder(4, 2)
    assert train_with([recorder], 11, tmp_path) == 11
    acted = [1, 2, 6, 10]
    assert [call[1] for call in recorder.calls if call[0] == "begin"] == acted
    assert [call[1:] for call in recorder.calls if call[0] == "end"] == [(step, ["loss:0"]) for step in acted]
    # The last step too, since it was none to act in.
    assert [call[1] for call in recorder.calls if call[0] == "post"] == [*acted, 11]


def test_stop_at_step(tmp_path: Path) -> None:
    assert train_with([monitors.StopAtStep(num_steps=4)], 20, tmp_path) == 4
    assert train_with([monitors.StopAtStep(last_step=7)], 20, tmp_path) == 7
    for arguments in ({}, {"num_steps": 1, "last_step": 2}):
        with pytest.raises(ValueError, match="num_steps or last_step"):
            monitors.StopAtStep(**arguments)


def test_values_are_logged_and_kept(tmp_path: Path, tf_log: Any) -> None:
    capture, dump = monitors.CaptureVariable("w:0", every_n=3), monitors.GraphDump()
    other = monitors.GraphDump()
    given = [
        monitors.PrintTensor({"the loss": "loss:0"}, 5),
        monitors.LoggingTrainable(every_n=5),
        capture,
        dump,
        other,
    ]
    train_with(given, 7, tmp_path)
    assert sorted(capture.values) == [1, 4, 7]
    assert capture.values[7] > capture.values[1]
    lines = [message for message in tf_log.messages if message.startswith(("Step", "Logging Trainable"))]
    assert [line.split(": ")[0] for line in lines] == ["Step 1", "Logging Trainable", "Step 6", "Logging Trainable"]
    assert lines[0].startswith("Step 1: the loss = 9.0")
    assert lines[1].startswith("Logging Trainable: Step 1: w:0 = ")
    assert sorted(dump.data) == list(range(1, 8))
    matched, differ = dump.compare(other, 3)
    assert "Square:0" in [*matched, *differ]


def test_nan_loss(tmp_path: Path, tf_log: Any) -> None:
    def loss(step: Any) -> Any:
        return tf.where(step < 4, 1.0, np.nan)

    def monitor(**arguments: Any) -> Any:
        # Made in the graph, and with a tensor, as programs do.
        return lambda: monitors.NanLoss(v1.get_default_graph().get_tensor_by_name("loss:0"), 1, **arguments)

    with pytest.raises(NanLossDuringTrainingError):
        train_with([monitor()], 20, tmp_path, loss)
    last = train_with([monitor(fail_on_nan_loss=False)], 20, tmp_path, loss)
    assert last in (4, 5)
    assert tf_log.messages.count("Model diverged with loss = NaN.") == 2


def test_checkpoints_and_events(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    given = [
        lambda: monitors.CheckpointSaver(str(folder), save_steps=4, saver=v1.train.Saver()),
        lambda: monitors.SummarySaver(v1.summary.merge_all(), 3, str(tmp_path / "summaries")),
        lambda: monitors.StepCounter(5, str(tmp_path / "rate")),
    ]
    train_with(given, 10, tmp_path)
    v1.summary.FileWriterCache.clear()
    paths = v1.train.get_checkpoint_state(str(folder)).all_model_checkpoint_paths
    assert [Path(path).name for path in paths] == [f"model.ckpt-{step}" for step in (1, 5, 9, 10)]

    def steps(name: str, tag: str) -> list[int]:
        (path,) = (tmp_path / name).glob("*tfevents*")
        events = list(tf.compat.v1.train.summary_iterator(str(path)))
        return [event.step for event in events if any(value.tag == tag for value in event.summary.value)]

    assert steps("summaries", "the_loss") == [1, 4, 7, 10]
    assert steps("rate", "global_step/sec") == [6]
    with pytest.raises(ValueError, match="Either save_steps or save_secs"):
        monitors.CheckpointSaver(str(folder))
    with pytest.raises(ValueError, match="Can not provide both"):
        monitors.CheckpointSaver(str(folder), 1, 1)


def test_default_monitors_and_workers(tmp_path: Path) -> None:
    loss = SimpleNamespace(name="loss:0")
    with tf.Graph().as_default():
        found = monitors.get_default_monitors(loss, "summary", output_dir=str(tmp_path))
    assert [type(monitor).__name__ for monitor in found] == ["PrintTensor", "SummarySaver"]
    assert monitors.get_default_monitors() == []
    worker = SimpleNamespace(config=SimpleNamespace(is_chief=False))
    hook = train.StopAtStepHook(last_step=1)
    of_all = monitors.StopAtStep(1)
    hooks = monitors.replace_monitors_with_hooks([Recorder(1), of_all, hook], worker)
    assert hooks[0] is hook
    assert hooks[1]._monitors == [of_all]
    assert monitors.replace_monitors_with_hooks([Recorder(1)], worker) == []
    assert monitors.replace_monitors_with_hooks(None, worker) == []


def test_what_a_monitor_asks_for_in_vain(tmp_path: Path) -> None:
    class Asks(monitors.BaseMonitor):
        def __init__(self, request: Any) -> None:
            super().__init__()
            self._request = request

        def step_begin(self, step: Any) -> Any:
            super().step_begin(step)
            return self._request

    with pytest.raises(ValueError, match=r"Monitor.step_begin should return a list."):
        train_with([Asks("loss:0")], 2, tmp_path)
    with pytest.raises(ValueError, match="graph attribute that is equal"):
        train_with([Asks([3])], 2, tmp_path)
    with tf.Graph().as_default():
        monitors.BaseMonitor().begin()
        hook = monitors.RunHookAdapterForMonitors([])
        with pytest.raises(RuntimeError, match="Global step should be created"):
            hook.begin()


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    weight = v1.get_variable("w", [], initializer=v1.zeros_initializer(), use_resource=True)
    loss = tf.reduce_mean(tf.square(weight * features - labels))
    train_op = v1.train.GradientDescentOptimizer(0.0).minimize(loss, v1.train.get_global_step())
    return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def data() -> Any:
    values = np.arange(1, 5, dtype=np.float32)
    return tf.data.Dataset.from_tensors((values, 2 * values))


def test_an_experiment_takes_monitors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tf_log: Any) -> None:
    """The weight stays where it is: a ValidationMonitor ends training after so many steps without a better loss."""
    monkeypatch.delenv("TF_CONFIG", raising=False)
    validation = monitors.ValidationMonitor(
        input_fn=data, eval_steps=1, every_n_steps=1, early_stopping_rounds=6, check_interval_secs=None, name="early"
    )
    recorder = Recorder(5)
    made = estimator.Estimator(
        model_fn, config=estimator.RunConfig(model_dir=str(tmp_path / "model"), save_checkpoints_steps=2)
    )
    experiment = Experiment(made, lambda: data().repeat(), data, train_steps=100, train_monitors=[recorder])
    experiment.extend_train_hooks([validation])
    recorder.every_n_step_begin = lambda step: []  # type: ignore[method-assign]
    experiment.train()
    assert validation.early_stopped
    assert validation.best_step in (1, 2)
    assert validation.best_value == pytest.approx(validation.best_metrics["loss"])
    assert made.get_variable_value("global_step") < 15
    assert any(message.startswith("Stopping. Best step: ") for message in tf_log.messages)
    assert [call[1] for call in recorder.calls if call[0] == "end"][:2] == [1, 6]
    with pytest.raises(ValueError, match="must be `SessionRunHook` instances"):
        Experiment(made, data, data, eval_hooks=[validation])


def test_arguments_of_monitors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Either x or input_fn"):
        monitors.ValidationMonitor()
    core = estimator.Estimator(model_fn, model_dir=str(tmp_path))
    with pytest.raises(ValueError, match="does not support following arguments: x, y"):
        made = monitors.ValidationMonitor(input_fn=data, metrics={"a": 1})
        made.set_estimator(core)
        made._evaluate_estimator()
    export = monitors.ExportMonitor(1, "there")
    export.set_estimator(core)
    with pytest.raises(ValueError, match="Please pass an ExportStrategy to Experiment"):
        export.every_n_step_end(1, {})
    with pytest.raises(ValueError, match=r"Missing estimator."):
        export.set_estimator(None)
    older = SimpleNamespace(export=lambda path, **arguments: (path, arguments["exports_to_keep"]))
    export.set_estimator(older)
    export.every_n_step_end(1, {})
    assert export.last_export_dir == ("there", 5)
