"""Predictor: the predictions of `Estimator.predict`, from a model that is built once."""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from fastsup import estimator as est
from fastsup import train

v1 = tf.compat.v1
EXAMPLES = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


class Model:
    """A model whose prediction is `x * scale`: training adds 1 to the scale. Counts how often it is built.

    Args:
      path: model directory.
      hooks: makes the prediction hooks.
      single: the prediction is an array, in place of a dictionary.
    """

    def __init__(self, path: Path, hooks: Any = lambda: (), single: bool = False) -> None:
        self.built: list[str] = []
        self._hooks, self._single = hooks, single
        self.first_scale = 0.0
        config = est.RunConfig(save_checkpoints_steps=1_000, keep_checkpoint_max=2)
        self.estimator = est.Estimator(self._model_fn, str(path), config)

    def _model_fn(self, features: Any, labels: Any, mode: Any) -> Any:
        self.built.append(mode)
        scale = v1.get_variable("scale", [], initializer=v1.constant_initializer(self.first_scale))
        step = v1.train.get_global_step()
        if mode == "train":
            op = tf.group(scale.assign_add(1.0), step.assign_add(1))
            return est.EstimatorSpec(mode, loss=tf.constant(0.0), train_op=op)
        x = features["x"] if isinstance(features, dict) else features
        y = x * scale
        steps = tf.fill([tf.shape(x)[0]], step)
        predictions = y if self._single else {"y": y, "sum": tf.reduce_sum(y, 1), "step": steps}
        return est.EstimatorSpec(mode, predictions=predictions, prediction_hooks=self._hooks())

    def train(self, steps: int) -> None:
        self.estimator.train(lambda: tf.data.Dataset.from_tensors(({"x": [[1.0, 1.0]]}, [1.0])).repeat(), steps=steps)

    def of_predict(self, **kwargs: Any) -> Any:
        """What `Estimator.predict` says of `EXAMPLES`."""

        def input_fn() -> Any:
            return tf.data.Dataset.from_tensors({"x": EXAMPLES})

        return next(self.estimator.predict(input_fn, yield_single_examples=False, **kwargs))


@pytest.fixture
def model(tmp_path: Path) -> Model:
    made = Model(tmp_path / "model")
    made.train(3)
    made.built.clear()
    return made


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return one.dtype == other.dtype and np.array_equal(one, other)


@pytest.mark.parametrize("features", [None, {"x": tf.TensorSpec([None, 2], tf.float32)}])
def test_predictions_are_those_of_predict(model: Model, features: Any) -> None:
    expected = model.of_predict()
    model.built.clear()
    with est.Predictor(model.estimator, features) as predict:
        assert same(predict({"x": EXAMPLES}), expected)
        for count in (1, 2, 3):
            found = predict({"x": EXAMPLES[:count]})
            assert same(found, {name: values[:count] for name, values in expected.items()})
        # What NumPy makes arrays of; an eager tensor; the only feature without its name.
        assert same(predict({"x": EXAMPLES.tolist()}), expected)
        assert same(predict({"x": tf.constant(EXAMPLES)}), expected)
        assert same(predict(EXAMPLES), expected)
        assert predict.checkpoint_path == model.estimator.latest_checkpoint()
        assert repr(predict.checkpoint_path) in repr(predict)
    assert model.built == ["infer"]
    assert "closed" in repr(predict)


def test_one_array_in_and_out(tmp_path: Path) -> None:
    model = Model(tmp_path, single=True)
    model.train(2)
    with est.Predictor(model.estimator) as predict:
        assert predict(EXAMPLES).tolist() == (2 * EXAMPLES).tolist()
        # As TensorFlow takes Python's numbers: float32, so the model's type stays.
        assert predict([[1.0, 2.0]]).tolist() == [[2, 4]]


