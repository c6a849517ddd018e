"""What an Estimator is given wrong: the reference's error, where it has one, before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from fastsup import estimator as est
from fastsup import train

v1 = tf.compat.v1


def model_with(**fields: Any) -> Any:
    """A model_fn whose spec has these fields, each made by a function in the model's graph."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        step = v1.assign_add(v1.train.get_global_step(), 1)
        given = {"loss": lambda: tf.constant(1.0), "train_op": lambda: step, **fields}
        return est.EstimatorSpec(mode, **{name: make() for name, make in given.items()})

    return model_fn


ELSEWHERE = tf.Graph()
with ELSEWHERE.as_default():
    FOREIGN = tf.constant(1.0, name="foreign")

SPECS = [
    ({"loss": lambda: None}, ValueError, "Missing loss."),
    ({"loss": lambda: 1.0}, TypeError, "loss must be Tensor, given: 1.0"),
    ({"loss": lambda: tf.constant([1.0, 2.0])}, ValueError, "Loss must be scalar, given:"),
    ({"loss": lambda: FOREIGN}, ValueError, 'loss with "foreign:0" must be from the default graph.'),
    ({"train_op": lambda: None}, ValueError, "Missing train_op."),
    ({"train_op": lambda: "op"}, TypeError, "train_op must be Operation or Tensor, given: op"),
    ({"train_op": lambda: FOREIGN}, ValueError, 'train_op with "foreign:0" must be from the default graph.'),
    ({"predictions": lambda: 1}, TypeError, "predictions must be Tensor, given: 1"),
    ({"predictions": lambda: {"a": 1}}, TypeError, "predictions\\[a\\] must be Tensor, given: 1"),
    ({"predictions": lambda: {"a": FOREIGN}}, ValueError, 'prediction values with "a: foreign:0" must be from'),
    ({"training_hooks": lambda: [1]}, TypeError, "All hooks must be SessionRunHook instances, given: 1"),
    ({"training_hooks": lambda: 3}, TypeError, "'int' object is not iterable: training_hooks=3 must be a list of Se"),
    ({"scaffold": lambda: 1}, TypeError, "scaffold must be tf.train.Scaffold. Given: 1"),
    ({"eval_metric_ops": lambda: 1}, TypeError, "eval_metric_ops must be a dict, given: 1"),
    (
        {"eval_metric_ops": lambda: {"a": tf.constant(1)}},
        TypeError,
        "Values of eval_metric_ops must be \\(metric_value, update_op\\) tuples, given:",
    ),
    ({"eval_metric_ops": lambda: {"a": (1, 2)}}, TypeError, "Values of eval_metric_ops must be"),
    ({"eval_metric_ops": lambda: {"a": (FOREIGN, FOREIGN)}}, ValueError, 'eval_metric_ops with "a: foreign:0" must'),
]


