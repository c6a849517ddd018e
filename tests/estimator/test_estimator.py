"""Estimator: training, evaluation, prediction and export beyond what the reference's program shows."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from processes import Processes
from tensorflow.python.util import deprecation

from fastsup import estimator as est
from fastsup import train
from fastsup.estimator.model.estimator import EstimatorV1

v1 = tf.compat.v1


def test_import_of_the_package_leaves_tensorflow_out(tmp_path: Path, processes: Processes) -> None:
    program = "import sys, fastsup; assert 'tensorflow' not in sys.modules"
    processes.python("-c", program, cwd=tmp_path, fresh=True, check=True)
    # But for who uses it, the subpackage is there.
    processes.python("-c", "import fastsup; fastsup.estimator.Estimator", cwd=tmp_path, check=True)


@pytest.mark.parametrize("arguments", [("features",), ("features", "labels"), ("features", "labels", "mode", "config")])
def test_signatures_of_model_fns(make: Any, input_fn: Any, arguments: tuple[str, ...]) -> None:
    seen = {}

    def build(**given: Any) -> Any:
        seen.update(given)
        w = v1.get_variable("w", [2, 1])
        loss = tf.reduce_mean(tf.matmul(given["features"]["x"], w))
        op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        return est.EstimatorSpec(est.ModeKeys.TRAIN, loss=loss, train_op=op)

    scope: dict[str, Any] = {"build": build}
    exec(f"def model_fn({', '.join(arguments)}): return build(**locals())", scope)
    inputs = input_fn if "labels" in arguments else lambda: input_fn().map(lambda x, y: x)
    make(scope["model_fn"]).train(inputs, steps=1)
    assert tuple(seen) == arguments


def test_input_fns_get_what_they_ask_for(make: Any, input_fn: Any) -> None:
    seen = []

    def with_all(mode: Any, params: Any, config: Any) -> Any:
        seen.append((mode, params, config.tf_random_seed))
        return input_fn()

    model = make()
    model.train(with_all, steps=1)
    model.evaluate(with_all, steps=1)
    next(model.predict(with_all))
    assert seen == [(mode, {"lr": 0.1}, 1) for mode in ("train", "eval", "infer")]


def test_max_steps_and_steps(make: Any, input_fn: Any) -> None:
    model = make()
    assert model.train(lambda: input_fn().repeat(), max_steps=3) is model
    assert model.get_variable_value("global_step") == 3
    model.train(lambda: input_fn().repeat(), max_steps=3)
    assert model.get_variable_value("global_step") == 3
    model.train(lambda: input_fn().repeat(), steps=3)
    assert model.get_variable_value("global_step") == 6


def test_no_steps_is_a_warning(make: Any, input_fn: Any, tf_log: Any) -> None:
    make().train(lambda: input_fn().take(0))
    assert "Training with estimator made no steps. Perhaps input is empty or misspecified." in tf_log.text
    assert "Loss for final step: None." in tf_log.text


def test_saving_listeners_and_own_saver(make: Any, input_fn: Any, tmp_path: Any) -> None:
    saved = []

    class Listener(train.CheckpointSaverListener):
        def after_save(self, session: Any, global_step_value: Any) -> None:
            saved.append(int(global_step_value))

    make(save_checkpoints_steps=2).train(input_fn, saving_listeners=[Listener()])
    assert saved == [0, 2, 4, 5]
    hook = train.CheckpointSaverHook(str(tmp_path / "own"), save_steps=3)
    model = make(save_checkpoints_secs=None, model_dir=str(tmp_path / "other"))
    model.train(input_fn, hooks=[hook], saving_listeners=[Listener()])
    assert saved[4:] == [0, 3, 5]
    assert model.latest_checkpoint() is None
    with pytest.raises(ValueError, match="There should be a CheckpointSaverHook to use saving_listeners"):
        model.train(input_fn, saving_listeners=[Listener()])


@pytest.mark.parametrize("executor", ["auto", "thread_pool", "inline"])
@pytest.mark.parametrize("async_save", [False, True])
def test_executor_and_async_save_reach_the_session(make: Any, input_fn: Any, executor: str, async_save: bool) -> None:
    seen = []

    class Look(train.SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            seen.append(session.executor)

    model = make(executor=executor, async_save=async_save, save_checkpoints_steps=2)
    model.train(input_fn, hooks=[Look()])
    model.evaluate(input_fn, hooks=[Look()])
    list(model.predict(lambda: input_fn().map(lambda x, y: x), hooks=[Look()]))
    assert len(seen) == 3
    if executor != "auto":
        assert set(seen) == {executor}
    assert model.latest_checkpoint().endswith("model.ckpt-5")


def test_gpu_options_reach_the_session(make: Any, input_fn: Any) -> None:
    seen = []

    class Look(train.SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            seen.append(session._config.gpu_options.per_process_gpu_memory_fraction)

    config = v1.ConfigProto(gpu_options=v1.GPUOptions(per_process_gpu_memory_fraction=0.25))
    make(session_config=config).train(input_fn, hooks=[Look()], steps=1)
    assert seen == [0.25]


def test_the_step_loop_follows_a_replaced_model_fn_call(make: Any, input_fn: Any, monkeypatch: Any) -> None:
    calls = []
    original = est.Estimator._call_model_fn

    def counting(self: Any, *args: Any) -> Any:
        calls.append(args[2])
        return original(self, *args)

    monkeypatch.setattr(est.Estimator, "_call_model_fn", counting)
    make().train(input_fn, steps=1)
    assert calls == ["train"]


def test_a_subclass_may_not_override_but_for_a_few(model_fn: Any, tmp_path: Any) -> None:
    class Refused(est.Estimator):
        def train(self) -> None:  # type: ignore[override]
            pass

    class Taken(est.Estimator):
        def latest_checkpoint(self) -> Any:
            return "mine"

        def more(self) -> None:
            pass

    class Knowing(Refused):
        def _assert_members_are_not_overridden(self) -> None:
            pass

    with pytest.raises(ValueError, match=r"Subclasses of Estimator cannot override members of Estimator.*\['train'\]"):
        Refused(model_fn, str(tmp_path), params={})
    assert Taken(model_fn, str(tmp_path), params={}).latest_checkpoint() == "mine"
    Knowing(model_fn, str(tmp_path), params={})


def test_checkpoints_between_two_estimators_and_model_dirs(make: Any, input_fn: Any, tmp_path: Any) -> None:
    model = make(save_checkpoints_steps=2, keep_checkpoint_max=2)
    model.train(input_fn)
    names = sorted(name for name in os.listdir(model.model_dir) if name.endswith(".index"))
    assert names == ["model.ckpt-4.index", "model.ckpt-5.index"]
    # A state file that was lost costs nothing, here as in training.
    os.remove(os.path.join(model.model_dir, "checkpoint"))
    assert model.latest_checkpoint() == os.path.join(model.model_dir, "model.ckpt-5")
    assert model.evaluate(input_fn)["global_step"] == 5
    old = model.evaluate(input_fn, checkpoint_path=os.path.join(model.model_dir, "model.ckpt-4"))
    assert old["global_step"] == 4


def test_without_a_checkpoint(make: Any, input_fn: Any, tf_log: Any) -> None:
    model = make()
    assert model.latest_checkpoint() is None
    assert model.evaluate(input_fn)["global_step"] == 0
    assert f"Could not find trained model in model_dir: {model.model_dir}, running initialization to eva" in tf_log.text
    os.makedirs(model.model_dir, exist_ok=True)
    with open(os.path.join(model.model_dir, "notes.txt"), "w"):
        pass
    for call in (
        model.get_variable_names,
        lambda: model.get_variable_value("lin/w"),
    ):
        with pytest.raises(ValueError, match=r"Could not find trained model in model_dir: .* holds: .*notes\.txt"):
            call()
    with pytest.raises(ValueError, match=r"Couldn't find trained model at .* holds: .*notes\.txt"):
        model.export_saved_model(model.model_dir, lambda: None)


def test_predictions_of_a_model_that_nobody_expects_to_be_trained(
    make: Any, make_untrained: Any, input_fn: Any, tf_log: Any, tmp_path: Path
) -> None:
    assert len(list(make_untrained().predict(input_fn))) > 0
    assert "predictions of an untrained model" not in tf_log.text
    # An empty name is none.
    assert len(list(est.Estimator(make().model_fn, "").predict(input_fn))) > 0
    assert "running initialization to predict." in tf_log.text
    trained = make(model_dir=str(tmp_path / "trained")).train(input_fn, steps=3)
    warm = make(model_dir=str(tmp_path / "empty"), warm_start_from=trained.model_dir)
    for one, other in zip(warm.predict(input_fn), trained.predict(input_fn), strict=True):
        np.testing.assert_equal(one, other)


def test_evaluation_ends_and_logs_as_often_as_the_reference(make: Any, input_fn: Any, tf_log: Any) -> None:
    result = make().evaluate(lambda: input_fn().repeat(), steps=45)
    lines = [message for message in tf_log.messages if message.startswith("Evaluation [")]
    assert lines == [f"Evaluation [{n}/45]" for n in (*range(4, 45, 4), 45)]
    assert set(result) == {"loss", "mae", "global_step"}


def test_metric_summaries(make: Any, input_fn: Any, tf_log: Any) -> None:
    def build(features: Any, labels: Any, mode: str) -> Any:
        del features
        one = v1.summary.scalar("inner", tf.reduce_mean(labels))
        return est.EstimatorSpec(
            mode,
            loss=tf.reduce_mean(labels),
            eval_metric_ops={
                "array": (tf.constant([1.0, 2.0]), tf.no_op()),
                "summary": (one, tf.no_op()),
                "int": (tf.constant(3), tf.no_op()),
                "text": (tf.constant(b"\xff"), tf.no_op()),
                "bool": (tf.constant(True), tf.no_op()),
            },
        )

    model = make(build)
    model.evaluate(input_fn, steps=1, name="n")
    v1.summary.FileWriterCache.clear()
    folder = model.eval_dir("n")
    values = {}
    for name in os.listdir(folder):
        for event in v1.train.summary_iterator(os.path.join(folder, name)):
            values.update({value.tag: value for value in event.summary.value})
    assert set(values) == {"array", "summary/0", "int", "loss"}
    assert tf.make_ndarray(values["array"].tensor).tolist() == [1.0, 2.0]
    assert "Skipping summary for text, cannot parse string to Summary." in tf_log.text
    assert "Skipping summary for bool, must be a float" in tf_log.text


def test_predictions(make: Any, input_fn: Any, tf_log: Any) -> None:
    model = make()
    model.train(input_fn)
    features = lambda: input_fn().map(lambda x, y: x)  # noqa: E731
    single = list(model.predict(features))
    assert len(single) == 20
    assert set(single[0]) == {"p", "double"}
    batches = list(model.predict(features, yield_single_examples=False))
    assert [batch["p"].shape for batch in batches] == [(4, 1)] * 5
    np.testing.assert_array_equal(np.concatenate([b["p"] for b in batches]), [s["p"] for s in single])
    assert set(next(model.predict(features, predict_keys=["p"]))) == {"p"}
    with pytest.raises(ValueError, match="Expected to run at least one output from"):
        next(model.predict(features, predict_keys=["q"]))
    endless = model.predict(lambda: {"x": tf.constant([[1.0, 2.0]])})
    assert next(endless)["p"] == next(endless)["p"]
    endless.close()
    assert "That means predict yields forever. This is probably a mistake." in tf_log.text


def test_predictions_leave_the_caller_in_its_own_graph(make: Any, input_fn: Any) -> None:
    model = make()
    model.train(input_fn)
    before = v1.get_default_graph()
    one, other = model.predict(input_fn), model.predict(input_fn)
    for _ in range(6):
        assert next(one)["p"] == next(other)["p"]
        assert v1.get_default_graph() is before
    one.close()
    assert len(list(other)) == 14


def test_predictions_of_unequal_batches(make_untrained: Any, input_fn: Any) -> None:
    def build(features: Any, mode: str) -> Any:
        return est.EstimatorSpec(mode, predictions={"a": features["x"], "b": features["x"][:1]})

    model = make_untrained(build)
    with pytest.raises(ValueError, match=r"Batch length of predictions should be same\. b has different batch length"):
        next(model.predict(lambda: input_fn().map(lambda x, y: x)))


def test_export_with_assets_and_as_text(
    make: Any, input_fn: Any, tmp_path: Any, tf_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make()
    model.train(input_fn)
    monkeypatch.setattr(deprecation, "_PRINTED_WARNING", {})
    source = tmp_path / "words"
    source.write_text("a b c")
    receiver = est.export.build_parsing_serving_input_receiver_fn({"x": tf.io.FixedLenFeature([2], tf.float32)})
    path = model.export_saved_model(
        str(tmp_path / "out"), receiver, assets_extra={"sub/words": str(source)}, as_text=True
    ).decode()
    assert "deprecated" not in tf_log.text
    assert re.fullmatch(r"\d+", os.path.basename(path))
    assert (tmp_path / "out" / os.path.basename(path) / "assets.extra" / "sub" / "words").read_text() == "a b c"
    assert os.path.exists(os.path.join(path, "saved_model.pbtxt"))
    example = tf.train.Example()
    example.features.feature["x"].float_list.value.extend([1.0, 2.0])
    weights, bias = model.get_variable_value("lin/w"), model.get_variable_value("lin/b")
    with tf.Graph().as_default(), v1.Session() as session:
        graph = v1.saved_model.load(session, ["serve"], path)
        signature = graph.signature_def["serving_default"]
        result = session.run(
            signature.outputs["p"].name, {signature.inputs["examples"].name: [example.SerializeToString()]}
        )
    np.testing.assert_allclose(result, np.array([[1.0, 2.0]]) @ weights + bias, rtol=1e-6)
    with pytest.raises(tf.errors.NotFoundError, match="nothing-here"):
        model.export_saved_model(str(tmp_path / "o2"), receiver, assets_extra={"a": "/nothing-here"})
    assert not (tmp_path / "o2").exists()
    with pytest.raises(ValueError, match=re.escape("An input_receiver_fn must be defined.")):
        model.export_saved_model(str(tmp_path), None)
    with pytest.raises(ValueError, match="No valid modes for exporting found"):
        model.experimental_export_all_saved_models(str(tmp_path), {})


@pytest.mark.parametrize("strip", [False, True])
def test_export_under_its_first_name(
    make: Any, input_fn: Any, tmp_path: Path, tf_log: Any, monkeypatch: Any, strip: bool
) -> None:
    monkeypatch.setattr(deprecation, "_PRINTED_WARNING", {})  # TensorFlow says it once.
    trained = make().train(input_fn, steps=1)
    # Its class is that of `tf.compat.v1.estimator`.
    model = EstimatorV1(trained._model_fn, trained.model_dir, params=trained.params)
    receiver = est.export.build_parsing_serving_input_receiver_fn({"x": tf.io.FixedLenFeature([2], tf.float32)})
    assert list(inspect.signature(model.export_savedmodel).parameters) == [
        "export_dir_base", "serving_input_receiver_fn", "assets_extra", "as_text", "checkpoint_path",
        "strip_default_attrs",
    ]  # fmt: skip
    more = {"strip_default_attrs": True} if strip else {}
    path = model.export_savedmodel(str(tmp_path / "out"), receiver, None, False, model.latest_checkpoint(), **more)
    assert isinstance(path, bytes)
    with tf.Graph().as_default(), v1.Session() as session:
        meta_graph = v1.saved_model.loader.load(session, ["serve"], path)
    assert meta_graph.meta_info_def.stripped_default_attrs == strip
    assert "serving_default" in meta_graph.signature_def
    assert "This function has been renamed, use `export_saved_model` instead." in tf_log.text
    with pytest.raises(ValueError, match=re.escape("An input_receiver_fn must be defined.")):
        model.export_savedmodel(str(tmp_path), None)


def test_predictions_of_an_empty_directory_are_doubted(make: Any, input_fn: Any, tf_log: Any) -> None:
    """As many a test of a model has it: what predicts runs, and says of what."""
    model = make()
    assert len(list(model.predict(input_fn))) == 20
    assert "These are predictions of an untrained, newly initialized model" in tf_log.text
    assert f"running initialization to predict. There is no directory {model.model_dir}." in tf_log.text
    assert model.evaluate(input_fn)["global_step"] == 0
    assert "These are metrics of an untrained, newly initialized model" in tf_log.text


@pytest.mark.parametrize(("steps", "made"), [(2.5, 3), (0.5, 1), (np.float32(3.0), 3), (float("inf"), 5)])
def test_a_fraction_of_a_step_is_a_whole_one(make: Any, input_fn: Any, tf_log: Any, steps: float, made: int) -> None:
    model = make()
    model.train(input_fn, steps=steps)
    assert model.get_variable_value("global_step") == made
    model.train(input_fn, max_steps=made + steps)
    assert model.get_variable_value("global_step") == 2 * made
    if steps != float("inf"):
        model.evaluate(input_fn, steps=steps)
        assert f"Evaluation [{made}/" in tf_log.text or steps == 0.5 or steps == 2.5
        assert ("isn't an integer" in tf_log.text) == (steps % 1 > 0)


def test_export_of_a_variable_that_was_never_saved(make: Any, input_fn: Any, model_fn: Any) -> None:
    make().train(input_fn)

    def more(features: Any, mode: str) -> Any:
        v1.get_variable("new", [])
        return est.EstimatorSpec(mode, predictions=features["x"])

    def serving() -> Any:
        x = v1.placeholder(tf.float32, [None, 2])
        return est.export.ServingInputReceiver({"x": x}, x)

    with pytest.raises(ValueError, match=r"Could not load all requested variables from checkpoint(.|\n)*new"):
        make(more).export_saved_model(os.path.join(make().model_dir, "e"), serving)


def test_metrics_of_keras(make: Any, input_fn: Any) -> None:
    keras = pytest.importorskip("keras")

    def build(features: Any, labels: Any, mode: str) -> Any:
        w = v1.get_variable("w", [2, 1], initializer=v1.constant_initializer(0.5))
        predicted = tf.matmul(features["x"], w)
        loss = tf.reduce_mean(tf.square(predicted - labels))
        op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        metrics: dict[str, Any] = {"v1": v1.metrics.mean_absolute_error(labels, predicted)}
        if mode == est.ModeKeys.EVAL:
            metrics["keras"] = keras.metrics.MeanAbsoluteError(name="of_keras")
            metrics["keras"].update_state(labels, predicted)
        return est.EstimatorSpec(mode, loss=loss, train_op=op, eval_metric_ops=metrics)

    model = make(build)
    model.train(input_fn)
    result = model.evaluate(input_fn)
    assert result["keras"] == pytest.approx(result["v1"], rel=1e-6)
    assert model.get_variable_names() == ["global_step", "w"]


def test_add_metrics(make: Any, input_fn: Any) -> None:
    model = make()
    model.train(input_fn)

    def metric_fn(labels: Any, predictions: Any, features: Any, config: Any) -> Any:
        assert config.tf_random_seed == 1
        return {"x": v1.metrics.mean(features["x"]), "mae": v1.metrics.mean(predictions["p"] - labels)}

    more = est.add_metrics(model, metric_fn)
    assert set(more.evaluate(input_fn)) == {"loss", "mae", "x", "global_step"}
    assert more.evaluate(input_fn)["x"] == pytest.approx(39 / 80)
    with pytest.raises(ValueError, match=r"has following not expected args: \['wrong'\]"):
        est.add_metrics(model, lambda wrong: {})


def test_warm_start_with_a_vocabulary(make: Any, tmp_path: Any) -> None:
    (tmp_path / "old").write_text("a\nb\nc\n")
    (tmp_path / "new").write_text("c\nnew\na\n")

    def build(features: Any, labels: Any, mode: str, params: Any) -> Any:
        table = v1.get_variable("table", [3, 1], initializer=v1.constant_initializer(params["start"]))
        loss = tf.reduce_sum(table) * 0.0 + tf.reduce_mean(features) * tf.reduce_mean(labels)
        return est.EstimatorSpec(mode, loss=loss, train_op=v1.assign_add(v1.train.get_global_step(), 1))

    def inputs() -> Any:
        return tf.data.Dataset.from_tensors((1.0, 1.0))

    first = make(build, params={"start": [[1.0], [2.0], [3.0]]}, model_dir=str(tmp_path / "one"))
    first.train(inputs)
    vocabulary = est.VocabInfo(str(tmp_path / "new"), 3, 0, str(tmp_path / "old"), backup_initializer=None)
    settings = est.WarmStartSettings(first.model_dir, "table", {"table": vocabulary})
    second = make(build, params={"start": 9.0}, model_dir=str(tmp_path / "two"), warm_start_from=settings)
    second.train(inputs)
    table = second.get_variable_value("table").ravel()
    assert (table[0], table[2]) == (3.0, 1.0)
    with pytest.raises(ValueError, match="`ckpt_to_initialize_from` MUST be set"):
        est.WarmStartSettings("")
    with pytest.raises(ValueError, match="warm_start_from must be a string or a WarmStartSettings"):
        make(warm_start_from=3)