def test_of_predictions_only_those_that_are_asked_for(model: Model) -> None:
    with est.Predictor(model.estimator, predict_keys=["sum"]) as predict:
        assert same(predict(EXAMPLES), {"sum": np.array([9, 21, 33], np.float32)})
    with pytest.raises(ValueError, match="Expected to run at least one output"):
        est.Predictor(model.estimator, predict_keys=["nothing"])(EXAMPLES)


def test_inputs_of_an_export(model: Model) -> None:
    spec = {"x": tf.io.FixedLenFeature([2], tf.float32)}
    parsing = est.export.build_parsing_serving_input_receiver_fn(spec)
    example = tf.train.Example()
    example.features.feature["x"].float_list.value[:] = [1, 2]
    with est.Predictor(model.estimator, parsing) as predict:
        assert predict([example.SerializeToString()])["y"].tolist() == [[3, 6]]
        assert predict({"examples": [example.SerializeToString()] * 2})["sum"].tolist() == [9, 9]

    def raw() -> Any:
        x = v1.placeholder(tf.float32, [None, 2])
        return est.export.ServingInputReceiver({"x": x + 0.0}, {"x": x})

    with est.Predictor(model.estimator, raw) as predict:
        assert predict({"x": EXAMPLES})["sum"].tolist() == [9, 21, 33]


def test_a_checkpoint_by_its_path(model: Model) -> None:
    old = model.estimator.latest_checkpoint()
    model.train(1)
    with est.Predictor(model.estimator, checkpoint_path=old) as predict:
        assert predict(EXAMPLES)["step"].tolist() == [3, 3, 3]
        model.train(1)
        assert not predict.reload()
        assert predict(EXAMPLES)["step"].tolist() == [3, 3, 3]


def test_reload_takes_the_newest_checkpoint(model: Model) -> None:
    with est.Predictor(model.estimator) as predict:
        assert not predict.reload()
        assert predict(EXAMPLES)["step"][0] == 3
        assert not predict.reload()
        model.train(2)
        assert predict(EXAMPLES)["step"][0] == 3
        model.built.clear()
        assert predict.reload()
        assert same(predict(EXAMPLES), model.of_predict())
        # The graph stays: the second one is that of Estimator.predict.
        assert model.built == ["infer"]


def test_follows_the_newest_checkpoint(model: Model) -> None:
    with est.Predictor(model.estimator, follow_secs=1e-9) as predict:
        for step in (3, 4, 5, 6, 7):
            assert predict(EXAMPLES)["step"][0] == step
            assert predict(EXAMPLES)["y"][0].tolist() == [step, 2 * step]
            model.train(1)
        assert predict(EXAMPLES)["y"][0].tolist() == [8, 16]
        # A checkpoint of the same name, of a model that is trained again, from another value.
        shutil.rmtree(model.estimator.model_dir)
        model.first_scale = 100.0
        model.train(8)
        assert predict.checkpoint_path == model.estimator.latest_checkpoint()
        assert predict(EXAMPLES)["y"][0].tolist() == [108, 216]


def test_looks_no_more_often_than_asked(model: Model) -> None:
    with est.Predictor(model.estimator, follow_secs=3_600) as predict:
        predict(EXAMPLES)
        model.train(1)
        assert predict(EXAMPLES)["step"][0] == 3


def test_an_untrained_model_and_its_first_checkpoint(tmp_path: Path, tf_log: Any) -> None:
    model = Model(tmp_path / "model")
    with est.Predictor(model.estimator, follow_secs=1e-9) as predict:
        assert predict(EXAMPLES)["y"].tolist() == np.zeros([3, 2]).tolist()
        assert predict.checkpoint_path is None
        assert "These are predictions of an untrained, newly" in tf_log.text
        model.train(2)
        assert predict(EXAMPLES)["y"].tolist() == (2 * EXAMPLES).tolist()