@pytest.mark.parametrize(("fields", "error", "message"), SPECS)
def test_specs(make: Any, input_fn: Any, fields: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make(model_with(**fields)).train(input_fn, steps=1)


def test_an_optimizer_of_keras_3(make: Any, input_fn: Any) -> None:
    def train_op() -> Any:
        weight = keras.Variable(1.0)
        return keras.optimizers.SGD(0.1).apply_gradients([(tf.constant(1.0), weight)])

    with pytest.raises(TypeError, match=r"train_op must be .* a Keras 3 variable. Keras 3 optimizers"):
        make(model_with(train_op=train_op)).train(input_fn, steps=1)


def test_a_loss_of_one_element_will_do(make: Any, input_fn: Any, tf_log: Any) -> None:
    make(model_with(loss=lambda: tf.constant([2.5]))).train(input_fn, steps=1)
    assert "Loss for final step: 2.5." in tf_log.messages


def test_predictions_are_needed_to_predict(make_untrained: Any, input_fn: Any) -> None:
    with pytest.raises(ValueError, match="Missing predictions"):
        next(make_untrained(model_with()).predict(input_fn))


def test_fields_of_a_spec(graph: Any) -> None:
    spec = est.EstimatorSpec("eval", loss=tf.constant(1.0))
    assert spec._replace(loss=tf.constant(2.0)).mode == "eval"
    with pytest.raises(ValueError, match="mode of EstimatorSpec cannot be changed"):
        spec._replace(mode="train")
    with pytest.raises(ValueError, match=r"Got unexpected field names: \['nothing'\]"):
        spec._replace(nothing=1)


def test_a_nan_loss_ends_the_training(make: Any, input_fn: Any) -> None:
    model = make(model_with(loss=lambda: tf.constant(float("nan"))))
    with pytest.raises(train.NanLossDuringTrainingError, match="NaN loss during training"):
        model.train(input_fn)


# fmt: off
MODEL_FNS = [
    (lambda labels, mode: None, None, "must include features argument."),
    (lambda features: None, {"a": 1}, "does not include params argument, but params .* is passed to Estimator."),
    (lambda features, wrong: None, None, "has following not expected args: \\['wrong'\\]"),
    (None, None, "model_fn must be provided to Estimator."),
]
# fmt: on


@pytest.mark.parametrize(("model_fn", "params", "message"), MODEL_FNS)
def test_model_fns(make: Any, model_fn: Any, params: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(model_fn, params)


def test_params_that_nobody_gives(make: Any, tf_log: Any) -> None:
    make(lambda features, params: None)
    assert "includes params argument, but params are not passed to Estimator." in tf_log.text


@pytest.mark.parametrize("params", [3, 0.5, "adam"])
def test_params_that_are_no_dictionary(make: Any, tf_log: Any, params: Any) -> None:
    model = make(lambda features, params: None, params)
    assert model.params == params
    assert f"params should be a dictionary of hyperparameters, got {params!r}. model_fn gets" in tf_log.text
    assert f'pass params={{"name": {params!r}}}' in tf_log.text


def test_params_that_may_be_read(make: Any, tf_log: Any) -> None:
    for params in ({"a": 1}, [1, 2], {}):
        make(lambda features, params: None, params)
    assert "should be a dictionary" not in tf_log.text


def test_what_a_model_fn_returns(make: Any, input_fn: Any) -> None:
    with pytest.raises(
        ValueError, match=r"model_fn should return an EstimatorSpec\. It returned None of type NoneType"
    ):
        make(lambda features, labels: None).train(input_fn)
    with pytest.raises(ValueError, match="model_fn does not take labels, but input_fn returns labels"):
        make(lambda features: None).train(input_fn)


GARBAGE = [
    (lambda: (1, 2, 3), ValueError, r"input_fn should return \(features, labels\) as a len 2 tuple.* a tuple of 3"),
    (
        lambda: [1, 2, 3],
        ValueError,
        r"as a len 2 tuple\. It returned a list of 3\. The input_fn is <function <lambda> at .*>, "
        r'File ".*test_estimator_bad_input\.py", line \d+\. Return a tuple \(features, labels\), ',
    ),
    (
        lambda: tf.data.Dataset.from_tensors((1, 2, 3)),
        ValueError,
        r"input_fn should return \(features, labels\) .* returned a dataset with elements that are a tuple of 3\. The",
    ),
    (lambda: ({"y": tf.constant(1.0)}, tf.constant(1.0)), KeyError, "x"),
]


@pytest.mark.parametrize(("input_fn", "error", "message"), GARBAGE)
def test_an_input_fn_that_returns_garbage(make: Any, input_fn: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make().train(input_fn, steps=1)


def test_what_is_no_input_fn(make: Any) -> None:
    with pytest.raises(
        TypeError, match=r"`input_fn` must be callable, given: 3\. Pass a function that returns a tf\.data"
    ):
        make().train(3)


def test_an_input_fn_with_other_arguments(make: Any) -> None:
    def input_fn(batch_size: int) -> Any:
        return None

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'batch_size'") as raised:
        make().train(input_fn)
    assert raised.value.__notes__ == [
        "An input_fn gets the arguments mode, params and config, if it has them. For other arguments, pass "
        "functools.partial(input_fn, ...)."
    ]
    with pytest.raises(TypeError) as raised:
        make().train(lambda: input_fn())  # type: ignore[call-arg]
    assert not hasattr(raised.value, "__notes__")


def test_features_that_change_their_shape(make: Any) -> None:
    def input_fn() -> Any:
        def rows() -> Any:
            yield {"x": np.zeros([4, 2], np.float32)}, np.zeros([4, 1], np.float32)
            yield {"x": np.zeros([4, 3], np.float32)}, np.zeros([4, 1], np.float32)

        shapes = ({"x": [None, None]}, [None, 1])
        return v1.data.Dataset.from_generator(rows, ({"x": tf.float32}, tf.float32), shapes)

    with pytest.raises(tf.errors.InvalidArgumentError):
        make().train(input_fn)


STEPS = [
    ({"steps": 1, "max_steps": 1}, ValueError, "Can not provide both steps and max_steps."),
    ({"steps": 0}, ValueError, r"Must specify steps > 0, given: 0\. Pass None for no limit\.$"),
    ({"max_steps": -1}, ValueError, "Must specify max_steps > 0, given: -1"),
    ({"steps": "1"}, TypeError, "steps must be an integer or None, given: '1'"),
    ({"hooks": [1]}, TypeError, "Hooks must be a SessionRunHook, given: 1"),
    ({"hooks": 3}, TypeError, "'int' object is not iterable: hooks=3 must be a list of SessionRunHook objects"),
    ({"saving_listeners": 3}, TypeError, "saving_listeners=3 must be a list of CheckpointSaverListener objects"),
    ({"saving_listeners": [1]}, TypeError, "saving_listeners must be a list of CheckpointSaverListener, given: 1"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), STEPS)
def test_arguments_of_train(make: Any, input_fn: Any, tmp_path: Any, arguments: Any, error: Any, message: str) -> None:
    model = make()
    with pytest.raises(error, match=message):
        model.train(input_fn, **arguments)
    assert not (tmp_path / "model").exists()


def test_what_is_no_path_of_a_checkpoint(make: Any, input_fn: Any, tmp_path: Path) -> None:
    model = make().train(input_fn, steps=1)
    for call in (
        lambda: model.evaluate(input_fn, checkpoint_path=5),
        lambda: next(model.predict(input_fn, checkpoint_path=5)),
        lambda: model.export_saved_model(str(tmp_path / "export"), lambda: None, checkpoint_path=5),
    ):
        with pytest.raises(
            TypeError, match=r"^checkpoint_path must be the path of .*, or None for the newest; got 5\.$"
        ):
            call()
    path = model.latest_checkpoint()
    for given in (Path(path), path.encode()):
        assert model.evaluate(input_fn, checkpoint_path=given)["global_step"] == 1
        assert len(list(model.predict(input_fn, checkpoint_path=given))) > 0


def test_arguments_of_evaluate_and_predict(make: Any, make_untrained: Any, input_fn: Any) -> None:
    model = make()
    with pytest.raises(ValueError, match="Must specify steps > 0, given: 0"):
        model.evaluate(input_fn, steps=0)
    with pytest.raises(TypeError, match="Hooks must be a SessionRunHook"):
        model.evaluate(input_fn, hooks=[1])
    with pytest.raises(TypeError, match="Hooks must be a SessionRunHook"):
        next(model.predict(input_fn, hooks=[1]))
    with pytest.raises(ValueError, match="The passed save_path is not a valid checkpoint: /nowhere"):
        model.evaluate(input_fn, checkpoint_path="/nowhere")
    with pytest.raises(ValueError, match="predict_keys argument is not valid in case of non-dict predictions"):
        tensor = make_untrained(model_with(predictions=lambda: tf.constant([1.0])))
        next(tensor.predict(input_fn, predict_keys=["a"]))


@pytest.mark.parametrize("call", ["predict", "evaluate"])
def test_the_checkpoint_of_another_model(make: Any, input_fn: Any, call: str) -> None:
    model = make()
    model.train(input_fn, steps=1)

    def another(features: Any, labels: Any, mode: str) -> Any:
        other = v1.get_variable("other", [4, 1])
        return est.EstimatorSpec(mode, loss=tf.reduce_sum(other), predictions=other + 0)

    with pytest.raises(tf.errors.NotFoundError, match="Key other not found in checkpoint") as raised:
        list(getattr(make(another), call)(input_fn))
    assert "It contains: global_step [], lin/b [1], lin/b/Momentum [1], lin/w [2, 1]" in str(raised.value)


@pytest.mark.parametrize("name", ["loss", "global_step"])
def test_metrics_of_names_that_are_taken(make: Any, input_fn: Any, name: str) -> None:
    model = make(model_with(eval_metric_ops=lambda: {name: (tf.constant(1.0), tf.no_op())}))
    with pytest.raises(ValueError, match=f"Metric with name .{name}. is not allowed, because Estimator already"):
        model.evaluate(input_fn)


def test_configurations(model_fn: Any, tmp_path: Any) -> None:
    with pytest.raises(ValueError, match=r"config must be an instance of `RunConfig`, but provided {}"):
        est.Estimator(model_fn, config={}, params={})
    config = est.RunConfig(model_dir=str(tmp_path / "a"))
    with pytest.raises(ValueError, match="`model_dir` are set both in constructor and `RunConfig`, but with different"):
        est.Estimator(model_fn, str(tmp_path / "b"), config, {})
    assert est.Estimator(model_fn, tmp_path / "a", config, {}).model_dir == str(tmp_path / "a")


@pytest.mark.parametrize("role", ["ps", "evaluator"])
def test_tasks_that_do_not_train(make: Any, input_fn: Any, set_tf_config: Any, role: str) -> None:
    set_tf_config({"cluster": {"chief": ["h:1"], "ps": ["h:2"]}, "task": {"type": role, "index": 0}})
    with pytest.raises(
        ValueError, match=r"Train has been called wrong configuration\. Please use tf\.estimator\.train_and"
    ):
        make().train(input_fn)


def test_receivers(graph: Any) -> None:
    x = v1.placeholder(tf.float32, [None, 2])
    receiver = est.export.ServingInputReceiver
    with pytest.raises(ValueError, match=r"features must be defined\."):
        receiver(None, x)
    with pytest.raises(ValueError, match=r"receiver_tensors must be defined\."):
        receiver(x, None)
    with pytest.raises(ValueError, match=r"feature a must be a Tensor, SparseTensor, or RaggedTensor\."):
        receiver({"a": 1}, x)
    with pytest.raises(ValueError, match=r"feature keys must be strings or ints: 1\.5\."):
        receiver({1.5: x}, x)
    with pytest.raises(ValueError, match=r"receiver_tensor keys must be strings: 1\."):
        receiver(x, {1: x})
    with pytest.raises(ValueError, match=r"receiver_tensors_alternatives must be a dict: 1\."):
        receiver(x, x, 1)
    assert receiver(x, x, {"b": x}) == ({"feature": x}, {"input": x}, {"b": {"input": x}})
    assert est.export.TensorServingInputReceiver(x, x) == (x, {"input": x}, None)
    assert est.export.SupervisedInputReceiver(x, x, x) == (x, x, {"input": x})
    with pytest.raises(
        ValueError, match=r"Features and labels must have distinct keys\. Found overlapping keys: {'a'}"
    ):
        est.experimental.build_raw_supervised_input_receiver_fn({"a": x}, {"a": x})


# Specs of another mode than that of the call, as a mode that is misspelt or written down.


@pytest.mark.parametrize("missing", ["train_op", "loss"])
def test_a_spec_of_another_mode_that_lacks_something(make: Any, input_fn: Any, missing: str) -> None:
    def model_fn(features: Any, labels: Any) -> Any:
        step = v1.assign_add(v1.train.get_global_step(), 1)
        return est.EstimatorSpec("trian", **{"loss": tf.constant(1.0), "train_op": step, missing: None})

    with pytest.raises(ValueError, match=f"^Missing {missing}. .* called with mode='train', .* of mode='trian'"):
        make(model_fn).train(input_fn, steps=1)


def test_a_spec_of_another_mode_without_predictions(make_untrained: Any, input_fn: Any) -> None:
    with pytest.raises(ValueError, match=r"^Missing predictions\. .* mode='infer', .* of mode='eval'"):
        next(make_untrained(lambda features, mode: est.EstimatorSpec("eval", loss=tf.constant(1.0))).predict(
            lambda: input_fn().map(lambda x, y: x)))  # fmt: skip


def test_a_spec_of_another_mode_that_lacks_nothing(make: Any, input_fn: Any) -> None:
    """As TensorFlow takes it."""

    def model_fn(features: Any, labels: Any) -> Any:
        return est.EstimatorSpec("eval", loss=tf.constant(1.0), train_op=v1.assign_add(v1.train.get_global_step(), 1))

    assert make(model_fn).train(input_fn, steps=1).get_variable_value("global_step") == 1


def test_predictions_without_batch_dimension(make_untrained: Any, input_fn: Any) -> None:
    for predictions, error, text in (
        (
            lambda: tf.constant(1),
            TypeError,
            r"^predictions is a single value without a batch dimension: (np.int32\()?1",
        ),
        (lambda: tf.constant("a"), TypeError, "^predictions is a single value .*: b'a'"),
        (lambda: {"p": tf.constant(1)}, IndexError, r"^predictions\['p'\] is a single value without a batch"),
        (lambda: {"p": tf.constant("a")}, IndexError, r"^predictions\['p'\] is .* pass yield_single_examples=False"),
    ):
        with pytest.raises(error, match=text):
            next(make_untrained(model_with(predictions=predictions)).predict(input_fn))
    batches = make_untrained(model_with(predictions=lambda: tf.constant(1))).predict(
        input_fn, yield_single_examples=False
    )
    assert next(batches) == 1
    batches.close()


def test_the_value_of_a_variable_that_there_is_not(make: Any, input_fn: Any) -> None:
    model = make().train(input_fn, steps=1)
    held = (
        r"The checkpoint .*model\.ckpt-1 contains: global_step \[\], lin/b \[1\], lin/b/Momentum \[1\], "
        r"lin/w \[2, 1\]"
    )
    with pytest.raises(tf.errors.NotFoundError, match=rf"^Key w not found in checkpoint: .* name='w'\. {held}"):
        model.get_variable_value("w")
    with pytest.raises(TypeError, match=rf"^name must be the name of a variable, a string; got 5\. {held}"):
        model.get_variable_value(5)


@pytest.mark.parametrize("result", [None, 3])
def test_what_a_receiver_function_returns(make: Any, input_fn: Any, tmp_path: Any, result: Any) -> None:
    model = make().train(input_fn, steps=1)
    with pytest.raises(AttributeError, match=f"has no attribute 'features': .* 'infer' .*, and returned {result}\\."):
        model.export_saved_model(str(tmp_path / "export"), lambda: result)


def test_a_receiver_function_that_is_none(make: Any, input_fn: Any, tmp_path: Any) -> None:
    model = make().train(input_fn, steps=1)
    with pytest.raises(TypeError, match=r"^'int' object is not callable: .* returns a ServingInputReceiver, got 3\."):
        model.export_saved_model(str(tmp_path / "export"), 3)
    assert not (tmp_path / "export").exists()


def test_evaluation_of_no_input(make: Any, input_fn: Any, tf_log: Any) -> None:
    model = make().train(input_fn, steps=1)
    tf_log.clear()
    model.evaluate(lambda: input_fn().take(0))
    assert "Evaluation made no steps. Perhaps input is empty or misspecified" in tf_log.text
    tf_log.clear()
    model.evaluate(input_fn, steps=1)
    assert "made no steps" not in tf_log.text


def test_names_that_are_none(make: Any, input_fn: Any) -> None:
    model = make().train(input_fn, steps=1)
    with pytest.raises(TypeError, match=r"^name must be a string or None, given: 5$"):
        model.evaluate(input_fn, steps=1, name=5)
    with pytest.raises(TypeError, match=r"^name must be a string or None, given: 5$"):
        model.eval_dir(5)
    with pytest.raises(TypeError, match=r"^predict_keys must be a list of names of predictions, given: 5$"):
        next(model.predict(input_fn, predict_keys=5))


def test_wrong_arguments_of_an_export(make: Any, input_fn: Any, tmp_path: Any) -> None:
    model = make().train(input_fn, steps=1)
    with pytest.raises(TypeError, match=r"^export_dir_base must be the path of a directory, got 5\.$"):
        model.export_saved_model(5, lambda: None)
    export = str(tmp_path / "export")
    with pytest.raises(TypeError, match=r"^input_receiver_fn_map must be a dictionary from modes .* got 5\.$"):
        model.experimental_export_all_saved_models(export, 5)
    for receivers in ({}, {"infer": None}, {"bogus": lambda: None}):
        with pytest.raises(
            ValueError, match=r"^No valid modes for exporting found\. .* receiver for one of 'train', 'eval'"
        ):
            model.experimental_export_all_saved_models(export, receivers)
    assert not (tmp_path / "export").exists()


def test_wrong_arguments_of_add_metrics(make: Any, input_fn: Any) -> None:
    model = make().train(input_fn, steps=1)
    with pytest.raises(TypeError, match=r"^`estimator` must have type `tf.estimator.Estimator`. Got: <class 'int'>"):
        est.add_metrics(5, lambda labels: {})
    with pytest.raises(TypeError, match=r"^metric_fn must be callable, given: 5$"):
        est.add_metrics(model, 5)
    with pytest.raises(TypeError, match=r"must return a dictionary of metrics, and returned None\.$"):
        est.add_metrics(model, lambda labels: None).evaluate(input_fn, steps=1)


@pytest.mark.parametrize(
    ("kind", "keyword", "near"),
    [
        (est.Estimator, "model_dirr", "model_dir"),
        (est.Predictor, "follow_sec", "follow_secs"),
        (est.TrainSpec, "max_step", "max_steps"),
        (est.EvalSpec, "throttle_sec", "throttle_secs"),
    ],
)
def test_a_misspelt_keyword(kind: Any, keyword: str, near: str) -> None:
    with pytest.raises(TypeError, match=f"got an unexpected keyword argument '{keyword}'. Did you mean '{near}'"):
        kind(print, **{keyword: 1})