def test_a_damaged_checkpoint_leaves_the_one_before(model: Model, tf_log: Any) -> None:
    with est.Predictor(model.estimator, follow_secs=1e-9) as predict:
        predict(EXAMPLES)
        model.train(1)
        newest = Path(str(model.estimator.latest_checkpoint()) + ".data-00000-of-00001")
        data = newest.read_bytes()
        newest.write_bytes(b"")
        assert predict(EXAMPLES)["step"][0] == 3
        assert re.search("newest checkpoint can't be loaded; predictions continue with .*ckpt-3", tf_log.text)
        with pytest.raises(tf.errors.OpError):
            predict.reload()
        assert predict(EXAMPLES)["step"][0] == 3
        newest.write_bytes(data)
        assert predict(EXAMPLES)["step"][0] == 4


@pytest.mark.parametrize("features", [None, {"x": tf.TensorSpec([None, 2])}])
def test_a_damaged_newest_checkpoint_at_the_start(model: Model, tf_log: Any, features: Any) -> None:
    intact = str(model.estimator.latest_checkpoint())
    model.train(1)
    newest = str(model.estimator.latest_checkpoint())
    data = Path(newest + ".data-00000-of-00001")
    whole = data.read_bytes()
    data.write_bytes(b"")
    with pytest.raises(
        train.NoIntactCheckpointError, match=f"{intact} is intact: pass it as the path of the checkpoint"
    ):
        model.of_predict()
    with est.Predictor(model.estimator, features, follow_secs=1e-9) as predict:
        assert predict(EXAMPLES)["step"][0] == 3
        assert predict.checkpoint_path == intact
        assert re.search(f"{newest}: .*. Predictions use {intact}. See ", tf_log.text)
        data.write_bytes(whole)
        assert predict(EXAMPLES)["step"][0] == 4
    data.write_bytes(b"")
    with pytest.raises(train.NoIntactCheckpointError, match="can't be restored, and is left unchanged"):
        est.Predictor(model.estimator, checkpoint_path=newest)(EXAMPLES)


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_directory_instead_of_a_checkpoint(model: Model, slash: str) -> None:
    newest = model.estimator.latest_checkpoint()
    given = model.estimator.model_dir + slash
    with pytest.raises(
        ValueError, match=f"valid checkpoint: {given} is a directory. Pass .* such as {newest}"
    ) as raised:
        est.Predictor(model.estimator, checkpoint_path=given)(EXAMPLES)
    assert not isinstance(raised.value, train.NoIntactCheckpointError)


def test_an_empty_state_file(model: Model) -> None:
    Path(model.estimator.model_dir, "checkpoint").write_text("")
    assert model.of_predict()["step"][0] == 3
    with est.Predictor(model.estimator) as predict:
        assert predict(EXAMPLES)["step"][0] == 3


def test_a_newest_checkpoint_that_is_gone(model: Model, tf_log: Any) -> None:
    model.train(1)
    newest = Path(str(model.estimator.latest_checkpoint()))
    for path in newest.parent.glob(newest.name + ".*"):
        path.unlink()
    for predict in (model.of_predict, lambda: est.Predictor(model.estimator)(EXAMPLES)):
        tf_log.clear()
        assert predict()["step"][0] == 3
        assert f"names {newest}, which isn't there; {newest.with_name('model.ckpt-3')} is used. See" in tf_log.text


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("with_hooks", [False, True])
def test_threads_predict_while_checkpoints_change(tmp_path: Path, with_hooks: bool) -> None:
    entered: list[int] = []

    class InTurns(train.SessionRunHook):
        def before_run(self, run_context: Any) -> None:
            entered.append(1)
            assert len(entered) == 1

        def after_run(self, run_context: Any, run_values: Any) -> None:
            entered.pop()

    model = Model(tmp_path, hooks=lambda: [InTurns()] if with_hooks else ())
    model.train(1)
    failed: list[Any] = []
    seen: list[set[int]] = [set() for _ in range(4)]
    ended = threading.Event()
    with est.Predictor(model.estimator, follow_secs=1e-3) as predict:

        def work(number: int) -> None:
            try:
                while not ended.is_set():
                    found = predict(EXAMPLES)
                    step = int(found["step"][0])
                    seen[number].add(step)
                    if found["y"].tolist() != (step * EXAMPLES).tolist():
                        failed.append(found)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(4):
            model.train(1)
        predict.reload()
        while not all(5 in steps for steps in seen) and not failed:
            predict(EXAMPLES)
        ended.set()
        for thread in threads:
            thread.join()
    assert not failed, failed[0]


def test_prediction_hooks_are_called_around_each_prediction(tmp_path: Path) -> None:
    calls: list[str] = []

    class Hook(train.SessionRunHook):
        def begin(self) -> None:
            calls.append("begin")
            self.one = tf.constant(1)

        def after_create_session(self, session: Any, coord: Any) -> None:
            calls.append(f"created {session.run(self.one)}")

        def after_run(self, run_context: Any, run_values: Any) -> None:
            calls.append("run")

        def end(self, session: Any) -> None:
            calls.append("end")

    model = Model(tmp_path, hooks=lambda: [Hook()])
    model.train(1)
    predict = est.Predictor(model.estimator)
    predict(EXAMPLES)
    predict(EXAMPLES)
    model.train(1)
    assert predict.reload()
    assert predict(EXAMPLES)["step"][0] == 2
    predict.close()
    predict.close()
    assert calls == ["begin", "created 1", "run", "run", "begin", "created 1", "end", "run", "end"]


def test_sessions_that_are_no_longer_used_are_closed(model: Model) -> None:
    predict = est.Predictor(model.estimator)
    predict(EXAMPLES)
    loaded = [predict._loaded]
    model.train(1)
    predict.reload()
    loaded.append(predict._loaded)
    predict.close()
    for each in loaded:
        assert each is not None
        with pytest.raises(RuntimeError, match="closed Session"):
            each.run(EXAMPLES)


def test_reload_without_a_checkpoint_keeps_the_model(model: Model) -> None:
    with est.Predictor(model.estimator) as predict:
        predict(EXAMPLES)
        shutil.rmtree(model.estimator.model_dir)
        assert not predict.reload()
        assert predict(EXAMPLES)["step"][0] == 3


def test_a_hook_that_is_in_a_session_already(tmp_path: Path, tf_log: Any) -> None:
    hook = train.LoggingTensorHook(["global_step:0"], every_n_iter=1)
    model = Model(tmp_path, hooks=lambda: [hook])
    model.train(1)
    with est.Predictor(model.estimator) as predict:
        predict(EXAMPLES)
        model.train(1)
        with pytest.raises(ValueError, match="the same prediction hook as before"):
            predict.reload()
        assert predict(EXAMPLES)["step"][0] == 1


def test_an_error_of_the_end_is_logged(tmp_path: Path, tf_log: Any) -> None:
    class Hook(train.SessionRunHook):
        def end(self, session: Any) -> None:
            raise OSError("no more")

    model = Model(tmp_path, hooks=lambda: [Hook()])
    model.train(1)
    predict = est.Predictor(model.estimator)
    predict(EXAMPLES)
    model.train(1)
    assert predict.reload()
    assert "A Predictor's session ended with an error: OSError('no more')" in tf_log.text
    assert predict(EXAMPLES)["step"][0] == 2
    with pytest.raises(OSError, match="no more"):
        predict.close()


@pytest.mark.timeout(60)
def test_a_model_with_a_queue(tmp_path: Path) -> None:
    def model_fn(features: Any, mode: Any) -> Any:
        v1.get_variable("w", [])
        number = v1.train.input_producer([7.0]).dequeue()
        return est.EstimatorSpec(mode, predictions=features + number)

    with est.Predictor(est.Estimator(model_fn, str(tmp_path))) as predict:
        assert predict([1.0]).tolist() == [8]
        assert predict([2.0]).tolist() == [9]


def test_a_closed_predictor(model: Model) -> None:
    predict = est.Predictor(model.estimator)
    predict(EXAMPLES)
    predict.close()
    for use in (lambda: predict(EXAMPLES), predict.reload):
        with pytest.raises(RuntimeError, match="closed Predictor"):
            use()
    unused = est.Predictor(model.estimator)
    unused.close()
    with pytest.raises(RuntimeError, match="closed Predictor"):
        unused(EXAMPLES)


def test_a_call_that_is_under_way_ends_before_the_session_is_closed(tmp_path: Path) -> None:
    inside, goes_on = threading.Event(), threading.Event()

    def wait(x: Any) -> Any:
        inside.set()
        assert goes_on.wait(30)
        return x

    def model_fn(features: Any, mode: Any) -> Any:
        v1.get_variable("w", [])
        waited = v1.py_func(wait, [features], tf.float32)
        return est.EstimatorSpec(mode, predictions=waited)

    predict = est.Predictor(est.Estimator(model_fn, str(tmp_path)))
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(predict([1.0])))
    thread.start()
    assert inside.wait(30)
    predict.close()
    goes_on.set()
    thread.join()
    assert found[0].tolist() == [1.0]


BAD_FEATURES = {
    "missing": (dict, ValueError, r"must have the names \['x'\]; got \[\]. Missing: \['x'\]"),
    "unknown": (lambda: {"x": EXAMPLES, "z": EXAMPLES}, ValueError, r"unknown: \['z'\]"),
    "shape": (
        lambda: {"x": [[1.0, 2.0, 3.0]]},
        ValueError,
        r"x must be of the shape \(None, 2\).*got the shape \(1, 3",
    ),
    "one example": (lambda: {"x": EXAMPLES[0]}, ValueError, r"got the shape \(2,\)\. For a single example give \[val"),
    "type": (lambda: {"x": [["a", "b"]]}, TypeError, "x must be of type float32; got"),
}


@pytest.mark.parametrize("case", BAD_FEATURES)
def test_features_that_do_not_fit(model: Model, case: str) -> None:
    features, error, message = BAD_FEATURES[case]
    with est.Predictor(model.estimator, {"x": tf.TensorSpec([None, 2], tf.float32)}) as predict:
        with pytest.raises(error, match=message):
            predict(features())
        assert predict(EXAMPLES)["sum"].tolist() == [9, 21, 33]


def test_features_that_no_model_can_have(model: Model) -> None:
    with est.Predictor(model.estimator) as predict:
        with pytest.raises(ValueError, match=r"without a batch dimension: 1\.0\. Give it"):
            predict({"x": 1.0})
        with pytest.raises(TypeError, match="x: A feature must be an array of numbers, strings or booleans"):
            predict({"x": np.array([1], "datetime64[s]")})
        with pytest.raises(TypeError, match=r"x: A feature must be an array .*; got None"):
            predict({"x": None})
        with pytest.raises(ValueError, match="x: setting an array element with a sequence"):
            predict({"x": [[1.0], [1.0, 2.0]]})
        # Of the first call that has features a model is built for.
        assert predict({"x": EXAMPLES})["sum"].tolist() == [9, 21, 33]
        with pytest.raises(ValueError, match="For a single example"):
            predict({"x": EXAMPLES[0]})


def weigh(features: Any, mode: Any) -> Any:
    """A model_fn that takes floats, in pairs, and fails with more than three of them."""
    w = v1.get_variable("w", [2, 1], initializer=v1.ones_initializer())
    x = features["x"]
    with tf.control_dependencies([v1.assert_less(tf.shape(x)[0], 4)]):
        return est.EstimatorSpec(mode, predictions={"y": tf.linalg.matmul(x, w)[:, 0] + features.get("bias", 0.0)})


BAD_FIRST_CALLS = {
    "missing": ({"z": [[1.0, 2.0]]}, ValueError, r"The model reads the feature 'x'; got \['z'\]"),
    "shape": (
        {"x": [[1.0]]},
        ValueError,
        r"for these features: x: float32 of shape \(None, 1\)\. Pass them with the names",
    ),
    "type": ({"x": [[1, 2]]}, TypeError, r"for these features: x: int32 of shape \(None, 2\).* model_fn: Input 'b'"),
    "in the run": ({"x": [[1.0, 2.0]] * 4, "bias": [0.0] * 4}, tf.errors.InvalidArgumentError, "assertion failed"),
    "lengths": ({"x": [[1.0, 2.0]] * 3, "bias": [1.0, 2.0]}, ValueError, "numbers of examples: {'x': 3, 'bias': 2}"),
}


@pytest.mark.parametrize("case", BAD_FIRST_CALLS)
def test_a_failed_first_call_decides_nothing(tmp_path: Path, case: str) -> None:
    features, error, message = BAD_FIRST_CALLS[case]
    with est.Predictor(est.Estimator(weigh, str(tmp_path))) as predict:
        for _ in range(2):
            with pytest.raises(error, match=message):
                predict(features)
            assert predict.checkpoint_path is None
        assert predict({"x": [[1.0, 2.0]]})["y"].tolist() == [3.0]
        # Now it is decided: a call that fails leaves the model as it is.
        with pytest.raises(tf.errors.InvalidArgumentError, match="assertion failed"):
            predict({"x": [[1.0, 2.0]] * 4})
        with pytest.raises(ValueError, match=r"unknown: \['bias'\]"):
            predict({"x": [[1.0, 2.0]], "bias": [1.0]})
        assert predict([[1.0, 2.0]])["y"].tolist() == [3.0]


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [
        ({"z": tf.TensorSpec([None, 2])}, ValueError, r"The model reads the feature 'x'; got \['z'\]"),
        ({"x": tf.TensorSpec([None, 3])}, ValueError, r"for these features: x: float32 of shape \(None, 3\)"),
        (tf.TensorSpec([None, 3]), TypeError, r"for these features: features: float32 of shape \(None, 3\)"),
    ],
)
def test_features_that_do_not_fit_when_it_is_made(tmp_path: Path, features: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        est.Predictor(est.Estimator(weigh, str(tmp_path)), features)


def test_a_feature_that_the_model_does_not_read_may_be_left_out(tmp_path: Path) -> None:
    with est.Predictor(est.Estimator(weigh, str(tmp_path))) as predict:
        for features in ({"x": [[1.0, 2.0]], "z": ["a"]}, {"x": [[1.0, 2.0]]}, [[1.0, 2.0]]):
            assert predict(features)["y"].tolist() == [3.0]
        with pytest.raises(ValueError, match=r"names \['x'\]; got \['z'\]. Missing: \['x'\]; unknown: \[\]"):
            predict({"z": ["a"]})


def echo(features: Any, mode: Any) -> Any:
    """A model_fn that predicts its features."""
    v1.get_variable("w", [])
    return est.EstimatorSpec(
        mode, predictions={str(n): tf.identity(x) for n, x in enumerate(tf.nest.flatten(features))}
    )


def test_numbers_keep_their_values(tmp_path: Path) -> None:
    with est.Predictor(est.Estimator(echo, str(tmp_path))) as predict:
        assert predict({"x": [2**40]})["0"].tolist() == [2**40]
    with est.Predictor(est.Estimator(echo, str(tmp_path))) as predict:
        assert predict({"x": [[1, 2]]})["0"].tolist() == [[1, 2]]
        for lossy in ([[1.5, 2.5]], np.array([[2**40, 1]])):
            with pytest.raises(TypeError, match="x must be of type int32; got"):
                predict({"x": lossy})


def test_features_of_any_structure_and_name(tmp_path: Path) -> None:
    class Pair(NamedTuple):
        first: Any
        second: Any

    one, two = [1.0, 2.0], [3.0, 4.0]
    for features in ({"a": {"b": one, "c": two}}, Pair(one, two), {"_x": one, "sepal length (cm)": two}):
        with est.Predictor(est.Estimator(echo, str(tmp_path))) as predict:
            for _ in range(2):
                assert {number: value.tolist() for number, value in predict(features).items()} == {"0": one, "1": two}


def test_a_sparse_feature(tmp_path: Path) -> None:
    def model_fn(features: Any, mode: Any) -> Any:
        v1.get_variable("w", [])
        return est.EstimatorSpec(mode, predictions=tf.sparse.to_dense(features["x"]))

    def receiver() -> Any:
        x = v1.sparse_placeholder(tf.float32, [None, 2])
        return est.export.ServingInputReceiver({"x": x}, {"x": x})

    value = tf.sparse.from_dense([[0.0, 5.0]])
    with est.Predictor(est.Estimator(model_fn, str(tmp_path)), receiver) as predict:
        assert predict({"x": value}).tolist() == [[0, 5]]
    with pytest.raises(TypeError, match="A sparse feature needs a function"):
        est.Predictor(est.Estimator(model_fn, str(tmp_path)))({"x": value})


def test_two_features_have_names(tmp_path: Path) -> None:
    def model_fn(features: Any, mode: Any) -> Any:
        v1.get_variable("w", [])
        joined = tf.strings.join([features["a"], tf.as_string(features["b"])])
        return est.EstimatorSpec(mode, predictions={"joined": joined})

    with est.Predictor(est.Estimator(model_fn, str(tmp_path))) as predict:
        assert predict({"a": ["x", "y"], "b": [1, 2]})["joined"].tolist() == [b"x1", b"y2"]
        with pytest.raises(TypeError, match=r"must be a dictionary with the values of \['a', 'b'\]"):
            predict(["x"])


def test_features_in_a_tuple(tmp_path: Path) -> None:
    def model_fn(features: Any, mode: Any) -> Any:
        v1.get_variable("w", [])
        return est.EstimatorSpec(mode, predictions=features[0] + features[1]["b"])

    with est.Predictor(est.Estimator(model_fn, str(tmp_path))) as predict:
        assert predict((EXAMPLES, {"b": EXAMPLES})).tolist() == (2 * EXAMPLES).tolist()
        with pytest.raises((TypeError, ValueError), match="structure"):
            predict((EXAMPLES,))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"features": {"x": [None, 2]}}, TypeError, "must have a tf.TensorSpec for each feature"),
        ({"features": {"x": tf.SparseTensorSpec([None, 2])}}, TypeError, "x is SparseTensorSpec"),
        ({"features": lambda: None}, TypeError, "must return a ServingInputReceiver; it returned None"),
        ({"follow_secs": 0}, ValueError, "follow_secs must be positive, got 0"),
        ({"follow_secs": "1"}, TypeError, "follow_secs"),
        ({"follow_secs": 1, "checkpoint_path": "x"}, ValueError, "pass only one of the two"),
        ({"checkpoint_path": 3}, TypeError, "checkpoint_path must be the path of a checkpoint"),
    ],
)
def test_arguments_that_are_wrong(model: Model, arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        est.Predictor(model.estimator, **arguments)


def test_what_is_no_estimator() -> None:
    with pytest.raises(TypeError, match="estimator"):
        est.Predictor(None)


def test_a_checkpoint_that_does_not_fit(model: Model, tmp_path: Path) -> None:
    def model_fn(features: Any, mode: Any) -> Any:
        v1.get_variable("another", [])
        return est.EstimatorSpec(mode, predictions=features)

    other = est.Estimator(model_fn, model.estimator.model_dir)
    with pytest.raises(tf.errors.NotFoundError, match=r"another.*(?s:.*)contains: global_step \[\], scale \[\]"):
        est.Predictor(other)(EXAMPLES)
